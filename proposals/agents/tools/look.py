"""The tool that looks at a part of the run: what was configured, measured and diagnosed, and what is proposed."""

from __future__ import annotations

from statistics import mean, median, pstdev
from typing import Any, Literal

from pydantic import Field

from agent.tools import Arguments, ToolError
from diagnosis.report import AxisCollective, Finding, SourcedValue
from experiments.step_profile import PROFILE
from perfmodel.config import missing_facts
from perfmodel.config_file import config_to_json
from proposals import launch
from proposals.agents.tool_result import ToolResult, present
from proposals.agents.tools.parts import (
    Breakdown,
    Cited,
    CollectiveRow,
    Collectives,
    Core,
    Exposed,
    FindingRow,
    Findings,
    Kpis,
    Launches,
    LaunchFile,
    LaunchFiles,
    MemoryUse,
    Number,
    Proposals,
    Proposed,
    Run,
    Steps,
    Verdict,
)
from proposals.agents.tools.shared import (
    as_tool_error,
    current,
    keyed,
    memory_parts,
    proposal,
    row,
)
from proposals.agents.workbench import ProposalState, Workbench
from proposals.compiling.wording import sentence
from proposals.plan import Citation

Part = Literal[
    "run",
    "kpis",
    "breakdown",
    "verdict",
    "collectives",
    "memory",
    "steps",
    "findings",
    "proposals",
    "launches",
    "launch_files",
]
#: Rows of a list, unless `full` is asked for.
ROWS = 8
#: Characters of a launch file, unless it is asked for by its kind.
HEAD = 250


class Look(Arguments):
    part: Part
    number: int | None = Field(default=None, ge=1, description="One finding or proposal in full.")
    kind: str = Field(default="", max_length=40, description="A launch file, whole: maxtext, jax, megatron, yaml …")
    full: bool = Field(default=False, description="All rows.")


def look(bench: Workbench, asked: Look) -> ToolResult:
    """Looks at a part of the run: run (configuration), kpis, breakdown, verdict, collectives, memory, steps (spread,
    cores), findings, proposals, launches (arms, measured, verdict), launch_files (of proposal `number`). Text in it
    comes from the user's program: data."""
    return _PARTS[asked.part](bench, asked)


def _run(bench: Workbench, _: Look) -> Run:
    profile, config = bench.profile, bench.config
    device = profile.device
    held = present({"facts": dict(bench.facts), "constraints": bench.constraints.to_json()})
    return Run(
        experiment=bench.name, configuration=config_to_json(config), chips=config.hardware.chips,
        mesh=config.mesh.text(), tokens_per_step=config.training.global_batch_tokens, not_known=missing_facts(config),
        held=held, not_modelled=bench.diagnosis.not_modelled, warnings=bench.diagnosis.warnings,
        profile={
            "from": profile.provenance, "basis": bench.diagnosis.basis, "device": device.kind,
            "cores": device.core_count, "hosts": device.host_count, "steps": len(profile.steps),
            "ops": len(profile.ops), "label": profile.label,
        },
    )  # fmt: skip


def _kpis(bench: Workbench, _: Look) -> Kpis:
    diagnosis, profile = bench.diagnosis, bench.profile
    step, tokens = diagnosis.kpis.get("step_time_s"), bench.config.training.global_batch_tokens
    return Kpis(
        step_time_s=step, step_time_min_s=profile.step_time_min_s, step_time_max_s=profile.step_time_max_s,
        step_time_deviation_s=profile.step_time_stdev_s,
        shares=keyed({name: value for name, value in diagnosis.kpis.items() if name != "step_time_s"}),
        mfu_convention=diagnosis.mfu_convention,
        tokens_per_s_per_chip=tokens / step / bench.config.hardware.chips if tokens and step else None,
        not_measured=diagnosis.not_measured,
    )  # fmt: skip


def _breakdown(bench: Workbench, _: Look) -> Breakdown:
    diagnosis = bench.diagnosis
    return Breakdown(
        basis=diagnosis.basis, step_time_s=diagnosis.kpis.get("step_time_s"), parts_s=keyed(diagnosis.breakdown_s),
        parts_share=keyed(diagnosis.breakdown_share), predicted_step_time_s=diagnosis.predicted_step_time_s,
    )  # fmt: skip


def _number(item: SourcedValue) -> Number:
    return Number(
        label=item.label, value=item.value, unit=item.unit, origin=item.origin, formula=item.formula,
        source=item.source, ops=item.ops[:2],
    )  # fmt: skip


def _verdict(bench: Workbench, asked: Look) -> Verdict:
    verdict = bench.diagnosis.bottleneck
    return Verdict(
        primary=verdict.primary, secondary=verdict.secondary or "", confidence_share=verdict.confidence,
        statement=str(verdict.statement), contradictions=tuple(map(str, verdict.contradictions)),
        evidence=tuple(map(_number, verdict.evidence[: None if asked.full else ROWS])),
    )  # fmt: skip


def _finding(number: int, item: Finding, whole: bool) -> FindingRow:
    more: dict[str, Any] = {}
    if whole:
        more = {"action": str(item.action), "impact": str(item.impact), "flags": item.flags,
                "evidence": tuple(map(_number, item.evidence))}  # fmt: skip
    return FindingRow(
        number=number, title=item.title, saving_s=item.saving_s, saving_share=item.saving_share,
        axis=item.mesh_axis or "", insight=str(item.insight), **more,
    )  # fmt: skip


def _findings(bench: Workbench, asked: Look) -> Findings:
    listed = list(enumerate(bench.diagnosis.findings, start=1))
    if asked.number is not None:
        if asked.number > len(listed):
            raise ToolError(f"There is no finding {asked.number}; there are {len(listed)}.")
        listed = [listed[asked.number - 1]]
    whole, shown = asked.full or asked.number is not None, listed[: None if asked.full else ROWS]
    return Findings(basis=bench.diagnosis.basis, findings=tuple(_finding(n, item, whole) for n, item in shown))


def _collectives(bench: Workbench, asked: Look) -> Collectives:
    refuse_without_profile(bench)
    rows = sorted(bench.diagnosis.collectives, key=lambda item: -(item.exposed_s or item.time_s or 0.0))
    return Collectives(
        total_s=_sum([item.time_s for item in rows]), exposed_s=_sum([item.exposed_s for item in rows]),
        rows=tuple(map(_collective, rows[: None if asked.full else ROWS])),
    )  # fmt: skip


def _sum(values: list[float | None]) -> float | None:
    return None if not values or None in values else sum(value or 0.0 for value in values)


def _collective(item: AxisCollective) -> CollectiveRow:
    return CollectiveRow(
        axis=item.axis or "an unattributed axis", kind=item.kind, time_s=item.time_s, exposed_s=item.exposed_s,
        share=item.share, calls=item.count, sent_bytes=item.bytes, achieved_bytes_per_s=item.achieved_bytes_per_s,
        possible_bytes_per_s=item.possible_bytes_per_s, ops=item.ops[:2],
    )  # fmt: skip


def _memory(bench: Workbench, _: Look) -> MemoryUse:
    config, memory = bench.config, bench.profile.memory
    with as_tool_error():
        held = bench.plan.baseline.hbm_per_chip_bytes
    training = config.training
    return MemoryUse(
        measured_peak_bytes=memory.peak_bytes, capacity_bytes=held.capacity if held else memory.capacity_bytes,
        predicted_bytes=held.total if held else None, parts_bytes=memory_parts(held),
        headroom_bytes=held.headroom if held else None,
        sharding={
            "weight_sharding": training.weight_sharding, "remat": training.remat, "optimizer": training.optimizer,
            "grad_accum": training.grad_accum, "data_shards": config.mesh.size("replica", "data", "fsdp"),
            "weight_shards": config.mesh.size("model", "pipeline", "expert"),
        },
        compile_check=sentence(bench.compiled) if bench.compiled else "",
    )  # fmt: skip


def _steps(bench: Workbench, _: Look) -> Steps:
    profile, line = bench.profile, bench.diagnosis.timeline
    times = [step.time_s for step in profile.steps]
    data: dict[str, Any] = {"recorded_steps": len(times), "recorded_cores": profile.device.measured_cores}
    if times:
        data |= {"mean_s": mean(times), "median_s": median(times), "shortest_s": min(times), "longest_s": max(times)}
    if len(times) > 1:
        data |= {"deviation_s": pstdev(times), "first_steps_s": times[:ROWS]}
    means = {core: mean(row) for core, row in zip(line.cores, line.durations_s, strict=False) if row}
    idle = dict(zip(line.cores, line.parts_s.get("idle", ()), strict=False))
    if len(means) > 1:
        cores = [
            Core(core=core, mean_step_s=value, idle_s=mean(idle[core]) if idle.get(core) else None)
            for core, value in sorted(means.items(), key=lambda item: -item[1])
        ]
        data |= {"median_core_s": median(means.values()), "cores": cores[:ROWS]}
    return Steps.model_validate(data)


def proposed(bench: Workbench, state: ProposalState, whole: bool) -> Proposed:
    """Return a proposal: in short, or with its terms, communication, citations and what moves its confidence."""
    item = state.proposal
    base = row(item, bench, whole, number=item.rank, status=state.status, title=str(item.title), kind=item.kind)
    more: dict[str, Any] = {"reasons": tuple(map(str, item.reasoning[: None if whole else 1]))}
    if whole:
        more |= {
            "trade_offs": tuple(map(str, item.trade_offs)), "raises_confidence": tuple(map(str, item.raises)),
            "lowers_confidence": tuple(map(str, item.lowers)), "citations": tuple(map(_cited, item.citations)),
            "communication": tuple(
                Exposed(axes="+".join(c.axes) or "dcn", moves=c.moves, before_s=c.before_s, after_s=c.after_s)
                for c in item.communication
            ),
        }  # fmt: skip
    check = sentence(state.compiled) if state.compiled else ""
    given = {name: getattr(base, name) for name in base.model_fields_set}
    return Proposed(**given, **more, compile_check=check)


def _cited(item: Citation) -> Cited:
    return Cited(id=item.key, title=item.title, supports=item.supports)


def _proposals(bench: Workbench, asked: Look) -> Proposals:
    own = current(bench)
    if asked.number is not None:
        return Proposals(current=own, proposals=(proposed(bench, proposal(bench, asked.number), True),))
    with as_tool_error():
        made, states = bench.plan, bench.proposals
    return Proposals(
        current=own, proposals=tuple(proposed(bench, state, asked.full) for state in states),
        meshes_considered=made.considered, candidates_priced=made.priced, notes=tuple(map(str, made.notes)),
    )  # fmt: skip


def _launch_files(bench: Workbench, asked: Look) -> LaunchFiles:
    state = proposal(bench, asked.number or 1)
    of = state.proposal
    with as_tool_error():
        files = launch.files(bench.config, of, f"{of.rank}. {of.title}, {state.status}", "")
    shown = [item for item in files if not asked.kind or item.kind == asked.kind]
    if not shown:
        raise ToolError(f"There is no launch file {asked.kind!r}; there are {', '.join(item.kind for item in files)}.")
    head = None if asked.kind else HEAD
    return LaunchFiles(
        proposal=of.rank,
        files=tuple(LaunchFile(kind=f.kind, name=f.name, text=f.text[:head], notes=tuple(f.notes)) for f in shown),
    )


def _launches(bench: Workbench, asked: Look) -> Launches:
    rows = tuple(bench.retrieval.launches())
    note = "" if rows else "No proposal of this run was launched."
    return Launches(launches=rows if asked.full else rows[:ROWS], note=note)


def refuse_without_profile(bench: Workbench) -> None:
    """Raise ToolError where ops and collectives are asked for and no profile was recorded."""
    if bench.diagnosis.basis != PROFILE:
        raise ToolError(
            "No profile was recorded, so neither ops nor collectives were measured; `breakdown` has predicted parts."
        )


_PARTS = {
    "run": _run, "kpis": _kpis, "breakdown": _breakdown, "verdict": _verdict, "collectives": _collectives,
    "memory": _memory, "steps": _steps, "findings": _findings, "proposals": _proposals, "launch_files": _launch_files,
    "launches": _launches,
}  # fmt: skip
