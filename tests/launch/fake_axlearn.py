"""AXLearn's mesh classes and modifiers as recorders, so that a launch file for it can be imported without it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from types import ModuleType
from typing import Any

from perfmodel.chips import get_chip
from perfmodel.config import ExperimentConfig

#: axlearn/experiments/text/gpt/common.py: MESH_AXIS_NAMES.
AXES = ("pipeline", "data", "expert", "fsdp", "seq", "model")


def mesh_shape_from_axes(**sizes: int) -> tuple[int, ...]:
    assert set(sizes) <= set(AXES)
    return tuple(sizes.get(axis, 1) for axis in AXES)


@dataclass(frozen=True)
class HybridMeshShape:
    """axlearn/common/utils.py: both shapes have the same length."""

    ici_mesh_shape: tuple[int, ...]
    dcn_mesh_shape: tuple[int, ...]

    def __post_init__(self) -> None:
        assert len(self.ici_mesh_shape) == len(self.dcn_mesh_shape)


@dataclass(frozen=True)
class RematSpec:
    prevent_cse: bool
    policy: Any


def combine_remat_policies() -> None:
    """axlearn/common/utils.py: keeps what either policy keeps."""


class _Modifier:
    """`X.default_config().set(...)` as AXLearn's configs are built."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.values: dict[str, Any] = {}

    def default_config(self) -> _Modifier:
        return _Modifier(self.name)

    def set(self, **values: Any) -> _Modifier:
        self.values |= values
        return self


@contextmanager
def installed() -> Iterator[None]:
    names = ("Chain", "GradientAccumulation", "MeshShape", "RematSpec")
    members: dict[str, dict[str, Any]] = {
        "axlearn": {},
        "axlearn.common": {},
        "axlearn.common.base_layer": {"RematSpec": RematSpec},
        "axlearn.common.trainer_config_modifier": {
            f"{name}{'Config' if name == 'Chain' else ''}Modifier": _Modifier(name) for name in names
        },
        "axlearn.common.config": {"config_for_function": lambda function: _Modifier(function.__name__)},
        "axlearn.common.flash_attention": {},
        "axlearn.common.flash_attention.remat": {"save_or_offload_flash_attention_policy": lambda: "attention"},
        "axlearn.common.utils": {"HybridMeshShape": HybridMeshShape, "combine_remat_policies": combine_remat_policies},
        "axlearn.experiments": {},
        "axlearn.experiments.text": {},
        "axlearn.experiments.text.gpt": {},
        "axlearn.experiments.text.gpt.common": {"mesh_shape_from_axes": mesh_shape_from_axes},
    }
    for name, values in members.items():
        module = ModuleType(name)
        vars(module).update(values)
        sys.modules[name] = module
    try:
        yield
    finally:
        for name in members:
            del sys.modules[name]


def mesh_of(text: str, config: ExperimentConfig) -> dict[str, Any]:
    """Run the file and its `modifier()`; the mesh must be one that axlearn's `create_device_mesh` takes.

    Returns the sizes inside and across units, and the modifiers by name.
    """
    space: dict[str, Any] = {}
    with installed():
        exec(compile(text, "axlearn_mesh.py", "exec"), space)
        chain = space["modifier"]()
    modifiers = {part.name: part.values for part in chain.values["config_modifiers"]}
    mesh, chip = modifiers["MeshShape"]["mesh_shape"], get_chip(config.hardware.chip)
    hybrid = isinstance(mesh, HybridMeshShape)
    inside = mesh.ici_mesh_shape if hybrid else mesh
    across = mesh.dcn_mesh_shape if hybrid else (1,) * len(AXES)
    if chip.kind == "tpu":
        units, devices = config.hardware.slices, config.hardware.chips_per_slice * chip.devices_per_chip
    else:
        devices = min(chip.chips_per_host, config.hardware.chips)
        units = config.hardware.chips // devices
    assert prod(across) == units and prod(inside) == devices
    return {"inside": dict(zip(AXES, inside, strict=True)), "across": dict(zip(AXES, across, strict=True)), **modifiers}
