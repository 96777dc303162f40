"""One proposal before it is put in words: its numbers, what it changes, what it answers, how likely it gains."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median
from typing import Any

from diagnosis.report import Diagnosis, Finding
from history.effects import FlagEffect
from history.moves import RECOMPUTES
from history.record import Record
from history.similarity import Alike
from perfmodel.confidence import claimed
from perfmodel.config import BATCH_ROLES, ExperimentConfig, Mesh, doublings, micro_batches
from perfmodel.workload import SHARDING
from proposals.candidate import Candidate, candidate
from proposals.constraints import RULE
from proposals.plan import Broken, Predicted
from proposals.proposer.observed import Observed
from proposals.proposer.precedents import Precedent, sizes_by_role

#: Remat policies from the one that recomputes least, in the order of the memory they leave free.
LADDER = ("none", "minimal", "full", "offload")
#: Parts of the step that a setting bears on (`breakdown_s`); `data`: the collectives of the axes that shard the batch.
_BEARS_ON = {
    "global_batch": ("data", "hbm"),
    "accumulation": ("data", "hbm", "idle"),
    "remat": ("compute", "hbm"),
    "weight_sharding": ("data", "hbm"),
    "virtual_stages": ("idle",),
}
#: Rules of findings that a changed training key bears on.
_ANSWERS = {
    "weight_sharding": ("replicated_weights", "fsdp_gathers_exposed", "optimizer_update", "memory_near_capacity"),
    "global_batch": ("gradient_reduction", "fsdp_gathers_exposed", "low_matrix_efficiency"),
}


@dataclass(frozen=True)
class Changed:
    """subject and direction: as in `knowledge.supports.DIRECTIONS`; words: `model 4 → 2`; effect_s: seconds (or share)
    of the step, per token, by which the parts that it bears on are predicted to move, without telling them apart from
    what else moves these."""

    subject: str
    direction: str
    words: str
    effect_s: float


@dataclass(frozen=True)
class Case:
    """Everything the sentences of one proposal are made from.

    changes: training keys that change.  exposed_s: communication per step that is not hidden.  faster: probability that
    it runs and the step gets faster per token, counts_measured: whether runs of the same change that were
    measured elsewhere count in it; runs: that it runs at all; keeping: that no legal candidate gains what
    is worth a change.  utility: what candidates are ranked by (`ranking`).
    precedent: the measured change most alike; warning: an alike run that failed; bears, warns: why.
    broken: rules of legality and constraints that it breaks; unchecked: sentences on what is not known to be legal;
    doubts: on whether the price is of this run at all.
    disputed: elements on whose gain the measurement and the model alone disagree (`detail.disputed`).  parts:
    the step by part, before and after (`detail.parts`).  effect: measured, of the flags that change.
    policies: records that changed one policy alone in the same way, by its key.
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
    runs: float
    keeping: float
    exposed_s: float
    utility: float
    missing: tuple[str, ...]
    counts_measured: bool = False
    precedent: Precedent | None = None
    bears: Alike | None = None
    warning: Precedent | None = None
    warns: Alike | None = None
    broken: tuple[Broken, ...] = ()
    unchecked: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    disputed: dict[str, dict[str, float]] = field(default_factory=dict)
    parts: dict[str, dict[str, float]] = field(default_factory=dict)
    effect: FlagEffect | None = None
    policies: dict[str, list[Record]] = field(default_factory=dict)

    @property
    def policy_effects(self) -> dict[str, dict[str, float]]:
        """Return the median measured speed-up of each policy's change alone, and numbers of timed and failed runs."""
        effects = {}
        for key, records in self.policies.items():
            speedups = [record.speedup for record in records if record.speedup]
            measured = {"measured": median(speedups)} if speedups else {}
            numbers = {"trials": len(speedups), "failed": len(records) - len(speedups)}
            effects[key] = {**measured, **{name: float(number) for name, number in numbers.items()}}
        return effects

    @cached_property
    def proposed(self) -> ExperimentConfig:
        """The configuration that would run."""
        return candidate(self.config, Candidate(self.mesh.to_json(), self.changes))

    @cached_property
    def moved(self) -> dict[str, float]:
        """Doublings by canonical role."""
        return doublings(sizes_by_role(self.config.mesh), sizes_by_role(self.mesh))

    @cached_property
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
    def keeps(self) -> bool:
        """Return whether it is the current configuration: neither an axis nor a training key changes."""
        return not self.changes and not self.resized

    @property
    def doublings(self) -> float:
        """Factors of two moved between roles: half the sum of their doublings, as one grows by what another loses."""
        return sum(map(abs, self.moved.values())) / 2

    @property
    def splits_anew(self) -> bool:
        """Return whether the number or the size of micro-batches is set anew."""
        return bool({"micro_batch", "grad_accum"} & set(self.changes))

    @property
    def rows_ratio(self) -> float:
        """Tokens that a chip multiplies at once, over those of the current configuration; 1 where batch or length are
        not known."""
        if not self.config.training.global_batch or not self.config.training.seq_len:
            return 1.0
        return _rows(self.proposed) / _rows(self.config)

    @property
    def per_step(self) -> float:
        """Tokens of a step over those of the current configuration."""
        batch = self.config.training.global_batch or 1
        return float(self.changes.get("global_batch", batch) / batch)

    def falls(self, *parts: str) -> bool:
        """Return True if these parts of the step (`ici` on all axes) are predicted to fall by a tenth in sum, per
        token."""
        before, after = (
            sum(seconds for name, seconds in side.breakdown_s.items() if name.partition(":")[0] in parts)
            for side in (self.baseline, self.predicted)
        )
        return after / self.per_step < 0.9 * before

    @cached_property
    def changed(self) -> tuple[Changed, ...]:
        """Axes and settings that change, those first whose parts of the step move most; nothing where a change has no
        direction."""
        return tuple(sorted([*self._axes(), *self._settings()], key=lambda item: -item.effect_s))

    def _axes(self) -> Iterator[Changed]:
        before, after = sizes_by_role(self.config.mesh), sizes_by_role(self.mesh)
        for role, moved in self.moved.items():
            names = self._names("data", "fsdp") if role == "data" else self._names(role)
            own = [(name, sizes) for name, sizes in self.resized.items() if name.removesuffix(" over DCN") in names]
            name, (was, becomes) = own[0] if len(own) == 1 else (role, (before.get(role, 1), after.get(role, 1)))
            yield Changed(role, "up" if moved > 0 else "down", f"{name} {was} → {becomes}", self._effect(names))

    def _settings(self) -> Iterator[Changed]:
        training, changes, new = self.config.training, self.changes, self.proposed
        numbers = {
            "global_batch": ("global batch", training.global_batch or 0, changes.get("global_batch")),
            "accumulation": (
                "micro-batches per step", micro_batches(training, self.config.mesh),
                micro_batches(new.training, new.mesh) if self.splits_anew else None,
            ),
            "virtual_stages": ("virtual stages", training.virtual_stages, changes.get("virtual_stages")),
        }  # fmt: skip
        for subject, (words, was, becomes) in numbers.items():
            if becomes is not None and becomes != was:
                yield self._setting(subject, becomes > was, f"{words} {was:g} → {becomes:g}")
        for key, words, ladder in (("remat", "remat", LADDER), ("weight_sharding", "weight sharding", SHARDING)):
            if key in changes:
                was, becomes = getattr(training, key), changes[key]
                more = ladder.index(becomes) > ladder.index(was)
                yield self._setting(key, more, f"{words} {was} → {becomes}")

    def _setting(self, subject: str, more: bool, words: str) -> Changed:
        parts = set(_BEARS_ON[subject])
        names: set[str] = set()
        if "data" in parts:
            names, parts = self._names(*BATCH_ROLES), parts | {"dcn"}
        return Changed(subject, "up" if more else "down", words, self._effect(names, parts))

    def _names(self, *roles: str) -> set[str]:
        """Axes with one of these roles, before or after."""
        return {
            name for mesh in (self.config.mesh, self.mesh) for name, _ in (*mesh.ici, *mesh.dcn)
            if mesh.role(name) in roles
        }  # fmt: skip

    def _effect(self, axes: set[str], parts: Collection[str] = ()) -> float:
        """Sum over these parts of the step, and the collectives on these axes, of what is predicted to come or go, per
        token."""
        before, after = self.baseline.breakdown_s, self.predicted.breakdown_s
        moved = (part for part in {**before, **after} if part in parts or axes & set(part.partition(":")[2].split("+")))
        return sum(abs(after.get(part, 0.0) / self.per_step - before.get(part, 0.0)) for part in moved)

    @property
    def answered(self) -> tuple[Finding, ...]:
        """Findings that it bears on: those about an axis that moves, and those about a key that changes."""
        axes = {axis for axis, _ in self.config.mesh.ici if self.config.mesh.role(axis) in self.moved}
        axes |= {"data"} if "fsdp" in axes else set()
        rules = {rule for key in self.changes for rule in _ANSWERS.get(key, ())}
        if "remat" in self.changes:
            lighter = RECOMPUTES[self.changes["remat"]] < RECOMPUTES[self.config.training.remat]
            rules.add("recompute" if lighter else "memory_near_capacity")
        if self.rows_ratio < 1 and self.splits_anew:
            rules |= {"memory_near_capacity", *(["pipeline_bubble"] if self.mesh.size("pipeline") > 1 else [])}
        if self.moved.get("model", 0.0) > 0:
            rules.add("replicated_weights")
        return tuple(
            finding
            for finding in self.diagnosis.findings
            if finding.rule in rules
            or (finding.mesh_axis and axes & set(finding.mesh_axis.replace(",", " ").replace("+", " ").split()))
        )

    @property
    def probability(self) -> float:
        """That the step gets faster per token; for what changes nothing, that no legal candidate gains what is worth a
        change; 0 for what cannot run.

        A move whose terms were scaled rather than computed never claims more than nine in ten.
        """
        if any(not item.rule.startswith(RULE) and item.rule != "memory" for item in self.broken) and self.kind == "own":
            return 0.0
        return float(claimed(self.keeping if self.keeps else self.faster, bool(self.missing)))


def _rows(config: ExperimentConfig) -> float:
    """Tokens of a micro-batch on a chip."""
    training, mesh = config.training, config.mesh
    tokens = (training.global_batch or 0) * (training.seq_len or 0)
    return tokens / mesh.token_shards / micro_batches(training, mesh)
