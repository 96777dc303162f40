"""Scenarios whose whole landscape is known: a profile of one mesh, and what every legal mesh would really take.

Thirteen kinds of trouble (and none) on TPUs and GPUs, each in a world of its own (`evaluation.world`).  Half of every
kind, by a hash of the scenario's name, is kept apart: nothing was tuned on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from evaluation.simulated import record, simulate
from evaluation.world import World, digest, drawn
from experiments.step_profile import StepProfile
from perfmodel import legality
from perfmodel.catalogue import load_catalogue
from perfmodel.chips import get_chip
from perfmodel.config import ExperimentConfig, Hardware, Mesh, Training
from perfmodel.search import build_space

Floats = npt.NDArray[np.float64]
Change = Mapping[str, Any]


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
        found = []
        for row in range(len(space.sizes)):
            mesh = space.mesh(row)
            kept = tuple((axis, n) for axis, n in mesh.ici if n > 1 or axis in dict(self.config.mesh.ici))
            mesh = replace(mesh, ici=kept)
            for change in ({}, *self.changes):
                config = configured(self.config, mesh, change)
                if not legality.check(config) and (change or not _same(mesh, self.config.mesh)):
                    found.append((mesh, change))
        return tuple(found)

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


@dataclass(frozen=True)
class _Draft:
    kind: str
    chip: str
    topology: tuple[int, ...]
    ici: tuple[tuple[str, int], ...]
    model: str
    batch: int
    seq_len: int
    dcn: tuple[tuple[str, int], ...] = ()
    training: Mapping[str, Any] = field(default_factory=dict)
    world: Mapping[str, Any] = field(default_factory=dict)
    changes: tuple[Change, ...] = ()


def _mesh(**sizes: int) -> tuple[tuple[str, int], ...]:
    return tuple(sizes.items())


_REMATS = ({"remat": "none"}, {"remat": "minimal"})
_SPLITS = ({"grad_accum": 16}, {"grad_accum": 32}, {"grad_accum": 4})

_DRAFTS: tuple[_Draft, ...] = (
    # Tensor axis too wide
    _Draft("tensor axis too wide", "v5p", (4, 4, 4), _mesh(data=4, model=16), "llama2-7b", 128, 8192, training={"remat": "full"}),
    _Draft("tensor axis too wide", "v5e", (8, 8), _mesh(data=8, model=8), "llama3.2-1b", 256, 2048),
    _Draft("tensor axis too wide", "v6e", (8, 16), _mesh(data=8, model=16), "gpt3-6.7b", 256, 4096, training={"remat": "full"}),
    _Draft("tensor axis too wide", "h100", (8, 8), _mesh(data=8, model=8), "llama3.1-8b", 256, 4096, training={"remat": "full"}),
    _Draft("tensor axis too wide", "a100-80gb", (8, 4), _mesh(data=2, model=16), "llama2-7b", 128, 2048, training={"remat": "full"}),
    _Draft("tensor axis too wide", "v4", (4, 4, 8), _mesh(data=8, model=16), "llama2-7b", 256, 4096, training={"remat": "full"}),
    # Resharding between a sequence and a tensor axis
    _Draft("resharding", "v5p", (4, 4, 4), _mesh(data=8, seq=2, model=4), "llama3.1-8b", 128, 8192, training={"remat": "full"}, world={"reshard": 4.0, "reshard_kind": "copy"}),
    _Draft("resharding", "v6e", (8, 8), _mesh(data=8, seq=4, model=2), "llama3.1-8b", 64, 8192, training={"remat": "full"}, world={"reshard": 0.4, "reshard_kind": "all-to-all"}),
    _Draft("resharding", "h100", (8, 4), _mesh(data=4, seq=4, model=2), "llama2-7b", 64, 4096, training={"remat": "full"}, world={"reshard": 6.0, "reshard_kind": "copy"}),
    _Draft("resharding", "v5e", (16, 16), _mesh(data=32, seq=2, model=4), "llama2-13b", 256, 4096, training={"remat": "full"}, world={"reshard": 0.3, "reshard_kind": "all-to-all"}),
    # One dimension of the slice at a third of its rate
    _Draft("slow links", "v5p", (4, 4, 4), _mesh(data=16, model=4), "llama3.1-8b", 128, 8192, training={"remat": "full"}, world={"slow_dim": 2, "slow": 0.33}),
    _Draft("slow links", "v5e", (8, 16), _mesh(data=32, model=4), "llama3.1-8b", 256, 4096, training={"remat": "full"}, world={"slow_dim": 1, "slow": 0.33}),
    _Draft("slow links", "v6e", (8, 8), _mesh(data=8, seq=4, model=2), "llama2-7b", 128, 8192, training={"remat": "full"}, world={"slow_dim": 0, "slow": 0.33}),
    _Draft("slow links", "h100", (8, 8), _mesh(data=16, model=4), "llama3.1-8b", 256, 4096, training={"remat": "full"}, world={"slow_dim": 0, "slow": 0.33}),
    # Gradients exposed between slices
    _Draft("DCN exposed", "v5e", (8, 8), _mesh(data=16, model=4), "llama3.1-8b", 256, 2048, dcn=_mesh(data=4), training={"remat": "full"}, world={"network": 0.25, "hidden_dcn": 0.2}),
    _Draft("DCN exposed", "v5p", (4, 4, 4), _mesh(data=16, model=4), "llama3.1-70b", 128, 4096, dcn=_mesh(data=2), training={"remat": "full"}, world={"network": 0.3, "hidden_dcn": 0.3}),
    _Draft("DCN exposed", "v6e", (8, 8), _mesh(data=8, model=8), "llama2-13b", 256, 2048, dcn=_mesh(data=4), training={"remat": "full"}, world={"network": 0.35, "hidden_dcn": 0.1}),
    # Few tokens per chip
    _Draft("small batch per chip", "v5p", (4, 4, 4), _mesh(data=64), "llama3.1-8b", 64, 1024),
    _Draft("small batch per chip", "v5e", (8, 16), _mesh(data=32, model=4), "llama3.1-8b", 64, 2048, training={"remat": "full"}),
    _Draft("small batch per chip", "h100", (8, 8), _mesh(data=64), "llama2-7b", 64, 1024),
    _Draft("small batch per chip", "v6e", (8, 8), _mesh(data=16, model=4), "llama2-13b", 32, 2048, training={"remat": "full"}),
    # Recomputation that memory does not need
    _Draft("remat too heavy", "v5p", (4, 4, 4), _mesh(data=32, model=2), "llama3.1-8b", 64, 4096, training={"remat": "full"}, changes=_REMATS),
    _Draft("remat too heavy", "h100", (8, 4), _mesh(data=16, model=2), "llama2-7b", 64, 4096, training={"remat": "full"}, changes=_REMATS),
    _Draft("remat too heavy", "v4", (4, 4, 4), _mesh(data=16, seq=2, model=2), "llama3.2-3b", 64, 8192, training={"remat": "full"}, changes=_REMATS),
    # The input pipeline sets the pace
    _Draft("input bound", "v6e", (8, 8), _mesh(data=16, model=4), "llama2-7b", 128, 4096, training={"remat": "full"}, world={"input_share": 0.25, "prefetch": True}),
    _Draft("input bound", "h100", (8, 4), _mesh(data=8, model=4), "llama3.1-8b", 64, 4096, training={"remat": "full"}, world={"input_share": 0.2, "prefetch": False}),
    _Draft("input bound", "v5e", (4, 8), _mesh(data=8, model=4), "llama3.2-3b", 128, 2048, training={"remat": "full"}, world={"input_share": 0.3, "prefetch": False}),
    # Pipeline bubble
    _Draft("pipeline bubble", "h100", (8, 8), _mesh(pipeline=8, data=8), "llama2-13b", 128, 4096, training={"grad_accum": 8, "remat": "full", "weight_sharding": "zero1"}, changes=_SPLITS),
    _Draft("pipeline bubble", "a100-80gb", (8, 8), _mesh(pipeline=4, data=4, model=4), "llama2-13b", 128, 2048, training={"grad_accum": 8, "remat": "full", "weight_sharding": "zero1"}, changes=_SPLITS),
    _Draft("pipeline bubble", "b200", (8, 8), _mesh(pipeline=8, data=4, model=2), "llama3.1-70b", 64, 4096, training={"grad_accum": 8, "remat": "full", "weight_sharding": "zero1"}, changes=_SPLITS),
    # Experts unequally full
    _Draft("expert imbalance", "v5p", (4, 4, 4), _mesh(data=16, expert=4), "deepseek-v2-lite:gqa", 256, 4096, training={"remat": "full"}, world={"imbalance": 1.2}),
    _Draft("expert imbalance", "h100", (8, 8), _mesh(data=8, expert=8), "mixtral-8x7b", 128, 4096, training={"remat": "full"}, world={"imbalance": 0.8}),
    _Draft("expert imbalance", "v5e", (8, 16), _mesh(data=16, expert=8), "mixtral-8x7b", 128, 4096, training={"remat": "full"}, world={"imbalance": 0.6}),
    # Long sequences
    _Draft("long sequence", "v5p", (4, 4, 8), _mesh(data=8, seq=4, model=4), "llama3.1-8b", 16, 65536, training={"remat": "full"}, world={"contiguous": True}),
    _Draft("long sequence", "v6e", (8, 8), _mesh(data=4, seq=16), "llama3.2-3b", 16, 32768, training={"remat": "full"}),
    _Draft("long sequence", "h100", (8, 8), _mesh(data=4, seq=4, model=4), "llama3.1-8b", 16, 65536, training={"remat": "full"}),
    # Elementwise work that nothing fuses
    _Draft("HBM bound", "v5e", (8, 8), _mesh(data=32, model=2), "llama3.2-3b", 128, 4096, training={"remat": "full"}, world={"passes": 45.0, "stream": 0.6}),
    _Draft("HBM bound", "v6e", (4, 8), _mesh(data=8, seq=4), "llama3.2-3b", 64, 8192, training={"remat": "full"}, world={"passes": 35.0, "act_passes": 14.0, "replicated_norms": True}),
    _Draft("HBM bound", "a100-80gb", (8, 4), _mesh(data=16, model=2), "llama2-7b", 128, 4096, training={"remat": "full"}, world={"passes": 50.0}),
    # Nothing much wrong
    _Draft("healthy", "v5p", (4, 4, 4), _mesh(data=64), "llama3.1-8b", 256, 8192, training={"remat": "full"}),
    _Draft("healthy", "v5e", (16, 16), _mesh(data=256), "llama2-7b", 512, 4096, training={"remat": "full"}),
    _Draft("healthy", "h100", (8, 8), _mesh(data=32, model=2), "llama3.1-8b", 256, 8192, training={"remat": "full"}),
    _Draft("healthy", "b200", (8, 4), _mesh(data=32), "llama3.1-8b", 128, 8192, training={"remat": "full"}),
)  # fmt: skip

#: Further scenarios, all in the open half: added after the kept-apart half had been looked at once, to tune on more.
_FURTHER: tuple[_Draft, ...] = (
    _Draft("tensor axis too wide", "h100", (8, 4), _mesh(data=4, model=8), "llama2-13b", 64, 4096, training={"remat": "full"}),
    _Draft("tensor axis too wide", "a100-80gb", (8, 8), _mesh(data=8, model=8), "mistral-7b", 256, 2048, training={"remat": "full"}),
    _Draft("tensor axis too wide", "v4", (4, 4, 4), _mesh(data=8, model=8), "llama3.2-3b", 128, 4096, training={"remat": "full"}),
    _Draft("resharding", "a100-80gb", (8, 8), _mesh(data=8, seq=4, model=2), "llama3.1-8b", 64, 8192, training={"remat": "full"}, world={"reshard": 5.0, "reshard_kind": "copy"}),
    _Draft("resharding", "v4", (4, 4, 4), _mesh(data=16, seq=2, model=2), "llama2-7b", 128, 4096, training={"remat": "full"}, world={"reshard": 0.4, "reshard_kind": "all-to-all"}),
    _Draft("slow links", "a100-80gb", (8, 4), _mesh(data=8, model=4), "llama2-7b", 128, 4096, training={"remat": "full"}, world={"slow_dim": 1, "slow": 0.33}),
    _Draft("slow links", "v4", (4, 4, 8), _mesh(data=32, model=4), "llama2-13b", 256, 4096, training={"remat": "full"}, world={"slow_dim": 2, "slow": 0.33}),
    _Draft("DCN exposed", "v4", (4, 4, 4), _mesh(data=16, model=4), "llama2-7b", 256, 2048, dcn=_mesh(data=4), training={"remat": "full"}, world={"network": 0.25, "hidden_dcn": 0.2}),
    _Draft("DCN exposed", "v6e", (8, 16), _mesh(data=32, model=4), "llama3.1-8b", 256, 4096, dcn=_mesh(data=2), training={"remat": "full"}, world={"network": 0.3, "hidden_dcn": 0.2}),
    _Draft("small batch per chip", "v4", (4, 4, 4), _mesh(data=64), "llama2-7b", 64, 1024),
    _Draft("small batch per chip", "v6e", (8, 16), _mesh(data=64, model=2), "llama3.1-8b", 64, 2048, training={"remat": "full"}),
    _Draft("remat too heavy", "a100-80gb", (8, 4), _mesh(data=16, model=2), "llama3.2-3b", 64, 4096, training={"remat": "full"}, changes=_REMATS),
    _Draft("remat too heavy", "v6e", (8, 8), _mesh(data=32, model=2), "llama3.2-3b", 128, 4096, training={"remat": "full"}, changes=_REMATS),
    _Draft("input bound", "a100-80gb", (8, 4), _mesh(data=16, model=2), "llama2-7b", 64, 4096, training={"remat": "full"}, world={"input_share": 0.25, "prefetch": False}),
    _Draft("input bound", "v5p", (4, 4, 4), _mesh(data=16, model=4), "llama2-13b", 128, 4096, training={"remat": "full"}, world={"input_share": 0.25, "prefetch": True}),
    _Draft("pipeline bubble", "h100", (8, 4), _mesh(pipeline=4, data=8), "llama2-7b", 64, 4096, training={"grad_accum": 8, "remat": "full", "weight_sharding": "zero1"}, changes=_SPLITS),
    _Draft("pipeline bubble", "a100-80gb", (8, 8), _mesh(pipeline=8, data=8), "llama3.1-8b", 128, 4096, training={"grad_accum": 8, "remat": "full", "weight_sharding": "zero1"}, changes=_SPLITS),
    _Draft("expert imbalance", "b200", (8, 8), _mesh(data=8, expert=8), "mixtral-8x7b", 128, 4096, training={"remat": "full"}, world={"imbalance": 0.9}),
    _Draft("long sequence", "v4", (4, 4, 4), _mesh(data=8, seq=8), "llama3.2-3b", 16, 32768, training={"remat": "full"}),
    _Draft("long sequence", "v5p", (4, 4, 4), _mesh(data=4, seq=8, model=2), "llama2-7b", 8, 65536, training={"remat": "full"}, world={"contiguous": True}),
    _Draft("HBM bound", "h100", (8, 4), _mesh(data=16, model=2), "llama3.1-8b", 128, 4096, training={"remat": "full"}, world={"passes": 45.0}),
    _Draft("HBM bound", "v4", (4, 4, 4), _mesh(data=32, model=2), "llama2-7b", 128, 4096, training={"remat": "full"}, world={"passes": 40.0, "stream": 0.6}),
    _Draft("healthy", "v4", (4, 4, 4), _mesh(data=64), "llama2-7b", 128, 8192, training={"remat": "full"}),
    _Draft("healthy", "a100-80gb", (8, 8), _mesh(data=32, model=2), "llama2-7b", 256, 4096, training={"remat": "full"}),
)  # fmt: skip


@cache
def scenarios() -> tuple[Scenario, ...]:
    """All of them; of each kind every other one, in the order of a hash, is kept apart."""
    first = [_built(number, draft) for number, draft in enumerate(_DRAFTS)]
    further = [_built(len(_DRAFTS) + number, draft) for number, draft in enumerate(_FURTHER)]
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


def _built(number: int, draft: _Draft) -> Scenario:
    name = f"{draft.kind} {draft.model} {draft.chip}-{np.prod(draft.topology)} {number}"
    model, _, plain = draft.model.partition(":")
    shape = load_catalogue()[model].shape
    if plain:  # the same sizes with grouped-query attention
        shape = replace(shape, attention="gqa", kv_heads=shape.heads, head_dim=128, shared_experts=0, first_dense_layers=0)
    training = {"global_batch": draft.batch, "seq_len": draft.seq_len, "weight_sharding": "fsdp", **draft.training}
    config = ExperimentConfig(
        Hardware(draft.chip, draft.topology, int(np.prod([n for _, n in draft.dcn]))),
        Mesh(draft.ici, draft.dcn),
        shape,
        Training(**training),
        name=name,
    )
    world = drawn(name, get_chip(draft.chip).kind == "gpu", **draft.world)
    return Scenario(name, draft.kind, config, world, draft.changes)
