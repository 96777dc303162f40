"""A figure of a run: one number with what it is of, how it was computed, and where it is shown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from formatting import plain
from proposals.agents.grounding_claims import Kind
from proposals.agents.grounding_facts import stems

#: Kind of a printed number by the unit of a value.
KINDS: dict[str, Kind] = {
    "s": "time", "share": "share", "probability": "share", "speedup": "ratio", "bytes": "bytes",
    "bytes_per_s": "bytes_per_s", "flops": "flops", "flops_per_s": "flops_per_s", "FLOP/byte": "intensity",
    "count": "bare", "": "bare",
}  # fmt: skip
PREDICTED_PART = "the model's part of this step × measured step time ÷ predicted step time"
#: Where figures are shown.
KEY_FIGURES, BREAKDOWN, OPS, COLLECTIVES = "key figures", "breakdown of the step", "table of ops", "collectives"
ROOFLINE, CONFIGURATION, CHIP, STEPS = "roofline", "configuration", "chip data", "table of steps"


@dataclass(frozen=True)
class Figure:
    """A number of a run.

    label: what it is, with its subject.  value in SI; unit: as `formatting.quantity` takes it.  origin:
    `measured`, `computed`, `predicted` or `sourced`.  place: where it is shown.  formula: how it was computed; inputs:
    (name, value as printed) of what it was computed from; counts: over what it is taken (per step and core, of the
    device time), which is what two numbers of one thing differ in.  of: the op, axis, part, proposal or core that it is
    of.  weight: from 0, how likely a reader means it where several have the same number.
    """

    label: str
    value: float
    unit: str
    origin: str
    place: str
    formula: str = ""
    inputs: tuple[tuple[str, str], ...] = ()
    counts: str = ""
    of: tuple[str, ...] = ()
    field: str = ""
    weight: int = 0

    @property
    def kind(self) -> Kind:
        return KINDS.get(self.unit, "bare")

    @property
    def text(self) -> str:
        return plain(self.value, self.unit, self.origin)

    @property
    def quantity(self) -> str:
        """What it is, whichever configuration, op or core it is of."""
        label = self.label
        for name in sorted((*self.of, "the current configuration"), key=len, reverse=True):
            label = label.replace(name, "")
        return " ".join(label.replace("``", "").split())

    @cached_property
    def stems(self) -> frozenset[str]:
        return stems(f"{self.label} {self.place}")


def figure(label: str, value: Any, unit: str, origin: str, place: str, **more: Any) -> Iterator[Figure]:
    """The figure; nothing where the value is not known."""
    if value is not None and not isinstance(value, bool):
        yield Figure(label, float(value), unit, origin, place, **more)
