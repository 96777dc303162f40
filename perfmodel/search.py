"""Search: all candidates of a space priced as arrays, the legal ones ranked.  Cost is linear in their number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from perfmodel import legality, memory
from perfmodel.arrays import Floats
from perfmodel.config import ConfigError, ExperimentConfig, Mesh, check_products, missing_facts
from perfmodel.efficiency import Efficiencies, load_efficiencies
from perfmodel.prediction import Prediction
from perfmodel.price import NOTHING, Evidence, evidence_of, predict_all
from perfmodel.space import SearchBounds, Space, build_space, space_workload
from perfmodel.step_time import combine
from perfmodel.terms import step_terms

#: Candidates priced at a time: their arrays stay in the processor's cache.
BLOCK = 32_768
#: Rejected candidates listed by name; all are counted.
LISTED_REJECTIONS = 200


@dataclass(frozen=True)
class Candidate:
    """A legal configuration with its prediction."""

    config: ExperimentConfig
    prediction: Prediction

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

    evidence: what prices were calibrated from.
    """

    candidates: tuple[Candidate, ...]
    rejected: tuple[Rejection, ...]
    considered: int
    rejected_by_rule: Mapping[str, int]
    evidence: Evidence = NOTHING

    def to_json(self) -> dict[str, Any]:
        """The contract's object of `asap search`."""
        return {
            **({"calibrated_from": self.evidence.facts} if self.evidence.config is not None else {}),
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


def price_space(space: Space, evidence: Evidence = NOTHING, efficiencies: Efficiencies | None = None) -> PricedSpace:
    """Price every candidate, legal or not, under the evidence.

    What the run of the evidence did is legal: all rules on the run itself, and on its mesh those that it breaks itself.
    efficiencies: without an observation, the set to price by (default: the shipped one of the configuration).  Raises
    ConfigError where model, batch or sequence length is absent.
    """
    missing = missing_facts(space.config)
    batches_given = all("global_batch" in change for change in space.changes)
    lacking = [name for name in missing if name != "training.global_batch" or not batches_given]
    if lacking:
        raise ConfigError(lacking[0], "is missing, so candidates cannot be priced; add it and search again")
    used_by = efficiencies or load_efficiencies().for_config(space.config)
    ran = evidence.config
    distance = np.zeros(len(space.sizes)) if ran is None else space.distances(ran.mesh)
    estimate = np.empty(space.shape)
    total = np.empty(space.shape)
    broken = np.full(space.shape, -1, dtype=np.int8)
    step = max(1, BLOCK * len(space.sizes) // max(1, space.count))
    for start in range(0, len(space.sizes), step):
        rows = slice(start, start + step)
        workload = space_workload(space, rows)
        if evidence.calibration is None:
            estimate[rows] = combine(step_terms(workload), used_by).estimate_s
        else:
            estimate[rows] = evidence.calibration.step_time_s(workload, distance[rows, None])
        used = evidence.memory.corrected(memory.per_chip(workload))
        total[rows] = used.total
        flags = {**legality.of_workload(workload, space.config.model), "memory": ~evidence.memory.fits(used)}
        broken[rows] = legality.first_broken([flags.get(rule, False) for rule in legality.RULES])
    if evidence.config is not None:
        _allow_what_ran(space, evidence, distance, broken)
    return PricedSpace(space, estimate, total, broken)


def _allow_what_ran(space: Space, evidence: Evidence, distance: Floats, broken: npt.NDArray[np.int8]) -> None:
    """Clear, in place, the rules that forbid the run itself."""
    assert evidence.config is not None
    for row in np.flatnonzero(distance == 0.0):
        for number in range(len(space.changes)):
            if broken[row, number] >= 0 and evidence.is_run(space.config_at(int(row), number)):
                broken[row, number] = -1


def search(
    config: ExperimentConfig,
    top: int = 10,
    constraints: SearchBounds | None = None,
    evidence: Evidence | None = None,
) -> SearchResult:
    """Return the `top` legal candidates by estimated time per token, fastest first; ties go to the smaller memory.

    evidence: to price by (default: what the configuration says was measured of itself).  Raises ConfigError where the
    configuration does not hold together or lacks model, batch or sequence length.
    """
    check_products(config)
    known = evidence_of(config) if evidence is None else evidence
    space = build_space(config, constraints)
    priced = price_space(space, known)
    chosen = [space.config_at(*(int(i) for i in np.unravel_index(flat, space.shape))) for flat in ranking(priced)[:top]]
    predictions = predict_all(chosen, known)
    return SearchResult(
        candidates=tuple(Candidate(config, prediction) for config, prediction in zip(chosen, predictions, strict=True)),
        evidence=known,
        rejected=_rejections(priced),
        considered=space.count,
        rejected_by_rule={
            rule: int(count)
            for number, rule in enumerate(legality.RULES)
            if (count := np.count_nonzero(priced.broken == number))
        },
    )


def ranking(priced: PricedSpace) -> npt.NDArray[np.int64]:
    """Flat indices of the legal candidates, least time per token first."""
    per_token = (priced.estimate_s / priced.space.global_batches).ravel()
    legal = np.flatnonzero(priced.broken.ravel() < 0)
    # Differences below a tenth of a percent are none; of equals the one that leaves more memory comes first.
    rounded = np.round(np.log(per_token[legal]), 3)
    return np.asarray(legal[np.lexsort((priced.memory_bytes.ravel()[legal], rounded))])


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
