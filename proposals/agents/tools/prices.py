"""Tools that price configurations, one or many, and search for the best ones; all by the proposer's own bench."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from agent.tools import Arguments, ToolError
from perfmodel.confidence import claimed
from perfmodel.config import mesh_text, missing_facts
from proposals.agents.tool_result import ABOUT, Result, about, taken
from proposals.agents.tools.shared import (
    Configuration,
    arguments_of,
    as_tool_error,
    broken_rule,
    configured,
    current,
    estimate,
    evaluated,
    predicted,
    proposal,
    row,
    supposed,
)
from proposals.agents.workbench import Workbench
from proposals.candidate import Candidate, is_same
from proposals.constraints import Constraints
from proposals.plan import Listed, Neighbour, Plan, ProposalPlan

#: Configurations that are shown with their terms; of more, time and memory alone.
WITH_TERMS = 3
#: Candidates looked through for each mesh that is asked for.
DEEPER = 10


def _by_path(facts: object) -> object:
    """Write `{"training": {"seq_len": 4096}}` as `{"training.seq_len": 4096}`."""
    if not isinstance(facts, dict):
        return facts
    parts = ((name, value if isinstance(value, dict) else {"": value}) for name, value in facts.items())
    return {f"{name}.{key}".rstrip("."): each for name, inside in parts for key, each in inside.items()}


class Supposing(Arguments):
    facts: Annotated[dict[str, Any], BeforeValidator(_by_path)] = Field(
        default_factory=dict, description="Assumed here; by path, as in hold."
    )


class PriceArguments(Supposing):
    configurations: tuple[Configuration, ...] = Field(default=(), max_length=8)
    proposals: tuple[int, ...] = Field(default=(), max_length=8, description="Proposals by number, beside them.")
    neighbours: bool = Field(default=False, description="With single steps from the first one.")


class PricesSideBySide(Result):
    """Configurations beside each other.  fastest: the number, from 1, of the fastest legal one of `configurations`."""


def price(bench: Workbench, asked: PriceArguments) -> PricesSideBySide:
    """Prices one to eight configurations side by side: step time and speed-up with 80 % intervals, chance to run and be
    faster, memory, broken rules, doubts; of up to three also the terms of the step and their change."""
    page, states = bench, [proposal(bench, number) for number in asked.proposals]
    stated: list[tuple[ProposalPlan, dict[str, Any]]] = [
        (state.proposal, {"number": state.proposal.rank, "status": state.status}) for state in states
    ]
    plans, others = stated, list(asked.configurations)
    bench = supposed(page, asked.facts)
    if asked.facts:
        # The proposals of the page, priced anew: this run would have others.
        of_page = [Configuration.model_validate(arguments_of(page.config, plan)) for plan, _ in stated]
        plans, others = [], [*of_page, *others]
    refused: list[Result] = []
    for one in others:
        try:
            plan = evaluated(bench, one)
        except ToolError as error:
            settings = {**one.mesh, **one.changes}
            named = " ".join(f"{key} {value}" for key, value in settings.items())[:200]
            refused.append(Result(configuration=named or "the current configuration", reason=str(error)))
            continue
        plans.append((plan, {"number": number_of(page, plan)}))
    if not plans:
        raise ToolError(" ".join(item.reason for item in refused) or "Name at least one configuration or proposal.")
    own = current(bench)
    rows = [row(plan, bench, parts=len(plans) <= WITH_TERMS, **more) for plan, more in plans]
    legal = [n for n, each in enumerate(rows, start=1) if not each.violations and each.speedup_per_token]
    fastest = max(legal, key=lambda n: float(rows[n - 1].speedup_per_token.estimate), default=None)
    near = sorted(plans[0][0].sensitivity, key=lambda item: (bool(item.rule), -(item.relative or 0.0)))
    return PricesSideBySide(
        assumed=asked.facts, current=own, configurations=rows, not_priced=refused,
        fastest=fastest if len(rows) > 1 else None, neighbours=[*map(_step, near)] if asked.neighbours else (),
    )  # fmt: skip


def _step(item: Neighbour) -> Result:
    """Return a neighbouring configuration."""
    return taken(
        item, "step memory_bytes changes", step_time_s=estimate(item.step_time_s), over_this=item.relative,
        breaks=broken_rule(item.rule, item.reason) if item.rule else "", mesh=mesh_text(item.mesh),
        _about=about("predicted", item.step),
    )  # fmt: skip


def number_of(bench: Workbench, item: ProposalPlan | Listed) -> int | None:
    """Return the number of the proposal that is this configuration."""
    with as_tool_error():
        ranked = [state.proposal for state in bench.proposals]
    return next((each.rank for each in ranked if is_same(bench.config, each, item)), None)


class ConstraintArguments(Arguments):
    """Constraints as arguments."""

    keep: tuple[str, ...] = Field(
        default=(),
        max_length=20,
        description="batch, remat, weight_sharding, micro_batches, flags, or axis names.",
    )
    fixed: dict[str, int] = Field(default_factory=dict, description="Exact sizes by axis or role.")
    at_least: dict[str, int] = Field(default_factory=dict)
    at_most: dict[str, int] = Field(default_factory=dict)
    memory_margin: float = Field(default=0.0, ge=0.0, le=0.5, description="Share of memory per chip to keep free.")

    def constraints(self) -> Constraints:
        """Return the constraints; what `keep` names beside `_KEPT` is an axis.  Raises ConfigError where they make no
        sense."""
        words = [word.strip().lower().replace(" ", "_").removeprefix("keep_") for word in self.keep]
        values: dict[str, Any] = {_KEPT[word]: True for word in words if word in _KEPT}
        values["keep_axes"] = [name for name, word in zip(self.keep, words, strict=True) if word not in _KEPT]
        values |= self.model_dump(include={"fixed", "at_least", "at_most", "memory_margin"})
        return Constraints.from_json({key: value for key, value in values.items() if value})


class SearchArguments(Supposing, ConstraintArguments):
    top: int = Field(default=6, ge=1, le=25)
    each_mesh: bool = Field(default=False, description="Only the best of each mesh.")
    rejected: bool = Field(default=False, description="Instead, rejected meshes by rule.")
    rule: str = Field(default="", max_length=80, description="All rejected of this rule.")


_KEPT = {
    "batch": "keep_batch", "remat": "keep_remat", "weight_sharding": "keep_weight_sharding",
    "micro_batches": "keep_micro_batches", "flags": "no_flags",
}  # fmt: skip


def search(bench: Workbench, asked: SearchArguments) -> Result:
    """The best legal candidates of all meshes and settings under constraints, by gain against risk and cost of a trial;
    or rejected meshes with their rule."""
    page, bench = bench, supposed(bench, asked.facts)
    with as_tool_error():
        held = bench.constraints.joined(asked.constraints())
        made = bench.plan
        if asked.rejected or asked.rule:
            return Result(meshes_considered=made.considered, rejected=[*_rejected(made, asked)])
        deeper = asked.top * (DEEPER if asked.each_mesh else 1)
        listed: Iterable[Listed] = bench.pricer.search(held, deeper)
        own = Candidate(bench.config.mesh.to_json())
        broken = bench.pricer.evaluate(own, held).violations if held else ()
    if asked.each_mesh:
        first_of = {mesh_text(item.mesh): item for item in reversed(tuple(listed))}
        listed = [item for item in listed if first_of[mesh_text(item.mesh)] is item][: asked.top]
    unknown, places = bool(missing_facts(bench.config)), count(1)
    # The current configuration is no place of its own where it breaks what is asked for.
    candidates = [
        configured(
            mesh_text(item.mesh), item.changes, number_of(page, item),
            place=None if item.keeps and broken else next(places), is_current=item.keeps or None,
            **predicted(item.predicted),
            runs_and_faster_probability=None if item.keeps else float(claimed(item.faster, unknown)),
            headroom_bytes=item.memory_headroom_bytes,
            terms_s=dict(item.predicted.breakdown_s) if asked.each_mesh and number < WITH_TERMS else {},
            violations=[broken_rule(each.rule, each.reason) for each in broken] if item.keeps else [],
        )
        for number, item in enumerate(listed)
    ]  # fmt: skip
    return Result(
        assumed=asked.facts, constraints=held.to_json(), meshes_considered=made.considered,
        candidates_priced=made.priced, current=current(bench), candidates=candidates,
    )  # fmt: skip


def _rejected(made: Plan, asked: SearchArguments) -> Iterator[Result]:
    """Yield the rejected meshes of one rule, or the nearest one of each rule with their number, the commonest first."""
    counts = Counter(item.rule for item in made.rejected)
    if asked.rule:
        listed = [item for item in made.rejected if asked.rule.lower() in item.rule.lower()][: asked.top]
    else:
        listed = [next(i for i in made.rejected if i.rule == rule) for rule, _ in counts.most_common(asked.top)]
    for item in listed:
        named = {ABOUT: about(subject=item.rule.replace("_", " ")), "mesh": mesh_text(item.mesh)}
        count = None if asked.rule else counts[item.rule]
        yield taken(item, "rule reason", **named, count=count)
