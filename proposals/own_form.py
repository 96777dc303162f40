"""The form of a mesh of one's own: between its fields and mesh and changes as the proposer takes them, both ways."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.http import QueryDict

from experiments.config_form import PRECISIONS, REMATS, WEIGHT_SHARDINGS
from perfmodel.config import ROLE_SYNONYMS, ROLES

#: Training keys that can be typed: field, words.
NUMBERS = (
    ("global_batch", "Global batch"),
    ("grad_accum", "Micro-batches"),
    ("micro_batch", "Micro-batch size"),
    ("virtual_stages", "Virtual stages"),
)
#: Training keys that can be chosen: field, words, values.
CHOICES = (
    ("remat", "Remat", REMATS),
    ("weight_sharding", "Weight sharding", WEIGHT_SHARDINGS),
    ("precision", "Precision", PRECISIONS),
)
#: Longest mesh or changes in an address.
MAX_GIVEN = 4000


@dataclass(frozen=True)
class AxisSize:
    """One axis of the form.  place: `ici` or `dcn`; now: what runs; value: as typed."""

    place: str
    name: str
    now: int
    value: str


@dataclass(frozen=True)
class Setting:
    """One training key of the form: what runs in words, and what was typed or chosen; empty: as it runs."""

    name: str
    words: str
    now: str
    value: str
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Given:
    """What the form says."""

    mesh: dict[str, dict[str, Any]]
    changes: dict[str, Any]


def from_form(form: QueryDict) -> Given:
    """What was filled in.  An axis left empty has size 1; text that is no number is passed on, to be named."""
    mesh: dict[str, dict[str, Any]] = {"ici": {}, "dcn": {}}
    for place in mesh:
        for name, size in zip(form.getlist(f"{place}_name"), form.getlist(f"{place}_size"), strict=False):
            mesh[place][name] = _whole(size) if size.strip() else 1
    changes: dict[str, Any] = {}
    for name, _ in NUMBERS:
        if text := form.get(name, "").strip():
            changes[name] = _whole(text)
    for name, _, _ in CHOICES:
        if text := form.get(name, "").strip():
            changes[name] = text
    if flags := form.get("xla_flags", "").split():
        changes["xla_flags"] = flags
    return Given(_without_new_ones(mesh, form), changes)


def _without_new_ones(mesh: dict[str, dict[str, Any]], form: QueryDict) -> dict[str, dict[str, Any]]:
    """Axes that only the form offered, and that stay at size 1, are not in the mesh."""
    offered = set(form.getlist("offered"))
    return {
        place: {name: size for name, size in axes.items() if size != 1 or name not in offered}
        for place, axes in mesh.items()
    }


def from_query(form: QueryDict) -> Given | None:
    """`?mesh=…&changes=…`, both JSON: where a link opens the form; None where they are none."""
    texts = form.get("mesh", ""), form.get("changes", "") or "{}"
    if not texts[0] or any(len(text) > MAX_GIVEN for text in texts):
        return None
    try:
        mesh, changes = (json.loads(text) for text in texts)
    except (ValueError, RecursionError):
        return None
    if not isinstance(mesh, dict) or not isinstance(changes, dict):
        return None
    places = {place: mesh.get(place) or {} for place in ("ici", "dcn")}
    return Given(places, changes) if all(isinstance(axes, dict) for axes in places.values()) else None


def _whole(text: str) -> Any:
    cleaned = text.strip().replace(",", "")
    return int(cleaned) if re.fullmatch(r"[+-]?\d{1,15}", cleaned) else text.strip()


def axes(config: Mapping[str, Any], given: Mapping[str, Mapping[str, Any]]) -> list[AxisSize]:
    """The axes of what ran with the sizes given, then those of the given mesh that are new."""
    mesh = config.get("mesh") or {}
    rows = []
    for place in ("ici", "dcn"):
        old, new = mesh.get(place) or {}, given.get(place) or {}
        if place == "dcn" and (config.get("hardware") or {}).get("slices", 1) == 1:
            continue
        for name in dict.fromkeys([*old, *new]):
            rows.append(AxisSize(place, str(name), old.get(name, 1), str(new.get(name, 1))))
    return rows


def offered(config: Mapping[str, Any], shown: list[AxisSize]) -> list[str]:
    """Axes by the name of their role that the mesh does not have, to be added."""
    roles = (config.get("mesh") or {}).get("axis_roles") or {}
    taken = {ROLE_SYNONYMS.get(role := roles.get(item.name, item.name), role) for item in shown if item.place == "ici"}
    if "data" in taken:
        taken.add("fsdp")
    return [role for role in ROLES if role not in ROLE_SYNONYMS and role not in taken]


def settings(training: Mapping[str, Any], changes: Mapping[str, Any]) -> list[Setting]:
    """The training keys, numbers first."""
    rows = [Setting(name, words, _now(training.get(name)), _text(changes.get(name))) for name, words in NUMBERS]
    rows += [
        Setting(name, words, _now(training.get(name)), _text(changes.get(name)), options)
        for name, words, options in CHOICES
    ]
    return rows


def _now(value: Any) -> str:
    return "" if value is None else f"now {value}"


def _text(value: Any) -> str:
    return "" if value is None else str(value)
