"""One iteration of a campaign: bottleneck analysis of the pool, strategy generation, and whether to go on.

Validation is running the trial, which is the backend's; failure analysis is reading its log (`proposals.failures`).
Both end in the pool, from which the next iteration starts (OptiCo, seed 003, algorithm 1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from campaigns.engine.analysis import Analysis, analyse, fastest
from campaigns.engine.belief import Belief, believe
from campaigns.engine.candidates import Candidates
from campaigns.engine.pool import Pool, Trial
from campaigns.engine.residuals import Division, shipped
from campaigns.engine.strategy import Abilities, allowed, expected
from campaigns.engine.wording import reason
from experiments.sentences import Sentence, Value, say
from perfmodel.step_time import Z80

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

#: A campaign has converged where no candidate is expected to improve on the best by so much, and so many trials
#: in a row have not.
LEAST_GAIN, PATIENCE = 0.005, 3


#: How often what is believed is worked out anew while many trials are chosen at once.
REFRESHED = 8


@dataclass(frozen=True)
class Choice:
    """A candidate to try next.

    step_time_s: predicted, of 80 % of the cases between low_s and high_s.  gain: expected improvement on the best so
    far as a share of its time, None for the first trial; faster, runs: probabilities.
    """

    candidate: int
    step_time_s: float
    low_s: float
    high_s: float
    gain: float | None
    faster: float | None
    runs: float
    why: Sentence


@dataclass(frozen=True)
class Iteration:
    """What an iteration came to.  choices: empty where the campaign ends, and `ended` says why."""

    analysis: Analysis
    held_back: Mapping[str, int]
    choices: tuple[Choice, ...]
    ended: Sentence | None = None


def iterate(
    c: Candidates,
    pool: Pool,
    count: int = 1,
    *,
    division: Division | None = None,
    abilities: Abilities = Abilities(),  # noqa: B008
    least_gain: float = LEAST_GAIN,
) -> Iteration:
    """Up to `count` trials that are worth running at the same time, beside those that still run."""
    model = division or shipped()
    choices: list[Choice] = []
    first: tuple[Analysis, Mapping[str, int]] | None = None
    ended: Sentence | None = None
    while len(choices) < count:
        seen = pool if abilities.pool else Pool(pool.trials[-1:])
        rules = allowed(c, seen, abilities)
        belief = believe(c, seen, model, learning=abilities.learning, analyse_failures=abilities.failures)
        best = fastest(c, seen)
        worth = np.where(rules.rows, _worth(c, belief, best), 0.0)
        if first is None:
            first = analyse(c, seen, worth), rules.held_back
        ended = _ended(seen, bool(rules.rows.any()), best, float(worth.max()), least_gain)
        if ended is not None:
            break
        chosen = _most(worth, belief, rules.rows, min(max(1, count // REFRESHED), count - len(choices)))
        choices.extend(_choice(c, belief, best, row, float(worth[row])) for row in chosen)
        pool = pool.with_(*(Trial(row, "running") for row in chosen))
    analysis, held_back = first or (analyse(c, pool, np.zeros(len(c))), {})
    return Iteration(analysis, held_back, tuple(choices), None if choices else ended)


def _worth(c: Candidates, belief: Belief, best: Trial | None) -> Floats:
    """Expected improvement in log time; before anything ran, how fast it is likely to be, the chance to run counted."""
    if best is not None and best.step_time_s is not None:
        return expected(belief, float(np.log(best.step_time_s / c.tokens[best.candidate])))
    likely = belief.mean + belief.stall * belief.stall_log
    return np.asarray(belief.runs * (likely.max() - likely + 1.0))


def _most(worth: Floats, belief: Belief, rows: Bools, count: int) -> list[int]:
    """The `count` candidates of the largest worth among `rows`; where that is the same, the fastest first."""
    left = np.flatnonzero(rows)
    order = np.lexsort((belief.mean[left], -worth[left]))[:count]
    return [int(row) for row in left[order]]


def _ended(pool: Pool, any_left: bool, best: Trial | None, most: float, least_gain: float) -> Sentence | None:
    if not any_left:
        return Sentence("Every legal candidate has been tried or is known to fail.")
    if best is None or most >= least_gain or since(pool, best) < PATIENCE:
        return None
    text = (
        "Converged: {} trials in a row were no faster, and no candidate left is expected to improve on the best by {} "
        "or more; the largest expected improvement is {}."
    )
    return say(
        text,
        Value("trials since the best", float(since(pool, best)), "count", "computed"),
        Value("least gain", least_gain, "share", "sourced"),
        Value("largest expected improvement", 1.0 - float(np.exp(-most)), "share", "predicted"),
    )


def since(pool: Pool, best: Trial) -> int:
    """Trials begun after the best one, whether they have ended or not."""
    return len(pool) - 1 - next(place for place, trial in enumerate(pool.trials) if trial is best)


def _choice(c: Candidates, belief: Belief, best: Trial | None, row: int, worth: float) -> Choice:
    mean, sd = float(belief.mean[row]), float(belief.sd[row])
    stall, more = float(belief.stall[row]), float(belief.stall_log[row])
    tokens = float(c.tokens[row])
    middle = mean + (more if stall > 0.5 else 0.0)
    faster = gain = None
    if best is not None and best.step_time_s is not None:
        to_beat = float(np.log(best.step_time_s / c.tokens[best.candidate]))
        faster = (1.0 - stall) * ndtr((to_beat - mean) / sd) + stall * ndtr((to_beat - mean - more) / sd)
        gain = 1.0 - float(np.exp(-worth))
    choice = Choice(
        candidate=row,
        step_time_s=float(np.exp(middle) * tokens),
        low_s=float(np.exp(middle - Z80 * sd) * tokens),
        high_s=float(np.exp(middle + Z80 * sd) * tokens),
        gain=gain,
        faster=None if faster is None else float(faster),
        runs=float(belief.runs[row]),
        why=Sentence(""),
    )
    return replace(choice, why=reason(c, belief, best, choice))
