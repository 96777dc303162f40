"""Tools that price configurations, one or many, and search for the best ones; all by the proposer's own bench."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Annotated, Any

from pydantic import Field

from agent.tools import Arguments, ToolError
from perfmodel.confidence import claimed
from perfmodel.config import mesh_text, missing_facts
from proposals.agents.tool_result import About, Is, ToolResult, taken
from proposals.agents.tools.shared import (
    Configuration,
    Current,
    Estimate,
    Row,
    arguments_of,
    as_tool_error,
    broken_rule,
    current,
    estimate,
    evaluated,
    predicted,
    proposal,
    row,
)
from proposals.agents.workbench import Workbench
from proposals.candidate import Candidate, is_same
from proposals.constraints import Constraints
from proposals.plan import Listed, Neighbour, Plan, ProposalPlan

#: Configurations that are shown with their terms; of more, time and memory alone.
WITH_TERMS = 3
#: Candidates looked through for each mesh that is asked for.
DEEPER = 10


class PriceArguments(Arguments):
    configurations: tuple[Configuration, ...] = Field(default=(), max_length=8)
    proposals: tuple[int, ...] = Field(default=(), max_length=8, description="Proposals by number, beside them.")
    facts: dict[str, Any] = Field(
        default_factory=dict, description="Of the run, assumed for this question alone; by path, as in hold."
    )
    neighbours: bool = Field(default=False, description="With single steps from the first one: axes, batch, remat.")


class Refused(ToolResult):
    """A configuration that cannot be priced."""

    configuration: str = ""
    reason: str = ""


class Step(ToolResult):
    """A neighbouring configuration."""

    step: str = ""
    step_time_s: Estimate | None = None
    over_this: Annotated[float | None, Is("speed-up per token over it", "speedup")] = None
    memory_bytes: float | None = None
    breaks: str = ""
    mesh: str = ""
    changes: dict[str, Any] = {}

    def about(self) -> About:
        return About("predicted", self.step)


class Prices(ToolResult):
    """Configurations beside each other.  fastest: the number, from 1, of the fastest legal one of `configurations`."""

    assumed: dict[str, Any] = {}
    current: Current = Current()
    configurations: tuple[Row, ...] = ()
    not_priced: tuple[Refused, ...] = ()
    fastest: int | None = None
    neighbours: tuple[Step, ...] = ()


def price(bench: Workbench, asked: PriceArguments) -> Prices:
    """Prices one to eight configurations: step time and speed-up per token with 80 % intervals, chance that
    it runs and is faster, memory per chip, broken rules, and of up to three each term of the step with its change
    against the current configuration. Says whether it fits, which rules it breaks, and what is not known (`doubts`)."""
    page, states = bench, [proposal(bench, number) for number in asked.proposals]
    stated = [(state.proposal, {"number": state.proposal.rank, "status": state.status}) for state in states]
    plans, others = stated, list(asked.configurations)
    if asked.facts:
        with as_tool_error():
            bench = bench.with_facts({**bench.facts, **asked.facts})
        # The proposals of the page, priced anew: this run would have others.
        of_page = [Configuration.model_validate(arguments_of(page.config, plan)) for plan, _ in stated]
        plans, others = [], [*of_page, *others]
    refused: list[Refused] = []
    for one in others:
        try:
            plan = evaluated(bench, one)
        except ToolError as error:
            settings = {**one.mesh, **one.changes}
            named = " ".join(f"{key} {value}" for key, value in settings.items())[:200]
            refused.append(Refused(configuration=named or "the current configuration", reason=str(error)))
            continue
        plans.append((plan, {"number": number_of(page, plan)}))
    if not plans:
        raise ToolError(" ".join(item.reason for item in refused) or "Name at least one configuration or proposal.")
    own = current(bench)
    rows = tuple(row(Row, plan, bench, len(plans) <= WITH_TERMS, **more) for plan, more in plans)
    legal = [n for n, each in enumerate(rows, start=1) if not each.violations and each.speedup_per_token]
    fastest = max(legal, key=lambda n: _speed(rows[n - 1]), default=None)
    near = sorted(plans[0][0].sensitivity, key=lambda item: (bool(item.rule), -(item.relative or 0.0)))
    return Prices(
        assumed=asked.facts, current=own, configurations=rows, not_priced=tuple(refused),
        fastest=fastest if len(rows) > 1 else None, neighbours=tuple(map(_step, near)) if asked.neighbours else (),
    )  # fmt: skip


def _speed(item: Row) -> float:
    return item.speedup_per_token.estimate if item.speedup_per_token else 0.0


def _step(item: Neighbour) -> Step:
    return Step(
        step=item.step, step_time_s=estimate(item.step_time_s), over_this=item.relative, memory_bytes=item.memory_bytes,
        breaks=broken_rule(item.rule, item.reason) if item.rule else "", mesh=mesh_text(item.mesh),
        changes=item.changes,
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
        description="What stays: batch, remat, weight_sharding, micro_batches, flags, or axis names.",
    )
    fixed: dict[str, int] = Field(default_factory=dict, description="Exact sizes by axis or role.")
    at_least: dict[str, int] = Field(default_factory=dict)
    at_most: dict[str, int] = Field(default_factory=dict)
    at_most_chips: int | None = None
    memory_margin: float = Field(default=0.0, ge=0.0, le=0.5, description="Share of memory per chip to keep free.")

    def constraints(self) -> Constraints:
        """Return the constraints; what `keep` names beside `_KEPT` is an axis.  Raises ConfigError where they make no
        sense."""
        words = [word.strip().lower().replace(" ", "_").removeprefix("keep_") for word in self.keep]
        values: dict[str, Any] = {_KEPT[word]: True for word in words if word in _KEPT}
        values["keep_axes"] = [name for name, word in zip(self.keep, words, strict=True) if word not in _KEPT]
        values |= self.model_dump(include={"fixed", "at_least", "at_most", "at_most_chips", "memory_margin"})
        return Constraints.from_json({key: value for key, value in values.items() if value})


class SearchArguments(ConstraintArguments):
    top: int = Field(default=6, ge=1, le=25)
    each_mesh: bool = Field(default=False, description="Only the best of each mesh.")
    rejected: bool = Field(default=False, description="Instead, the nearest rejected mesh of each rule.")
    rule: str = Field(default="", max_length=80, description="All rejected of this rule.")


_KEPT = {
    "batch": "keep_batch", "remat": "keep_remat", "weight_sharding": "keep_weight_sharding",
    "micro_batches": "keep_micro_batches", "flags": "no_flags",
}  # fmt: skip


class RejectedMesh(ToolResult):
    """A mesh that was left out, and the rule it breaks.  count: of the meshes that break the rule."""

    mesh: str = ""
    rule: str = ""
    reason: str = ""
    count: Annotated[int | None, Is("meshes that break it", "count", origin="computed")] = None

    def about(self) -> About:
        return About(subject=self.rule.replace("_", " "))


class SearchResult(ToolResult):
    """The best candidates in order, or rejected meshes.  The current configuration is no place of its own where it
    breaks what is asked for; its row says so."""

    constraints: dict[str, Any] = {}
    considered: Annotated[int, Is("meshes considered", "count", origin="computed")] = 0
    current: Current = Current()
    candidates: tuple[Row, ...] = ()
    rejected: tuple[RejectedMesh, ...] = ()


def search(bench: Workbench, asked: SearchArguments) -> SearchResult:
    """Searches all meshes with their settings for the best legal candidates under constraints, in the order in which
    proposals are chosen: gain against risk and the cost of a trial; or lists rejected meshes with their rule."""
    with as_tool_error():
        held = bench.constraints.joined(asked.constraints())
        made = bench.plan
        if asked.rejected or asked.rule:
            return SearchResult(considered=made.considered, rejected=tuple(_rejected(made, asked)))
        deeper = asked.top * (DEEPER if asked.each_mesh else 1)
        listed: Iterable[Listed] = bench.pricer.search(held, deeper)
        own = Candidate(bench.config.mesh.to_json())
        broken = bench.pricer.evaluate(own, held).violations if held else ()
    if asked.each_mesh:
        first_of = {mesh_text(item.mesh): item for item in reversed(tuple(listed))}
        listed = [item for item in listed if first_of[mesh_text(item.mesh)] is item][: asked.top]
    unknown, places = bool(missing_facts(bench.config)), count(1)
    candidates = tuple(
        Row(
            place=None if item.keeps and broken else next(places), number=number_of(bench, item),
            is_current=item.keeps or None, mesh=mesh_text(item.mesh), changes=dict(item.changes),
            **{**predicted(item.predicted), "not_known": ()},
            runs_and_faster_probability=None if item.keeps else claimed(item.faster, unknown),
            headroom_bytes=item.memory_headroom_bytes,
            terms_s=dict(item.predicted.breakdown_s) if asked.each_mesh and number < WITH_TERMS else {},
            violations=tuple(broken_rule(each.rule, each.reason) for each in broken) if item.keeps else (),
        )
        for number, item in enumerate(listed)
    )  # fmt: skip
    return SearchResult(
        constraints=held.to_json(), considered=made.considered, current=current(bench), candidates=candidates
    )


def _rejected(made: Plan, asked: SearchArguments) -> Iterator[RejectedMesh]:
    """Yield the rejected meshes of one rule, or the nearest one of each rule, the commonest rule first."""
    if asked.rule:
        left_out = [item for item in made.rejected if asked.rule.lower() in item.rule.lower()][: asked.top]
        yield from (taken(RejectedMesh, item, mesh=mesh_text(item.mesh)) for item in left_out)
        return
    for rule, number in Counter(item.rule for item in made.rejected).most_common(asked.top):
        nearest = next(item for item in made.rejected if item.rule == rule)
        yield taken(RejectedMesh, nearest, mesh=mesh_text(nearest.mesh), count=number)
