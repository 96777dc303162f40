"""Search: all candidates of a space priced as arrays, the legal ones ranked.  Cost is linear in their number."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from perfmodel import legality, memory
from perfmodel.arrays import Floats
from perfmodel.config import ConfigError, ExperimentConfig, Mesh, check_products, missing_facts
from perfmodel.prediction import Prediction
from perfmodel.price import NOTHING, Evidence, evidence_of, predict_all, step_times_s
from perfmodel.space import SearchBounds, Space, build_space, space_workload

#: Candidates priced at a time: their arrays stay in the processor's cache.
BLOCK = 32_768
#: Rejected candidates listed by name; all are counted.
LISTED_REJECTIONS = 200


class SearchedMesh(NamedTuple):
    """A legal configuration with its prediction."""

    config: ExperimentConfig
    prediction: Prediction


@dataclass(frozen=True)
class PricedSpace:
    """A space priced under the evidence; arrays over its candidates.

    estimate_s: per step.  memory_bytes: per chip.  broken: index in RULES of the first broken rule, -1 where none is.
    top: how many of the best `candidates` are predicted in full.
    """

    space: Space
    evidence: Evidence
    estimate_s: Floats
    memory_bytes: Floats
    broken: npt.NDArray[np.int8]
    top: int = 10

    @cached_property
    def ranked(self) -> npt.NDArray[np.int64]:
        """The legal candidates, least time per token first."""
        batches = np.broadcast_to(self.space.global_batches, self.space.shape).ravel()
        legal = np.flatnonzero(self.broken < 0)
        # Differences below a tenth of a percent are none; of equals the one that leaves more memory comes first.
        rounded = np.round(np.log(self.estimate_s[legal] / batches[legal]), 3)
        return np.asarray(legal[np.lexsort((self.memory_bytes[legal], rounded))])

    @cached_property
    def candidates(self) -> tuple[SearchedMesh, ...]:
        """The best legal ones, fastest per token first."""
        chosen = [self.config(candidate) for candidate in self.ranked[: self.top]]
        return tuple(map(SearchedMesh, chosen, predict_all(chosen, self.evidence)))

    @property
    def considered(self) -> int:
        return self.space.count

    @cached_property
    def rejected(self) -> list[tuple[Mesh, str]]:
        """The fastest of the meshes that broke a rule, those a reader would ask about, each with the first rule."""
        broken = np.flatnonzero(self.broken >= 0)
        broken = broken[np.argsort(self.estimate_s[broken], kind="stable")]
        _, first = np.unique(broken // len(self.space.changes), return_index=True)
        fastest = broken[np.sort(first)[:LISTED_REJECTIONS]]
        return [(self.config(each).mesh, legality.RULES[self.broken[each]]) for each in fastest]

    @property
    def rejected_by_rule(self) -> dict[str, int]:
        """Count the candidates by the rule that they break first."""
        counts = np.bincount(self.broken.astype(np.int64) + 1, minlength=len(legality.RULES) + 1)[1:]
        return {rule: int(count) for rule, count in zip(legality.RULES, counts, strict=True) if count}

    def config(self, candidate: int) -> ExperimentConfig:
        return self.space.config_at(*divmod(int(candidate), len(self.space.changes)))

    def to_json(self) -> dict[str, Any]:
        """The contract's object of `asap search`."""
        keys = ("global_batch", "remat", "weight_sharding")
        return {
            **({"calibrated_from": self.evidence.facts} if self.evidence.config is not None else {}),
            "candidates": [
                {
                    "mesh": config.mesh.to_json(),
                    "training": {key: getattr(config.training, key) for key in keys},
                    **prediction.to_json(),
                }
                for config, prediction in self.candidates
            ],
            "rejected": [{"mesh": mesh.to_json(), "rule": rule} for mesh, rule in self.rejected],
            "considered": self.considered,
            "rejected_by_rule": self.rejected_by_rule,
        }


def price_space(space: Space, evidence: Evidence = NOTHING) -> PricedSpace:
    """Price every candidate, legal or not, under the evidence.

    What the run of the evidence did is legal: all rules on the run itself, and on its mesh those that it breaks itself.
    Raises ConfigError where model, batch or sequence length is absent.
    """
    missing = missing_facts(space.config)
    batches_given = all("global_batch" in change for change in space.changes)
    lacking = [name for name in missing if name != "training.global_batch" or not batches_given]
    if lacking:
        raise ConfigError(lacking[0], "is missing, so candidates cannot be priced; add it and search again")
    ran = evidence.config
    distance = np.zeros(len(space.sizes)) if ran is None else space.distances(ran.mesh)
    estimate = np.empty(space.shape)
    total = np.empty(space.shape)
    broken = np.full(space.shape, -1, dtype=np.int8)
    step = max(1, BLOCK * len(space.sizes) // max(1, space.count))
    for start in range(0, len(space.sizes), step):
        rows = slice(start, start + step)
        workload = space_workload(space, rows)
        estimate[rows] = step_times_s(space.config, workload, distance[rows, None], evidence)
        used = evidence.memory.corrected(memory.per_chip(workload))
        total[rows] = used.total
        flags = {**legality.of_workload(workload, space.config.model), "memory": ~evidence.memory.fits(used)}
        broken[rows] = legality.first_broken([flags.get(rule, False) for rule in legality.RULES])
    if ran is not None:
        for row in np.flatnonzero(distance == 0.0):
            for number in np.flatnonzero(broken[row] >= 0):
                if evidence.is_run(space.config_at(int(row), int(number))):
                    broken[row, number] = -1
    return PricedSpace(space, evidence, estimate.ravel(), total.ravel(), broken.ravel())


def search(
    config: ExperimentConfig,
    top: int = 10,
    constraints: SearchBounds | None = None,
    evidence: Evidence | None = None,
) -> PricedSpace:
    """Return all candidates, of which `top` legal ones are predicted by time per token, fastest first; ties go to the
    smaller memory.

    evidence: to price by (default: what the configuration says was measured of itself).  Raises ConfigError where the
    configuration does not hold together or lacks model, batch or sequence length.
    """
    check_products(config)
    known = evidence_of(config) if evidence is None else evidence
    return replace(price_space(build_space(config, constraints), known), top=top)
