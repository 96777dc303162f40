"""What the sentences of a proposal are made from: its numbers and moves, the findings it answers, its probability."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from diagnosis.report import Diagnosis, Finding
from history.moves import RECOMPUTES
from history.similarity import Alike
from perfmodel.confidence import claimed
from perfmodel.config import ExperimentConfig, Mesh, doublings, doublings_moved, micro_batches
from proposals.candidate import Candidate, candidate, chips_ratio
from proposals.constraints import RULE
from proposals.plan import Broken, Predicted
from proposals.proposer.observed import Observed
from proposals.proposer.precedents import Precedent, sizes_by_role


@dataclass(frozen=True)
class Case:
    """Everything the sentences of one proposal are made from.

    changes: training keys that change.  exposed_s: communication per step that schedule flags may hide.  faster:
    probability that it runs and the step gets faster per token; keeping: that no legal candidate gains what is worth a
    change.  utility: what candidates are ranked by (`ranking`).  split: whether an axis takes a part of a torus
    dimension.  precedent: the measured change most alike; warning: an alike run that failed; bears, warns: why.
    broken: rules of legality and constraints that it breaks; unchecked: sentences on what is not known to be legal.
    disputed: elements on whose gain the measurement and the model alone disagree (`detail.disputed`).  parts:
    the step by part, before and after (`detail.parts`).
    """

    rank: int
    kind: str
    config: ExperimentConfig
    diagnosis: Diagnosis
    observed: Observed
    baseline: Predicted
    mesh: Mesh
    changes: dict[str, Any]
    predicted: Predicted
    faster: float
    keeping: float
    split: bool
    exposed_s: float
    utility: float
    missing: tuple[str, ...]
    precedent: Precedent | None = None
    bears: Alike | None = None
    warning: Precedent | None = None
    warns: Alike | None = None
    broken: tuple[Broken, ...] = ()
    unchecked: tuple[str, ...] = ()
    disputed: dict[str, dict[str, float]] = field(default_factory=dict)
    parts: dict[str, dict[str, float]] = field(default_factory=dict)

    @property
    def moved(self) -> dict[str, float]:
        """Doublings by canonical role."""
        return doublings(sizes_by_role(self.config.mesh), sizes_by_role(self.mesh))

    @property
    def keeps(self) -> bool:
        """Whether it is the current configuration: neither an axis nor a training key changes."""
        return not self.changes and not self.resized

    @property
    def resized(self) -> dict[str, tuple[int, int]]:
        """(before, after) of every axis whose size changes, over ICI and DCN."""
        sizes: dict[str, tuple[int, int]] = {}
        for place in ("ici", "dcn"):
            before, after = dict(getattr(self.config.mesh, place)), dict(getattr(self.mesh, place))
            for axis in dict.fromkeys([*before, *after]):
                if before.get(axis, 1) != after.get(axis, 1):
                    sizes[axis if place == "ici" else f"{axis} over DCN"] = (before.get(axis, 1), after.get(axis, 1))
        return sizes

    @property
    def rows_ratio(self) -> float:
        """Tokens that a chip multiplies at once, over those of the current configuration; 1 where batch or length are
        not known."""
        if not self.config.training.global_batch or not self.config.training.seq_len:
            return 1.0
        proposed = candidate(self.config, Candidate(self.mesh.to_json(), self.changes))
        return _rows(proposed) / _rows(self.config)

    @property
    def micro_batches_ratio(self) -> float:
        """Micro-batches of a step over those of the current configuration."""
        proposed = candidate(self.config, Candidate(self.mesh.to_json(), self.changes))
        now = micro_batches(self.config.training, self.config.mesh)
        return micro_batches(proposed.training, proposed.mesh) / now

    def falls(self, *parts: str) -> bool:
        """Whether these parts of the step (`ici` on all axes) are predicted to fall by a tenth in sum, per token and
        chip."""
        batch = self.config.training.global_batch or 1
        more = self.changes.get("global_batch", batch) / batch / chips_ratio(self.config, self.changes)
        before, after = (
            sum(seconds for name, seconds in side.breakdown_s.items() if name.partition(":")[0] in parts)
            for side in (self.baseline, self.predicted)
        )
        return after / more < 0.9 * before

    @property
    def splits_anew(self) -> bool:
        """Whether the number or the size of micro-batches is set anew."""
        return bool({"micro_batch", "grad_accum"} & set(self.changes))

    @property
    def doublings(self) -> float:
        """Factors of two moved between roles."""
        return doublings_moved(self.moved)


def _rows(config: ExperimentConfig) -> float:
    """Tokens of a micro-batch on a chip."""
    training, mesh = config.training, config.mesh
    shards = mesh.token_shards
    return (training.global_batch or 0) * (training.seq_len or 0) / shards / micro_batches(training, mesh)


#: Rules of findings that a changed training key bears on.
_ANSWERS = {
    "xla_flags": ("exposed_communication", "async_collective_waits", "gradient_reduction", "fsdp_gathers_exposed"),
    "weight_sharding": ("replicated_weights", "fsdp_gathers_exposed", "optimizer_update", "memory_near_capacity"),
    "global_batch": ("gradient_reduction", "fsdp_gathers_exposed", "low_matrix_efficiency"),
}


def answered(case: Case) -> tuple[Finding, ...]:
    """Findings that a proposal bears on: those about an axis that moves, and those about a key that changes."""
    axes = {axis for axis, _ in case.config.mesh.ici if case.config.mesh.role(axis) in case.moved}
    axes |= {"data"} if "fsdp" in axes else set()
    rules = {rule for key in case.changes for rule in _ANSWERS.get(key, ())}
    if "remat" in case.changes:
        lighter = RECOMPUTES[case.changes["remat"]] < RECOMPUTES[case.config.training.remat]
        rules.add("recompute" if lighter else "memory_near_capacity")
    if case.rows_ratio < 1 and case.splits_anew:
        rules |= {"memory_near_capacity", *(["pipeline_bubble"] if case.mesh.size("pipeline") > 1 else [])}
    if case.moved.get("model", 0.0) > 0:
        rules.add("replicated_weights")
    return tuple(
        finding
        for finding in case.diagnosis.findings
        if finding.rule in rules
        or (finding.mesh_axis and axes & set(finding.mesh_axis.replace(",", " ").replace("+", " ").split()))
    )


def probability(case: Case) -> float:
    """That the step gets faster per token; for what changes nothing, that no legal candidate gains what is worth a
    change; 0 for what cannot run.

    A move whose terms were scaled rather than computed never claims more than nine in ten.
    """
    if any(not item.rule.startswith(RULE) and item.rule != "memory" for item in case.broken) and case.kind == "own":
        return 0.0
    return claimed(case.keeping if case.keeps else case.faster, bool(case.missing))
