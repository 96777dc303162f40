"""Search: all candidates of a space priced as arrays, the legal ones ranked.  Cost is linear in their number."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from perfmodel import legality, memory
from perfmodel.config import ConfigError, ExperimentConfig, Mesh
from perfmodel.efficiency import Efficiencies, EfficiencyTable, load_efficiencies
from perfmodel.from_baseline import Baseline, baseline_of
from perfmodel.space import SearchBounds, Space, build_space, space_workload
from perfmodel.step_time import Prediction, check_products, combine, missing_facts, predict
from perfmodel.terms import step_terms
from perfmodel.topology import Floats
from perfmodel.workload import Workload

#: Candidates priced at a time: their arrays stay in the processor's cache.
BLOCK = 32_768
#: Rejected candidates listed by name; all are counted.
LISTED_REJECTIONS = 200


#: Seconds per step and memory per chip of the candidates of a workload.
Price = Callable[[Workload], tuple[Floats, memory.MemoryUse]]


@dataclass(frozen=True)
class Candidate:
    """A legal configuration with its prediction, and what that was calibrated from, None where it was not."""

    config: ExperimentConfig
    prediction: Prediction
    calibrated_from: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        training = self.config.training
        return {
            "mesh": self.config.mesh.to_json(),
            "training": {
                "global_batch": training.global_batch,
                "remat": training.remat,
                "weight_sharding": training.weight_sharding,
            },
            **self.prediction.to_json(),
            **({"calibrated_from": dict(self.calibrated_from)} if self.calibrated_from is not None else {}),
        }


@dataclass(frozen=True)
class Rejection:
    """A candidate that broke a rule: the first one in the order of `legality.RULES`."""

    mesh: Mesh
    rule: str

    def to_json(self) -> dict[str, Any]:
        return {"mesh": self.mesh.to_json(), "rule": self.rule}


@dataclass(frozen=True)
class SearchResult:
    """candidates: fastest per token first.  rejected: the first few; rejected_by_rule counts all of them.

    baseline: the measured run that prices were calibrated from, None where the configuration has none.
    """

    candidates: tuple[Candidate, ...]
    rejected: tuple[Rejection, ...]
    considered: int
    rejected_by_rule: Mapping[str, int]
    baseline: Baseline | None = None

    def to_json(self) -> dict[str, Any]:
        """The contract's object of `asap search`."""
        return {
            **({"calibrated_from": self.baseline.facts} if self.baseline is not None else {}),
            "candidates": [candidate.to_json() for candidate in self.candidates],
            "rejected": [rejection.to_json() for rejection in self.rejected],
            "considered": self.considered,
            "rejected_by_rule": dict(self.rejected_by_rule),
        }


@dataclass(frozen=True)
class PricedSpace:
    """Arrays of the space's shape: estimate in seconds, memory in bytes, and the index in RULES of the first broken
    rule, -1 where there is none."""

    space: Space
    estimate_s: Floats
    memory_bytes: Floats
    broken: npt.NDArray[np.int8]


def by_efficiencies(efficiencies: Efficiencies) -> Price:
    """What the model alone says."""
    return lambda workload: (combine(step_terms(workload), efficiencies).estimate_s, memory.per_chip(workload))


def price_space(space: Space, price: Price) -> PricedSpace:
    """Price every candidate, legal or not.

    price: `by_efficiencies`, or `Baseline.of_workload` of a measured run.  Raises ConfigError where model, batch or
    sequence length is absent.
    """
    missing = missing_facts(space.config)
    batches_given = all("global_batch" in change for change in space.changes)
    lacking = [name for name in missing if name != "training.global_batch" or not batches_given]
    if lacking:
        raise ConfigError(lacking[0], "is missing, so candidates cannot be priced; add it and search again")
    estimate = np.empty(space.shape)
    total = np.empty(space.shape)
    broken = np.full(space.shape, -1, dtype=np.int8)
    step = max(1, BLOCK * len(space.sizes) // max(1, space.count))
    for start in range(0, len(space.sizes), step):
        rows = slice(start, start + step)
        workload = space_workload(space, rows)
        estimate[rows], used = price(workload)
        total[rows] = used.total
        flags = {**legality.of_workload(workload, space.config.model), "memory": ~used.fits}
        broken[rows] = legality.first_broken([flags.get(rule, False) for rule in legality.RULES])
    return PricedSpace(space, estimate, total, broken)


def search(
    config: ExperimentConfig,
    top: int = 10,
    constraints: SearchBounds | None = None,
    efficiencies: Efficiencies | EfficiencyTable | None = None,
) -> SearchResult:
    """The `top` legal candidates by estimated time per token, fastest first; ties go to the smaller memory.

    Where the configuration has a measured step time, prices are calibrated from it.  Raises ConfigError where the
    configuration does not hold together or lacks model, batch or sequence length.
    """
    check_products(config)
    space = build_space(config, constraints)
    table = load_efficiencies() if efficiencies is None else efficiencies
    if isinstance(table, EfficiencyTable):
        table = table.for_config(config)
    measured = config.measured is not None and config.measured.step_time_s is not None
    baseline = baseline_of(config) if measured else None
    priced = price_space(space, by_efficiencies(table) if baseline is None else baseline.of_workload)
    chosen = [space.config_at(*(int(i) for i in np.unravel_index(flat, space.shape))) for flat in ranking(priced)[:top]]
    return SearchResult(
        candidates=_predicted(chosen, table, baseline),
        baseline=baseline,
        rejected=_rejections(priced),
        considered=space.count,
        rejected_by_rule={
            rule: int(count)
            for number, rule in enumerate(legality.RULES)
            if (count := np.count_nonzero(priced.broken == number))
        },
    )


def _predicted(
    chosen: Sequence[ExperimentConfig], efficiencies: Efficiencies, baseline: Baseline | None
) -> tuple[Candidate, ...]:
    if baseline is None:
        return tuple(Candidate(config, predict(config, efficiencies)) for config in chosen)
    prices = baseline.price(chosen) if chosen else ()
    return tuple(
        Candidate(config, price.prediction, price.calibrated_from) for config, price in zip(chosen, prices, strict=True)
    )


def ranking(priced: PricedSpace) -> npt.NDArray[np.int64]:
    """Flat indices of the legal candidates, least time per token first."""
    per_token = (priced.estimate_s / priced.space.global_batches).ravel()
    legal = np.flatnonzero(priced.broken.ravel() < 0)
    # Differences below a tenth of a percent are none; of equals the one that leaves more memory comes first.
    rounded = np.round(np.log(per_token[legal]), 3)
    order: npt.NDArray[np.int64] = legal[np.lexsort((priced.memory_bytes.ravel()[legal], rounded))]
    return order


def _rejections(priced: PricedSpace) -> tuple[Rejection, ...]:
    """The fastest of the meshes that broke a rule: those a reader would ask about."""
    broken = np.flatnonzero(priced.broken.ravel() >= 0)
    fastest = broken[np.argsort(priced.estimate_s.ravel()[broken], kind="stable")]
    rejected: dict[int, Rejection] = {}
    for flat in fastest:
        mesh = int(np.unravel_index(flat, priced.space.shape)[0])
        if mesh not in rejected:
            rule = legality.RULES[int(priced.broken.ravel()[flat])]
            rejected[mesh] = Rejection(priced.space.mesh(mesh), rule)
        if len(rejected) == LISTED_REJECTIONS:
            break
    return tuple(rejected.values())
