"""The form of a capability filled with the values of a clause: what it takes, what it cannot take, and what it keeps of
the request before."""

from __future__ import annotations

from collections.abc import Collection
from math import prod
from typing import Any

from perfmodel.config import ExperimentConfig
from proposals.agents import notation
from proposals.agents.capabilities import Capability
from proposals.agents.capabilities.configured import SETTINGS as KEYS
from proposals.agents.mesh_completion import Sizes
from proposals.agents.notation import Read, written
from proposals.agents.reasoner import intent

#: Values that configure a run; those without a field of `Configured` no form takes.
SETTINGS = frozenset(
    ("mesh", "chip", "chips", "batch", "seq_len", "micro_batches", "micro_batch", "virtual_stages", "remat",
     "precision", "state_precision", "weight_sharding", "optimizer")
)  # fmt: skip


def filled(of: Capability, read: Read, proposals: Collection[int]) -> dict[str, Any]:
    """The fields of a form that the values of a clause fill.

    Of several values of a setting each is a row.
    """
    fields: dict[str, Any] = {}
    numbers = read.of("proposal") or [n for n in read.of("number") if n in proposals]
    rows = "variants" in of.fields and "meshes" not in of.fields
    for name in of.fields:
        every = read.of(name)
        values = [value for at, value in enumerate(every) if value not in every[:at]]
        if name == "proposals":
            if numbers:
                fields[name] = tuple(dict.fromkeys(numbers))[:4]
        elif name == "meshes":
            if len(read.of("mesh")) > 1:
                fields[name] = tuple(written(each) for each in read.of("mesh")[:4])
                fields.pop("mesh", None)
        elif name == "xla_flags" and values:
            fields[name] = tuple(values)
        elif name == "text":
            fields[name] = read.text[:400]
        elif values:
            said = [written(value) if name == "mesh" else value for value in values]
            if len(said) > 1 and rows and name in SETTINGS and "variants" not in fields:
                fields["variants"] = tuple(f"{name}={value}" for value in said)
            else:
                fields[name] = said[0]
    return fields


def carried(before: dict[str, Any], values: dict[str, Any], of: Capability, config: ExperimentConfig) -> dict[str, Any]:
    """The last request's values where the new ones leave them open; sizes of both are joined where they fit."""
    left = {"text", "sentence", *(("mesh", "meshes", "variants") if values.keys() & {"proposal", "proposals"} else ())}
    left |= {"proposal", "proposals"} if "mesh" in values else set()
    kept = {k: v for k, v in before.items() if k in of.fields and k not in values and k not in left}
    if "mesh" in values and before.get("mesh"):
        old, new = (notation.sizes(each, config.mesh) for each in (before["mesh"], values["mesh"]))
        both = notation.joined([old, new])
        if prod(both.ici.values()) == config.hardware.chips_per_slice:
            values = {**values, "mesh": written(both)}
    return {**kept, **values}


def lost(of: Capability, read: Read, config: ExperimentConfig) -> tuple[str, ...]:
    """Values of the clause that the form does not take and that are not those of the current configuration."""
    fields, names = set(of.fields), []
    for name in sorted(read.names & SETTINGS):
        if {name, *intent.FILLS.get(name, ())} & fields:
            values = [] if fields & {"variants", "meshes"} else read.of(name)[1:]
        else:
            values = read.of(name)
        names += [_spoken(name, value) for value in values if not runs(name, value, config)]
    return tuple(dict.fromkeys(names))


def _spoken(name: str, value: Any) -> str:
    return written(value) if isinstance(value, Sizes) else f"{name.replace('_', ' ')} {value}"


def runs(name: str, value: Any, config: ExperimentConfig) -> bool:
    """Whether a value is that of the current configuration."""
    if isinstance(value, Sizes):
        ici, dcn = dict(config.mesh.ici), dict(config.mesh.dcn)
        named = all(ici.get(axis, 1) == size for axis, size in value.ici.items())
        return named and all(dcn.get(axis, 1) == size for axis, size in value.dcn.items()) and not (
            value.factors or (value.positional and value.positional != tuple(ici.values()))
        )  # fmt: skip
    if name in ("chip", "chips"):
        return bool(getattr(config.hardware, name) == value)
    return name in KEYS and bool(getattr(config.training, KEYS[name]) == value)
