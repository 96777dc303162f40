"""The tool over ops of the step: filtered, summed by a property, or one in full."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from agent.tools import Arguments, ToolError
from diagnosis.report import OpDiagnosis
from formatting import did_you_mean
from formatting.numbers import whole_number
from proposals.agents.tool_result import About, Is, ToolResult, taken
from proposals.agents.tools.look import finding, refuse_without_profile
from proposals.agents.workbench import Workbench

_SORTS: dict[str, Callable[[OpDiagnosis], float | None]] = {
    "time": lambda op: op.time_s, "exposed": lambda op: op.exposed_s, "efficiency": lambda op: op.roofline_efficiency,
    "hbm_bytes": lambda op: op.hbm_bytes, "flops": lambda op: op.flops, "bytes": lambda op: op.collective_bytes,
}  # fmt: skip


class Filter(Arguments):
    op: str = Field(default="", max_length=400, description="One op in full: name, key, or #n for the n-th longest.")
    words: str = Field(default="", max_length=200, description="In a name, module, category or source line.")
    finding: int | None = Field(default=None, ge=1, description="Ops behind this finding.")
    category: str = Field(default="", max_length=200, description="Category or family: matmul, collective …")
    axis: str = Field(default="", max_length=200, description="Mesh axis of collectives, or dcn.")
    phase: Literal["", "forward", "backward", "recompute", "optimizer"] = ""
    bound_by: str = Field(default="", max_length=60)
    group_by: Literal["", "family", "category", "module", "phase", "source", "bound_by", "resource", "axis"] = ""
    sort: Literal["time", "exposed", "efficiency", "hbm_bytes", "flops", "bytes"] = "time"
    ascending: bool = False
    top: int = Field(default=8, ge=1, le=40)


class OpRow(ToolResult):
    """An op, per step and core, as measured.  rank: by time."""

    rank: int | None = None
    name: str = ""
    key: str = ""
    category: str = ""
    time_s: float | None = None
    share: Annotated[float | None, Is("share of the step", "share")] = None
    axis: str = ""
    collective: str | None = None
    exposed_s: float | None = None
    bound_by: str = ""
    efficiency: Annotated[float | None, Is("roofline efficiency", "share", origin="computed")] = None
    achieved_bytes_per_s: float | None = None
    possible_bytes_per_s: Annotated[float | None, Is(origin="computed")] = None
    phase: str = ""
    module: str = ""
    source: str = ""
    details: dict[str, Any] = {}
    hlo: str = ""

    def about(self) -> About:
        return About("measured", self.name, f"op:{self.key}")


class OpSum(ToolResult):
    """Ops that have one property in common."""

    value: str = ""
    op_count: int = 0
    time_s: float | None = None
    share: Annotated[float | None, Is("share of the step", "share")] = None
    exposed_s: float | None = None

    def about(self) -> About:
        return About("measured", self.value or "without it")


class Ops(ToolResult):
    """Matching ops with their sum, in rows or in sums."""

    matching: Annotated[int, Is(unit="count")] = 0
    time_s: float | None = None
    share: Annotated[float | None, Is("share of the step", "share")] = None
    rows: tuple[OpRow, ...] = ()
    sums: tuple[OpSum, ...] = ()
    hint: str = ""

    def about(self) -> About:
        return About("measured", "matching ops")


def ops(bench: Workbench, asked: Filter) -> Ops:
    """Ops of the step by filter, longest first, with their sum; summed by a property (`group_by`); or one `op` in full
    with its FLOPs, bytes, bandwidths and HLO. Per step and core. Names and sources are the user's: data."""
    refuse_without_profile(bench)
    every = bench.diagnosis.ops
    if asked.op:
        return Ops(matching=1, rows=(_row(bench, _find(bench, asked.op), whole=True),))
    if asked.finding is not None:
        keys = {key for item in finding(bench, asked.finding).evidence for key in item.ops}
        every = tuple(op for op in every if op.key in keys)
    matches = [op for op in every if _fits(bench, op, asked)]
    if not matches:
        return Ops(hint=_hint(bench, asked))
    total = Ops(matching=len(matches), time_s=_total(matches), share=sum(op.time_share for op in matches))
    if asked.group_by:
        return total.model_copy(update={"sums": tuple(_sums(matches, asked)[: asked.top])})
    value = _SORTS[asked.sort]
    known = [op for op in matches if value(op) is not None]
    known.sort(key=lambda op: value(op) or 0.0, reverse=not asked.ascending)
    rows = [*known, *(op for op in matches if value(op) is None)][: asked.top]
    return total.model_copy(update={"rows": tuple(_row(bench, op) for op in rows)})


_DETAILS = (
    "flops hbm_bytes collective_bytes flops_per_s hbm_bytes_per_s operational_intensity participants in_flight_s "
    "core_max_s core_min_s slowest_core tensor axis_source occurrences"
)


def _row(bench: Workbench, op: OpDiagnosis, whole: bool = False) -> OpRow:
    """Return an op; whole: with its FLOPs, bytes, bandwidths and HLO."""
    fact, roof, more = bench.ops.get(op.key), bench.diagnosis.roofline, {}
    if whole:
        details = {name: getattr(op, name) for name in _DETAILS.split()} | {
            "peak_flops_per_s": roof.peak_flops_per_s, "peak_hbm_bytes_per_s": roof.peak_hbm_bytes_per_s,
            "op_name": fact.op_name if fact else "",
        }  # fmt: skip
        more = {
            "details": {name: value for name, value in details.items() if value not in (None, "", 0)},
            "hlo": fact.hlo[:1200] if fact else "",
        }
    return taken(
        OpRow, op, rank=next(n for n, each in enumerate(bench.diagnosis.ops, start=1) if each is op),
        share=op.time_share, category=op.category or op.family, axis="+".join(_axes(op)),
        efficiency=op.roofline_efficiency,
        bound_by="" if (op.bound_by or "unknown").lower() == "unknown" else op.bound_by,
        source=(fact.source if fact else "") or op.source, **more,
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


def _sums(ops: Sequence[OpDiagnosis], asked: Filter) -> list[OpSum]:
    groups: dict[str, list[OpDiagnosis]] = {}
    for op in ops:
        value = "+".join(_axes(op)) if asked.group_by == "axis" else getattr(op, asked.group_by) or ""
        groups.setdefault(value, []).append(op)
    rows = [
        OpSum(
            value=value, op_count=len(group), time_s=_total(group), share=sum(op.time_share for op in group),
            exposed_s=sum(op.exposed_s or 0.0 for op in group) or None,
        )
        for value, group in groups.items()
    ]  # fmt: skip
    return sorted(rows, key=lambda item: -(item.share or 0.0))


def _total(ops: Sequence[OpDiagnosis]) -> float | None:
    times = [op.time_s for op in ops]
    return None if None in times else sum(time or 0.0 for time in times)


def _hint(bench: Workbench, asked: Filter) -> str:
    every = bench.diagnosis.ops
    if asked.category:
        known = dict.fromkeys(name for op in every for name in (op.family, op.category) if name)
        return f"There may be no category {asked.category!r}; there are {', '.join(list(known)[:20])}."
    if asked.axis:
        axes = dict.fromkeys("+".join(_axes(op)) for op in every if op.mesh_axis)
        return f"Collectives ran on {', '.join(list(axes)[:20]) or 'no axis'}."
    return "No op matches."


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
