"""The questions of a run: what limits it, which parallelism, what changed, another chip, memory, what to measure."""

from __future__ import annotations

from typing import Any

from agent.tools import ToolError
from dialogue.computations.arguments import (
    Nothing,
    OfChip,
    OfExperiment,
    OfNumber,
    OfSpending,
    arguments_of,
)
from dialogue.computations.computation import Answer, Next, computation
from dialogue.computations.values import (
    FIGURES,
    number,
    parts_origin,
    plan_bar,
    plan_values,
    run_bar,
    run_values,
    step_origin,
    text,
)
from experiments import glossary
from experiments.step_profile import PROFILE
from perfmodel.chips import load_chips
from perfmodel.config import missing_facts
from perfmodel.workload import chip_of
from proposals import facts
from proposals.agents.tools.elsewhere import OtherHardware, chip_named, hardware
from proposals.agents.tools.known import OnChip, Other, published
from proposals.agents.tools.known import compare as compared
from proposals.agents.tools.look import Look, look
from proposals.agents.values import Origin
from proposals.agents.workbench import Workbench
from proposals.candidate import Candidate, chips_ratio

#: Shares (0–1) of the step from which input and host, or collectives, are the first thing to look at, as XProf has it.
INPUT_FIRST, SHARDING_FIRST = 0.1, 0.3


@computation("What limits the step?", "run", "bottleneck verdict slow why limits bound")
def verdict(bench: Workbench, asked: Nothing) -> Answer:
    """The verdict with its confidence, the breakdown of the step, and the figures that pointed elsewhere."""
    found = bench.diagnosis.bottleneck
    return Answer(
        {
            **run_values(bench),
            "verdict": found,
            "sure": number(found.confidence, "share", "computed", "confidence of the verdict"),
        },
        run_bar(bench),
        (Next("why_finding", {"finding": 1}), Next("sharding_or_input"), Next("measure_next")),
    )


@computation("Why is MFU low?", "run", "mfu utilisation utilization flops efficiency low published compare good")
def mfu(bench: Workbench, asked: Nothing) -> Answer:
    """MFU against what published runs reach on this chip, and where the rest of the step goes."""
    diagnosis = bench.diagnosis
    return Answer(
        {
            **run_values(bench),
            "mfu": number(diagnosis.kpis.get("mfu"), "share", "measured", "this run · MFU", "kpi:mfu"),
            "why_not": text(diagnosis.not_measured.get("mfu", "")),
            "chip": text(chip_of(bench.config.hardware).title),
            "found": published(bench, OnChip()),
        },
        run_bar(bench),
        (Next("verdict"), Next("parallelism"), Next("which_first")),
    )


@computation("Which parallelism fits this run?", "run", "parallelism mesh best fastest search shard tensor fsdp layout")
def parallelism(bench: Workbench, asked: Nothing) -> Answer:
    """The best configuration of each mesh among all legal candidates, ranked as the proposals are."""
    seen: dict[str, Any] = {}
    for item in bench.pricer.search(bench.constraints, 60):
        seen.setdefault(str(sorted(item.mesh["ici"].items())), item)
    best = list(seen.values())[:6]
    plans = [bench.pricer.evaluate(Candidate(item.mesh, item.changes), bench.constraints) for item in best]
    rows = [plan_values(bench, plan) for plan in plans]
    return Answer(
        {
            **run_values(bench),
            "rows": rows,
            "considered": number(bench.plan.considered, "count", "computed", "meshes considered"),
        },
        (*run_bar(bench), *(bar for plan in plans[:3] for bar in plan_bar(bench, plan))),
        (*(Next("price", arguments_of(bench, plan)) for plan in plans[:2]), Next("rejected"), Next("which_first")),
    )


@computation(
    "Is it sharding, or input and host?", "run", "sharding input host data loading pipeline communication idle cpu"
)
def sharding_or_input(bench: Workbench, asked: Nothing) -> Answer:
    """The share of collectives in the step beside those of input, host and idle time."""
    shares = bench.diagnosis.breakdown_share
    groups = {
        "sharding": sum(share for key, share in shares.items() if key.startswith(("ici", "dcn"))),
        "waiting": sum(
            shares.get(key, 0.0) for key in ("input", "host", "host_transfer", "output", "kernel_launches", "idle")
        ),
    }
    groups["chip"] = max(0.0, 1.0 - sum(groups.values()))
    leads = max(groups, key=lambda key: groups[key])
    values = {key: number(share, "share", parts_origin(bench), f"this run · {key}") for key, share in groups.items()}
    return Answer(
        {
            **run_values(bench),
            **values,
            "leads": leads,
            "known": bool(shares),
            "input_matters": groups["waiting"] >= INPUT_FIRST,
            "sharding_matters": groups["sharding"] >= SHARDING_FIRST,
        },
        run_bar(bench),
        (Next("axis"), Next("parallelism"), Next("steps")),
    )


@computation(
    "What changed since the last run?", "run", "changed compare previous last before regression difference experiment"
)
def since_last(bench: Workbench, asked: OfExperiment) -> Answer:
    """Configuration, key figures, breakdown and bottleneck beside those of another experiment of the team."""
    peers = bench.retrieval.experiments("", 6)
    others = tuple(Next("since_last", {"experiment": peer.id}, f"Compare with {peer.name}") for peer in peers[:3])
    if asked.experiment is None and not peers:
        return Answer({"found": None})
    chosen = asked.experiment or peers[0].id
    found = compared(bench, Other(other=chosen))
    name = next((peer.name for peer in peers if peer.id == chosen), f"experiment {chosen}")
    terms = sorted(found.parts, key=lambda item: -abs(float(item.after or 0) - float(item.before or 0)))
    return Answer({"found": found, "name": text(name), "terms": terms[:6]}, (), others)


@computation(
    "Would another chip be faster?", "run", "chip hardware v6e v5p h100 h200 b200 tpu gpu faster other machine"
)
def other_chip(bench: Workbench, asked: OfChip) -> Answer:
    """This training on as many of other chips: the fastest legal mesh of each, by the performance model."""
    own = chip_of(bench.config.hardware)
    lacking = missing_facts(bench.config)
    if lacking:
        return Answer({"missing": text(facts.not_known(lacking)), "rows": []}, (), (Next("measure_next"),))
    count = (bench.config.hardware.chips,)
    now = bench.diagnosis.kpis.get("step_time_s") or bench.diagnosis.predicted_step_time_s
    rows: list[dict[str, Any]] = []
    for key in [asked.chip] if asked.chip else [key for key, chip in load_chips().items() if chip.kind == own.kind]:
        (there,), title = hardware(bench, OtherHardware(chip=key, chips=count)).rows, chip_named(key).title
        speed = now / there.step_time_s.estimate if now and there.step_time_s else None
        speedup = number(speed, "speedup", "predicted", f"{title} · speed over this run")
        reason = there.reason or next((each.partition(": ")[2] for each in there.violations), "")
        rows.append({"chip": text(title), "row": there, "speedup": speedup, "reason": text(reason)})
    rows.sort(key=lambda row: -row["speedup"].value if row["speedup"] else 0.0)
    return Answer(
        {**run_values(bench), "own": text(own.title), "rows": rows},
        run_bar(bench),
        (Next("spending"), Next("parallelism")),
    )


@computation(
    "What to measure next?", "run", "measure next record missing unknown what would change profile steps trial"
)
def measure_next(bench: Workbench, asked: Nothing) -> Answer:
    """What is not known or was not measured, with what it leaves open, and the trial that would decide most."""
    diagnosis, profile = bench.diagnosis, bench.profile
    lacking = missing_facts(bench.config)
    reasons: dict[str, list[str]] = {}
    for key, why in diagnosis.not_measured.items():
        reasons.setdefault(why, []).append(FIGURES.get(key, key.replace("_", " ")))
    missing = [{"name": text(", ".join(names)), "why": text(why)} for why, names in reasons.items()]
    cores, chips = profile.device.measured_cores, bench.config.hardware.chips
    first = next(iter(bench.proposals), None) if not lacking else None
    return Answer(
        {
            "lacking": text(facts.not_known(lacking)) if lacking else None,
            "missing": missing,
            "profiled": diagnosis.basis == PROFILE,
            "steps": number(len(profile.steps), "count", "measured", "recorded steps"),
            "few_steps": diagnosis.basis == PROFILE and len(profile.steps) < 3,
            "partly": bool(diagnosis.basis == PROFILE and cores and cores < chips),
            "cores": number(cores, "count", "measured", "recorded cores") if cores else None,
            "chips": number(chips, "count", "stated", "chips of the run"),
            "trial": plan_values(bench, first.proposal) if first else None,
        },
        (),
        (Next("steps"), Next("still_confident"), Next("which_first")),
    )


@computation(
    "Where does this number come from?", "run", "number figure kpi source origin formula definition duty cycle mfu"
)
def figure(bench: Workbench, asked: OfNumber) -> Answer:
    """A key figure with its definition, the evidence that holds it, or why it was not measured."""
    key = next((key for key, name in FIGURES.items() if asked.number.lower() in (key, name.lower())), asked.number)
    if key not in bench.diagnosis.kpis:
        raise ToolError(f"There is no key figure {asked.number[:60]!r}; there are {', '.join(bench.diagnosis.kpis)}.")
    value, name = bench.diagnosis.kpis.get(key), FIGURES.get(key, key.replace("_", " "))
    words = name.lower().split()
    evidence = [item for item in bench.diagnosis.cited if all(word in item.label.lower() for word in words[:1])]
    rows = [
        {
            "label": text(item.label),
            "value": number(item.value, item.unit, _origin(item.origin), item.label),
            "formula": text(item.formula),
            "source": text(item.source),
        }
        for item in dict.fromkeys(evidence)
        if item.value is not None
    ]
    term = glossary.by_key().get(key)
    unit, origin = ("s", step_origin(bench)) if key == "step_time_s" else ("share", parts_origin(bench))
    return Answer(
        {
            "name": text(name),
            "value": number(value, unit, origin, f"this run · {name}", f"kpi:{key}"),
            "why_not": text(bench.diagnosis.not_measured.get(key, "")),
            "convention": text(bench.diagnosis.mfu_convention if key == "mfu" else ""),
            "meaning": text(term.meaning) if term else None,
            "formula": text(term.formula) if term else None,
            "rows": rows[:6],
        },
        (),
        (Next("verdict"), Next("measure_next")),
        f"Where does {name} come from?",
    )


@computation(
    "How steady are the steps?", "run", "steps spread jitter noise variance steady slowest core straggler first warm"
)
def steps(bench: Workbench, asked: Nothing) -> Answer:
    """How recorded steps spread, and the cores whose steps are longest."""
    return Answer({"found": look(bench, Look(part="steps"))}, (), (Next("measure_next"), Next("verdict")))


@computation(
    "What does a training run take?", "run", "cost price money dollars throughput tokens per second days duration"
)
def spending(bench: Workbench, asked: OfSpending) -> Answer:
    """Tokens per second, days, chip-hours and money of a run of so many tokens, now and with each proposal."""
    config, step = bench.config, bench.diagnosis.kpis.get("step_time_s")
    tokens = config.training.global_batch_tokens
    if not step or not tokens:
        lacking = "the step time was not measured" if not step else facts.not_known(missing_facts(config))
        return Answer({"missing": text(lacking)}, (), (Next("measure_next"),))
    rate = tokens / step
    speeds: list[tuple[str, str, float, float, Origin]] = [("now", "", 1.0, 1.0, "computed")]
    for state in bench.proposals:
        predicted, ratio = state.proposal.predicted, chips_ratio(bench.config, state.proposal.changes)
        if predicted.speedup and state.proposal.kind != "keep":
            speeds.append(
                (
                    f"proposal {state.proposal.rank}",
                    f"proposal:{state.proposal.rank}",
                    predicted.speedup,
                    ratio,
                    "predicted",
                )
            )
    rows = []
    for name, href, speedup, ratio, origin in speeds:
        days = asked.tokens / (rate * speedup) / 86400
        hours = days * 24 * config.hardware.chips * ratio
        cost = hours * asked.price_per_chip_hour if asked.price_per_chip_hour else None
        rows.append(
            {
                "name": text(name, href),
                "rate": number(rate * speedup, "tokens_per_s", origin, f"{name} · tokens per second", href),
                "days": number(days * 86400, "s", origin, f"{name} · training time", href),
                "hours": number(hours, "count", origin, f"{name} · chip-hours", href),
                "cost": number(cost, "count", origin, f"{name} · cost", href),
            }
        )
    return Answer(
        {
            "tokens": number(asked.tokens, "count", "stated", "tokens of the run"),
            "price": number(asked.price_per_chip_hour, "number", "stated", "price per chip-hour"),
            "rows": rows,
        },
        (),
        (Next("which_first"), Next("other_chip")),
    )


def _origin(origin: str) -> Any:
    return "stated" if origin == "sourced" else origin
