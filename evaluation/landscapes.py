"""Scenarios whose whole landscape is known: a profile of one mesh, and what every legal mesh would really take.

Eleven kinds of trouble, and none, on TPUs and GPUs, each in a world of its own (`evaluation.simulated_cluster`).  Half
of every kind, by a hash of the scenario's name, is kept apart: nothing was tuned on it.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from functools import cache, cached_property
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from evaluation.recorded import record
from evaluation.simulated import simulate
from evaluation.simulated_cluster import World, digest, drawn
from experiments.step_profile import StepProfile
from perfmodel import legality
from perfmodel.catalogue import load_catalogue
from perfmodel.chips import get_chip
from perfmodel.config import ExperimentConfig, Hardware, Mesh, Training
from perfmodel.space import build_space

Floats = npt.NDArray[np.float64]
Change = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Scenario:
    """A run and its world.  kind: what is wrong with it; changes: training keys tried on every mesh beside none."""

    name: str
    kind: str
    config: ExperimentConfig
    world: World
    changes: tuple[Change, ...] = ()
    apart: bool = False

    @cached_property
    def input_s(self) -> float:
        """Input time per step: more than the step of the baseline by the world's share of it."""
        if not self.world.input_share:
            return 0.0
        bare = simulate(self.config, self.world).step_s
        share = self.world.input_share
        return bare / (1.0 - share) if self.world.prefetch else bare * share / (1.0 - share)

    @cached_property
    def profile(self) -> StepProfile:
        step = simulate(self.config, self.world, self.input_s)
        return record(self.config, self.world, step, digest(self.name) % 2**31)

    @cached_property
    def landscape(self) -> tuple[tuple[Mesh, Change], ...]:
        """Every legal mesh with every change, the baseline left out."""
        space = build_space(self.config)
        candidates = []
        for row in range(len(space.sizes)):
            mesh = space.mesh(row)
            kept = tuple((axis, n) for axis, n in mesh.ici if n > 1 or axis in dict(self.config.mesh.ici))
            mesh = replace(mesh, ici=kept)
            for change in ({}, *self.changes):
                config = configured(self.config, mesh, change)
                if not legality.check(config) and (change or not _same(mesh, self.config.mesh)):
                    candidates.append((mesh, change))
        return tuple(candidates)

    @cached_property
    def times_s(self) -> Floats:
        """What each of the landscape takes in this world."""
        return np.array([self.time_s(mesh, change) for mesh, change in self.landscape])

    @cached_property
    def baseline_s(self) -> float:
        return simulate(self.config, self.world, self.input_s).step_s

    def time_s(self, mesh: Mesh, change: Change) -> float:
        return simulate(configured(self.config, mesh, change), self.world, self.input_s).step_s


def configured(config: ExperimentConfig, mesh: Mesh, change: Change) -> ExperimentConfig:
    return replace(config, mesh=mesh, training=replace(config.training, **change))


def _same(one: Mesh, other: Mesh) -> bool:
    return {a: n for a, n in one.ici if n > 1} == {a: n for a, n in other.ici if n > 1}


SCENARIOS_FILE = Path(__file__).parent / "data" / "landscapes.toml"


@cache
def scenarios() -> tuple[Scenario, ...]:
    """All of them; of each kind every other one, in the order of a hash, is kept apart."""
    rows = tomllib.loads(SCENARIOS_FILE.read_text(encoding="utf-8"))["scenario"]
    built = [(_built(number, row), row.get("further", False)) for number, row in enumerate(rows)]
    first = [scenario for scenario, added in built if not added]
    further = [scenario for scenario, added in built if added]
    by_kind: dict[str, list[Scenario]] = {}
    for scenario in sorted(first, key=lambda item: digest(f"half {item.name}")):
        by_kind.setdefault(scenario.kind, []).append(scenario)
    shift = {kind: digest(f"first half {kind}") % 2 for kind in by_kind}
    halves = [
        replace(scenario, apart=(place + shift[kind]) % 2 == 1)
        for kind, row in by_kind.items()
        for place, scenario in enumerate(row)
    ]
    order = {kind: place for place, kind in enumerate(by_kind)}
    return tuple(sorted((*halves, *further), key=lambda item: order[item.kind]))


def _built(number: int, row: dict[str, Any]) -> Scenario:
    plain = row.get("plain_attention", False)
    shape = load_catalogue()[row["model"]].shape
    if plain:  # the same sizes with grouped-query attention
        shape = replace(
            shape, attention="gqa", kv_heads=shape.heads, head_dim=128, shared_experts=0, first_dense_layers=0
        )
    model = f"{row['model']}:gqa" if plain else row["model"]
    name = f"{row['kind']} {model} {row['chip']}-{prod(row['topology'])} {number}"
    given = {"global_batch": row["batch"], "seq_len": row["seq_len"], "weight_sharding": "fsdp"}
    dcn = tuple(row.get("dcn", {}).items())
    config = ExperimentConfig(
        Hardware(row["chip"], tuple(row["topology"]), prod(size for _, size in dcn)),
        Mesh(tuple(row["ici"].items()), dcn),
        shape,
        Training(**{**given, **row.get("training", {})}),
        name=name,
    )
    world = drawn(name, get_chip(row["chip"]).kind == "gpu", **row.get("world", {}))
    return Scenario(name, row["kind"], config, world, tuple(row.get("changes", ())))
