"""Strategy generation: which candidate is tried next, under the rules, and why.

The next trial is the one whose expected improvement over the best so far is the largest, the chance that it does not
run counted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from campaigns.engine.candidates import Candidates
from campaigns.engine.pool import MOST_ATTEMPTS, Pool
from campaigns.engine.posteriors import CandidatePosterior
from perfmodel.arrays import normal_cdf
from proposals.failures.forbidden import Forbidden

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Abilities:
    """What a campaign may use; all of it but in ablations.

    pool: trials before the last one.  learning: what measured trials say of the model's error.  failures: what a
    failure says of other candidates.
    """

    pool: bool = True
    learning: bool = True
    failures: bool = True


@dataclass(frozen=True)
class Allowed:
    """Which candidates the rules let be tried, and how many each rule held back.

    tried: those that are trials already; forbidden: those that a failure forbids.
    """

    rows: Bools
    held_back: dict[str, int]
    tried: Bools
    forbidden: Bools


def allowed(c: Candidates, pool: Pool, abilities: Abilities = Abilities()) -> Allowed:
    """No duplicate, no combination known to fail, legality."""
    tried = np.zeros(len(c), dtype=bool)
    forbidden = np.zeros(len(c), dtype=bool)
    for trial in pool.trials:
        again = trial.state == "failed" and trial.failure is not None and trial.failure.verdict == "retry"
        if not again or pool.attempts(trial.candidate) >= MOST_ATTEMPTS:
            tried[trial.candidate] = True
        if abilities.failures and trial.failure is not None and trial.failure.forbidden is not None:
            forbidden |= covered(c, trial.candidate, trial.failure.forbidden)
    held = {
        "illegal": int((~c.legal).sum()),
        "tried": int((tried & c.legal).sum()),
        "known to fail": int((forbidden & ~tried & c.legal).sum()),
    }
    return Allowed(c.legal & ~tried & ~forbidden, held, tried, forbidden)


def covered(c: Candidates, candidate: int, forbidden: Forbidden) -> Bools:
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
    return np.asarray(sd * (z * normal_cdf(z) + density))


def expected(belief: CandidatePosterior, best: float) -> Floats:
    """Expected improvement of every candidate, in log time per token."""
    smooth = improvement(best, belief.mean, belief.sd)
    stalled = improvement(best, belief.mean + belief.stall_log, belief.sd)
    return np.asarray(belief.runs * ((1.0 - belief.stall) * smooth + belief.stall * stalled))
