"""The tool over ops of the step: filtered, summed by a property, or one in full."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from pydantic import Field

from agent.tools import Arguments, ToolError
from diagnosis.report import OpDiagnosis
from formatting import did_you_mean, listed
from formatting.numbers import whole_number
from proposals.agents.tool_result import ABOUT, Result, about, taken
from proposals.agents.tools.look import finding, refuse_without_profile
from proposals.agents.workbench import Workbench

_SORTS: dict[str, Callable[[OpDiagnosis], float | None]] = {
    "time": lambda op: op.time_s, "exposed": lambda op: op.exposed_s, "efficiency": lambda op: op.roofline_efficiency,
    "hbm_bytes": lambda op: op.hbm_bytes, "flops": lambda op: op.flops, "bytes": lambda op: op.collective_bytes,
}  # fmt: skip


class Filter(Arguments):
    op: str = Field(default="", max_length=400, description="One in full: its name, or #n for the n-th longest.")
    words: str = Field(default="", max_length=200, description="In a name, module, category or source line.")
    finding: int | None = Field(default=None, ge=1, description="Ops behind this finding.")
    category: str = Field(default="", max_length=200, description="matmul, collective …")
    axis: str = Field(default="", max_length=200, description="Mesh axis of collectives, or dcn.")
    phase: Literal["", "forward", "backward", "recompute", "optimizer"] = ""
    bound_by: str = Field(default="", max_length=60)
    group_by: Literal["", "family", "category", "module", "phase", "source", "bound_by", "resource", "axis"] = ""
    sort: Literal["time", "exposed", "efficiency", "hbm_bytes", "flops", "bytes"] = "time"
    ascending: bool = False
    top: int = Field(default=8, ge=1, le=40)


def ops(bench: Workbench, asked: Filter) -> Result:
    """Ops of the step by filter, longest first, with their sum; summed by a property; or one in full with FLOPs, bytes,
    bandwidths and HLO. Per step and core."""
    refuse_without_profile(bench)
    every = bench.diagnosis.ops
    if asked.op:
        return _found(1, rows=(_row(bench, _find(bench, asked.op), whole=True),))
    if asked.finding is not None:
        keys = {key for item in finding(bench, asked.finding).evidence for key in item.ops}
        every = tuple(op for op in every if op.key in keys)
    matches = [op for op in every if _fits(bench, op, asked)]
    if not matches:
        return _found(0, hint=_hint(bench))
    total: dict[str, Any] = {"time_s": _total(matches), "share": sum(op.time_share for op in matches)}
    if asked.group_by:
        return _found(len(matches), sums=_sums(matches, asked)[: asked.top], **total)
    value = _SORTS[asked.sort]
    known = [op for op in matches if value(op) is not None]
    known.sort(key=lambda op: value(op) or 0.0, reverse=not asked.ascending)
    rows = [*known, *(op for op in matches if value(op) is None)][: asked.top]
    return _found(len(matches), rows=[_row(bench, op) for op in rows], **total)


def _found(matching: int, rows: Sequence[Result] = (), **more: Any) -> Result:
    """Return matching ops with their sum, in rows or in sums."""
    return Result({ABOUT: about("measured", "matching ops"), "matching": matching, **more, "rows": rows})


_DETAILS = (
    "flops hbm_bytes collective_bytes flops_per_s hbm_bytes_per_s operational_intensity participants in_flight_s "
    "core_max_s core_min_s slowest_core tensor axis_source"
)


_OVERCOUNTED = "Above the roofline: the cost model counts more FLOPs or bytes than were executed; use neither."


def _row(bench: Workbench, op: OpDiagnosis, whole: bool = False) -> Result:
    """Return an op per step and core, as measured; whole: with its FLOPs, bytes, bandwidths and HLO.  rank: by time."""
    fact, roof, more = bench.ops.get(op.key), bench.diagnosis.roofline, {}
    rank = next(n for n, each in enumerate(bench.diagnosis.ops, start=1) if each is op)
    if whole:
        recorded = len(bench.profile.steps) * (bench.profile.device.measured_cores or 0)
        details = {name: getattr(op, name) for name in _DETAILS.split()} | {
            "runs_per_step": op.occurrences / recorded if recorded else None,
            "peak_flops_per_s": roof.peak_flops_per_s, "peak_hbm_bytes_per_s": roof.peak_hbm_bytes_per_s,
            "op_name": fact.op_name if fact else "",
        }  # fmt: skip
        more = {
            "details": {name: value for name, value in details.items() if value not in (None, "", 0)},
            "hlo": fact.hlo[:1200] if fact else "",
        }
    return taken(
        op, "name time_s collective exposed_s achieved_bytes_per_s possible_bytes_per_s phase module",
        rank=rank, key=op.key,
        share=op.time_share, category=op.category or op.family, axis="+".join(_axes(op)),
        efficiency=op.roofline_efficiency, note=_OVERCOUNTED if (op.roofline_efficiency or 0.0) > 1.0 else "",
        bound_by="" if (op.bound_by or "unknown").lower() == "unknown" else op.bound_by,
        source=(fact.source if fact else "") or op.source,
        _about=about("measured", f"{op.name}, op {rank}", f"op:{op.key}"), **more,
    )  # fmt: skip


def _axes(op: OpDiagnosis) -> tuple[str, ...]:
    return (op.mesh_axis,) if isinstance(op.mesh_axis, str) else tuple(op.mesh_axis or ())


def _fits(bench: Workbench, op: OpDiagnosis, asked: Filter) -> bool:
    axes = _axes(op)
    if asked.phase and asked.phase != op.phase:
        return False
    if asked.bound_by and asked.bound_by.lower() != (op.bound_by or "").lower():
        return False
    if asked.axis and not set(asked.axis.replace("+", " ").replace(",", " ").split()) <= set(axes):
        return False
    kinds = (op.category.lower(), op.family.lower(), (op.collective or "").lower())
    if asked.category and asked.category.lower() not in kinds:
        return False
    fact = bench.ops.get(op.key)
    known = (op.name, op.source, op.module, *kinds, *axes, *((fact.op_name, fact.source) if fact else ()))
    where = "\n".join(filter(None, known)).lower()
    return all(word in where for word in asked.words.lower().split())


def _sums(ops: Sequence[OpDiagnosis], asked: Filter) -> list[Result]:
    groups: dict[str, list[OpDiagnosis]] = {}
    for op in ops:
        value = "+".join(_axes(op)) if asked.group_by == "axis" else getattr(op, asked.group_by) or ""
        groups.setdefault(value, []).append(op)
    rows = [
        Result(
            value=value, op_count=len(group), time_s=_total(group), share=sum(op.time_share for op in group),
            exposed_s=sum(op.exposed_s or 0.0 for op in group) or None,
            _about=about("measured", value or "without it"),
        )
        for value, group in groups.items()
    ]  # fmt: skip
    return sorted(rows, key=lambda item: -(item.share or 0.0))


def _total(ops: Sequence[OpDiagnosis]) -> float | None:
    times = [op.time_s for op in ops]
    return None if None in times else sum(time or 0.0 for time in times)


def _hint(bench: Workbench) -> str:
    """Return what could have been asked for."""
    every = bench.diagnosis.ops
    known = dict.fromkeys(name for op in every for name in (op.family, op.category) if name)
    axes = dict.fromkeys("+".join(_axes(op)) for op in every if op.mesh_axis)
    return f"No op matches. Categories: {listed(list(known)[:20])}; axes: {listed(list(axes)[:20]) or 'none'}."


def _find(bench: Workbench, name: str) -> OpDiagnosis:
    every, wanted = bench.diagnosis.ops, name.strip().strip("`").lstrip("%")
    if wanted.startswith("#") and (rank := whole_number(wanted[1:])) is not None:
        if 1 <= rank <= len(every):
            return every[rank - 1]
        raise ToolError(f"There are {len(every):,} ops, so there is no op {wanted}.")
    if match := next((op for op in every if wanted in (op.key, op.name.lstrip("%"))), None):
        return match
    within = [op for op in every if wanted and wanted.lower() in op.name.lower()]
    if len(within) == 1:
        return within[0]
    if within:
        names = ", ".join(op.name for op in within[:5])
        raise ToolError(f"{len(within)} ops have {wanted[:80]!r} in their name: {names}. Name one.")
    raise ToolError(f"There is no op {wanted[:80]!r}.{did_you_mean(wanted, [op.name for op in every])}")
