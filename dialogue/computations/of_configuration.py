"""The questions of a configuration: its price, whether it fits, why it is not proposed, what is around it."""

from __future__ import annotations

from typing import Any

from agent.tools import ToolError
from dialogue.computations.arguments import Nothing, OfConfiguration, OfKey, arguments_of, candidate_of
from dialogue.computations.computation import Answer, Bar, Next, computation
from dialogue.computations.settings import axis_of, complete
from dialogue.computations.values import (
    configuration_questions,
    number,
    plan_bar,
    plan_values,
    priced,
    run_bar,
    run_values,
    terms,
    text,
)
from perfmodel.config import ConfigError, mesh_text
from perfmodel.workload import REMAT, SHARDING
from proposals.agents.tools.prices import neighbour
from proposals.agents.workbench import Workbench
from proposals.candidate import Candidate, is_same, keeps
from proposals.plan import ProposalPlan

#: Settings with a few values, tried one by one.
_CHOICES = {"remat": REMAT, "weight_sharding": SHARDING, "precision": ("bf16", "fp8")}


def _priced(bench: Workbench, asked: OfConfiguration) -> ProposalPlan:
    return priced(bench, candidate_of(bench, asked))


def _about(bench: Workbench, plan: ProposalPlan) -> str:
    of = arguments_of(bench, plan)
    sizes = " · ".join(f"{axis} {size}" for axis, size in of["mesh"].items())
    changed = " · ".join(f"{key.replace('_', ' ')} {value}" for key, value in of.get("changes", {}).items())
    return " · ".join(part for part in (sizes, changed) if part) or "one chip"


@computation(
    "Price this configuration", "configuration", "price predict step time configuration mesh what if batch remat"
)
def price(bench: Workbench, asked: OfConfiguration) -> Answer:
    """A configuration priced from this run: step time with interval, speed-up per token, memory, and what changes."""
    plan = _priced(bench, asked)
    first = next((item.proposal for item in bench.proposals if item.proposal.rank == 1), None)
    beside = first if first is not None and not is_same(bench.config, first, plan) else None
    return Answer(
        {
            **run_values(bench),
            "it": plan_values(bench, plan),
            "terms": [row for row in terms(bench, plan) if row["matters"]][:5],
            "beside": plan_values(bench, beside) if beside else None,
            "beside_terms": [row for row in terms(bench, plan, beside) if row["matters"]][:3] if beside else [],
        },
        (*run_bar(bench), *plan_bar(bench, plan, "This"), *(plan_bar(bench, beside) if beside else ())),
        configuration_questions(bench, plan, ("price",)),
        _about(bench, plan),
    )


@computation("Does it fit in memory?", "configuration", "fit fits memory hbm oom out of memory capacity tight headroom")
def fits(bench: Workbench, asked: OfConfiguration) -> Answer:
    """Memory per chip by part against what a program can fill, and the measured peak of the current run."""
    plan = _priced(bench, asked)
    memory = plan.predicted.hbm_per_chip_bytes
    peak = bench.profile.memory.peak_bytes if keeps(bench.config, plan) else None
    held = vars(memory) if memory else {}
    parts = {key: value for key, value in held.items() if key not in ("total", "capacity") and value}
    it = plan_values(bench, plan)
    bars = (Bar("Memory", parts, it["memory"], "bytes"),) if parts else ()
    return Answer(
        {"it": it, "peak": number(peak, "bytes", "measured", "this run · peak memory per chip", "kpi:memory")},
        bars,
        configuration_questions(bench, plan, ("fits",)),
        f"Does it fit? {_about(bench, plan)}",
    )


@computation("Why not this one?", "configuration", "why not rejected illegal proposed instead alternative")
def why_not(bench: Workbench, asked: OfConfiguration) -> Answer:
    """The rules that a configuration breaks; else how it ranks beside the first proposal."""
    plan = _priced(bench, asked)
    first = bench.proposals[0].proposal if bench.proposals else None
    if first is not None and is_same(bench.config, first, plan):
        first = None
    return Answer(
        {
            "it": plan_values(bench, plan),
            "number": bool(plan.rank),
            "first": plan_values(bench, first) if first else None,
            "terms": [row for row in terms(bench, plan, first) if row["matters"]][:4] if first else [],
            "unlikely": bool(first and plan.confidence < first.confidence),
            "slower": bool(first and (plan.predicted.speedup or 0) < (first.predicted.speedup or 0)),
        },
        (*plan_bar(bench, plan, "This"), *(plan_bar(bench, first) if first else ())),
        configuration_questions(bench, plan, ("why_not",)),
        f"Why not {_about(bench, plan)}?",
    )


@computation("What would change it?", "configuration", "change neighbours sensitivity around next better vary")
def around(bench: Workbench, asked: OfConfiguration) -> Answer:
    """Neighbouring configurations: each axis doubled against another, the batch, the remat policy."""
    plan = _priced(bench, asked)
    near = sorted(plan.sensitivity, key=lambda item: (bool(item.rule), -(item.relative or 0.0)))
    rows = [{"of": neighbour(item), "reason": text(item.reason)} for item in near[:10]]
    best = next((item for item in near if not item.rule and (item.relative or 0) > 1.0), None)
    more = (Next("price", arguments_of(bench, best)),) if best else ()
    return Answer(
        {"it": plan_values(bench, plan), "rows": rows},
        (),
        (*more, *configuration_questions(bench, plan, ("around",))),
        f"What would change {_about(bench, plan)}?",
    )


@computation(
    "How does it change with one setting?", "configuration", "vary sweep batch remat axis size setting over values"
)
def vary(bench: Workbench, asked: OfKey) -> Answer:
    """One training key, or the size of one axis, over its usual values, all else unchanged."""
    config, key = bench.config, asked.key.lower()
    now = config.mesh.to_json()
    options: list[tuple[str, Candidate]]
    if key in _CHOICES:
        options = [(value, Candidate(now, {key: value})) for value in _CHOICES[key]]
    elif key in ("global_batch", "seq_len", "grad_accum"):
        value = getattr(config.training, key)
        if not value:
            raise ToolError(f"training.{key} is unknown; add it to the configuration to vary it.")
        sizes = [n for n in (value // 4, value // 2, value, value * 2, value * 4) if n]
        options = [(str(n), Candidate(now, {key: n})) for n in sizes]
    elif name := axis_of(config.mesh, key):
        sizes = [n for n in (1, 2, 4, 8, 16, 32) if config.hardware.chips_per_slice % n == 0]
        options = [(str(n), Candidate({**now, "ici": complete({name: n}, config)})) for n in sizes]
    else:
        raise ToolError(f"{asked.key!r} is neither a training key such as remat or global_batch nor a mesh axis.")
    rows: list[dict[str, Any]] = []
    for value, of in options:
        try:
            made = bench.pricer.evaluate(of, bench.constraints)
        except ConfigError as error:
            rows.append({"value": text(value), "reason": text(error.message), "it": None})
            continue
        rows.append(
            {"value": text(value), "reason": None, "it": plan_values(bench, made), "mesh": text(mesh_text(of.mesh))}
        )
    return Answer(
        {"rows": rows, "key": text(asked.key.replace("_", " "))},
        (),
        (Next("price"), Next("parallelism")),
        f"How does it change with {asked.key.replace('_', ' ')}?",
    )


@computation(
    "Which meshes were rejected, and by which rule?", "proposals", "rejected rules illegal legality left out meshes"
)
def rejected(bench: Workbench, asked: Nothing) -> Answer:
    """Meshes that were left out, counted by the rule that they break, the nearest to the current one of each."""
    counts: dict[str, list[Any]] = {}
    for item in bench.plan.rejected:
        counts.setdefault(item.rule, []).append(item)
    return Answer(
        {
            "considered": number(bench.plan.considered, "count", "computed", "meshes considered"),
            "rows": [
                {
                    "rule": text(rule.replace("_", " ")),
                    "count": number(len(items), "count", "computed", f"meshes that break {rule}"),
                    "mesh": text(mesh_text(items[0].mesh)),
                    "reason": text(items[0].reason),
                }
                for rule, items in sorted(counts.items(), key=lambda item: -len(item[1]))
            ],
        },
        (),
        (Next("parallelism"), Next("price")),
    )
