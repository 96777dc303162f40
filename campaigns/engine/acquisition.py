"""What one look at the pool says of every candidate: what the rules allow, what is believed, what it is worth."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from campaigns.engine.analysis import fastest
from campaigns.engine.candidates import Candidates
from campaigns.engine.pool import Pool, Trial
from campaigns.engine.posteriors import CandidatePosterior, posterior_of
from campaigns.engine.residuals import VarianceComponents, shipped
from campaigns.engine.space import LEAST_FIT
from campaigns.engine.strategy import Abilities, Allowed, allowed, expected
from campaigns.engine.wording import reason
from experiments.sentences import Sentence
from formatting import probability
from perfmodel import legality
from perfmodel.arrays import normal_cdf
from perfmodel.step_time import Z80

Floats = npt.NDArray[np.float64]


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

    candidates: Candidates
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
            faster = float(
                (1.0 - stall) * normal_cdf((to_beat - mean) / sd) + stall * normal_cdf((to_beat - mean - more) / sd)
            )
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


def look(
    c: Candidates,
    pool: Pool,
    *,
    division: VarianceComponents | None = None,
    abilities: Abilities = Abilities(),  # noqa: B008
) -> Acquisition:
    """What the pool makes of every candidate now."""
    rules = allowed(c, pool, abilities)
    belief = posterior_of(
        c, pool, division or shipped(), learning=abilities.learning, analyse_failures=abilities.failures
    )
    best = fastest(c, pool)
    return Acquisition(c, pool, rules, belief, best, np.where(rules.rows, _worth(c, belief, best), 0.0))


def _worth(c: Candidates, belief: CandidatePosterior, best: Trial | None) -> Floats:
    """Expected improvement in log time; before anything ran, how fast it is likely to be, the chance to run counted."""
    if best is not None and best.step_time_s is not None:
        return expected(belief, float(np.log(best.step_time_s / c.tokens[best.candidate])))
    likely = belief.mean + belief.stall * belief.stall_log
    return np.asarray(belief.runs * (likely.max() - likely + 1.0))
