"""Ops of two runs that do the same thing, whatever number the compiler gave their fusions."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

from diagnosis.compare.comparison import OpChange
from diagnosis.compare.sides import Side
from diagnosis.report import OpDiagnosis
from experiments.hlo import text as hlo

_NUMBERS = re.compile(r"[.\d]+(?:\.(?:clone|remat|block)\w*)*$")
_LOOP = re.compile(r"(?<=[_\[])\d+(?=\]|/|$)")
_MOST_KEYS = 20


@dataclass(frozen=True)
class Item:
    """One op with what it is matched by."""

    op: OpDiagnosis
    path: str
    stem: str
    what: str

    @property
    def shape(self) -> tuple[object, ...]:
        """Result and operand shapes."""
        line = hlo.parse(self.op.hlo) if self.op.hlo else None
        return (line.results, line.operands) if line else ()


def _item(op: OpDiagnosis) -> Item:
    stem = _NUMBERS.sub("", op.name.lstrip("%")) or op.name
    # The -start of a pair is matched to a -start: its kind alone would mix it with the wait.
    part = next((ending for ending in ("-start", "-done") if ending in op.name or ending in op.category), "")
    what = f"{op.collective}{part}" if op.collective else op.family
    return Item(op, _LOOP.sub("#", op.op_name), stem, what)


#: From what says most to what says least; each looks only at what the ones before left over.
_LEVELS: tuple[tuple[str, Callable[[Item], Hashable | None]], ...] = (
    ("path", lambda item: (item.path, item.what) if item.path else None),
    ("path", lambda item: item.path or None),
    ("module", lambda item: (item.op.module, item.op.phase, item.what, item.op.source) if item.op.module else None),
    ("shape", lambda item: (item.stem, item.op.category, item.shape) if item.shape else None),
    ("name", lambda item: (item.stem, item.op.category.lower())),
)


def match(
    before: Sequence[Item], after: Sequence[Item]
) -> tuple[list[tuple[str, list[Item], list[Item]]], float, float]:
    """([(matched by, ops before, ops after), …], matched share of time before, after); partnerless ops come last."""
    left, right = list(before), list(after)
    groups: list[tuple[str, list[Item], list[Item]]] = []
    for name, of in _LEVELS:
        one, two = _grouped(left, of), _grouped(right, of)
        common = [key for key in one if key in two]
        groups += [(name, one[key], two[key]) for key in common]
        used = {id(item) for key in common for item in (*one[key], *two[key])}
        left = [item for item in left if id(item) not in used]
        right = [item for item in right if id(item) not in used]
    matched = _part(before, left), _part(after, right)
    alone = _LEVELS[-1][1]
    groups += [("", group, []) for group in _grouped(left, alone).values()]
    groups += [("", [], group) for group in _grouped(right, alone).values()]
    return groups, matched[0], matched[1]


def _grouped(items: Iterable[Item], of: Callable[[Item], Hashable | None]) -> dict[Hashable, list[Item]]:
    groups: dict[Hashable, list[Item]] = {}
    for item in items:
        if (key := of(item)) is not None:
            groups.setdefault(key, []).append(item)
    return groups


def _part(whole: Sequence[Item], left: Sequence[Item]) -> float:
    total = sum(item.op.time_share for item in whole)
    return max(0.0, 1.0 - sum(item.op.time_share for item in left) / total) if total > 0 else 0.0


def op_changes(before: Side, after: Side, scales: tuple[float, float]) -> tuple[list[OpChange], float, float]:
    """(changes by size, matched share of op time before, after).  scales: from shares to the comparison's basis."""
    groups, matched_before, matched_after = match(
        *([_item(op) for op in side.diagnosis.ops] for side in (before, after))
    )
    rows = []
    for how, one, two in groups:
        largest = max((*one, *two), key=lambda item: item.op.time_share)
        was = sum(item.op.time_share for item in one) * scales[0] if one else None
        now = sum(item.op.time_share for item in two) * scales[1] if two else None
        rows.append(
            OpChange(
                label=_label(how, (*one, *two)),
                module=largest.op.module if len({item.op.module for item in (*one, *two)}) == 1 else "",
                category=largest.op.category,
                collective=largest.op.collective,
                before=was,
                after=now,
                change=(now or 0.0) - (was or 0.0),
                before_count=_count(before, one),
                after_count=_count(after, two),
                before_axes=_axes(one),
                after_axes=_axes(two),
                before_ops=tuple(item.op.key for item in one[:_MOST_KEYS]),
                after_ops=tuple(item.op.key for item in two[:_MOST_KEYS]),
                matched_by=how,
            )
        )
    rows.sort(key=lambda row: (-abs(row.change), row.label))
    return rows, matched_before, matched_after


def _label(how: str, group: Sequence[Item]) -> str:
    """The framework path that the ops share; of several paths what they have in common, not the largest op's."""
    largest = max(group, key=lambda item: item.op.time_share)
    paths = {item.path for item in group if item.path}
    if how == "path" or len(paths) < 2:
        return largest.path or largest.stem
    if how == "module":
        return f"{largest.op.module}, {largest.what}"
    return largest.stem


def _count(side: Side, group: Sequence[Item]) -> float | None:
    runs = side.diagnosis.recording.steps * side.diagnosis.recording.devices
    return sum(item.op.occurrences for item in group) / runs if runs else None


def _axes(group: Sequence[Item]) -> tuple[str, ...]:
    axes = dict.fromkeys(item.op.mesh_axis for item in group if item.op.mesh_axis)
    return tuple(axis if isinstance(axis, str) else ", ".join(axis) for axis in axes)
