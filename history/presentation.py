"""Records as pages show them: words for their facets, and both sides line by line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import formatting
from history.record import Record
from history.services.compare import AxisChange, Changed, Measured, difference

OUTCOME_WORDS = {
    "faster": "faster", "slower": "slower", "no_change": "no change", "failed": "failed",
    "not_timed": "not timed",
}  # fmt: skip
FAILURE_WORDS = {
    "out_of_memory": "out of memory", "does_not_compile": "does not compile", "illegal_mesh": "illegal mesh",
    "numerics": "numerics", "hang": "hung", "other": "failed",
}  # fmt: skip
PROVENANCE_WORDS = {"published": "published", "imported": "imported", "measured": "measured here"}
#: KPIs: label, unit, and whether more is better (None: neither).
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
    """One quantity on both sides, as text.  change: what became of it; good: whether that is for the better."""

    group: str
    label: str
    before: str
    after: str
    differs: bool
    change: str = ""
    good: bool | None = None


def lines(record: Record) -> list[Line]:
    """Everything that either side says: mesh by axis, training, then what was measured."""
    compared = difference(record)
    return [
        *(_axis(axis) for axis in compared.axes if (axis.before, axis.after) != (1, 1)),
        *(_setting(setting) for setting in _ordered(compared.training) if not _is_flags(setting)),
        *(_kpi(kpi, "precision" in record.changes) for kpi in compared.kpis),
    ]


@dataclass(frozen=True)
class Flags:
    """XLA flags of both sides.  same: how many are on both; dropped, added: the others."""

    same: int
    dropped: tuple[str, ...]
    added: tuple[str, ...]


def flags(record: Record) -> Flags | None:
    """None where neither side names a flag."""
    for setting in difference(record).training:
        if _is_flags(setting) and (setting.before or setting.after):
            before, after = [str(f) for f in setting.before or ()], [str(f) for f in setting.after or ()]
            return Flags(
                sum(flag in after for flag in before),
                tuple(flag for flag in before if flag not in after),
                tuple(flag for flag in after if flag not in before),
            )
    return None


def _is_flags(setting: Changed) -> bool:
    return setting.key == "xla_flags" and all(
        value is None or isinstance(value, list | tuple) for value in (setting.before, setting.after)
    )


def _axis(axis: AxisChange) -> Line:
    name = axis.axis if axis.part == "ici" else f"{axis.axis} across slices"
    times = ""
    if axis.changed and axis.before and axis.after:
        grew, shrank = axis.after / axis.before, axis.before / axis.after
        if grew.is_integer():
            times = f"{formatting.TIMES}{int(grew)}"
        elif shrank.is_integer():
            times = f"÷{int(shrank)}"
    return Line("Mesh", name, _size(axis.before), _size(axis.after), axis.changed, times)


def _size(value: int | None) -> str:
    return "not given" if value is None else formatting.number(value)


def _ordered(settings: Sequence[Changed]) -> list[Changed]:
    place = {key: number for number, key in enumerate(TRAINING_WORDS)}
    return sorted(settings, key=lambda setting: place.get(setting.key, len(place)))


def _setting(setting: Changed) -> Line:
    label = TRAINING_WORDS.get(setting.key) or setting.key.replace("_", " ").capitalize()
    return Line("Training", label, _value_text(setting.before), _value_text(setting.after), setting.changed)


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


def _kpi(kpi: Measured, other_peak: bool) -> Line:
    """other_peak: the precision changed, so that a utilisation is of another peak and says nothing about better."""
    label, unit, more = KPIS.get(kpi.key, (kpi.key.replace("_", " ").capitalize(), "", None))
    change, good = "", None
    if kpi.difference and (kpi.share or kpi.ratio):
        amount = 100 * kpi.difference if kpi.share else 100 * ((kpi.ratio or 1.0) - 1)
        unit_word = "pt" if kpi.share else "%"
        change = f"{'+' if amount > 0 else ''}{formatting.number(amount, 1)}{formatting.NBSP}{unit_word}"
        incomparable = more is None or (other_peak and kpi.key in ("mfu", "hfu", "flops_utilization"))
        good = None if incomparable else (kpi.difference > 0) == more
    differs = kpi.before is not None and kpi.after is not None and kpi.before != kpi.after
    return Line("Measured", label, measured(kpi.before, unit), measured(kpi.after, unit), differs, change, good)


def measured(value: float | str | None, unit: str) -> str:
    """A KPI as text; an absent one is an en dash."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    if unit == "tokens":
        return formatting.number(value) if value >= 1000 else formatting.significant(value)
    return str(formatting.quantity(float(value), unit))
