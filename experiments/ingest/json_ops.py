"""Op tables of JSON exports → ops; tables of one upload complete each other by op name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from experiments.ingest.json_rows import NUMBERS, SHARES, TEXTS, TIMES, Piece, at_least_zero, shares, time_s
from experiments.ingest.roof import efficiencies
from experiments.ingest.values import hlo_text, number, plain_source, text
from experiments.ingest.xprof_ops import with_host_bytes
from experiments.step_profile import Note, Op

#: Tables by how much each says about an op.
_ORDER = ("hlo_stats", "roofline_model", "ops", "kpis", "op_profile")
#: The same time under other names, used where there is no table of HLO ops.
_FRAMEWORK = "framework_op_stats"
#: A share or time that this table does not hold; another table or `_settle` gives it.
_OPEN = -1.0


def merge_ops(
    parts: Sequence[Piece], step_time_s: float | None, reasons: dict[str, str], computed: dict[str, str]
) -> tuple[list[Op], int | None, list[Note]]:
    """(ops by descending share, how many the export left out or None, notes); adds to reasons and computed."""
    tables = sorted(
        (part for part in parts if part.ops),
        key=lambda part: _ORDER.index(part.tool) if part.tool in _ORDER else len(_ORDER),
    )
    tables = [part for part in tables if part.tool != _FRAMEWORK] or tables[:1]
    if not tables:
        return [], None, []
    merged: dict[tuple[str, str], Op] = {}
    notes: list[Note] = []
    for part in tables:
        ops, skipped = _table(part)
        if skipped:
            notes.append(Note("warning", f"{part.file}: {skipped} rows without a name or a time were excluded."))
        by_name = {key[0]: key for key in merged}
        with_programs = any(key[1] for key in merged)
        for op in ops:
            # Several programs may hold an op of one name; a table that names no programs goes by the name alone.
            key = (op.name, op.program)
            if (
                key not in merged
                and op.name in by_name
                and not (op.program and with_programs and part.tool != "op_profile")
            ):
                key = by_name[op.name]
            if key in merged and part is not tables[0]:
                merged[key] = _complete(merged[key], op)
            elif part is tables[0] or part.tool == tables[0].tool:
                while key in merged:
                    key = (key[0], key[1] + "'")
                merged[key] = op
    ordered = _settle(with_host_bytes(list(merged.values())), tables, step_time_s, reasons, computed)
    dropped = next((part.dropped for part in tables if part.dropped is not None), None)
    return [replace(op, rank=rank) for rank, op in enumerate(ordered, 1)], dropped, notes


def with_efficiencies(ops: Sequence[Op], peak_flops: float | None, peak_hbm: float | None) -> list[Op]:
    """The ops with their shares of the device's peaks, where no table states them."""
    completed: list[Op] = []
    for op in ops:
        rates = op.flops_per_s or None, op.hbm_bytes_per_s or None
        roofline, compute, memory = efficiencies(*rates, peak_flops, peak_hbm)
        if op.roofline_efficiency is None and op.compute_efficiency is None and roofline is not None:
            op = replace(
                op, roofline_efficiency=roofline, compute_efficiency=compute, memory_bandwidth_utilization=memory
            )
        completed.append(op)
    return completed


def _complete(op: Op, other: Op) -> Op:
    """The op with what only the other table says of it."""
    empty = (None, "", "unknown", _OPEN)
    missing = {
        item.name: getattr(other, item.name)
        for item in fields(Op)
        if getattr(op, item.name) in (*empty, 0) and getattr(other, item.name) not in empty
    }
    return replace(op, **missing)


def _settle(
    ops: list[Op], tables: Sequence[Piece], step_time_s: float | None, reasons: dict[str, str], computed: dict[str, str]
) -> list[Op]:
    """Shares from times, or times from shares, where a table holds only one of them."""
    whole = sum(op.self_time_s for op in ops if op.self_time_s != _OPEN)
    stated = [time_s(part.kpis, ("profile_time",), part.file, "") for part in tables]
    profiled = max((value for value in stated if value), default=0.0)
    complete = any(part.complete for part in tables) or profiled >= whole > 0
    whole = max(whole, profiled)
    settled: list[Op] = []
    for op in ops:
        if op.time_share == _OPEN:
            op = replace(op, time_share=op.self_time_s / whole if whole else 0.0)
            computed["time_share"] = (
                "self time / self time of all ops" if complete else "self time / self time of the listed ops only"
            )
        if op.self_time_s == _OPEN:
            seconds = op.time_share * (step_time_s or 0.0)
            op = replace(op, self_time_s=seconds, total_time_s=seconds)
            if step_time_s:
                computed["op_times"] = "share × step time: one step on one core"
            else:
                reasons["op_times"] = "The JSON export contains only shares and no step time."
        settled.append(op)
    return sorted(settled, key=lambda op: (-op.time_share, -op.self_time_s, op.name))


def _table(part: Piece) -> tuple[list[Op], int]:
    """(ops of one table, rows that could not be used)."""
    columns = {field: shares(part.ops, field, part.file, part.scale) for field in SHARES}
    ops: list[Op] = []
    skipped = 0
    for index, row in enumerate(part.ops):
        name = _text(row, "name", 500)
        if row.get("parent_op_name") or name == "IDLE":
            continue  # SparseCore work inside another op; idle time is no op
        where = f"op {index + 1}, "
        own, total = _times(part, row, where)
        share = columns["time_share"][index]
        if not name or (own is None and share is None and not _text(row, "bound_by", 50)):
            skipped += 1
            continue
        ops.append(_op(part, row, where, own, total, {field: column[index] for field, column in columns.items()}))
    if all(op.time_share == _OPEN and op.self_time_s == _OPEN for op in ops):
        return [], len(part.ops)
    return ops, skipped


def _times(part: Piece, row: dict[str, Any], where: str) -> tuple[float | None, float | None]:
    """(self time, total time) over all occurrences."""
    times = {field: time_s(row, names, part.file, where, part.bare_unit) for field, names in TIMES.items()}
    count = _number(row, "occurrences", part.file, where) or 0.0
    own, total = times["self_time_s"], times["total_time_s"]
    if own is None and times["avg_self_time_s"] is not None and count:
        own = times["avg_self_time_s"] * count
    if total is None and times["avg_time_s"] is not None and count:
        total = times["avg_time_s"] * count
    return (own if own is not None else total), (total if total is not None else own)


def _op(
    part: Piece,
    row: dict[str, Any],
    where: str,
    own: float | None,
    total: float | None,
    share: dict[str, float | None],
) -> Op:
    values = {field: _number(row, field, part.file, where) for field in NUMBERS}
    bound_by = _text(row, "bound_by", 50) or None
    efficiencies = [share[field] for field in SHARES if field != "time_share"]
    if (bound_by or "").lower() == "unknown" and not any(efficiencies):
        share = {"time_share": share["time_share"]}  # XProf states 0 for what it cannot know
    flops_rate, hbm_rate = values["flops_per_s"], values["hbm_bytes_per_s"]
    counted = bool(flops_rate or hbm_rate or values["flops"])
    flops = values["flops"] if values["flops"] else flops_rate * own if counted and flops_rate and own else None
    return Op(
        name=_text(row, "name", 500),
        category=_text(row, "category", 200) or "unknown",
        occurrences=int(values["occurrences"] or 0),
        self_time_s=_OPEN if own is None else own,
        total_time_s=_OPEN if total is None else total,
        time_share=_OPEN if share["time_share"] is None else share["time_share"],
        program=_text(row, "program", 200),
        flops=flops,
        bytes_accessed=values["bytes_accessed"],
        hbm_bytes=hbm_rate * own if hbm_rate and own else None,
        flops_per_s=flops_rate if flops_rate else flops / own if flops and own else None,
        hbm_bytes_per_s=hbm_rate or None,
        operational_intensity=values["operational_intensity"] or None,
        bound_by=bound_by,
        roofline_efficiency=share.get("roofline_efficiency"),
        compute_efficiency=share.get("compute_efficiency"),
        memory_bandwidth_utilization=share.get("memory_bandwidth_utilization"),
        hlo=hlo_text(_raw(row, "hlo")),
        op_name=_text(row, "op_name", 1000).removesuffix(":"),
        source=_source(row),
    )


def _raw(row: dict[str, Any], field: str) -> Any:
    return next((row[key] for key in TEXTS[field] if row.get(key) not in (None, "")), None)


def _text(row: dict[str, Any], field: str, limit: int) -> str:
    return text(_raw(row, field), limit)


def _number(row: dict[str, Any], field: str, file: str, where: str) -> float | None:
    keys, factor = NUMBERS[field]
    for key in keys:
        if key in row:
            value_and_unit = at_least_zero(row[key], file, f"{where}{key}")
            if value_and_unit is not None:
                return value_and_unit[0] * factor
    return None


def _source(row: dict[str, Any]) -> str:
    if row.get("source_file"):
        line = number(row.get("source_line"))
        return f"{text(row['source_file'], 500)}:{int(line)}" if line else text(row["source_file"], 500)
    return plain_source(row.get("source_info") or row.get("source"))
