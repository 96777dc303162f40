"""Records as pages show them: words for their facets, and both sides line by line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import formatting
from history.reading import SHARES
from history.record import Record

Mesh = Mapping[str, Mapping[str, int]]

#: KPIs in the order of a page: label, unit, and whether more is better (None: neither).
KPIS: Mapping[str, tuple[str, str, bool | None]] = {
    "step_time_s": ("Step time", "s", False),
    "tokens_per_s_per_chip": ("Tokens per second and chip", "tokens", True),
    "tokens_per_s": ("Tokens per second", "tokens", True),
    "flops_per_s_per_chip": ("FLOP/s per chip", "flops_per_s", True),
    "mfu": ("MFU", "share", True),
    "hfu": ("HFU", "share", True),
    "duty_cycle": ("Duty cycle", "share", None),
    "idle": ("Idle", "share", False),
    "communication": ("Communication", "share", False),
    "input": ("Input", "share", False),
    "hbm_utilization": ("HBM bandwidth used", "share", None),
    "flops_utilization": ("FLOPs utilisation", "share", True),
    "gpu_utilization": ("GPU utilisation", "share", None),
    "goodput": ("Goodput", "share", True),
    "peak_bytes": ("Peak memory per chip", "bytes", None),
    "repeat_spread": ("Repeats differ by", "share", None),
    "dropped_assignments": ("Dropped expert assignments", "share", False),
    "mfu_convention": ("FLOPs convention", "", None),
}
TRAINING_WORDS = {
    "global_batch": "Global batch", "micro_batch": "Micro-batch", "grad_accum": "Gradient accumulation",
    "seq_len": "Sequence length", "precision": "Precision", "remat": "Remat", "weight_sharding": "Weight sharding",
    "virtual_stages": "Virtual stages", "sequence_parallel": "Sequence parallelism",
    "loss_parallel": "Loss parallelism", "xla_flags": "XLA flags", "optimizer": "Optimizer", "software": "Software",
}  # fmt: skip


@dataclass(frozen=True)
class Line:
    """One quantity on both sides, as text."""

    group: str
    label: str
    before: str
    after: str
    differs: bool  # both sides give it, and differ
    change: str = ""
    good: bool | None = None  # whether the change is for the better


def lines(record: Record) -> list[Line]:
    """Return everything that either side says: mesh by axis, training, then what was measured."""
    before, after = record.before, record.after
    trained = [key for key in _in_order(TRAINING_WORDS, before.training, after.training) if not _flags(record, key)]
    axes = [
        (part, axis)
        for part in ("ici", "dcn")
        for axis in dict.fromkeys([*(before.mesh or {}).get(part, {}), *(after.mesh or {}).get(part, {})])
    ]
    return [
        *(line for part, axis in axes if (line := _axis(part, axis, before.mesh, after.mesh))),
        *(_setting(key, before.training.get(key), after.training.get(key)) for key in trained),
        *(
            _kpi(key, before.kpis.get(key), after.kpis.get(key), "precision" in record.changes)
            for key in _in_order(KPIS, before.kpis, after.kpis)
        ),
    ]


@dataclass(frozen=True)
class Flags:
    """XLA flags of both sides."""

    same: int  # flags on both sides
    dropped: tuple[str, ...]
    added: tuple[str, ...]


def flags(record: Record) -> Flags | None:
    """Return the XLA flags of both sides; None where neither names one."""
    both = _flags(record, "xla_flags")
    if both is None or not any(both):
        return None
    before, after = both
    return Flags(
        sum(flag in after for flag in before),
        tuple(flag for flag in before if flag not in after),
        tuple(flag for flag in after if flag not in before),
    )


def _flags(record: Record, key: str) -> tuple[list[str], list[str]] | None:
    """Return the lists of flags on both sides; None for other keys, and where a side gives no list."""
    values = [side.training.get(key) or () for side in (record.before, record.after)]
    if key != "xla_flags" or not all(isinstance(value, list | tuple) for value in values):
        return None
    before, after = ([str(flag) for flag in value] for value in values)
    return before, after


def _in_order(first: Iterable[str], before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return the keys of both sides, those of `first` in its order before the others."""
    place = {key: number for number, key in enumerate(first)}
    return sorted(dict.fromkeys([*before, *after]), key=lambda key: place.get(key, len(place)))


def _axis(part: str, axis: str, before: Mesh | None, after: Mesh | None) -> Line | None:
    """Return the line of an axis, of size 1 where a side's mesh does not name it; None where both are 1."""
    one, other = (None if mesh is None else mesh.get(part, {}).get(axis, 1) for mesh in (before, after))
    if (one, other) == (1, 1):
        return None
    name = axis if part == "ici" else f"{axis} across slices"
    texts = ["not given" if size is None else formatting.number(size) for size in (one, other)]
    times = ""
    if one and other and one != other:
        grew, shrank = other / one, one / other
        if grew.is_integer():
            times = f"{formatting.TIMES}{int(grew)}"
        elif shrank.is_integer():
            times = f"÷{int(shrank)}"
    return Line("Mesh", name, texts[0], texts[1], bool(one and other and one != other), times)


def _setting(key: str, before: Any, after: Any) -> Line:
    label = TRAINING_WORDS.get(key) or key.replace("_", " ").capitalize()
    differs = before is not None and after is not None and before != after
    return Line("Training", label, _value_text(before), _value_text(after), differs)


def _value_text(value: Any) -> str:
    if value is None or value == "":
        return "–"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int | float):
        return formatting.number(value) if float(value).is_integer() else formatting.significant(value, 4)
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return str(value)


def _kpi(key: str, before: Any, after: Any, other_peak: bool) -> Line:
    """Return the line of a measured quantity.

    other_peak: the precision changed, so that a utilisation is of another peak and says nothing about better.
    """
    label, unit, more = KPIS.get(key, (key.replace("_", " ").capitalize(), "", None))
    differs = before is not None and after is not None and before != after
    is_share = key in SHARES
    change, good = "", None
    if differs and not isinstance(before, str) and not isinstance(after, str) and (is_share or (before and after)):
        # Of a share the difference in points, else the ratio.
        amount = 100 * (after - before) if is_share else 100 * (after / before - 1)
        unit_word = "pt" if is_share else "%"
        change = f"{'+' if amount > 0 else ''}{formatting.number(amount, 1)}{formatting.NBSP}{unit_word}"
        incomparable = more is None or (other_peak and key in ("mfu", "hfu", "flops_utilization"))
        good = None if incomparable else (after > before) == more
    return Line("Measured", label, measured(before, unit), measured(after, unit), differs, change, good)


def measured(value: float | str | None, unit: str) -> str:
    """A KPI as text; an absent one is an en dash."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    if unit == "tokens":
        return formatting.number(value) if value >= 1000 else formatting.significant(value)
    return str(formatting.quantity(float(value), unit))
