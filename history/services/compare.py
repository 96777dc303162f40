"""Both sides of a record beside each other: the mesh by axis, the training keys, and what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from history.reading import SHARES
from history.record import Record
from perfmodel.config import ROLE_SYNONYMS

#: The order in which measured quantities are shown; others follow as they come.
_KPIS = (
    "step_time_s", "tokens_per_s_per_chip", "flops_per_s_per_chip", "mfu", "duty_cycle", "communication",
    "hbm_utilization", "flops_utilization", "peak_bytes",
)  # fmt: skip


@dataclass(frozen=True)
class AxisChange:
    """One axis on ICI or DCN.  before, after: sizes, 1 where the side's mesh does not name it; None where the side's
    mesh is not known."""

    axis: str
    part: str
    role: str
    before: int | None
    after: int | None

    @property
    def ratio(self) -> float | None:
        return self.after / self.before if self.before and self.after else None

    @property
    def changed(self) -> bool:
        return self.ratio is not None and self.before != self.after


@dataclass(frozen=True)
class Changed:
    """A training key; None where the side does not give it."""

    key: str
    before: Any
    after: Any

    @property
    def changed(self) -> bool:
        """Whether both are given and differ."""
        return self.before is not None and self.after is not None and self.before != self.after


@dataclass(frozen=True)
class Measured:
    """A measured quantity, SI and shares 0-1; None where the side does not give it.

    share: a share of one, whose change is a difference in points; otherwise `ratio` says more.  text: a word beside
    the numbers, such as the convention of an MFU.
    """

    key: str
    before: float | str | None
    after: float | str | None
    share: bool = False

    @property
    def ratio(self) -> float | None:
        """After / before, None unless both are numbers other than 0."""
        if isinstance(self.before, str) or isinstance(self.after, str) or not self.before or not self.after:
            return None
        return self.after / self.before

    @property
    def difference(self) -> float | None:
        if isinstance(self.before, int | float) and isinstance(self.after, int | float):
            return self.after - self.before
        return None


@dataclass(frozen=True)
class Difference:
    """What differs between the sides of a record, and what stayed."""

    axes: tuple[AxisChange, ...]
    training: tuple[Changed, ...]
    kpis: tuple[Measured, ...]


def difference(record: Record) -> Difference:
    """What differs between the sides, and what stayed, in the order of the side before."""
    before, after = record.before, record.after
    roles = {**after.axis_roles, **before.axis_roles}
    return Difference(
        tuple(
            AxisChange(
                axis,
                part,
                ROLE_SYNONYMS.get(roles.get(axis, axis), roles.get(axis, axis)),
                _size(before.mesh, part, axis),
                _size(after.mesh, part, axis),
            )
            for part in ("ici", "dcn")
            for axis in dict.fromkeys([*(before.mesh or {}).get(part, {}), *(after.mesh or {}).get(part, {})])
        ),
        tuple(
            Changed(key, before.training.get(key), after.training.get(key))
            for key in dict.fromkeys([*before.training, *after.training])
        ),
        tuple(
            Measured(key, before.kpis.get(key), after.kpis.get(key), key in SHARES)
            for key in _ordered([*before.kpis, *after.kpis])
        ),
    )


def _size(mesh: Mapping[str, Mapping[str, int]] | None, part: str, axis: str) -> int | None:
    return None if mesh is None else mesh.get(part, {}).get(axis, 1)


def _ordered(keys: list[str]) -> list[str]:
    place = {key: number for number, key in enumerate(_KPIS)}
    return sorted(dict.fromkeys(keys), key=lambda key: place.get(key, len(place)))
