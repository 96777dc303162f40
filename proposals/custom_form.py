"""A mesh of one's own as one types it, `data=8 seq=4 remat=minimal`, and a candidate in the same notation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from formatting.numbers import whole_number
from perfmodel.config import ConfigError, MeshSizes, Training, flat_sizes
from perfmodel.reading import shown
from proposals.candidate import HARDWARE_KEYS, Candidate, MeshAndChanges

#: What a run without any of the XLA flags that are set now is written as.
NO_FLAGS = "xla_flags=none"
_TRAINING = frozenset(field.name for field in fields(Training))


def read(text: str, current: MeshSizes) -> Candidate:
    """Return the candidate that a text names: axes (`dcn.data=2` across slices), training keys, and XLA flags.

    current: the mesh where it names no axis.  Raises ConfigError.
    """
    mesh: dict[str, dict[str, Any]] = {"ici": {}, "dcn": {}}
    changes: dict[str, Any] = {}
    words = (word if word.startswith("--") else word.replace(",", " ") for word in text.split())
    for word in " ".join(words).split():
        name, _, value = word.partition("=")
        part, _, axis = name.rpartition(".")
        if word.startswith("--"):
            changes.setdefault("xla_flags", []).append(word)
        elif word == NO_FLAGS:
            changes["xla_flags"] = []
        elif not value or not axis or (part or "ici") not in mesh:
            raise ConfigError("", f"{shown(word)} is not name=value; write data=8 seq=16 remat=minimal")
        else:
            given = value if (number := whole_number(value)) is None else number
            if name in _TRAINING:
                changes[name] = given
            else:
                mesh[part or "ici"][axis] = given
    return Candidate({place: sizes or current.get(place, {}) for place, sizes in mesh.items()}, changes)


def written(of: MeshAndChanges) -> str:
    """Return the text that `read` takes for a mesh and changes of training keys."""
    changes: Mapping[str, Any] = {key: value for key, value in of.changes.items() if key not in HARDWARE_KEYS}
    settings = {**flat_sizes(of.mesh), **changes}
    flags = settings.pop("xla_flags", ()) or [NO_FLAGS] * ("xla_flags" in changes)
    return " ".join([*(f"{name}={value}" for name, value in settings.items()), *map(str, flags)])
