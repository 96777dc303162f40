"""Measured steps that the time model is fitted on: published recipes and measured sweeps, in one form."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property

from evaluation.published import load_published, maxtext_kept
from evaluation.sweeps import load_sweeps
from perfmodel.accounting import mlp_matrices, parameters
from perfmodel.catalogue import architecture
from perfmodel.chips import Chip, get_chip
from perfmodel.config import ExperimentConfig, ModelShape, framework_of
from perfmodel.efficiency import model_key, run_keys
from perfmodel.execution import ExecutionProfile, profile_named

#: Parts that share the die of another.
SAME_SILICON = {"h200": "h100", "a100-40gb": "a100-80gb"}


@dataclass(frozen=True)
class TimeRow:
    """One measured step.

    source: who published it; workload: rows that can be compared with each other.  kept: of outputs that a policy of
    MaxText keeps, so that they are not computed again although the configuration says `full` or `offload`.
    """

    id: str
    source: str
    workload: str
    config: ExperimentConfig
    step_time_s: float
    kept: frozenset[str] = frozenset()

    @property
    def repeated(self) -> tuple[float, float]:
        """Shares (0–1) of a full recomputation that take place: of products with dense weights, the last of the MLP
        aside, and of attention scores."""
        shape, count = self.shape, parameters(self.shape)
        out = shape.d_model * shape.heads * (shape.v_head_dim or shape.head_dim)
        projections = {"query_proj": shape.d_model * shape.heads * shape.head_dim, "out_proj": out}
        projections |= dict.fromkeys(("key_proj", "value_proj"), shape.d_model * shape.kv_heads * shape.head_dim)
        saved = sum(weights for name, weights in projections.items() if name in self.kept) * shape.layers
        mlp = count.dense_layers * count.layer_dense_mlp + count.moe_layers * count.layer_shared_experts
        whole = shape.layers * count.layer_attention + mlp * (1.0 - 1.0 / mlp_matrices(shape))
        return 1.0 - saved / whole, 0.0 if "context" in self.kept else 1.0

    @property
    def chip(self) -> Chip:
        return get_chip(self.config.hardware.chip)

    @property
    def shape(self) -> ModelShape:
        assert self.config.model is not None
        return self.config.model

    @property
    def silicon(self) -> str:
        return SAME_SILICON.get(self.chip.name, self.chip.name)

    @property
    def precision(self) -> str:
        return self.config.training.precision

    @property
    def mixture(self) -> bool:
        return self.shape.experts > 0

    @property
    def architecture(self) -> str:
        return architecture(self.shape)

    @cached_property
    def profile(self) -> ExecutionProfile:
        return profile_named(framework_of(self.config), self.chip.kind)

    @cached_property
    def configuration(self) -> str:
        """The same text for rows that differ in software only."""
        return run_keys(self.config)["configuration"]

    @property
    def model(self) -> str:
        return model_key(self.shape)

    @property
    def pipelined(self) -> bool:
        return self.config.mesh.size("pipeline") > 1


@cache
def load_rows(kind: str | None = None) -> tuple[TimeRow, ...]:
    """All rows, or those of one kind of chip (`tpu`, `gpu`)."""
    return tuple(row for row in _all_rows() if kind is None or row.chip.kind == kind)


def _all_rows() -> Iterable[TimeRow]:
    for run in load_published().runs:
        source = "recipes" if run.row["framework"].startswith(("MaxText", "Megatron-Bridge")) else "selene"
        kept = maxtext_kept(run.row["remat"]) if run.chip.kind == "tpu" else frozenset()
        yield TimeRow(run.id, source, run.workload, run.config, run.step_time_s, kept)
    for sweep in load_sweeps():
        if sweep.usable:
            assert sweep.step_time_s is not None
            workload = sweep.work if sweep.source == "llm-foundry" else sweep.workload
            yield TimeRow(sweep.id, sweep.source, workload, sweep.config, sweep.step_time_s)
