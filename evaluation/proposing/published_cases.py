"""Cases with a known answer: published recipes to be found from a poorer mesh, and sweeps in which every mesh was run.

The profile of the poorer run is written op by op by the generator of `evaluation.steps.generated`, in its own world:
its efficiencies and what it hides are drawn per case, durations are off by ±10 % and one op in twenty is missing.  It
shares the sizes of links with the performance model and nothing else: no fitted efficiency, no overlap, no pipeline.

Recipes: the answer is the mesh that was published for the workload (the fastest, where several were).  The start is
drawn, by a hash of the case, from the legal meshes that fit, lie at most two doublings from the recipe, and take by the
performance model 10 to 60 % longer; what the Proposer makes of it has no part in the draw.

Sweeps: the answer is the fastest measured; starts are drawn among those measured to take 10 % longer or more, and the
op times are scaled to the measured step.  The regret is measured.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import sha256
from typing import Any

import numpy as np

from diagnosis.analyzer import diagnose
from evaluation.optico import tuned_runs
from evaluation.published import PublishedRun, load_published
from evaluation.steps.generated import made
from evaluation.steps.scenario import Scenario
from evaluation.steps.variants import perturbed
from experiments.step_profile import Memory, StepProfile
from perfmodel import legality
from perfmodel.config import DATA_ROLES, ExperimentConfig, Mesh, mesh_distance, micro_batches
from perfmodel.prediction import predict
from perfmodel.space import build_space, default_axes

#: How much longer the start takes than the recipe, by the performance model or as measured.
SLOWER = (1.1, 1.6)
MOST_DOUBLINGS = 2.0
STARTS_PER_SWEEP = 2

Sizes = tuple[tuple[str, int], ...]


@dataclass(frozen=True, eq=False)
class Case:
    """A poorer run, and what is known of the better ones.

    start: its configuration; answer: the mesh to be found.  measured_s: step time by mesh (`sizes`), None where it ran
    out of memory; of recipes only where both are published.  apart: one of the half that is looked at only at the end.
    """

    id: str
    source: str
    start: ExperimentConfig
    answer: Mesh
    start_s: float | None = None
    measured_s: Mapping[Sizes, float | None] = field(default_factory=dict)

    @property
    def apart(self) -> bool:
        return _digest(f"half {self.id}") % 2 == 1

    @property
    def world(self) -> dict[str, float]:
        """Efficiencies of this case's world."""
        draw = random.Random(_digest(f"world {self.id}"))
        return {
            "products": draw.uniform(0.5, 0.8),
            "streams": draw.uniform(0.65, 0.95),
            "links": draw.uniform(0.5, 0.95),
            "hidden": draw.uniform(0.0, 0.9),
            "passes": draw.uniform(8.0, 20.0),
            "attention": draw.uniform(0.3, 0.6),
        }

    def profile(self) -> StepProfile:
        """The start as recorded."""
        # No peak of memory was published with any of these runs.
        profile = replace(perturbed(self._made(self.start), _digest(self.id) % 2**31), memory=Memory())
        if self.start_s is None or not profile.step_time_s:
            return profile
        return _scaled(profile, self.start_s / profile.step_time_s)

    def world_s(self, config: ExperimentConfig) -> float:
        """What the case's world takes for a configuration."""
        return self._made(config).step_time_s or 0.0

    def _made(self, config: ExperimentConfig) -> StepProfile:
        return made(_scenario(config, self.world), seed=7)[0]


def sizes(mesh: Mesh) -> Sizes:
    """Sizes by role over ICI and DCN, the batch axes as one: equal where two meshes differ in names and roles only."""
    by_axis: dict[str, int] = defaultdict(lambda: 1)
    for axis, size in (*mesh.ici, *mesh.dcn):
        role = mesh.role(axis)
        by_axis["data" if role in DATA_ROLES else role] *= size
    return tuple(sorted((role, size) for role, size in by_axis.items() if size > 1))


def exact(mesh: Mesh) -> Sizes:
    """Sizes by role, the batch axes distinguished."""
    by_axis: dict[str, int] = defaultdict(lambda: 1)
    for axis, size in (*mesh.ici, *mesh.dcn):
        by_axis[mesh.role(axis)] *= size
    return tuple(sorted((role, size) for role, size in by_axis.items() if size > 1))


@cache
def cases() -> tuple[Case, ...]:
    return (*recipes(), *sweeps())


@cache
def recipes() -> tuple[Case, ...]:
    """One case per published workload for which the rule finds a start."""
    workloads: dict[str, list[PublishedRun]] = defaultdict(list)
    for run in load_published().runs:
        workloads[f"{run.workload} slices {run.config.hardware.slices}"].append(run)
    cases = []
    for name, runs in workloads.items():
        best = min(runs, key=lambda run: run.step_time_s)
        recipe = _plain(best.config)
        start = _poorer(recipe, name)
        if start is not None:
            slowest_first = sorted(runs, key=lambda run: -run.step_time_s)
            measured = {sizes(_plain(run.config).mesh): run.step_time_s for run in slowest_first}
            case = Case(name, "recipe", start, recipe.mesh, measured_s=measured)
            # The worlds know no pipeline: some are faster than the chips, which the diagnosis refuses.
            if not diagnose(case.profile(), start).not_modelled:
                cases.append(case)
    return tuple(cases)


@cache
def sweeps() -> tuple[Case, ...]:
    """Starts of every sweep: OptiCo's hand-tuned runs of one workload with the same micro-batch."""
    groups: dict[str, dict[Sizes, tuple[ExperimentConfig, float | None]]] = defaultdict(dict)
    for run in tuned_runs():
        training = run.config.training
        name = f"OptiCo Figure 5 B{training.global_batch} micro-batch {training.micro_batch}"
        groups[name][sizes(run.config.mesh)] = (_plain(run.config), run.step_time_s)
    return tuple(case for name, group in groups.items() for case in _starts(name, group))


def _starts(name: str, group: Mapping[Sizes, tuple[ExperimentConfig, float | None]]) -> Iterator[Case]:
    ran = {key: (config, time) for key, (config, time) in group.items() if time is not None}
    if len(ran) < 3:
        return
    best, shortest = min(ran.values(), key=lambda item: item[1])
    slower = [(config, time) for config, time in ran.values() if time >= SLOWER[0] * shortest]
    slower.sort(key=lambda item: _digest(f"{name} {item[0].mesh.text()}"))
    measured = {key: time for key, (_, time) in group.items()}
    for config, time in slower[:STARTS_PER_SWEEP]:
        yield Case(f"{name} from {config.mesh.text()}", "sweep", config, best.mesh, time, measured)


def _poorer(recipe: ExperimentConfig, name: str) -> ExperimentConfig | None:
    """The start of a recipe's case by the rule above; None where there is none."""
    axes = default_axes(recipe)
    space = build_space(recipe)
    ran = np.array([dict(recipe.mesh.ici).get(axis, 1) for axis in axes])
    far = np.abs(np.log2(space.sizes / ran[None, :])).sum(axis=1) / 2.0
    least = predict(recipe).step_time_s
    if least is None:
        return None
    near = [int(i) for i in np.flatnonzero((far > 0) & (far <= MOST_DOUBLINGS))]
    order = sorted(near, key=lambda i: _digest(f"{name} {space.sizes[i].tolist()}"))
    for row in order:
        mesh = replace(space.mesh(row), dcn=recipe.mesh.dcn)
        config = replace(recipe, mesh=mesh)
        if sizes(mesh) == sizes(recipe.mesh) or legality.check(config):
            continue
        time = predict(config).step_time_s
        if time is not None and SLOWER[0] <= time["estimate"] / least["estimate"] <= SLOWER[1]:
            kept = tuple((axis, size) for axis, size in mesh.ici if size > 1 or axis in dict(recipe.mesh.ici))
            return replace(config, mesh=replace(mesh, ici=kept))
    return None


def _plain(config: ExperimentConfig) -> ExperimentConfig:
    """The configuration with its axes named by their roles."""
    mesh = config.mesh
    ici = tuple((mesh.role(axis), size) for axis, size in mesh.ici)
    dcn = tuple((mesh.role(axis), size) for axis, size in mesh.dcn)
    return replace(config, mesh=Mesh(ici, dcn))


def _scenario(config: ExperimentConfig, world: Mapping[str, Any]) -> Scenario:
    training, mesh, model = config.training, config.mesh, config.model
    assert model is not None and training.global_batch and training.seq_len
    count = max(1, round(micro_batches(training, mesh)))
    stages = mesh.size("pipeline")
    bubble = (stages - 1) / (count * max(1, training.virtual_stages) + stages - 1)
    sharded = training.weight_sharding == "fsdp"
    return Scenario(
        config.name or "published",
        "",
        (),
        config.hardware.chip,
        config.hardware.topology,
        mesh.ici,
        model,
        batch=training.global_batch,
        seq_len=training.seq_len,
        dcn=tuple((axis, size) for axis, size in mesh.dcn if size > 1),
        weight_sharding="fsdp" if sharded else "none",
        remat="full" if training.remat in ("full", "offload") else "none",  # what is moved to the host is layer inputs
        grad_accum=count if sharded else 1,
        idle=bubble,
        precision=training.precision,
        **world,
    )


def _scaled(profile: StepProfile, factor: float) -> StepProfile:
    """The same step, all of it so many times as long; rates fall accordingly."""

    def rate(value: float | None) -> float | None:
        return None if value is None else value / factor

    ops = tuple(
        replace(
            op,
            self_time_s=op.self_time_s * factor,
            total_time_s=op.total_time_s * factor,
            flops_per_s=rate(op.flops_per_s),
            hbm_bytes_per_s=rate(op.hbm_bytes_per_s),
            roofline_efficiency=rate(op.roofline_efficiency),
            compute_efficiency=rate(op.compute_efficiency),
            memory_bandwidth_utilization=rate(op.memory_bandwidth_utilization),
        )
        for op in profile.ops
    )
    steps = tuple(
        replace(step, time_s=step.time_s * factor, breakdown_s={k: v * factor for k, v in step.breakdown_s.items()})
        for step in profile.steps
    )
    cores = tuple(
        replace(core, breakdown_s={k: v * factor for k, v in core.breakdown_s.items()}) for core in profile.cores
    )
    step_s = (profile.step_time_s or 0.0) * factor
    times: dict[str, Any] = dict.fromkeys(("step_time_s", "step_time_min_s", "step_time_max_s"), step_s)
    return replace(profile, ops=ops, steps=steps, cores=cores, **times)


def _digest(text: str) -> int:
    return int(sha256(text.encode()).hexdigest()[:12], 16)


__all__ = ["Case", "cases", "exact", "mesh_distance", "recipes", "sizes", "sweeps"]
