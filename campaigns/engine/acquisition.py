"""What one look at the pool says of every candidate: what the rules allow, what is believed, what it is worth, and why
the next one was chosen.

`look` is where to start.  The next trial is the one whose expected improvement over the best so far is the largest, the
chance that it does not run counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from campaigns.engine.candidates import PARTS, TrialCandidates
from campaigns.engine.pool import MOST_ATTEMPTS, Pool, Trial
from campaigns.engine.posteriors import CandidatePosterior, VarianceComponents, posterior_of, shipped
from campaigns.engine.space import LEAST_FIT, parameters_of
from experiments.sentences import Sentence, Value, join, say
from formatting import probability
from perfmodel import legality
from perfmodel.arrays import special
from perfmodel.config import ExperimentConfig
from perfmodel.step_time import Z80
from proposals.facts import setting
from proposals.failures.forbidden import Forbidden

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Allowed:
    """Hold which candidates the rules let be tried, and how many each rule held back.

    tried: those that are trials already; forbidden: those that a failure forbids.
    """

    rows: Bools
    held_back: dict[str, int]
    tried: Bools
    forbidden: Bools


def allowed(c: TrialCandidates, pool: Pool) -> Allowed:
    """No duplicate, no combination known to fail, legality."""
    tried = np.zeros(len(c), dtype=bool)
    forbidden = np.zeros(len(c), dtype=bool)
    attempts: Counter[int] = Counter()
    for trial in pool.trials:
        attempts[trial.candidate] += trial.runs
    for trial in pool.trials:
        again = trial.state == "failed" and trial.failure is not None and trial.failure.verdict == "retry"
        if not again or attempts[trial.candidate] >= MOST_ATTEMPTS:
            tried[trial.candidate] = True
        if trial.failure is not None and trial.failure.forbidden is not None:
            forbidden |= covered(c, trial.candidate, trial.failure.forbidden)
    held = {
        "illegal": int((~c.legal).sum()),
        "tried": int((tried & c.legal).sum()),
        "known to fail": int((forbidden & ~tried & c.legal).sum()),
    }
    return Allowed(c.legal & ~tried & ~forbidden, held, tried, forbidden)


def covered(c: TrialCandidates, candidate: int, forbidden: Forbidden) -> Bools:
    """The candidates that a failure forbids; of memory those that would be fuller.

    What is as full has not failed yet: many settings leave the demand as it is where another part of the step sets it.
    """
    if forbidden.rule == "memory":
        fuller = np.asarray(c.fill > c.fill[candidate])
        fuller[candidate] = True
        return fuller
    if forbidden.rule == "configuration":
        only = np.zeros(len(c), dtype=bool)
        only[candidate] = True
        return only
    key = (forbidden.rule, forbidden.role, forbidden.dimension, candidate)
    if key not in c.known_covered:
        c.known_covered[key] = np.array([forbidden.covers(config) for config in c.configs])
    return c.known_covered[key]


def improvement(best: float, mean: Floats, sd: Floats) -> Floats:
    """Expected fall of log time below the best, of a Gaussian."""
    z = (best - mean) / sd
    density = np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi)
    return np.asarray(sd * (z * special("ndtr", z) + density))


def expected(belief: CandidatePosterior, best: float) -> Floats:
    """Expected improvement of every candidate, in log time per token."""
    smooth = improvement(best, belief.mean, belief.sd)
    stalled = improvement(best, belief.mean + belief.stall_log, belief.sd)
    return np.asarray(belief.runs * ((1.0 - belief.stall) * smooth + belief.stall * stalled))


#: Changes that a sentence names; of more it says how many.
NAMED = 4
#: From which chance not to run a sentence mentions it.
WORTH_SAYING = 0.1
#: Share of the step from which a part is worth naming.
LEAST_SAVED = 0.005
_PARTS = {
    "compute": "matmuls", "hbm": "exposed HBM traffic", "tensor": "communication inside a layer",
    "weights": "gradients and weights in communication", "pipeline": "the pipeline", "overhead": "overhead",
}  # fmt: skip


def reason(
    c: TrialCandidates, belief: CandidatePosterior, best: Trial | None, choice: ScoredCandidate, largest: bool = True
) -> Sentence:
    """Return what it changes of the best so far, what that is expected to bring, and where from.

    largest: whether no other candidate promises more.
    """
    row = choice.candidate
    predicted = Value("predicted step time", choice.step_time_s, "s", "predicted")
    if best is None or choice.gain is None:
        which = "the fastest by the performance model" if largest else "predicted"
        spoken = [say(f"Nothing has run yet: {which}, {{}} per step.", predicted)]
    else:
        changed = join(", ", list(_named(changes(c.configs[best.candidate], c.configs[row]))))
        spoken = [
            say(
                "{}: {} per step predicted against {} of the best so far, faster with a probability of {}; expected "
                f"improvement {{}}{', the largest of all candidates' if largest else ''}.",
                changed,
                predicted,
                Value("best so far", best.step_time_s, "s", best.origin),
                Value("probability of being faster", choice.faster, "probability", "predicted"),
                Value("expected improvement", choice.gain, "share", "predicted"),
            )
        ]
        if (moved := _moved(c, best.candidate, row)) is not None:
            spoken.append(moved)
    if choice.runs < 1.0 - WORTH_SAYING:
        cause = "runs out of memory" if belief.fits[row] < 1.0 - WORTH_SAYING else "fails as its neighbours did"
        spoken.append(
            say(
                "It {} with a probability of {}.",
                cause,
                Value("failure", 1.0 - choice.runs, "probability", "predicted"),
            )
        )
    learnt = float(np.exp(belief.mean[row] - c.log_s[row]) - 1.0)
    if abs(learnt) >= 0.02:
        word = "slower" if learnt > 0 else "faster"
        text = "Similar trials were {} {} than the performance model predicts, which is taken into account."
        spoken.append(say(text, Value("learnt correction", abs(learnt), "share", "computed"), word))
    return join(" ", spoken)


def _moved(c: TrialCandidates, before: int, after: int) -> Sentence | None:
    """The part of the step that the change saves most of."""
    saved = c.shares[before] * c.time_s[before] - c.shares[after] * c.time_s[after]
    most = int(np.argmax(saved))
    if saved[most] < LEAST_SAVED * c.time_s[after]:
        return None
    text = "Most of it comes from {}, {} less per step."
    return say(text, _PARTS[PARTS[most]], Value(_PARTS[PARTS[most]], float(saved[most]), "s", "predicted"))


def changes(before: ExperimentConfig, after: ExperimentConfig) -> dict[str, tuple[Any, Any]]:
    """Return what differs between two trials: parameter, then its value in each; an axis that is absent has size 1."""
    one, other = parameters_of(before), parameters_of(after)
    roles = {axis for axis, _ in (*before.mesh.ici, *after.mesh.ici)}
    changed = {}
    for name in dict.fromkeys((*one, *other)):
        nothing = 1 if name in roles or name.startswith("dcn.") else None
        old, new = one.get(name, nothing), other.get(name, nothing)
        if old != new:
            changed[name] = (old, new)
    return changed


def _named(changed: dict[str, tuple[Any, Any]]) -> Iterator[str]:
    items = list(changed.items())
    for name, (old, new) in items[:NAMED]:
        if name == "xla_flags":
            yield f"{len(new) - len(old):+d} XLA flags"
        else:
            yield f"{setting(name)} {old} → {new}"
    if len(items) > NAMED:
        yield f"{len(items) - NAMED} more"
    if not items:
        yield "The same configuration again"


@dataclass(frozen=True)
class ScoredCandidate:
    """A candidate to try next.

    step_time_s: predicted, of 80 % of the cases between low_s and high_s.  gain: expected improvement on the best so
    far as a share of its time, None for the first trial; faster, runs: probabilities.  requested: somebody asked for
    it.
    """

    candidate: int
    step_time_s: float
    low_s: float
    high_s: float
    gain: float | None
    faster: float | None
    runs: float
    why: Sentence
    requested: bool = False


@dataclass(frozen=True)
class Acquisition:
    """Candidates and pool, and what follows from them.

    best: the fastest trial so far.  worth: expected improvement of each candidate in log time, 0 where a rule keeps it
    from being tried; before anything ran, how fast it is likely to be.
    """

    candidates: TrialCandidates
    pool: Pool
    rules: Allowed
    belief: CandidatePosterior
    best: Trial | None
    worth: Floats

    def first(self, count: int) -> list[int]:
        """The `count` candidates of the largest worth; where that is the same, the fastest first."""
        left = np.flatnonzero(self.rules.rows)
        order = np.lexsort((self.belief.mean[left], -self.worth[left]))[:count]
        return [int(row) for row in left[order]]

    def refused(self, row: int) -> str:
        """Why a candidate that somebody asks for is not tried, in a sentence; empty where it may be."""
        c, rules = self.candidates, self.rules
        if not c.legal[row]:
            broken = legality.check(c.configs[row])
            return broken[0].message if broken else "It breaks a legality rule."
        if rules.tried[row]:
            return "It is a trial of this campaign already."
        if rules.forbidden[row]:
            return "It is known to fail: a failed trial rules it out."
        fits = float(self.belief.fits[row])
        if fits < LEAST_FIT:
            return f"It runs out of memory with a probability of {probability(1.0 - fits)}."
        return ""

    def choice(self, row: int, requested: bool = False) -> ScoredCandidate:
        """The candidate as a trial, with what is predicted of it."""
        c, belief, best = self.candidates, self.belief, self.best
        mean, sd = float(belief.mean[row]), float(belief.sd[row])
        stall, more = float(belief.stall[row]), float(belief.stall_log[row])
        tokens = float(c.tokens[row])
        middle = mean + (more if stall > 0.5 else 0.0)
        faster = gain = None
        if best is not None and best.step_time_s is not None:
            to_beat = float(np.log(best.step_time_s / c.tokens[best.candidate]))
            smooth, stalled = (special("ndtr", (to_beat - each) / sd) for each in (mean, mean + more))
            faster = float((1.0 - stall) * smooth + stall * stalled)
            gain = 1.0 - float(np.exp(-float(self.worth[row])))
        choice = ScoredCandidate(
            candidate=row,
            step_time_s=float(np.exp(middle) * tokens),
            low_s=float(np.exp(middle - Z80 * sd) * tokens),
            high_s=float(np.exp(middle + Z80 * sd) * tokens),
            gain=gain,
            faster=faster,
            runs=float(belief.runs[row]),
            why=Sentence(""),
            requested=requested,
        )
        largest = not requested or bool(self.worth[row] >= self.worth.max())
        return replace(choice, why=reason(c, belief, best, choice, largest))


def look(c: TrialCandidates, pool: Pool, *, division: VarianceComponents | None = None) -> Acquisition:
    """What the pool makes of every candidate now."""
    rules = allowed(c, pool)
    belief = posterior_of(c, pool, division or shipped())
    best = pool.fastest(c.tokens)
    return Acquisition(c, pool, rules, belief, best, np.where(rules.rows, _worth(c, belief, best), 0.0))


def _worth(c: TrialCandidates, belief: CandidatePosterior, best: Trial | None) -> Floats:
    """Expected improvement in log time; before anything ran, how fast it is likely to be, the chance to run counted."""
    if best is not None and best.step_time_s is not None:
        return expected(belief, float(np.log(best.step_time_s / c.tokens[best.candidate])))
    likely = belief.mean + belief.stall * belief.stall_log
    return np.asarray(belief.runs * (likely.max() - likely + 1.0))
