"""What must not be tried again after a failure that the configuration is responsible for."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any, Literal

from experiments.sentences import Sentence, Value, say
from perfmodel import memory
from perfmodel.config import DATA_ROLES, ConfigError, ExperimentConfig, config_key, missing_facts, placement
from perfmodel.workload import from_config
from proposals.constraints import MOST_MARGIN, Constraints

#: Roles of the axes that shard the batch or the sequence, not the model.
_OF_TOKENS = (*DATA_ROLES, "seq")
#: Steps in which a memory margin is asked for.
_MARGIN = 0.001


@dataclass(frozen=True)
class Forbidden:
    """Configurations that fail like one that did.

    rule: `memory` (this one, and whatever cannot do with as few bytes per chip, on the same chip), `axis` (`role`
    with a size that does not divide `dimension`, or with its size of then where the dimension is not known), `mesh`
    (the same sizes of all axes), `configuration` (the same mesh and training).  Always of the same model; of axes that
    shard the batch or the sequence, of the same batch and length.
    """

    rule: Literal["memory", "axis", "mesh", "configuration"]
    config: ExperimentConfig
    role: str = ""
    dimension: int | None = None

    def covers(self, other: ExperimentConfig) -> bool:
        """Whether a configuration is forbidden by this failure."""
        if other.model != self.config.model:
            return False
        if self.rule == "axis" and self.role:
            if self.role in _OF_TOKENS and _batch(other) != _batch(self.config):
                return False
            size = other.mesh.size(self.role)
            if self.dimension:
                return bool(self.dimension % size)
            return size == self.config.mesh.size(self.role)
        if other.hardware.chip != self.config.hardware.chip:
            return False
        same_placement = placement(other.mesh) == placement(self.config.mesh)
        if self.rule in ("axis", "mesh"):
            return same_placement and other.hardware == self.config.hardware
        if config_key(other) == config_key(self.config):
            return True
        if self.rule == "memory" and (now := _needed(other)) and (then := _needed(self.config)):
            return now[0] > then[0]
        return False

    @property
    def constraints(self) -> Constraints:
        """As far as the constraints of proposals can say it: a margin that this configuration lacks, or its mesh."""
        if self.rule == "memory" and (used := _needed(self.config)):
            free = 1.0 - used[1] / used[2]
            margin = ceil(free / _MARGIN + 1e-9) * _MARGIN
            return Constraints(memory_margin=round(min(margin, MOST_MARGIN), 3)) if free > 0 else Constraints()
        if self.rule in ("axis", "mesh"):
            return Constraints(excluded=(self.config.mesh.to_json(),))
        return Constraints()

    @property
    def sentence(self) -> Sentence:
        if self.rule == "memory" and (used := _needed(self.config)):
            least = Value("minimum memory per chip", used[0], "bytes", "predicted")
            return say(
                "Forbidden: this configuration and any with a larger minimum memory per chip on the same chip. The "
                "minimum, {} here, is the predicted memory without what the allocator can release or the framework can "
                "recompute.",
                least,
            )
        if self.rule == "axis" and self.role:
            size = self.config.mesh.size(self.role)
            if self.dimension:
                return Sentence(
                    f"Forbidden: sizes of the {self.role} axis that do not divide {self.dimension:,}, such as {size}."
                )
            return Sentence(f"Forbidden: size {size} of the {self.role} axis.")
        if self.rule in ("axis", "mesh"):
            return Sentence(f"Forbidden: the mesh {self.config.mesh.text()}.")
        return Sentence("Forbidden: this mesh with this training configuration.")

    def to_json(self) -> dict[str, Any]:
        """Rule, sentence, and the constraints under which proposals can be asked for again."""
        return {
            "rule": self.rule, "role": self.role, "dimension": self.dimension, "sentence": str(self.sentence),
            "constraints": self.constraints.to_json(),
        }  # fmt: skip


def _batch(config: ExperimentConfig) -> tuple[int | None, ...]:
    training = config.training
    return training.global_batch, training.micro_batch, training.grad_accum, training.seq_len


def _needed(config: ExperimentConfig) -> tuple[float, float, float] | None:
    """Bytes per chip that a run cannot do without, all that it fills, and the capacity; None where not known.

    The first decides whether it runs out of memory: what a pipeline on GPUs fills beyond it is given back, or
    recomputed where nobody said what is, before an allocation fails.
    """
    if missing_facts(config):
        return None
    try:
        used = memory.per_chip(from_config(config))
    except ConfigError:
        return None
    return float(used.needed[0] - used.sparable[0]), float(used.total[0]), float(used.capacity[0])
