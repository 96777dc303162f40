"""The form of constraints: between its fields and the JSON of `Constraints`, both ways; and constraints as chips."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.http import QueryDict

from experiments.form_fields import Quantity, Rows, Sheet, Tick, whole
from proposals.constraints import Constraints

#: What can be asked of an axis: value, words.
AXIS_RULES = (
    ("", "may change"), ("keep", "stays"), ("fixed", "exactly"), ("at_least", "at least"), ("at_most", "at most"),
)  # fmt: skip


class Share(Quantity):
    """A share as per cent; none is 0."""

    def to_python(self, value: str | None) -> Any:
        return super().to_python(value) or ""

    def prepare_value(self, value: Any) -> Any:
        return f"{value * 100:g}" if isinstance(value, float) else value


class ConstraintForm(Sheet):
    keep_batch = Tick("Keep the global batch")
    keep_remat = Tick("Keep the remat policy")
    keep_weight_sharding = Tick("Keep the weight sharding")
    keep_micro_batches = Tick("Keep the micro-batches")
    no_flags = Tick("No XLA flags")
    axes = Rows("axis", "rule", "size")
    memory_margin = Share(
        {"": 0.01, "%": 0.01}, label="Memory to keep free, %", help_text="of usable memory; at most 50",
        attrs={"inputmode": "decimal", "placeholder": "0"},
    )  # fmt: skip

    def ticks(self) -> list[Any]:
        return [self[name] for name, field in self.fields.items() if isinstance(field, Tick)]


def filled(asked: Constraints) -> ConstraintForm:
    """The form with these constraints."""
    return ConstraintForm(initial=asked.to_json(), auto_id="c-%s")


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
    values = ConstraintForm(form).filled_values()
    for axis, rule, size in values.pop("axes", ()):
        if rule == "keep":
            values.setdefault("keep_axes", []).append(axis)
        elif rule in ("fixed", "at_least", "at_most"):
            values.setdefault(rule, {})[axis] = whole(size)
    return values


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
