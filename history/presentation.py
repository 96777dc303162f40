"""Records as pages show them: words for their facets, and both sides line by line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from experiments import formatting
from history.record import Side

OUTCOME_WORDS = {"faster": "faster", "slower": "slower", "no_change": "no change", "failed": "failed"}
FAILURE_WORDS = {
    "out_of_memory": "out of memory", "does_not_compile": "does not compile", "illegal_mesh": "illegal mesh",
    "numerics": "numerics", "hang": "hung", "other": "failed",
}  # fmt: skip
PROVENANCE_WORDS = {"published": "published", "imported": "imported", "measured": "measured here"}
CHANGE_WORDS = {"weight_sharding": "weight sharding", "xla_flags": "XLA flags"}
FACET_WORDS = {
    "bottleneck": "Bottleneck", "hardware": "Hardware", "chip": "Chip", "model_family": "Model family",
    "model_name": "Model", "changes": "Change", "change": "Change", "provenance": "Where from", "outcome": "Outcome",
    "chips": "Chips",
}  # fmt: skip

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
    "virtual_stages": "Virtual stages", "sequence_parallel": "Sequence parallelism", "xla_flags": "XLA flags",
    "optimizer": "Optimizer", "software": "Software",
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


def lines(before: Side, after: Side) -> list[Line]:
    """Everything that either side says: mesh by axis, training, then what was measured."""
    return [*_mesh(before, after), *_training(before, after), *_kpis(before, after)]


def _axes(side: Side) -> dict[str, int]:
    found: dict[str, int] = {}
    for where, sizes in (side.mesh or {}).items():
        for axis, size in sizes.items():
            found[axis if where == "ici" else f"{axis} across slices"] = size
    return found


def _mesh(before: Side, after: Side) -> Iterator[Line]:
    old, new = _axes(before), _axes(after)
    for axis in dict.fromkeys((*old, *new)):
        a = old.get(axis, 1) if before.mesh is not None else None
        b = new.get(axis, 1) if after.mesh is not None else None
        if a == b == 1:
            continue
        yield Line("Mesh", axis, _count(a), _count(b), a != b, _times(a, b))


def _times(a: int | None, b: int | None) -> str:
    if a is None or b is None or a == b:
        return ""
    if b % a == 0:
        return f"{formatting.TIMES}{b // a}"
    return f"÷{a // b}" if a % b == 0 else ""


def _count(value: int | None) -> str:
    return "not published" if value is None else formatting.number(value)


def _training(before: Side, after: Side) -> Iterator[Line]:
    keys = [key for key in TRAINING_WORDS if key in before.training or key in after.training]
    keys += [key for key in (*before.training, *after.training) if key not in TRAINING_WORDS]
    for key in dict.fromkeys(keys):
        a, b = before.training.get(key), after.training.get(key)
        label = TRAINING_WORDS.get(key, key.replace("_", " ").capitalize())
        if key == "xla_flags" and isinstance(a or [], list) and isinstance(b or [], list):
            yield from _flags(label, a or [], b or [])
        else:
            yield Line("Training", label, _setting(a), _setting(b), a != b)


def _flags(label: str, before: list[Any], after: list[Any]) -> Iterator[Line]:
    """Flags one by one where they differ; those on both sides as a number."""
    same = [flag for flag in before if flag in after]
    if same:
        yield Line("Training", label, f"{len(same)} the same", f"{len(same)} the same", False)
    for flag in before:
        if flag not in after:
            yield Line("Training", label, str(flag), "–", True)
    for flag in after:
        if flag not in before:
            yield Line("Training", label, "–", str(flag), True)


def _setting(value: Any) -> str:
    if value is None or value == "":
        return "–"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int | float):
        return formatting.number(value) if float(value).is_integer() else formatting.significant(value, 4)
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return str(value)


def _kpis(before: Side, after: Side) -> Iterator[Line]:
    known = [key for key in KPIS if key in before.kpis or key in after.kpis]
    others = [key for key in (*before.kpis, *after.kpis) if key not in KPIS]
    for key in dict.fromkeys((*known, *others)):
        label, unit, more = KPIS.get(key, (key.replace("_", " ").capitalize(), "", None))
        a, b = before.kpis.get(key), after.kpis.get(key)
        change, good = _moved(a, b, unit, more)
        yield Line("Measured", label, measured(a, unit), measured(b, unit), a != b, change, good)


def measured(value: float | str | None, unit: str) -> str:
    """A KPI as text; an absent one is an en dash."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    if unit == "tokens":
        return formatting.number(value) if value >= 1000 else formatting.significant(value)
    return str(formatting.quantity(float(value), unit))


def _moved(a: Any, b: Any, unit: str, more: bool | None) -> tuple[str, bool | None]:
    if isinstance(a, str) or isinstance(b, str) or a is None or b is None or not a or a == b:
        return "", None
    good = None if more is None else (b > a) == more
    if unit == "share":
        points = 100 * (b - a)
        sign = "+" if points > 0 else ""
        return f"{sign}{formatting.number(points, 1)}{formatting.NBSP}pt", good
    percent = 100 * (b / a - 1)
    sign = "+" if percent > 0 else ""
    return f"{sign}{formatting.number(percent, 1)}{formatting.NBSP}%", good


def choice_word(facet: str, value: str) -> str:
    """A facet's value as a reader names it."""
    if facet in ("change", "changes"):
        return CHANGE_WORDS.get(value, value)
    if facet == "hardware":
        return value.upper()
    words = {"outcome": OUTCOME_WORDS, "provenance": PROVENANCE_WORDS}.get(facet, {})
    return words.get(value, value)
