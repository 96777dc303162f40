"""Tools that price configurations, one or many, and search for the best ones; all by the proposer's own bench."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from agent.tools import Arguments, ToolError
from perfmodel.confidence import claimed
from perfmodel.config import mesh_text, missing_facts
from proposals.agents.tool_result import About, Is, ToolResult
from proposals.agents.tools.shared import (
    Configuration,
    Current,
    Estimate,
    Row,
    as_tool_error,
    current,
    evaluated,
    predicted,
    proposal,
    row,
)
from proposals.agents.workbench import Workbench
from proposals.candidate import is_same
from proposals.constraints import Constraints
from proposals.plan import Listed, Neighbour, ProposalPlan

#: Configurations that are shown with their terms; of more, time and memory alone.
WITH_TERMS = 3


class PriceArguments(Arguments):
    configurations: tuple[Configuration, ...] = Field((), max_length=8)
    proposals: tuple[int, ...] = Field((), max_length=8, description="Proposals by number, beside them.")
    facts: dict[str, Any] = Field(
        default_factory=dict, description="Of the run, assumed for this question alone; by path, as in hold."
    )
    neighbours: bool = Field(False, description="With single steps away from the first one: axes, batch, remat.")


class Refused(ToolResult):
    """A configuration that cannot be priced."""

    configuration: str = ""
    reason: str = ""


class Step(ToolResult):
    """A neighbouring configuration."""

    step: str = ""
    step_time_s: Estimate | None = None
    over_this: Annotated[float | None, Is(unit="speedup", subject="speed-up per token over it")] = None
    memory_bytes: float | None = None
    breaks: str = ""

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
    if asked.facts:
        with as_tool_error():
            bench = bench.with_facts({**bench.facts, **asked.facts})
    plans: list[tuple[ProposalPlan, dict[str, Any]]] = []
    refused: list[Refused] = []
    for number in asked.proposals:
        state = proposal(bench, number)
        plans.append((state.proposal, {"number": number, "status": state.status}))
    for one in asked.configurations:
        try:
            plan = evaluated(bench, one)
        except ToolError as error:
            refused.append(Refused(configuration=_named(one), reason=str(error)))
            continue
        plans.append((plan, {"number": number_of(bench, plan)}))
    if not plans:
        raise ToolError(" ".join(item.reason for item in refused) or "Name at least one configuration or proposal.")
    own = current(bench)
    rows = tuple(row(plan, bench, len(plans) <= WITH_TERMS, **more) for plan, more in plans)
    legal = [n for n, each in enumerate(rows, start=1) if not each.violations and each.speedup_per_token]
    fastest = max(legal, key=lambda n: _speed(rows[n - 1]), default=None)
    steps = tuple(map(neighbour, plans[0][0].sensitivity)) if asked.neighbours else ()
    return Prices(
        assumed=asked.facts, current=own, configurations=rows, not_priced=tuple(refused),
        fastest=fastest if len(rows) > 1 else None, neighbours=steps,
    )  # fmt: skip


def _speed(item: Row) -> float:
    return item.speedup_per_token.estimate if item.speedup_per_token else 0.0


def _named(one: Configuration) -> str:
    sizes = mesh_text({"ici": dict(one.mesh), "dcn": dict(one.dcn or {})}) if one.mesh else "the current mesh"
    return " ".join((sizes, *(f"{key} {value}" for key, value in one.changes.items())))[:200]


def neighbour(item: Neighbour) -> Step:
    """Return a single step away from a configuration."""
    time = item.step_time_s
    return Step(
        step=item.step, over_this=item.relative, memory_bytes=item.memory_bytes,
        step_time_s=Estimate(estimate=time.estimate, low80=time.low80, high80=time.high80) if time else None,
        breaks=f"{item.rule}: {item.reason}" if item.rule else "",
    )  # fmt: skip


def number_of(bench: Workbench, item: ProposalPlan | Listed) -> int | None:
    """Return the number of the proposal that is this configuration."""
    with as_tool_error():
        ranked = [state.proposal for state in bench.proposals]
    return next((each.rank for each in ranked if is_same(bench.config, each, item)), None)


class ConstraintArguments(Arguments):
    """Constraints as arguments."""

    keep: tuple[str, ...] = Field(
        (), max_length=20, description="What stays: batch, remat, weight_sharding, micro_batches, flags, or axis names."
    )
    fixed: dict[str, int] = Field(default_factory=dict, description="Exact sizes by axis or role.")
    at_least: dict[str, int] = Field(default_factory=dict)
    at_most: dict[str, int] = Field(default_factory=dict)
    at_most_chips: int | None = None
    memory_margin: float = Field(0.0, ge=0.0, le=0.5, description="Share of memory per chip to keep free.")

    def constraints(self) -> Constraints:
        """Return the constraints; what `keep` names beside `_KEPT` is an axis.  Raises ConfigError where they make no
        sense."""
        words = [word.strip().lower().replace(" ", "_").removeprefix("keep_") for word in self.keep]
        values: dict[str, Any] = {_KEPT[word]: True for word in words if word in _KEPT}
        values["keep_axes"] = [name for name, word in zip(self.keep, words, strict=True) if word not in _KEPT]
        values |= self.model_dump(include={"fixed", "at_least", "at_most", "at_most_chips", "memory_margin"})
        return Constraints.from_json({key: value for key, value in values.items() if value})


class SearchArguments(ConstraintArguments):
    top: int = Field(6, ge=1, le=25)
    rejected: bool = Field(False, description="List rejected meshes with their rule instead.")
    rule: str = Field("", max_length=80, description="Of the rejected, only this rule.")


_KEPT = {
    "batch": "keep_batch", "remat": "keep_remat", "weight_sharding": "keep_weight_sharding",
    "micro_batches": "keep_micro_batches", "flags": "no_flags",
}  # fmt: skip


class RejectedMesh(ToolResult):
    """A mesh that was left out, and the rule it breaks."""

    mesh: str = ""
    rule: str = ""
    reason: str = ""


class SearchResult(ToolResult):
    """The best candidates in order, or rejected meshes.  utility weighs gain, uncertainty and the cost of a trial."""

    constraints: dict[str, Any] = {}
    considered: int = 0
    current: Current = Current()
    candidates: tuple[Row, ...] = ()
    count_by_rule: dict[str, int] = {}
    rejected: tuple[RejectedMesh, ...] = ()


def search(bench: Workbench, asked: SearchArguments) -> SearchResult:
    """Searches all meshes with their settings for the best legal candidates under constraints, in the order in which
    proposals are chosen; or lists rejected meshes with the rule each breaks."""
    with as_tool_error():
        held = bench.constraints.joined(asked.constraints())
        made = bench.plan
        if asked.rejected:
            counts: dict[str, int] = {}
            for item in made.rejected:
                counts[item.rule] = counts.get(item.rule, 0) + 1
            left_out = [item for item in made.rejected if asked.rule.lower() in item.rule.lower()]
            rows = (RejectedMesh(mesh=mesh_text(i.mesh), rule=i.rule, reason=i.reason) for i in left_out[: asked.top])
            return SearchResult(considered=made.considered, count_by_rule=counts, rejected=tuple(rows))
        listed = bench.pricer.search(held, asked.top)
    unknown = bool(missing_facts(bench.config))
    candidates = tuple(
        Row(
            place=place, number=number_of(bench, item), is_current=item.keeps or None, mesh=mesh_text(item.mesh),
            changes=dict(item.changes), **{**predicted(item.predicted), "not_known": ()},
            runs_and_faster_probability=None if item.keeps else claimed(item.faster, unknown),
            headroom_bytes=item.memory_headroom_bytes,
        )
        for place, item in enumerate(listed, start=1)
    )  # fmt: skip
    return SearchResult(
        constraints=held.to_json(), considered=made.considered, current=current(bench), candidates=candidates
    )
