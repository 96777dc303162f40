"""The form of constraints: between its fields and the JSON of `Constraints`, both ways; and constraints as chips."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.http import QueryDict

from proposals.constraints import Constraints

#: Training keys that can be held: field, words.
HELD = (
    ("keep_batch", "Keep the global batch"),
    ("keep_remat", "Keep the remat policy"),
    ("keep_weight_sharding", "Keep the weight sharding"),
    ("keep_micro_batches", "Keep the micro-batches"),
    ("no_flags", "No XLA flags"),
)
#: What can be asked of an axis: value, words, whether it takes a size.
AXIS_RULES = (
    ("", "may change", False), ("keep", "stays", False), ("fixed", "exactly", True), ("at_least", "at least", True),
    ("at_most", "at most", True),
)  # fmt: skip


@dataclass(frozen=True)
class AxisRule:
    """One axis of the form: its name, its size now, what is asked of it and the size asked for."""

    name: str
    size: int
    rule: str
    value: str


@dataclass(frozen=True)
class Chip:
    """One constraint of a plan: what `regenerating.without` takes away, and its sentence."""

    key: str
    text: str


def from_form(form: QueryDict) -> dict[str, Any]:
    """What was filled in; text that is no number is passed on, so that the check can name it."""
    found: dict[str, Any] = {name: True for name, _ in HELD if form.get(name)}
    for axis, rule, size in zip(form.getlist("axis"), form.getlist("rule"), form.getlist("size"), strict=False):
        if rule == "keep":
            found.setdefault("keep_axes", []).append(axis)
        elif rule in ("fixed", "at_least", "at_most"):
            found.setdefault(rule, {})[axis] = _whole(size)
    if chips := form.get("at_most_chips", "").strip():
        found["at_most_chips"] = _whole(chips)
    if margin := form.get("memory_margin", "").strip().rstrip("%").strip():
        try:
            percent = float(margin)
        except ValueError:
            found["memory_margin"] = margin
        else:
            if percent:
                found["memory_margin"] = round(percent / 100, 6)
    return found


def _whole(text: str) -> Any:
    cleaned = text.strip().replace(",", "")
    return int(cleaned) if cleaned.isascii() and cleaned.isdecimal() and len(cleaned) < 16 else text.strip()


def percent(share: float | None) -> str:
    """A share as the form's field holds it: `0.1` is `10`."""
    return f"{share * 100:g}" if share else ""


def axes(mesh: Mapping[str, Any], constraints: Mapping[str, Any]) -> list[AxisRule]:
    """The mesh's axes with what the constraints ask of them."""
    rows = []
    for name, size in (mesh.get("ici") or {}).items():
        rule, value = "", ""
        if name in (constraints.get("keep_axes") or ()):
            rule = "keep"
        for kind in ("fixed", "at_least", "at_most"):
            if name in (constraints.get(kind) or {}):
                rule, value = kind, str(constraints[kind][name])
        rows.append(AxisRule(name, size, rule, value))
    return rows


def chips(constraints: Mapping[str, Any]) -> list[Chip]:
    """Each constraint by itself, in the words of `Constraints.describe`."""
    found = []
    for key, value in constraints.items():
        parts: list[tuple[str, Any]]
        if isinstance(value, Mapping):
            parts = [(f"{key}.{part}", {part: size}) for part, size in value.items()]
        elif key == "excluded":
            parts = [(f"{key}.{number}", [mesh]) for number, mesh in enumerate(value)]
        elif isinstance(value, list):
            parts = [(f"{key}.{part}", [part]) for part in value]
        else:
            parts = [(key, value)]
        for name, alone in parts:
            text = " ".join(Constraints.from_json({key: alone}).describe())
            if text:
                found.append(Chip(name, text.rstrip(".")))
    return found
