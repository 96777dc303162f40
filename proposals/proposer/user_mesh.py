"""A mesh and training keys as a user gives them: read strictly, judged by the rules, never thrown at anyone."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from perfmodel.config import ROLES, ConfigError, ExperimentConfig, Mesh
from perfmodel.config_file import TRAINING_KEYS, read_training
from perfmodel.reading import shown
from proposals.candidate import HARDWARE_KEYS, hardware_of
from proposals.plan import Broken, Predicted, ProposalPlan
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
    pairs_given = []
    for axis, size in sizes.items():
        if not isinstance(axis, str) or config.mesh.role(axis) not in ROLES:
            raise ConfigError(path, f"has the axis {shown(axis)}, whose role is not known; use {' '.join(ROLES)}")
        if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= MOST_SIZE:
            raise ConfigError(f"{path}.{axis}", f"is {shown(size)}; give a whole number from 1 to {MOST_SIZE:,}")
        pairs_given.append((axis, size))
    return tuple(pairs_given)


def given_changes(config: ExperimentConfig, data: Mapping[str, Any]) -> Change:
    """Training keys that differ from the current configuration.  Raises ConfigError for an unknown key or a value it
    cannot take."""
    if not isinstance(data, Mapping):
        raise ConfigError("changes", "must map training keys to their values")
    chips = _fewer(config, {key: data[key] for key in HARDWARE_KEYS if key in data})
    data = {key: value for key, value in data.items() if key not in HARDWARE_KEYS}
    for key in data:
        if key not in TRAINING_KEYS:
            known = " ".join(TRAINING_KEYS)
            raise ConfigError(f"training.{str(key)[:40]}", f"is not a training key; known are {known}")
    training = read_training(config, data)
    given: Change = chips
    for key in data:
        value = getattr(training, key)
        if value != getattr(config.training, key):
            given[key] = list(value) if isinstance(value, tuple) else value
    return given


def _fewer(config: ExperimentConfig, data: Mapping[str, Any]) -> Change:
    """`topology` and `slices` of a proposal on fewer chips; nothing if they are the current ones."""
    own = config.hardware
    topology, slices = data.get("topology", list(own.topology)), data.get("slices", own.slices)
    whole = [size for size in topology if type(size) is int and size > 0] if isinstance(topology, list | tuple) else []
    if len(whole) != len(own.topology) or list(whole) != list(topology):
        text = f"is {shown(topology)}; give {len(own.topology)} whole numbers of chips"
        raise ConfigError("hardware.topology", text)
    if type(slices) is not int or not 1 <= slices <= MOST_SIZE:
        raise ConfigError("hardware.slices", f"is {shown(slices)}; give a whole number of at least 1")
    if prod(whole) * slices > own.chips:
        raise ConfigError(
            "hardware.topology",
            f"has more than the {own.chips:,} chips of the current configuration; give at most that many",
        )
    if (tuple(whole), slices) == (own.topology, own.slices):
        return {}
    return {"topology": whole, "slices": slices}


def products(config: ExperimentConfig, mesh: Mesh, change: Change) -> tuple[Broken, ...]:
    """The rule `chips`, where a mesh names another number of chips than there is."""
    hardware = hardware_of(config, change)
    if mesh.ici_product == hardware.chips_per_slice and mesh.dcn_product == hardware.slices:
        return ()
    if mesh.ici_product != hardware.chips_per_slice:
        text = (
            f"The mesh axes multiply to {mesh.ici_product:,} chips per slice, but the slice has "
            f"{hardware.chips_per_slice:,}. Make the product of the sizes equal to it."
        )
    else:
        text = f"The mesh spans {mesh.dcn_product:,} slices, but there are {hardware.slices:,}."
    return (Broken("chips", text),)


def impossible(mesh: Mesh, change: Change, wrong: tuple[Broken, ...], missing: tuple[str, ...]) -> ProposalPlan:
    """What names other chips than there are: no time, no memory, only what is wrong."""
    return ProposalPlan(
        rank=0,
        kind="own",
        title="Mesh impossible on this topology",
        mesh=mesh.to_json(),
        changes=dict(change),
        predicted=Predicted(missing=missing),
        confidence=0.0,
        reasoning=tuple(f"Invalid configuration: {item.reason}" for item in wrong),
        expected_impact=(),
        trade_offs=(),
        violations=wrong,
    )
