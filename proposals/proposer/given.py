"""A mesh and training keys as a user gives them: read strictly, judged by the rules, never thrown at anyone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfmodel.checks import shown
from perfmodel.config import ROLES, ConfigError, ExperimentConfig, Mesh
from perfmodel.config_file import TRAINING_KEYS, read_training
from proposals.plan import Broken
from proposals.proposer.changes import Change

#: Axes that a mesh may name, and the largest size: beyond them nobody means it.
MOST_AXES = 12
MOST_SIZE = 10**7


def given_mesh(config: ExperimentConfig, data: Mapping[str, Any]) -> Mesh:
    """The mesh of {"ici": {axis: size}, "dcn": {…}}; without `dcn` the configuration's.  Raises ConfigError for what is
    no mesh: another form, no size, an axis whose role nobody knows."""
    if not isinstance(data, Mapping) or not isinstance(data.get("ici"), Mapping) or not data["ici"]:
        raise ConfigError("mesh", 'must be of the form {"ici": {"data": 4, "model": 2}}')
    if unknown := set(data) - {"ici", "dcn"}:
        raise ConfigError(f"mesh.{str(sorted(map(str, unknown))[0])[:40]}", "is not known; a mesh has ici and dcn")
    across = data.get("dcn")
    sides = {"ici": data["ici"], "dcn": across or dict(config.mesh.dcn)}
    read = {place: _sizes(config, f"mesh.{place}", sizes) for place, sizes in sides.items()}
    return Mesh(read["ici"], read["dcn"], config.mesh.axis_roles)


def _sizes(config: ExperimentConfig, path: str, sizes: Any) -> tuple[tuple[str, int], ...]:
    if not isinstance(sizes, Mapping) or len(sizes) > MOST_AXES:
        raise ConfigError(path, f"must map at most {MOST_AXES} axes to their sizes")
    found = []
    for axis, size in sizes.items():
        if not isinstance(axis, str) or config.mesh.role(axis) not in ROLES:
            raise ConfigError(path, f"has the axis {shown(axis)}, whose role is not known; use {' '.join(ROLES)}")
        if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= MOST_SIZE:
            raise ConfigError(f"{path}.{axis}", f"is {shown(size)}; give a whole number from 1 to {MOST_SIZE:,}")
        found.append((axis, size))
    return tuple(found)


def given_changes(config: ExperimentConfig, data: Mapping[str, Any]) -> Change:
    """Training keys that differ from what ran.  Raises ConfigError for an unknown key or a value it cannot take."""
    if not isinstance(data, Mapping):
        raise ConfigError("changes", "must map training keys to their values")
    for key in data:
        if key not in TRAINING_KEYS:
            known = " ".join(TRAINING_KEYS)
            raise ConfigError(f"training.{str(key)[:40]}", f"is not a training key; known are {known}")
    training = read_training(config, data)
    found: Change = {}
    for key in data:
        value = getattr(training, key)
        if value != getattr(config.training, key):
            found[key] = list(value) if isinstance(value, tuple) else value
    return found


def products(config: ExperimentConfig, mesh: Mesh) -> tuple[Broken, ...]:
    """The rule `chips`, where a mesh names another number of chips than there is."""
    hardware = config.hardware
    if mesh.ici_product == hardware.chips_per_slice and mesh.dcn_product == hardware.slices:
        return ()
    if mesh.ici_product != hardware.chips_per_slice:
        text = (
            f"The mesh names {mesh.ici_product:,} chips of a slice; there are {hardware.chips_per_slice:,}. Make the "
            "product of the sizes equal to it."
        )
    else:
        text = f"The mesh spans {mesh.dcn_product:,} slices; there are {hardware.slices:,}."
    return (Broken("chips", text),)
