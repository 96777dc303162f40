"""Values of a run and of priced configurations, as answers print them: each with unit, origin, subject and link."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dialogue.computations.arguments import arguments_of
from dialogue.computations.computation import Bar, Next
from experiments import bars
from experiments.step_profile import MODEL, PROFILE
from perfmodel.config import mesh_text
from proposals import facts
from proposals.agents.values import Origin, Value
from proposals.agents.workbench import Workbench
from proposals.candidate import Candidate, chips_ratio, is_same, keeps
from proposals.plan import ProposalPlan

#: Parts of a step or of memory below this share (0–1) are not listed.
LISTED = 0.005
#: Names of key figures.
FIGURES = {
    "step_time_s": "step time",
    "mfu": "MFU",
    "flops_utilization": "FLOPs utilisation",
    "hbm_utilization": "HBM bandwidth utilisation",
    "mxu_utilization": "MXU utilisation",
    "duty_cycle": "duty cycle",
    "communication": "communication",
    "communication_exposed": "exposed communication",
    "idle": "idle",
    "input": "input",
    "host": "host",
    "goodput": "goodput",
    "stragglers": "stragglers",
}


def number(
    value: float | None, unit: str, origin: Origin, subject: str, href: str = "", **more: Any
) -> Value | None:  # fmt: skip
    """A number to print, with its interval where `low` is given; None where it is not known."""
    if value is None:
        return None
    return Value(value, unit, origin, subject, href, in_text=more.get("low") is not None, **more)


def text(words: object, href: str = "") -> Value | None:
    """Words from data: a name, a mesh, a sentence without numbers of its own; None where there are none."""
    shown = str(words).replace("`", "")
    return Value(value=shown, unit="", origin="stated", subject="", href=href) if shown else None


def step_origin(bench: Workbench) -> Origin:
    return "predicted" if bench.diagnosis.basis == MODEL else "measured"


def parts_origin(bench: Workbench) -> Origin:
    return "measured" if bench.diagnosis.basis == PROFILE else "predicted"


def part_name(key: str) -> str:
    return bars.term(key, 0.0).label.lower().replace("dcn", "DCN").replace("hbm", "HBM")


def run_values(bench: Workbench) -> dict[str, Any]:
    """The step that ran, its parts by size, and what nobody measured."""
    diagnosis, config = bench.diagnosis, bench.config
    step = diagnosis.kpis.get("step_time_s") or (
        diagnosis.predicted_step_time_s if step_origin(bench) == "predicted" else None
    )
    shares = sorted(diagnosis.breakdown_share.items(), key=lambda item: -item[1])
    return {
        "step": number(step, "s", step_origin(bench), "this run · step time", "kpi:step_time_s"),
        "parts": [
            {
                "name": text(part_name(key)),
                "time": number(
                    diagnosis.breakdown_s.get(key), "s", parts_origin(bench), f"this run · {part_name(key)}"
                ),
                "share": number(share, "share", parts_origin(bench), f"this run · share of {part_name(key)}"),
            }
            for key, share in shares
            if share >= LISTED
        ],
        "mesh": text(config.mesh.text()),
        "profiled": diagnosis.basis == PROFILE,
        "nothing_measured": diagnosis.basis == MODEL,
    }


def run_bar(bench: Workbench) -> tuple[Bar, ...]:
    """The step that ran as a bar; empty where its parts have no seconds."""
    diagnosis = bench.diagnosis
    if not diagnosis.breakdown_s:
        return ()
    return (Bar("Now", diagnosis.breakdown_s, run_values(bench)["step"]),)


def fixed_tokens(bench: Workbench, plan: ProposalPlan) -> bool:
    """Return True if a step of the plan holds as many tokens as one that ran, on as many chips."""
    return not {"global_batch", "seq_len"} & set(plan.changes) and chips_ratio(bench.config, plan.changes) == 1.0


def changes_text(changes: Mapping[str, Any]) -> str:
    return ", ".join(f"{facts.setting(key)} {value}" for key, value in changes.items())


def subject_of(bench: Workbench, plan: ProposalPlan) -> str:
    """`proposal 2`, `the current configuration`, or the configuration itself."""
    if plan.rank:
        return f"Proposal {plan.rank}"
    if keeps(bench.config, plan):
        return "the current configuration"
    return " · ".join(filter(None, (mesh_text(plan.mesh), changes_text(plan.changes))))


def priced(bench: Workbench, of: Candidate) -> ProposalPlan:
    """A configuration as it is priced: the proposal that it is, if any.  Raises ConfigError."""
    same = (item.proposal for item in bench.proposals if is_same(bench.config, item.proposal, of))
    return next(same, None) or bench.pricer.evaluate(of, bench.constraints)


def plan_values(bench: Workbench, plan: ProposalPlan) -> dict[str, Any]:
    """A priced configuration: time, speed-up, memory, chance, parts, and the rules it breaks."""
    name, predicted = subject_of(bench, plan), plan.predicted
    href = f"proposal:{plan.rank}" if plan.rank else f"configuration:{_typed(arguments_of(bench, plan))}"
    time, memory = predicted.step_time_s, predicted.hbm_per_chip_bytes
    of_memory = vars(memory) if memory else {}

    def value(amount: float | None, unit: str, what: str, **more: Any) -> Value | None:
        return number(amount, unit, "predicted", f"{name} · {what}", href, **more)

    speedup = {"low": predicted.speedup_low80, "high": predicted.speedup_high80}
    return {
        "name": text(name),
        "mesh": text(mesh_text(plan.mesh)),
        "changes": text(changes_text(plan.changes)),
        "is_current": keeps(bench.config, plan),
        "same_work": fixed_tokens(bench, plan),
        "step": value(time.estimate, "s", "step time", low=time.low80, high=time.high80) if time else None,
        "speedup": value(predicted.speedup, "speedup", "speed-up per token over this run", **speedup),
        "low": value(predicted.speedup_low80, "speedup", "low end of the speed-up per token"),
        "high": value(predicted.speedup_high80, "speedup", "high end of the speed-up per token"),
        "may_lose": bool(predicted.speedup_low80 and predicted.speedup_low80 < 1.0),
        "slower": plan.slower,
        "memory": value(memory.total, "bytes", "memory per chip") if memory else None,
        "capacity": number(memory.capacity, "bytes", "stated", "memory that a program can fill, per chip")
        if memory
        else None,
        "headroom": value(abs(memory.headroom), "bytes", "memory left per chip") if memory else None,
        "fits": None if memory is None else memory.headroom >= 0,
        "memory_parts": [
            {"name": text(term.label.lower()), "bytes": value(term.value, "bytes", f"memory of {term.label.lower()}")}
            for term in bars.memory_terms({key: held for key, held in of_memory.items() if held})
        ],
        "chance": value(plan.confidence, "share", "probability to be faster per token"),
        "broken": [{"rule": text(item.rule), "reason": text(item.reason)} for item in plan.violations],
        "missing": text(facts.not_known(predicted.missing)) if predicted.missing else None,
    }


def _typed(given: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the arguments of a configuration in one line: `mesh=fsdp=16,tp=4&changes=remat=none`."""
    return "&".join(f"{name}={','.join(f'{key}={size}' for key, size in of.items())}" for name, of in given.items())


def plan_bar(bench: Workbench, plan: ProposalPlan, label: str = "") -> tuple[Bar, ...]:
    """A priced step as a bar; empty where it has no time, or other work than the step that ran."""
    if plan.predicted.step_time_s is None or not plan.predicted.breakdown_s or not fixed_tokens(bench, plan):
        return ()
    return (
        Bar(
            label or subject_of(bench, plan).capitalize(), plan.predicted.breakdown_s, plan_values(bench, plan)["step"]
        ),
    )


def terms(bench: Workbench, one: ProposalPlan, other: ProposalPlan | None = None) -> list[dict[str, Any]]:
    """What each part of the step changes from `other` (default this run) to `one`, the largest change first; nothing
    where their steps do other work."""
    tokens = [
        changes_of.get(key)
        for key in ("global_batch", "seq_len")
        for changes_of in (one.changes, other.changes if other else {})
    ]
    if tokens[0] != tokens[1] or tokens[2] != tokens[3]:
        return []
    after = one.predicted.breakdown_s
    before = other.predicted.breakdown_s if other is not None else bench.diagnosis.breakdown_s
    if not after or not before:
        return []
    names = subject_of(bench, one), subject_of(bench, other) if other is not None else "this run"
    origin: Origin = "predicted" if other is not None else parts_origin(bench)
    keys = sorted(dict.fromkeys((*after, *before)), key=lambda key: -abs(after.get(key, 0.0) - before.get(key, 0.0)))
    least = LISTED * sum(before.values())
    rows = []
    for key in keys:
        was, then = before.get(key, 0.0), after.get(key, 0.0)
        if max(was, then) < least:
            continue
        rows.append(
            {
                "name": text(part_name(key)),
                "before": number(was, "s", origin, f"{names[1]} · {part_name(key)}"),
                "after": number(then, "s", "predicted", f"{names[0]} · {part_name(key)}"),
                "change": number(abs(then - was), "s", "predicted", f"{part_name(key)}, change"),
                "grows": then > was,
                "matters": abs(then - was) >= least,
            }
        )
    return rows


def configuration_questions(bench: Workbench, plan: ProposalPlan, without: Iterable[str] = ()) -> tuple[Next, ...]:
    """Further questions of a configuration."""
    given = arguments_of(bench, plan)
    skipped = set(without)
    questions = [Next("price", given), Next("fits", given), Next("why_not", given), Next("around", given)]
    return tuple(item for item in questions if item.key not in skipped)
