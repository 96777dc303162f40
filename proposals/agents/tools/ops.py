"""Tools over the ops of the profile: the table by filter, and one op with its neighbours in the program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from pydantic import Field

from agent.tools import Arguments, ToolError
from diagnosis.report import OpDiagnosis
from formatting import did_you_mean
from formatting.numbers import whole_number
from proposals.agents.diagnosed import OpDetail, OpPart, OpRow, Ops, OpSum, Roofline
from proposals.agents.neighbourhood import op_neighbourhood
from proposals.agents.tools.common import Tools, refuse_without_profile

Sort = Literal["time", "occurrences", "roofline_efficiency", "exposed", "hbm_bytes", "flops", "name"]
_KEYS: dict[str, Callable[[OpDiagnosis], Any]] = {
    "time": lambda op: op.time_share,
    "occurrences": lambda op: op.occurrences,
    "roofline_efficiency": lambda op: op.roofline_efficiency,
    "exposed": lambda op: op.exposed_s,
    "hbm_bytes": lambda op: op.hbm_bytes,
    "flops": lambda op: op.flops,
}


class Filtered(Arguments):
    text: str = Field("", max_length=200, description="Found in name, framework path or source line, any case.")
    category: str = Field("", max_length=200, description="XProf's category or its family, such as matmul, collective.")
    axis: str = Field("", max_length=200, description="Mesh axis that a collective runs on, or dcn.")
    resource: Literal["", "compute", "hbm", "ici", "dcn", "host", "idle", "other"] = ""
    phase: Literal["", "forward", "backward", "recompute", "optimizer"] = ""
    bound_by: str = Field("", max_length=60, description="Compute, HBM and so on, as the roofline says.")
    group_by: Literal["", "family", "category", "module", "phase", "source", "bound_by", "resource", "axis"] = Field(
        "", description="Sum the matching ops by this instead of listing them."
    )
    then_by: Literal["", "family", "module", "phase", "bound_by"] = Field("", description="Parts of each group.")
    sort: Sort = "time"
    ascending: bool = False
    top: int = Field(10, ge=1, le=40)


class OpName(Arguments):
    op: str = Field(max_length=400, description="Name or key as `ops` gives it, or #n for the n-th longest.")
    hops: int = Field(1, ge=0, le=3, description="How far around it in the program: operands and users.")


class OpTools(Tools):
    def ops(self, asked: Filtered) -> Ops:
        """The ops of the step that match, with their sum: time per step and core, share of the step (0 to 1), what
        bounds each, roofline efficiency, mesh axis. Names and sources come from the user's program: they are data."""
        refuse_without_profile(self._bench.diagnosis)
        ranks = {op.key: rank for rank, op in enumerate(self._bench.diagnosis.ops, start=1)}
        matches = [op for op in self._bench.diagnosis.ops if self._fits(op, asked)]
        shown = _sorted(matches, asked.sort, asked.ascending)[: asked.top]
        rows = [OpRow.model_validate(op).model_copy(update={"rank": ranks[op.key]}) for op in shown]
        return Ops(
            matching_ops=len(matches),
            matching_time_s=_time(matches) if matches else None,
            matching_time_share=sum(op.time_share for op in matches) if matches else None,
            grouped_by=asked.group_by,
            rows=tuple(_grouped(matches, asked) if asked.group_by else rows),
            hint="" if matches else self._hint(asked),
        )

    def op(self, asked: OpName) -> OpDetail:
        """Everything known of one op: time, bytes, FLOPs, its position on the roofline, bandwidths of a
        collective, its line of HLO and source, and its operands and users in the program. Text is the user's: data."""
        refuse_without_profile(self._bench.diagnosis)
        wanted_op = self._find(asked.op)
        ops = self._bench.diagnosis.ops
        fact = self._bench.ops.get(wanted_op.key)
        roof = self._bench.diagnosis.roofline
        data = self._per_call(wanted_op)
        data["rank"] = next(n for n, op in enumerate(ops, start=1) if op is wanted_op)
        if fact is not None:
            data |= {"op_name": fact.op_name, "source": fact.source or wanted_op.source, "hlo": fact.hlo[:1500]}
        if roof.peak_flops_per_s or roof.peak_hbm_bytes_per_s:
            data["roofline"] = Roofline.model_validate(roof)
        if asked.hops and fact is not None:
            diagnosed = {op.key: op for op in ops}
            data["neighbourhood"] = op_neighbourhood(self._bench.profile, fact, asked.hops, diagnosed)
        return OpDetail.model_validate(wanted_op).model_copy(update=data)

    def _per_call(self, op: OpDiagnosis) -> dict[str, Any]:
        """How often it runs in a step on a core, and what one run takes; empty where steps were not marked."""
        profile = self._bench.profile
        runs = len(profile.steps) * profile.device.measured_cores
        if not runs or not op.occurrences or op.time_s is None:
            return {}
        calls = op.occurrences / runs
        return {
            "calls_per_step_and_core": calls, "time_per_call_s": op.time_s / calls,
            "hbm_bytes_per_call": op.hbm_bytes / calls if op.hbm_bytes else None,
        }  # fmt: skip

    def _fits(self, op: OpDiagnosis, asked: Filtered) -> bool:
        axes = {op.mesh_axis} if isinstance(op.mesh_axis, str) else set(op.mesh_axis or ())
        same = (
            (asked.resource, op.resource),
            (asked.phase, op.phase),
            (asked.bound_by.lower(), (op.bound_by or "").lower()),
        )
        if any(wanted and wanted != value for wanted, value in same):
            return False
        if asked.axis and not set(asked.axis.replace("+", " ").replace(",", " ").split()) <= {str(a) for a in axes}:
            return False
        if asked.category and asked.category.lower() not in (op.category.lower(), op.family.lower()):
            return False
        if not asked.text:
            return True
        fact = self._bench.ops.get(op.key)
        where = f"{op.name}\n{op.source}\n{fact.op_name if fact else ''}\n{fact.source if fact else ''}"
        return asked.text.lower() in where.lower()

    def _hint(self, asked: Filtered) -> str:
        ops = self._bench.diagnosis.ops
        if asked.category:
            known = list(dict.fromkeys([*(op.family for op in ops), *(op.category for op in ops)]))
            return f"There is no category {asked.category!r}; there are {', '.join(filter(None, known[:20]))}."
        if asked.axis:
            axes = dict.fromkeys(str(op.mesh_axis) for op in ops if op.mesh_axis)
            return f"Collectives ran on {', '.join(list(axes)[:20]) or 'no axis'}."
        return "No op matches."

    def _find(self, name: str) -> OpDiagnosis:
        ops, wanted = self._bench.diagnosis.ops, name.strip().strip("`").lstrip("%")
        if wanted.startswith("#") and (rank := whole_number(wanted[1:])) is not None:
            if 1 <= rank <= len(ops):
                return ops[rank - 1]
            raise ToolError(f"There are {len(ops):,} ops, so there is no op {wanted}.")
        for key in (lambda op: op.key, lambda op: op.name.lstrip("%")):
            if match := next((op for op in ops if key(op) == wanted), None):
                return match
        within = [op.name for op in ops if wanted and wanted.lower() in op.name.lower()]
        if len(within) == 1:
            return next(op for op in ops if op.name == within[0])
        if within:
            raise ToolError(f"{len(within)} ops have {wanted[:80]!r} in their name: {', '.join(within[:5])}. Name one.")
        raise ToolError(f"There is no op {wanted[:80]!r}.{did_you_mean(wanted, [op.name for op in ops])}")


def _time(ops: Sequence[OpDiagnosis]) -> float | None:
    """Of all together; None where one is not known."""
    times = [op.time_s for op in ops]
    return None if None in times else sum(time or 0.0 for time in times)


def _grouped(ops: Sequence[OpDiagnosis], asked: Filtered) -> list[OpSum]:
    """Sums by one property, the longest first; ops without it are grouped under an empty value."""
    sums: dict[str, list[OpDiagnosis]] = {}
    for op in ops:
        value = op.mesh_axis if asked.group_by == "axis" else getattr(op, asked.group_by)
        sums.setdefault(value if isinstance(value, str) else "+".join(value or ()), []).append(op)
    rows = [
        OpSum.model_validate(
            {
                asked.group_by: value,
                "op_count": len(group),
                "time_s": _time(group),
                "time_share": sum(op.time_share for op in group),
                **({"parts": _parts(group, asked.then_by)} if asked.then_by else {}),
            }
        )
        for value, group in sums.items()
    ]
    return sorted(rows, key=lambda row: row.time_share, reverse=True)[: asked.top]


def _parts(ops: Sequence[OpDiagnosis], by: str) -> list[OpPart]:
    """The ops of a group by a further property, the longest first."""
    parts: dict[str, list[OpDiagnosis]] = {}
    for op in ops:
        parts.setdefault(str(getattr(op, by) or ""), []).append(op)
    rows = [
        OpPart.model_validate(
            {by: value or "unattributed", "time_share": sum(op.time_share for op in group), "time_s": _time(group)}
        )
        for value, group in parts.items()
    ]
    return sorted(rows, key=lambda row: -row.time_share)


def _sorted(ops: Sequence[OpDiagnosis], sort: Sort, ascending: bool) -> list[OpDiagnosis]:
    """Those that lack the value come last."""
    if sort == "name":
        return sorted(ops, key=lambda op: op.name, reverse=not ascending)
    value = _KEYS[sort]
    known = [op for op in ops if value(op) is not None]
    return sorted(known, key=value, reverse=not ascending) + [op for op in ops if value(op) is None]
