"""The configuration that a proposal would run: the experiment's own with another mesh and a few training keys."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol

from perfmodel.config import (
    ConfigError,
    ExperimentConfig,
    Hardware,
    Mesh,
    MeshSizes,
    Training,
    config_key,
    placement_of,
)
from perfmodel.config_file import with_mesh
from perfmodel.space import Change, changed

#: Keys of a proposal's changes that are the hardware's.
HARDWARE_KEYS = ("topology", "slices")


def changes_chips(changes: Collection[str]) -> bool:
    """Whether a change runs on another part of the machine: what it gains counts per token and chip then."""
    return not set(HARDWARE_KEYS).isdisjoint(changes)


class MeshAndChanges(Protocol):
    """What has a mesh and changed training keys: a `Candidate`, a proposal, a form or an offer.  Where fewer chips are
    asked for, `topology` and `slices` of the hardware are among the changes too."""

    @property
    def mesh(self) -> MeshSizes: ...

    @property
    def changes(self) -> Change: ...


@dataclass(frozen=True)
class Candidate:
    """A mesh with a change of training keys."""

    mesh: MeshSizes
    changes: Change = field(default_factory=dict)


def candidate(config: ExperimentConfig, of: MeshAndChanges) -> ExperimentConfig:
    """The configuration as a proposal would run it.  Raises ConfigError where mesh and chips do not match."""
    changes, ici, dcn = of.changes, of.mesh["ici"], of.mesh.get("dcn") or {}
    proposed = Mesh(tuple(ici.items()), tuple(dcn.items()), config.mesh.axis_roles)
    known = {item.name for item in fields(Training)}
    values: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in changes.items() if key in known}
    on = with_mesh(replace(config, hardware=hardware_of(config, changes)), proposed)
    return changed(replace(on, measured=None) if changes else on, values)


def is_same(config: ExperimentConfig, one: MeshAndChanges, other: MeshAndChanges) -> bool:
    """Return True if both are the same run of `config` (`perfmodel.config.key`), however they are written."""
    try:
        return config_key(candidate(config, one)) == config_key(candidate(config, other))
    except ConfigError:  # a mesh that does not name the chips is the same only to the letter
        roles = config.mesh.axis_roles
        return placement_of(one.mesh, roles) == placement_of(other.mesh, roles) and dict(one.changes) == dict(
            other.changes
        )


def keeps(config: ExperimentConfig, of: MeshAndChanges) -> bool:
    """Return True if it is the current configuration."""
    return is_same(config, of, Candidate(config.mesh.to_json()))


def hardware_of(config: ExperimentConfig, changes: Mapping[str, Any]) -> Hardware:
    """The chips of a proposal: those that ran, or the fewer that its changes name."""
    own = config.hardware
    return replace(
        own, topology=tuple(changes.get("topology", own.topology)), slices=int(changes.get("slices", own.slices))
    )


def chips_ratio(config: ExperimentConfig, changes: Mapping[str, Any]) -> float:
    """Chips of a proposal over those that ran: 1, or less where fewer were asked for.  A speed-up per token, divided by
    it, is one per token and chip."""
    return hardware_of(config, changes).chips / config.hardware.chips
