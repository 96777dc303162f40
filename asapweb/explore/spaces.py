"""All meshes of a state, priced at once and kept: moving between meshes of one space prices nothing again."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from experiments.lru_cache import LruCache
from perfmodel import legality
from perfmodel.config import ExperimentConfig
from perfmodel.price import NOTHING, Evidence
from perfmodel.search import PricedSpace, price_space
from perfmodel.space import SearchBounds, build_space

Ints = npt.NDArray[np.int64]

#: More meshes than this cannot be priced while somebody waits.
LIMIT = 20_000
MEMORY_RULE = legality.RULES.index("memory")


class Meshes(PricedSpace):
    """A space of meshes with the training as it is."""

    @cached_property
    def front(self) -> npt.NDArray[np.bool_]:
        """Legal meshes that no other beats in both time and memory."""
        front = np.zeros(self.considered, dtype=bool)
        legal = np.flatnonzero(self.broken < 0)
        order = legal[np.lexsort((self.memory_bytes[legal], self.estimate_s[legal]))]
        if len(order):
            used = self.memory_bytes[order]
            front[order[np.r_[True, used[1:] < np.minimum.accumulate(used)[:-1]]]] = True
        return front

    def sizes(self, index: int) -> dict[str, int]:
        return {axis: int(n) for axis, n in zip(self.space.axes, self.space.sizes[index], strict=True)}

    def order(self, show: str, sort: str) -> Ints:
        """Meshes as the table lists them."""
        if show == "legal" and sort == "step":
            return self.ranked
        chosen = {"legal": self.broken < 0, "rejected": self.broken >= 0}
        rows = np.flatnonzero(chosen.get(show, np.ones(self.considered, dtype=bool)))
        keys = (self.memory_bytes[rows], self.estimate_s[rows])
        ordered = rows[np.lexsort(keys[::-1] if sort.endswith("memory") else keys)]
        return ordered[::-1] if sort.startswith("-") else ordered


_kept = LruCache(24)


def meshes_of(config: ExperimentConfig, evidence: Evidence = NOTHING) -> Meshes:
    """Return the space of a configuration under the evidence, whatever its own mesh sizes; the configuration names
    model, batch and sequence.  Raises ConfigError as `perfmodel.search` does."""
    axes = tuple(axis for axis, _ in config.mesh.ici)
    sizes = ((axes[0], config.hardware.chips_per_slice), *((axis, 1) for axis in axes[1:]))
    of = replace(config, mesh=replace(config.mesh, ici=sizes), name="", notes="", measured=None)

    def price() -> Meshes:
        return Meshes(**vars(price_space(build_space(of, SearchBounds(axes=axes)), evidence)))

    meshes: Meshes = _kept.get((repr(of), evidence.digest), price)
    return meshes
