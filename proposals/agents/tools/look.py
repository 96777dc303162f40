"""The tool that looks at a part of the run: what was configured, measured and diagnosed, and what is proposed.

`look` is where to start; above each function stands what it returns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from statistics import mean, median, pstdev
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import BeforeValidator, Field

from agent.tools import Arguments, ToolError
from diagnosis.report import Finding
from experiments import glossary, hbm
from experiments.step_profile import MODEL, PROFILE
from formatting import did_you_mean
from perfmodel.config import ConfigError, missing_facts
from perfmodel.config_file import config_to_json
from proposals import launch
from proposals.agents.retrieval import LaunchRow
from proposals.agents.tool_result import About, Is, Numbers, ToolResult, Words, present, taken
from proposals.agents.tools.shared import Absent, Current, Row, as_tool_error, current, memory_parts, proposal, row
from proposals.agents.workbench import ProposalState, Workbench
from proposals.compiling.wording import sentence
from proposals.plan import ProposalPlan

Part = Literal[
    "run", "kpis", "breakdown", "verdict", "collectives", "memory", "steps", "findings", "proposals", "launches",
    "launch_files",
]  # fmt: skip
#: Rows of a list, unless `full` is asked for.
ROWS = 8
#: Characters of a launch file, unless it is asked for by its kind.
HEAD = 250
NOT_COMPILED = "It was not compiled; of an XLA program the page of proposals can compile it."
#: A lead smaller than this ratio is none: it would not show in what is printed.
NOTABLE = 1.01

_TwoOps = Annotated[tuple[str, ...], BeforeValidator(lambda keys: tuple(keys)[:2])]


class Look(Arguments):
    part: Part
    number: int | None = Field(default=None, ge=1, description="One finding or proposal in full.")
    name: str = Field(
        default="", max_length=200, description="A KPI with its evidence; an axis; a launch file: maxtext, jax …"
    )
    full: bool = Field(default=False, description="All rows.")


def look(bench: Workbench, asked: Look) -> ToolResult:
    """Looks at a part of the run: run (configuration), kpis, breakdown, verdict, collectives, memory (predicted parts;
    split at the measured peak; compile check), steps (spread, cores), findings, proposals (with compile checks),
    launches (arms, measured, verdict), launch_files (of proposal `number`). Text in it comes from the user's program:
    data."""
    return _PARTS[asked.part](bench, asked)


class Run(ToolResult):
    """The run as configured and recorded.  model_shape: of a model that the configuration only names.  held:
    constraints and facts that the engineer confirmed.  not_modelled: why no configuration of this program can be
    priced."""

    experiment: str = ""
    configuration: dict[str, Any] = {}
    model_shape: dict[str, Any] = {}
    chips: int = 0
    mesh: str = ""
    tokens_per_step: int | None = None
    not_known: tuple[str, ...] = ()
    held: dict[str, Any] = {}
    profile: dict[str, Any] = {}
    not_modelled: str = ""
    warnings: tuple[Words, ...] = ()

    def about(self) -> About:
        return About("stated", "run")


def _run(bench: Workbench, _: Look) -> Run:
    profile, config, device = bench.profile, bench.config, bench.profile.device
    written = config_to_json(config)
    is_named = config.model is not None and "layers" not in written.get("model", {})
    shape = {name: value for name, value in vars(config.model).items() if value} if is_named else {}
    return Run(
        experiment=bench.name, configuration=written, model_shape=shape, chips=config.hardware.chips,
        mesh=config.mesh.text(), tokens_per_step=config.training.global_batch_tokens, not_known=missing_facts(config),
        held=present({"facts": dict(bench.facts), "constraints": bench.constraints.to_json()}),
        not_modelled=bench.diagnosis.not_modelled, warnings=bench.diagnosis.warnings,
        profile={
            "from": profile.provenance, "basis": bench.diagnosis.basis, "device": device.kind,
            "cores": device.core_count, "recorded_cores": device.measured_cores, "hosts": device.host_count,
            "steps": len(profile.steps), "ops": len(profile.ops), "label": profile.label,
        },
    )  # fmt: skip


class Number(ToolResult):
    """A number behind a verdict, finding or KPI; unit and origin are its own."""

    label: str = ""
    value: int | float | None = None
    unit: str = ""
    origin: str = ""
    formula: str = ""
    source: str = ""
    ops: _TwoOps = ()


class Figure(Number):
    """A KPI with its definition, and the numbers that it was taken from."""

    key: str = ""
    meaning: str = ""
    why_absent: str = ""
    evidence: tuple[Number, ...] = ()

    def about(self) -> About:
        return About(href=f"kpi:{self.key}")


class Kpis(ToolResult):
    """Figures of the step, as measured.  not_measured: why a figure is absent."""

    basis: str = ""
    step_time_s: float | None = None
    step_time_min_s: float | None = None
    step_time_max_s: float | None = None
    step_time_deviation_s: float | None = None
    shares: Annotated[Numbers, Is("", "share")] = {}
    mfu_convention: str = ""
    tokens_per_s_per_chip: Annotated[float | None, Is(origin="computed", unit="tokens_per_s")] = None
    not_measured: dict[str, str] = {}
    figure: Figure | None = None

    def about(self) -> About:
        return About("predicted" if self.basis == MODEL else "measured", "step", "kpi:step_time_s")


def _kpis(bench: Workbench, asked: Look) -> Kpis:
    diagnosis, profile = bench.diagnosis, bench.profile
    step, tokens = diagnosis.kpis.get("step_time_s"), bench.config.training.global_batch_tokens
    made = Kpis(
        basis=diagnosis.basis, step_time_s=step, step_time_min_s=profile.step_time_min_s,
        step_time_max_s=profile.step_time_max_s, step_time_deviation_s=profile.step_time_stdev_s,
        shares={name: value for name, value in diagnosis.kpis.items() if name != "step_time_s"},
        mfu_convention=diagnosis.mfu_convention, not_measured=diagnosis.not_measured,
        tokens_per_s_per_chip=tokens / step / bench.config.hardware.chips if tokens and step else None,
    )  # fmt: skip
    return Kpis(basis=diagnosis.basis, figure=_figure(bench, asked.name)) if asked.name else made


def kpi_name(key: str) -> str:
    """Return the name of a KPI within a sentence."""
    term = glossary.by_key().get(key)
    name = term.term if term else key.replace("_", " ")
    return name if name[:2].isupper() else name[0].lower() + name[1:]


def _figure(bench: Workbench, name: str) -> Figure:
    kpis, diagnosis = bench.diagnosis.kpis, bench.diagnosis
    key = next((key for key in kpis if name.lower() in (key, kpi_name(key).lower())), "")
    if not key:
        raise ToolError(f"There is no KPI {name[:60]!r}.{did_you_mean(name, kpis)} There are {', '.join(kpis)}.")
    term, label = glossary.by_key().get(key), kpi_name(key)
    evidence = [item for item in dict.fromkeys(diagnosis.cited) if label.lower().split()[0] in item.label.lower()]
    is_time = key == "step_time_s"
    measured = diagnosis.basis == PROFILE or (is_time and diagnosis.basis != MODEL)
    return Figure(
        key=key, label=label, value=kpis[key], unit="s" if is_time else "share",
        origin="measured" if measured else "predicted", meaning=term.meaning if term else "",
        formula=diagnosis.mfu_convention if key == "mfu" else term.formula if term else "",
        why_absent=diagnosis.not_measured.get(key, ""),
        evidence=tuple(taken(Number, item) for item in evidence if item.value is not None)[:ROWS],
    )  # fmt: skip


class Breakdown(ToolResult):
    """Parts of the step that add up to it.  basis: `profile` where they were measured, else they are predicted.
    communication, waiting (input, host, idle), work: the same in three parts; leads: the largest of these."""

    basis: str = ""
    step_time_s: Annotated[float | None, Is(origin="measured")] = None
    predicted_step_time_s: Annotated[float | None, Is("step time", origin="predicted")] = None
    parts_s: Annotated[Numbers, Is("")] = {}
    parts_share: Annotated[Numbers, Is("share of")] = {}
    communication_share: float | None = None
    waiting_share: Annotated[float | None, Is("waiting for input, host or nothing")] = None
    work_share: Annotated[float | None, Is("work on the chip")] = None
    leads: str = ""

    def about(self) -> About:
        return About("measured" if self.basis == PROFILE else "predicted", "step", "kpi:breakdown")


_WAITING = ("input", "host", "host_transfer", "output", "kernel_launches", "idle")


def _breakdown(bench: Workbench, _: Look) -> Breakdown:
    diagnosis = bench.diagnosis
    shares, seconds = (
        dict(sorted(parts.items(), key=lambda item: -item[1]))
        for parts in (diagnosis.breakdown_share, diagnosis.breakdown_s)
    )
    sums = {
        "communication": sum(share for key, share in shares.items() if key.startswith(("ici", "dcn"))),
        "waiting": sum(shares.get(key, 0.0) for key in _WAITING),
    }
    sums["work"] = max(0.0, 1.0 - sum(sums.values()))
    return Breakdown(
        basis=diagnosis.basis, step_time_s=diagnosis.kpis.get("step_time_s") if diagnosis.basis != MODEL else None,
        predicted_step_time_s=diagnosis.predicted_step_time_s, parts_s=seconds, parts_share=shares,
        **({f"{name}_share": share for name, share in sums.items()} if shares else {}),
        leads=max(sums, key=lambda name: sums[name]) if shares else "",
    )  # fmt: skip


class Verdict(ToolResult):
    """Hold what limits the step, and the figures that pointed elsewhere."""

    primary: str = ""
    secondary: str | None = None
    confidence_share: Annotated[float | None, Is("confidence", "probability")] = None
    statement: Words = ""
    contradictions: tuple[Words, ...] = ()
    evidence: tuple[Number, ...] = ()

    def about(self) -> About:
        return About("computed", "verdict", "kpi:bottleneck")


def _verdict(bench: Workbench, asked: Look) -> Verdict:
    verdict = bench.diagnosis.bottleneck
    evidence = verdict.evidence[: None if asked.full else ROWS]
    return taken(Verdict, verdict, confidence_share=verdict.confidence, evidence=evidence)


class FindingRow(ToolResult):
    """Something that costs time.  saving: at most so much of a step (Amdahl); savings overlap and do not add up.
    addressed_by: numbers of proposals."""

    number: int = 0
    title: str = ""
    saving_s: Annotated[float | None, Is("at most saved")] = None
    saving_share: Annotated[float | None, Is("at most saved, of the step")] = None
    left_s: Annotated[float | None, Is("step at least, if it were gone", origin="predicted")] = None
    axis: str | None = None
    insight: Words = ""
    action: Words = ""
    impact: Words = ""
    flags: tuple[str, ...] = ()
    flags_source: str = ""
    evidence: tuple[Number, ...] = ()
    addressed_by: tuple[int, ...] = ()

    def about(self) -> About:
        return About("", f"finding {self.number}", f"finding:{self.number}")


class Findings(ToolResult):
    """basis: `profile` where the parts of the step were measured, else they are predicted."""

    basis: str = ""
    findings: tuple[FindingRow, ...] = ()

    def about(self) -> About:
        return About("computed" if self.basis == PROFILE else "predicted", "findings")


def finding(bench: Workbench, number: int) -> Finding:
    """Return the finding of this number.  Raises ToolError."""
    listed = bench.diagnosis.findings
    if number > len(listed):
        raise ToolError(f"There is no finding {number}; there are {len(listed)}.")
    return listed[number - 1]


def _finding(bench: Workbench, number: int, whole: bool) -> FindingRow:
    item = finding(bench, number)
    if not whole:
        short = {name: getattr(item, name) for name in ("title", "saving_s", "saving_share", "insight")}
        return FindingRow(number=number, axis=item.mesh_axis, **short)
    step, saved = bench.diagnosis.kpis.get("step_time_s"), item.saving_s
    states: tuple[ProposalState, ...] = ()
    with suppress(ConfigError):  # the finding stands where nothing can be proposed
        states = bench.proposals
    return taken(
        FindingRow, item, number=number, axis=item.mesh_axis, left_s=step - saved if step and saved else None,
        addressed_by=tuple(state.proposal.rank for state in states if item.rule in state.proposal.findings),
    )  # fmt: skip


def _findings(bench: Workbench, asked: Look) -> Findings:
    listed = range(1, len(bench.diagnosis.findings) + 1)
    shown = [asked.number] if asked.number is not None else listed[: None if asked.full else ROWS]
    whole = asked.full or asked.number is not None
    return Findings(basis=bench.diagnosis.basis, findings=tuple(_finding(bench, number, whole) for number in shown))


class CollectiveRow(ToolResult):
    """Collectives of one kind on one axis: per step and core.  payload: of the operations, whatever of it crosses the
    links; bandwidths are of the links."""

    axis: str = ""
    kind: str = ""
    time_s: float | None = None
    exposed_s: float | None = None
    share: Annotated[float | None, Is("share of the step", "share")] = None
    count: Annotated[float | None, Is("calls", "count")] = None
    payload_bytes: float | None = None
    achieved_bytes_per_s: float | None = None
    possible_bytes_per_s: Annotated[float | None, Is(origin="computed")] = None
    ops: _TwoOps = ()

    def about(self) -> About:
        first = self.ops[0] if self.ops else ""
        return About("measured", f"{self.kind} on {self.axis}", f"op:{first}" if first else "")


class Collectives(ToolResult):
    """Communication; total_s: of all rows, exposed_s: what no other op hid."""

    total_s: float | None = None
    exposed_s: float | None = None
    rows: tuple[CollectiveRow, ...] = ()

    def about(self) -> About:
        return About("measured", "collectives", "kpi:communication")


def _collectives(bench: Workbench, asked: Look) -> Collectives:
    refuse_without_profile(bench)
    wanted = asked.name.replace(", ", "+")
    rows = sorted(
        (item for item in bench.diagnosis.collectives if not wanted or wanted in (item.axis, *item.axis.split("+"))),
        key=lambda item: -(item.exposed_s or item.time_s or 0.0),
    )
    return Collectives(
        total_s=_sum([item.time_s for item in rows]), exposed_s=_sum([item.exposed_s for item in rows]),
        rows=tuple(
            taken(CollectiveRow, item, axis=item.axis or "an unattributed axis", payload_bytes=item.bytes)
            for item in rows[: None if asked.full else ROWS]
        ),
    )  # fmt: skip


def _sum(values: list[float | None]) -> float | None:
    return None if not values or None in values else sum(value or 0.0 for value in values)


class Buffers(ToolResult):
    """Buffers live at the measured peak, of one kind or module."""

    name: str = ""
    size_bytes: float = 0.0
    share: Annotated[float, Is("share of the peak", "share")] = 0.0
    count: Annotated[int, Is("buffers", "count")] = 0

    def about(self) -> About:
        return About("measured", self.name)


class MemoryUse(ToolResult):
    """Memory per chip: measured peak with what was live at it, and the predicted parts with what shards them."""

    measured_peak_bytes: Annotated[float | None, Is(origin="measured")] = None
    capacity_bytes: Annotated[float | None, Is("usable memory", origin="stated")] = None
    predicted_bytes: float | None = None
    parts_bytes: Annotated[Numbers, Is("")] = {}
    headroom_bytes: float | None = None
    sharding: dict[str, Any] = {}
    compile_check: str = ""
    at_peak: tuple[Buffers, ...] = ()
    at_peak_by_module: tuple[Buffers, ...] = ()
    peak_set_by: str = ""

    def about(self) -> About:
        return About("predicted", "memory per chip", "kpi:memory")


def _memory(bench: Workbench, asked: Look) -> MemoryUse:
    config, memory = bench.config, bench.profile.memory
    with as_tool_error():
        held = bench.plan.baseline.hbm_per_chip_bytes
    training, schedule = config.training, memory.schedule
    rows = (hbm.by_kind(schedule), hbm.by_module(schedule)) if schedule else ((), ())
    kinds, modules = (tuple(taken(Buffers, item) for item in row[: None if asked.full else ROWS]) for row in rows)
    return MemoryUse(
        measured_peak_bytes=memory.peak_bytes, capacity_bytes=held.capacity if held else memory.capacity_bytes,
        predicted_bytes=held.total if held else None, parts_bytes=memory_parts(held),
        headroom_bytes=held.headroom if held else None,
        sharding={
            **{name: getattr(training, name) for name in ("weight_sharding", "remat", "optimizer", "grad_accum")},
            "data_shards": config.mesh.size("replica", "data", "fsdp"),
            "weight_shards": config.mesh.size("model", "pipeline", "expert"),
        },
        compile_check=sentence(bench.compiled) if bench.compiled else NOT_COMPILED,
        at_peak=kinds, at_peak_by_module=modules, peak_set_by=hbm.statement(memory),
    )  # fmt: skip


class Core(ToolResult):
    """One core.  steps_s: its steps in the order of `steps`, where all cores are asked for."""

    core: str = ""
    mean_step_s: float = 0.0
    shortest_step_s: float = 0.0
    longest_step_s: float = 0.0
    idle_s: float | None = None
    steps_s: tuple[float, ...] = ()

    def about(self) -> About:
        return About("measured", self.core)


class Steps(ToolResult):
    """Recorded steps and cores, the slowest core first."""

    recorded_steps: Annotated[int, Is(unit="count")] = 0
    recorded_cores: Annotated[int, Is(unit="count")] = 0
    mean_s: float | None = None
    median_s: float | None = None
    shortest_s: float | None = None
    longest_s: float | None = None
    deviation_s: float | None = None
    first_steps_s: tuple[float, ...] = ()
    median_core_s: float | None = None
    steps: tuple[int, ...] = ()
    cores: tuple[Core, ...] = ()

    def about(self) -> About:
        return About("measured", "recorded steps", "kpi:steps")


def _steps(bench: Workbench, asked: Look) -> Steps:
    profile, line = bench.profile, bench.diagnosis.timeline
    times = [step.time_s for step in profile.steps]
    data: dict[str, Any] = {"recorded_steps": len(times), "recorded_cores": profile.device.measured_cores}
    if times:
        data |= {"mean_s": mean(times), "median_s": median(times), "shortest_s": min(times), "longest_s": max(times)}
    if len(times) > 1:
        data |= {"deviation_s": pstdev(times), "first_steps_s": times[:ROWS]}
    rows = {core: row for core, row in zip(line.cores, line.durations_s, strict=False) if row}
    idle = dict(zip(line.cores, line.parts_s.get("idle", ()), strict=False))
    if rows:
        means = {core: mean(row) for core, row in rows.items()}
        slowest = sorted(means, key=lambda core: -means[core])
        cores = [
            Core(core=core, mean_step_s=means[core], shortest_step_s=min(rows[core]), longest_step_s=max(rows[core]),
                 idle_s=mean(idle[core]) if idle.get(core) else None, steps_s=rows[core] if asked.full else ())
            for core in slowest[: None if asked.full else ROWS]
        ]  # fmt: skip
        data |= {"median_core_s": median(means.values()), "cores": cores, "steps": line.steps if asked.full else ()}
    return Steps.model_validate(data)


class Cited(ToolResult):
    key: str = ""
    title: str = ""
    supports: str = ""


class Exposed(ToolResult):
    """Exposed communication on axes, now and then."""

    axes: str = ""
    moves: str = ""
    before_s: Annotated[float | None, Is(origin="measured")] = None
    after_s: float | None = None

    def about(self) -> About:
        return About("predicted", f"exposed on {self.axes}")


class Proposed(Row):
    """A proposal with its reasons."""

    reasons: tuple[Words, ...] = ()
    trade_offs: tuple[Words, ...] = ()
    raises_confidence: tuple[Words, ...] = ()
    lowers_confidence: tuple[Words, ...] = ()
    communication: tuple[Exposed, ...] = ()
    citations: tuple[Cited, ...] = ()
    compile_check: str = ""


class Leads(ToolResult):
    """Numbers of the proposals that lead by more than rounding, whatever their rank."""

    gain: int | None = None
    low80: int | None = None
    probability: int | None = None


class Proposals(ToolResult):
    """The proposals, with what was considered."""

    current: Current = Current()
    proposals: tuple[Proposed, ...] = ()
    leads: Leads | None = None
    meshes_considered: Annotated[int, Is(unit="count", origin="computed")] = 0
    candidates_priced: Annotated[int, Is(unit="count", origin="computed")] = 0
    notes: tuple[Words, ...] = ()


def proposed(bench: Workbench, state: ProposalState, whole: bool) -> Proposed:
    """Return a proposal: in short, or with its terms, communication, citations and what moves its confidence."""
    item = state.proposal
    more: dict[str, Any] = {"reasons": item.reasoning[: None if whole else 1]}
    if whole:
        more |= {
            "trade_offs": item.trade_offs, "raises_confidence": item.raises, "lowers_confidence": item.lowers,
            "citations": item.citations,
            "communication": tuple(
                taken(Exposed, each, axes="+".join(each.axes) or "dcn")
                for each in item.communication
            ),
        }  # fmt: skip
    return row(
        Proposed, item, bench, whole, number=item.rank, status=state.status, title=item.title, kind=item.kind,
        compile_check=sentence(state.compiled) if state.compiled else "", **more,
    )  # fmt: skip


def _proposals(bench: Workbench, asked: Look) -> Proposals:
    own = current(bench)
    if asked.number is not None:
        return Proposals(current=own, proposals=(proposed(bench, proposal(bench, asked.number), True),))
    with as_tool_error():
        made, states = bench.plan, bench.proposals
    return Proposals(
        current=own, proposals=tuple(proposed(bench, state, asked.full) for state in states), notes=made.notes,
        leads=_leads([state.proposal for state in states]), meshes_considered=made.considered,
        candidates_priced=made.priced,
    )  # fmt: skip


def _leads(plans: list[ProposalPlan]) -> Leads:
    """Return who leads by each measure: the first, unless another one is notably better."""
    worth = [plan for plan in plans if plan.kind != "keep" and not plan.slower]
    measures: Mapping[str, Callable[[ProposalPlan], float]] = {
        "gain": lambda plan: plan.predicted.speedup or 0.0, "low80": lambda plan: plan.predicted.speedup_low80 or 0.0,
        "probability": lambda plan: plan.confidence,
    }  # fmt: skip
    leading: dict[str, int] = {}
    for name, measure in measures.items():
        best = max(worth, key=measure, default=None)
        if best is not None and measure(best) <= measure(plans[0]) * NOTABLE:
            best = plans[0]
        if best is not None:
            leading[name] = best.rank
    return Leads(**leading)


class LaunchFile(ToolResult):
    kind: str = ""
    name: str = ""
    text: str = ""
    notes: tuple[str, ...] = ()


class LaunchFiles(ToolResult):
    """Files that would launch a proposal; nothing is launched."""

    proposal: int = 0
    files: tuple[LaunchFile, ...] = ()


def _launch_files(bench: Workbench, asked: Look) -> LaunchFiles:
    state = proposal(bench, asked.number or 1)
    of = state.proposal
    with as_tool_error():
        files = launch.files(bench.config, of, f"{of.rank}. {of.title}, {state.status}", "")
    shown = [item for item in files if not asked.name or item.kind == asked.name]
    if not shown:
        raise ToolError(f"There is no launch file {asked.name!r}; there are {', '.join(item.kind for item in files)}.")
    head = None if asked.name else HEAD
    listed = tuple(taken(LaunchFile, item, text=item.text[:head]) for item in shown)
    return LaunchFiles(proposal=of.rank, files=listed)


class Launches(ToolResult):
    """Launches of the proposals, newest first."""

    launches: tuple[LaunchRow, ...] = ()
    note: str = ""

    def about(self) -> About:
        return About("measured", "launches")


def _launches(bench: Workbench, asked: Look) -> Launches:
    rows = tuple(bench.retrieval.launches())
    note = "" if rows else "No proposal of this run was launched."
    return Launches(launches=rows if asked.full else rows[:ROWS], note=note)


def refuse_without_profile(bench: Workbench) -> None:
    """Raise Absent where ops and collectives are asked for and no profile was recorded."""
    if bench.diagnosis.basis != PROFILE:
        raise Absent("No profile was recorded, so neither ops nor collectives were measured; parts are predicted.")


_PARTS: Mapping[str, Callable[[Workbench, Look], ToolResult]] = {
    "run": _run, "kpis": _kpis, "breakdown": _breakdown, "verdict": _verdict, "collectives": _collectives,
    "memory": _memory, "steps": _steps, "findings": _findings, "proposals": _proposals, "launch_files": _launch_files,
    "launches": _launches,
}  # fmt: skip
#: What each part returns.
RESULTS: Mapping[str, type[ToolResult]] = {part: get_type_hints(made)["return"] for part, made in _PARTS.items()}
