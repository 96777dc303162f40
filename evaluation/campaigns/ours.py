"""The campaign's own loop on recorded landscapes, whole and with parts taken away."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from campaigns.engine.candidates import TrialCandidates
from campaigns.engine.loop import LEAST_GAIN, PATIENCE, iterate, since
from campaigns.engine.pool import Pool
from campaigns.engine.posteriors import VarianceComponents, shipped
from evaluation.campaigns.baselines import BUDGET
from evaluation.campaigns.fit import fold_of, without_folds
from evaluation.campaigns.recorded import Recorded
from perfmodel.legality import MemoryPosterior
from perfmodel.roofline import mfu


@dataclass(frozen=True)
class Run:
    """tried: candidates in order, until one is the fastest of all or the budget is spent.  converged: trials after
    which the campaign would have stopped by itself, None where it would not have."""

    tried: tuple[int, ...]
    converged: int | None


def division_for(landscape: Recorded) -> VarianceComponents:
    """Fitted without the landscape's fold; OptiCo's, the runs on CPUs and the compiled programs are in none."""
    apart = landscape.elsewhere or landscape.source == "optico"
    return shipped() if apart else without_folds()[fold_of(landscape)]


def run(
    landscape: Recorded,
    start: int,
    *,
    forgets: bool = False,
    candidates: TrialCandidates | None = None,
    budget: int = BUDGET,
) -> Run:
    """forgets: whether only the last trial is known.  candidates: as the campaign sees them, the landscape's own by
    default."""
    c = candidates or landscape.seen_from(start)
    division = division_for(landscape)
    pool = Pool((landscape.outcome(start),))
    tried: list[int] = []
    converged = None
    while len(tried) < budget:
        seen = Pool(pool.trials[-1:]) if forgets else pool
        found = iterate(c, seen, division=division, least_gain=0.0)
        if not found.choices:
            break
        choice = found.choices[0]
        best = pool.fastest(c.tokens)
        settled = best is not None and since(pool, best) >= PATIENCE
        if converged is None and settled and choice.gain is not None and choice.gain < LEAST_GAIN:
            converged = len(tried)
        tried.append(choice.candidate)
        pool = pool.with_(landscape.outcome(choice.candidate))
        if landscape.regret[choice.candidate] == 0.0 and converged is not None:
            break
    return Run(tuple(tried), converged)


def without_model(c: TrialCandidates) -> TrialCandidates:
    """Candidates of whose times and memory nothing is known but the ideal compute time, the same for all."""
    count = len(c)
    nothing = np.zeros(count)
    ideal_s = np.array([mfu(config, 1.0, config.training.precision) for config in c.configs])
    roomy = replace(
        c.used, params=np.exp(-2.0) * c.used.capacity, optimizer=nothing, gradients=nothing, activations=nothing,
        held=nothing,
    )  # fmt: skip
    return replace(
        c,
        time_s=ideal_s / 0.4,
        stalled_s=ideal_s / 0.4,
        stall_chance=np.zeros(count),
        sigma=np.full(count, UNKNOWN_SPREAD),
        shares=np.zeros_like(c.shares),
        used=roomy,
        known=MemoryPosterior(),
    )


#: Spread of log time among layouts of a workload, where nothing tells them apart.
UNKNOWN_SPREAD = 0.7
