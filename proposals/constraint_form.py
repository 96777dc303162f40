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
    """One constraint of a plan: what `Constraints.without` takes away, and its sentence."""

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


def axes(mesh: Mapping[str, Any], asked: Constraints) -> list[AxisRule]:
    """The mesh's axes with what the constraints ask of them."""
    rows = []
    for name, size in (mesh.get("ici") or {}).items():
        rule, value = ("keep" if name in asked.keep_axes else ""), ""
        for kind, sizes in (("fixed", asked.fixed), ("at_least", asked.at_least), ("at_most", asked.at_most)):
            if name in sizes:
                rule, value = kind, str(sizes[name])
        rows.append(AxisRule(name, size, rule, value))
    return rows


def chips(asked: Constraints) -> list[Chip]:
    """Each constraint by itself, in the words of `Constraints.describe`."""
    said = ((key, " ".join(part.describe()).rstrip(".")) for key, part in asked.parts())
    return [Chip(key, text) for key, text in said if text]
