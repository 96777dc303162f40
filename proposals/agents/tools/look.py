"""The tool that looks at a part of the run: what was configured, measured and diagnosed, and what is proposed.

`look` is where to start; the functions below it return one part each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from statistics import mean, median, pstdev
from typing import Any, Literal

from pydantic import Field

from agent.tools import Arguments, ToolError
from diagnosis.report import Finding
from experiments import glossary, hbm
from experiments.consistency import facts_of, model_of
from experiments.step_profile import MODEL, PROFILE
from formatting import did_you_mean
from perfmodel.config import ConfigError, missing_facts
from perfmodel.config_file import config_to_json
from perfmodel.workload import chip_of
from proposals import launch
from proposals.agents.tool_result import ABOUT, Result, about, present, taken
from proposals.agents.tools.shared import Absent, as_tool_error, current, memory_parts, proposal, row
from proposals.agents.workbench import ProposalState, Workbench
from proposals.compiling import targets
from proposals.compiling.wording import sentence
from proposals.plan import ProposalPlan

Part = Literal[
    "overview", "run", "kpis", "breakdown", "verdict", "collectives", "memory", "steps", "findings", "proposals",
    "launches",
]  # fmt: skip
#: Rows of a list, unless `full` is asked for.
ROWS = 8
NOT_COMPILED = "It was not compiled; of an XLA program the page of proposals can compile it."
#: A lead smaller than this ratio is none: it would not show in what is printed.
NOTABLE = 1.01


class Look(Arguments):
    part: Part
    number: int | None = Field(default=None, ge=1, description="One finding or proposal in full.")
    name: str = Field(default="", max_length=200, description="A KPI with its evidence, or an axis.")
    full: bool = Field(default=False, description="All rows.")


def look(bench: Workbench, asked: Look) -> Result:
    """Looks at a part of the run; the overview has most of them in short. memory: predicted parts, the split at the
    measured peak, compile check; steps: spread, cores; launches: measured ones, and files of one."""
    return _PARTS[asked.part](bench, asked)


def _rows(rows: Sequence[Any], asked: Look) -> Sequence[Any]:
    return rows if asked.full else rows[:ROWS]


def _without(row: Mapping[str, Any], *names: str) -> Result:
    return Result({key: value for key, value in row.items() if key not in names})


def _overview(bench: Workbench, asked: Look) -> Result:
    """Return what most questions are about, in short, each value once: every part has more."""
    run, kpis, verdict = _run(bench, asked), _kpis(bench, asked), _verdict(bench, asked)
    configuration = _without(run.configuration, "mesh", "notes")
    times = ("step_time_min_s", "step_time_max_s", "step_time_deviation_s", "mfu_convention", "basis")
    rows = _findings(bench, asked).findings
    found = Result(
        run={**run, "configuration": configuration},
        kpis={**_without(kpis, *times), "shares": {key: share for key, share in kpis.shares.items() if share},
              "not_measured": [*kpis.not_measured]},
        breakdown=_without(_breakdown(bench, asked), "basis", "step_time_s"), verdict=_without(verdict, "evidence"),
        findings=[row if row.saving_s else _without(row, "insight") for row in rows],
    )  # fmt: skip
    try:
        made = _proposals(bench, asked)
    except ToolError as error:
        return Result(found, no_proposals=str(error))
    long = ("reasons", "doubts", "title", "headroom_bytes", "compile_check", "not_known")
    now = _without(made.current, "terms_s", "mesh", "step_time_s")
    shown = [_without(row, *long) for row in made.proposals]
    priced_with = made.notes if run.not_known else ()  # what is assumed for it
    before = made.before_calibration
    return Result(found, current=now, proposals=shown, leads=made.leads, notes=priced_with, before_calibration=before)


def _run(bench: Workbench, _: Look) -> Result:
    """Return the run as configured and recorded.

    model_shape: of a model that the configuration only names.  shows: what the profile tells of the configuration, from
    shapes and groups of its ops; facts: the model in them.  held: constraints and facts that the engineer confirmed.
    not_modelled: why no configuration of this program can be priced.
    """
    profile, config, device = bench.profile, bench.config, bench.profile.device
    written = config_to_json(config)
    is_named = config.model is not None and "layers" not in written.get("model", {})
    shape = {name: value for name, value in vars(config.model).items() if value} if is_named else {}
    facts = facts_of(profile)
    recorded = model_of(facts, config.mesh.size("model")) if config.model is None else None
    return Result({
        ABOUT: about("stated", "run"), "configuration": written, "model_shape": shape, "chips": config.hardware.chips,
        "mesh": config.mesh.text(), "tokens_per_step": config.training.global_batch_tokens,
        "not_known": missing_facts(config),
        "held": present({"facts": dict(bench.facts), "constraints": bench.constraints.to_json()}),
        "not_modelled": bench.diagnosis.not_modelled, "warnings": bench.diagnosis.warnings,
        "profile": {
            "from": profile.provenance, "basis": bench.diagnosis.basis, "device": device.kind,
            "cores": device.core_count, "recorded_cores": device.measured_cores, "hosts": device.host_count,
            "steps": len(profile.steps), "ops": len(profile.ops), "label": profile.label,
            "shows": {key: fact.text for key, fact in facts.known.items() if fact.sure != "stated"},
            "facts": {f"model.{key}": value for key, value in recorded[0].items()} if recorded else {},
        },
    })  # fmt: skip


def _number(item: Any) -> Result:
    """Return a number behind a verdict, finding or KPI; unit and origin are its own."""
    return taken(item, "label value unit origin formula source", ops=_names(item.ops))


def _names(keys: Sequence[str]) -> list[str]:
    """Return the names of the first two ops of their keys."""
    return [key.rpartition("/")[2] for key in keys[:2]]


def _kpis(bench: Workbench, asked: Look) -> Result:
    """Return figures of the step, as measured; not_measured: why a figure is absent."""
    diagnosis, profile = bench.diagnosis, bench.profile
    named = {ABOUT: about("predicted" if diagnosis.basis == MODEL else "measured", "step", "kpi:step_time_s")}
    if asked.name:
        return Result(named, basis=diagnosis.basis, figure=_figure(bench, asked.name))
    step, tokens = diagnosis.kpis.get("step_time_s"), bench.config.training.global_batch_tokens
    return Result(
        named, basis=diagnosis.basis, step_time_s=step, step_time_min_s=profile.step_time_min_s,
        step_time_max_s=profile.step_time_max_s, step_time_deviation_s=profile.step_time_stdev_s,
        shares={name: value for name, value in diagnosis.kpis.items() if name != "step_time_s"},
        mxu_utilization=profile.kpis.get("mxu_utilization"),
        mfu_convention=diagnosis.mfu_convention, not_measured=diagnosis.not_measured,
        tokens_per_s_per_chip=tokens / step / bench.config.hardware.chips if tokens and step else None,
    )  # fmt: skip


def kpi_name(key: str) -> str:
    """Return the name of a KPI within a sentence."""
    term = glossary.by_key().get(key)
    name = term.term if term else key.replace("_", " ")
    return name if name[:2].isupper() else name[0].lower() + name[1:]


def _figure(bench: Workbench, name: str) -> Result:
    """Return a KPI with its definition, and the numbers that it was taken from."""
    kpis, diagnosis = bench.diagnosis.kpis, bench.diagnosis
    key = next((key for key in kpis if name.lower() in (key, kpi_name(key).lower())), "")
    if not key:
        raise ToolError(f"There is no KPI {name[:60]!r}.{did_you_mean(name, kpis)} There are {', '.join(kpis)}.")
    term, label = glossary.by_key().get(key), kpi_name(key)
    evidence = [item for item in dict.fromkeys(diagnosis.cited) if label.lower().split()[0] in item.label.lower()]
    measured = diagnosis.basis == PROFILE or (key in ("step_time_s", "mfu") and diagnosis.basis != MODEL)
    return Result(
        label=label, value=kpis[key], unit="s" if key == "step_time_s" else "share",
        origin="measured" if measured else "predicted", meaning=term.meaning if term else "",
        formula=diagnosis.mfu_convention if key == "mfu" else term.formula if term else "",
        why_absent=diagnosis.not_measured.get(key, ""), _about=about(href=f"kpi:{key}"),
        evidence=[_number(item) for item in evidence if item.value is not None][:ROWS],
    )  # fmt: skip


_SCALED = "Parts are predicted and fitted to the measured step; nothing tells in which of them the prediction is off."
_WAITING = ("input", "host", "host_transfer", "output", "kernel_launches", "idle")


def _breakdown(bench: Workbench, _: Look) -> Result:
    """Return parts of the step that add up to it.

    basis: `profile` where they were measured, else they are predicted.  communication, waiting (input, host, idle),
    work: the same in three parts; leads: the largest of these.
    """
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
    origin = "measured" if diagnosis.basis == PROFILE else "predicted"
    return Result(
        {ABOUT: about(origin, "step", "kpi:breakdown", step_time_s="measured")}, basis=diagnosis.basis,
        step_time_s=diagnosis.kpis.get("step_time_s") if diagnosis.basis != MODEL else None,
        predicted_step_time_s=diagnosis.predicted_step_time_s, parts_s=seconds, parts_share=shares,
        **({f"{name}_share": share for name, share in sums.items()} if shares else {}),
        leads=max(sums, key=lambda name: sums[name]) if shares else "",
        note="" if diagnosis.basis in (PROFILE, MODEL) else _SCALED,
    )  # fmt: skip


def _verdict(bench: Workbench, asked: Look) -> Result:
    """Return what limits the step, and the figures that pointed elsewhere."""
    verdict = bench.diagnosis.bottleneck
    return taken(
        verdict, "primary secondary statement contradictions", confidence_share=verdict.confidence,
        evidence=[_number(item) for item in _rows(verdict.evidence, asked)],
        _about=about("computed", "verdict", "kpi:bottleneck"),
    )  # fmt: skip


def finding(bench: Workbench, number: int) -> Finding:
    """Return the finding of this number.  Raises ToolError."""
    listed = bench.diagnosis.findings
    if number > len(listed):
        raise ToolError(f"There is no finding {number}; there are {len(listed)}.")
    return listed[number - 1]


def _finding(bench: Workbench, number: int, whole: bool) -> Result:
    """Return something that costs time.

    saving: at most so much of a step (Amdahl); savings overlap and do not add up.  addressed_by: numbers of proposals.
    """
    item = finding(bench, number)
    named = about(subject=f"finding {number}", href=f"finding:{number}")
    short = taken(item, "title saving_s saving_share insight", number=number, axis=item.mesh_axis, _about=named)
    if not whole:
        return short
    step, saved = bench.diagnosis.kpis.get("step_time_s"), item.saving_s
    states: tuple[ProposalState, ...] = ()
    with suppress(ConfigError):  # the finding stands where nothing can be proposed
        states = bench.proposals
    return taken(
        item, "action impact", **short, left_s=step - saved if step and saved else None,
        evidence=[_number(each) for each in item.evidence],
        addressed_by=[state.proposal.rank for state in states if item.rule in state.proposal.findings],
    )  # fmt: skip


def _findings(bench: Workbench, asked: Look) -> Result:
    listed = range(1, len(bench.diagnosis.findings) + 1)
    shown = [asked.number] if asked.number is not None else _rows(listed, asked)
    whole = asked.full or asked.number is not None
    is_measured = bench.diagnosis.basis == PROFILE
    return Result(
        findings=[_finding(bench, number, whole) for number in shown],
        _about=about("computed" if is_measured else "predicted", "findings"),
    )  # fmt: skip


def _collectives(bench: Workbench, asked: Look) -> Result:
    """Return communication by kind and axis, per step and core.

    payload: of the operations, whatever of it crosses the links; bandwidths are of the links.  exposed_s: what no other
    op hid.
    """
    refuse_without_profile(bench)
    wanted = asked.name.replace(", ", "+")
    listed = sorted(
        (item for item in bench.diagnosis.collectives if not wanted or wanted in (item.axis, *item.axis.split("+"))),
        key=lambda item: -(item.exposed_s or item.time_s or 0.0),
    )
    rows = [
        taken(
            item, "kind time_s exposed_s share count achieved_bytes_per_s possible_bytes_per_s",
            axis=item.axis or "an unattributed axis", payload_bytes=item.bytes, ops=_names(item.ops),
            _about=about("measured", f"{item.kind} on {item.axis}", f"op:{item.ops[0]}" if item.ops else ""),
        )
        for item in _rows(listed, asked)
    ]  # fmt: skip
    return Result(
        total_s=_sum([item.time_s for item in listed]), exposed_s=_sum([item.exposed_s for item in listed]), rows=rows,
        _about=about("measured", "collectives", "kpi:communication"),
    )  # fmt: skip


def _sum(values: list[float | None]) -> float | None:
    return None if not values or None in values else sum(value or 0.0 for value in values)


_BUFFERS = "The split is of the compiler's buffers; the peak of the device itself was not recorded."


def _memory(bench: Workbench, asked: Look) -> Result:
    """Return memory per chip: measured peak with what was live at it, and the predicted parts with what shards them."""
    config, memory = bench.config, bench.profile.memory
    with as_tool_error():
        held = bench.plan.baseline.hbm_per_chip_bytes
    training, schedule, is_fsdp = config.training, memory.schedule, config.training.weight_sharding == "fsdp"
    groups = (hbm.by_kind(schedule), hbm.by_module(schedule)) if schedule else ((), ())
    buffers, kind = _rows(schedule.buffers, asked) if schedule else (), chip_of(config.hardware).kind
    kinds, modules = (
        [
            taken(each, "name size_bytes count", peak_share=each.share, _about=about("measured", each.name))
            for each in _rows(group, asked)
        ]
        for group in groups
    )
    return Result(
        measured_peak_bytes=memory.peak_bytes, capacity_bytes=held.capacity if held else memory.capacity_bytes,
        predicted_bytes=held.total if held else None, parts_bytes=memory_parts(held),
        headroom_bytes=held.headroom if held else None,
        sharding={
            **{name: getattr(training, name) for name in ("weight_sharding", "remat", "optimizer", "grad_accum")},
            "data_shards": config.mesh.size("replica", "data", "fsdp"),
            # Across slices only an axis of role fsdp shards the weights (`perfmodel.workload`).
            "weight_shards": config.mesh.size("model", "pipeline", "expert", *["fsdp"] * is_fsdp)
            * config.mesh.ici_size(*["data"] * is_fsdp),
        },
        compile_check=sentence(bench.compiled) if bench.compiled
        else NOT_COMPILED if targets.installed(kind) else targets.not_installed(kind),
        at_peak_bytes=schedule.peak_bytes if schedule else None, at_peak=kinds, at_peak_by_module=modules,
        largest=[taken(each, "name kind shape size_bytes", _about=about("measured", each.name)) for each in buffers],
        peak_set_by=hbm.statement(memory),
        note=_BUFFERS if schedule and memory.peak_bytes is None else "",
        _about=about("predicted", "memory per chip", "kpi:memory"),
    )  # fmt: skip


def _steps(bench: Workbench, asked: Look) -> Result:
    """Return recorded steps and cores, the slowest core first.  steps_s of a core: its steps in the order of `steps`,
    where all cores are asked for."""
    profile, line = bench.profile, bench.diagnosis.timeline
    times = [step.time_s for step in profile.steps]
    data = {
        ABOUT: about("measured", "recorded steps", "kpi:steps"), "recorded_steps": len(times),
        "recorded_cores": profile.device.measured_cores,
    }  # fmt: skip
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
            Result(core=core, mean_step_s=means[core], shortest_step_s=min(rows[core]), longest_step_s=max(rows[core]),
                   idle_s=mean(idle[core]) if idle.get(core) else None, steps_s=rows[core] if asked.full else (),
                   _about=about("measured", core))
            for core in _rows(slowest, asked)
        ]  # fmt: skip
        data |= {"median_core_s": median(means.values()), "cores": cores, "steps": line.steps if asked.full else ()}
    return Result(data)


def proposed(bench: Workbench, state: ProposalState, whole: bool) -> Result:
    """Return a proposal: in short, or with its terms, communication, citations and what moves its confidence."""
    item = state.proposal
    more: dict[str, Any] = {"reasons": item.reasoning[: None if whole else 1]}
    if whole:
        before = "measured" if bench.diagnosis.basis == PROFILE else "predicted"
        more |= {
            "trade_offs": item.trade_offs, "raises_confidence": item.raises, "lowers_confidence": item.lowers,
            "citations": [taken(each, "key title supports") for each in item.citations],
            "communication": [
                taken(each, "moves before_s after_s", axes=(axes := "+".join(each.axes) or "dcn"),
                      _about=about("predicted", f"exposed on {axes}", before_s=before))
                for each in item.communication
            ],
        }  # fmt: skip
    return row(
        item, bench, item.rank, whole, status=state.status, title=item.title, kind=item.kind,
        compile_check=sentence(state.compiled) if state.compiled else "", **more,
    )  # fmt: skip


def _proposals(bench: Workbench, asked: Look) -> Result:
    """Return the proposals, with what was considered."""
    own = current(bench)
    if asked.number is not None:
        return Result(current=own, proposals=[proposed(bench, proposal(bench, asked.number), True)])
    with as_tool_error():
        made, states = bench.plan, bench.proposals
    known = made.model_error
    return Result(
        current=own, proposals=[proposed(bench, state, asked.full) for state in states], notes=made.notes,
        leads=_leads([state.proposal for state in states]), meshes_considered=made.considered,
        candidates_priced=made.priced, before_calibration=Result(
            median_error_share=known["median"], held_out_runs=known["rows"], meaning=known["meaning"]) if known else {},
    )  # fmt: skip


def _leads(plans: list[ProposalPlan]) -> Result:
    """Return the numbers of the proposals that lead by each measure: the first, unless another is notably better."""
    worth = [plan for plan in plans if plan.kind != "keep" and not plan.slower]
    measures: Mapping[str, Callable[[ProposalPlan], float]] = {
        "gain": lambda plan: plan.predicted.speedup or 0.0, "low80": lambda plan: plan.predicted.speedup_low80 or 0.0,
        "probability": lambda plan: plan.confidence,
    }  # fmt: skip
    leading = Result(dict.fromkeys(measures))
    for name, measure in measures.items():
        best = max(worth, key=measure, default=None)
        if best is not None and measure(best) <= measure(plans[0]) * NOTABLE:
            best = plans[0]
        if best is not None:
            leading[name] = best.rank
    return leading


def _launches(bench: Workbench, asked: Look) -> Result:
    """Return launches of the proposals, newest first; files: with which each program would run the proposal."""
    of = proposal(bench, asked.number).proposal if asked.number is not None else None
    with as_tool_error():
        files = launch.files(bench.config, of) if of else ()
        rows = _rows(bench.retrieval.launches(), asked)
    note = "" if rows else "No proposal of this run was launched; with a proposal's number this has its launch files."
    shown = [taken(each, "name text notes", _about=about("stated", each.name)) for each in files]
    return Result(launches=rows, files=shown, note=note, _about=about("measured", "launches"))


def refuse_without_profile(bench: Workbench) -> None:
    """Raise Absent where ops and collectives are asked for and no profile was recorded."""
    if bench.diagnosis.basis != PROFILE:
        raise Absent("No profile was recorded, so neither ops nor collectives were measured; parts are predicted.")


_PARTS: Mapping[str, Callable[[Workbench, Look], Result]] = {
    "overview": _overview, "run": _run, "kpis": _kpis, "breakdown": _breakdown, "verdict": _verdict,
    "collectives": _collectives, "memory": _memory, "steps": _steps, "findings": _findings, "proposals": _proposals,
    "launches": _launches,
}  # fmt: skip
