"""All meshes of a state, priced at once and kept: moving between meshes of one space prices nothing again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from experiments.lru_cache import LruCache
from perfmodel import legality
from perfmodel.config import BATCH_ROLES, ExperimentConfig, Mesh
from perfmodel.config_file import config_to_json, parse_config
from perfmodel.price import NOTHING, Evidence
from perfmodel.search import PricedSpace, price_space, ranking
from perfmodel.space import SearchBounds, Space, build_space
from perfmodel.workload import AxisSizes

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

#: More meshes than this cannot be priced while somebody waits.
LIMIT = 20_000
MEMORY_RULE = legality.RULES.index("memory")


@dataclass(frozen=True)
class Meshes:
    """A space priced under the evidence, by mesh: estimate in seconds, memory in bytes, first broken rule (-1: none).

    ranked: legal meshes, fastest first.  front: legal meshes that no other beats in both time and memory.
    """

    space: Space
    estimate_s: npt.NDArray[np.float64]
    memory_bytes: npt.NDArray[np.float64]
    broken: npt.NDArray[np.int8]
    ranked: Ints
    front: Bools
    evidence: Evidence = NOTHING

    @property
    def considered(self) -> int:
        return len(self.estimate_s)

    @property
    def rejected(self) -> int:
        return self.considered - len(self.ranked)

    def rejected_by_rule(self) -> list[tuple[str, int]]:
        counts = np.bincount(self.broken[self.broken >= 0].astype(np.int64), minlength=len(legality.RULES))
        return [(rule, int(n)) for rule, n in zip(legality.RULES, counts, strict=True) if n]

    def index(self, mesh: Mesh) -> int | None:
        """Index of a mesh in the space; None if its axes differ."""
        sizes = dict(mesh.ici)
        if set(sizes) != set(self.space.axes):
            return None
        wanted = np.array([sizes[axis] for axis in self.space.axes])
        matches = np.flatnonzero((self.space.sizes == wanted).all(axis=1))
        return int(matches[0]) if len(matches) else None

    def sizes(self, index: int) -> dict[str, int]:
        return {axis: int(n) for axis, n in zip(self.space.axes, self.space.sizes[index], strict=True)}

    def config(self, index: int) -> ExperimentConfig:
        return self.space.config_at(index, 0)

    def order(self, show: str, sort: str) -> Ints:
        """Meshes as the table lists them."""
        if show == "legal" and sort == "step":
            return self.ranked
        chosen = {
            "legal": self.broken < 0,
            "rejected": self.broken >= 0,
        }.get(show, np.ones(self.considered, dtype=bool))
        rows = np.flatnonzero(chosen)
        key, other = (
            (self.memory_bytes, self.estimate_s) if sort.endswith("memory") else (self.estimate_s, self.memory_bytes)
        )
        ordered = rows[np.lexsort((other[rows], key[rows]))]
        return ordered[::-1] if sort.startswith("-") else ordered


def meshes_of(config: ExperimentConfig, evidence: Evidence = NOTHING) -> Meshes:
    """Return the space of a configuration under the evidence, whatever its own mesh sizes; the configuration names
    model, batch and sequence.  Raises ConfigError as `perfmodel.search` does."""
    data = config_to_json(config)
    total = config.hardware.chips_per_slice
    axes = [axis for axis, _ in config.mesh.ici]
    data["mesh"]["ici"] = {axis: total if at == 0 else 1 for at, axis in enumerate(axes)}
    for key in ("name", "notes"):
        data.pop(key, None)
    text = json.dumps(data)
    meshes: Meshes = _kept.get((text, evidence.digest), lambda: _meshes(text, evidence))
    return meshes


_kept = LruCache(24)


def _meshes(text: str, evidence: Evidence) -> Meshes:
    config, _ = parse_config(json.loads(text))
    space = build_space(config, SearchBounds(axes=tuple(axis for axis, _ in config.mesh.ici)))
    priced = price_space(space, evidence)
    estimate, used = priced.estimate_s.reshape(-1), priced.memory_bytes.reshape(-1)
    ranked = ranking(priced)
    return Meshes(space, estimate, used, priced.broken.reshape(-1), ranked, _front(priced, ranked), evidence)


def _front(priced: PricedSpace, ranked: Ints) -> Bools:
    """Legal meshes that nothing beats in time and memory together."""
    estimate, used = priced.estimate_s.reshape(-1), priced.memory_bytes.reshape(-1)
    front = np.zeros(len(estimate), dtype=bool)
    order = ranked[np.lexsort((used[ranked], estimate[ranked]))]
    if len(order):
        least = np.minimum.accumulate(used[order])
        better = np.r_[True, used[order][1:] < least[:-1]]
        front[order[better]] = True
    return front


def legal_sizes(config: ExperimentConfig, candidates: tuple[int, ...]) -> Mapping[str, tuple[int, ...]]:
    """Sizes by axis that break no rule by themselves, all other axes being one."""
    numbers = np.array(candidates, dtype=np.float64)
    training = config.training
    micro_batches = np.array([1.0 if training.micro_batch else float(training.grad_accum)])
    virtual_stages = np.array([float(training.virtual_stages)])
    result: dict[str, tuple[int, ...]] = {}
    for axis, _ in config.mesh.ici:
        role = config.mesh.role(axis)
        sizes, batch, length = AxisSizes(**{role: numbers}), training.global_batch, training.seq_len
        broken = legality.broken_rules(sizes, micro_batches, virtual_stages, config.model, batch, length)
        bad = np.zeros(len(numbers), dtype=bool)
        for name, flags in broken.items():
            if not (name == "batch" and role not in BATCH_ROLES):
                bad |= np.broadcast_to(flags, bad.shape)
        kept = tuple(n for n, flag in zip(candidates, bad, strict=True) if not flag)
        result[axis] = kept or (1,)
    return result
