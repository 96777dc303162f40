"""The proposals: which first, how sure, against each other, what would change the order, what was left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from agent.tools import NoArguments, ToolError
from formatting import listed
from proposals.agents import words
from proposals.agents.capabilities import verdict
from proposals.agents.capabilities.answer_context import Answer, AnswerContext
from proposals.agents.capabilities.capability import capability
from proposals.agents.capabilities.common import (
    About,
    Numbers,
    as_arguments,
    get,
    how,
    name_of,
    offers,
    priced_table,
    proof,
    proposals_table,
    unknown_facts,
    which,
    whole,
)
from proposals.agents.capabilities.compiled import check
from proposals.agents.capabilities.configured import Configured, predict_arguments
from proposals.agents.priced import Priced
from proposals.agents.tools import ModelTools, RunTools


@capability(
    "Recommendation",
    "Which proposal do you recommend I start with?",
    "What should I try first?",
    "Of these proposals, which is the best?",
    "What would you do?",
    "Which mesh should we begin with?",
)
def recommend(ctx: AnswerContext, given: NoArguments) -> Answer:
    """Which proposal to try first, with its predicted gain, confidence, reasons, evidence and trade-off."""
    bottleneck = yield from get(ctx, RunTools.bottleneck)
    if bottleneck.primary != "unknown":
        yield from ctx.say(
            f"The bottleneck is {words.bottleneck(bottleneck)} "
            f"({words.percent(bottleneck.confidence_share)} confidence)."
        )
    data = yield from get(ctx, ModelTools.proposals)
    rows, ran, first = data.proposals, data.current, data.proposals[0]
    if first.kind == "keep":
        yield from ctx.say(f"**Keep the current configuration**, {words.mesh(first)}. {' '.join(first.reasons[1:3])}")
    else:
        now = words.current_step(ran, how(ctx))
        time = f" a step of {words.step(first)} against {now} {how(ctx)}," if first.step_time_s else ""
        yield from ctx.say(
            f"Start with {words.title(first)}: predicted{time} {words.speed(first)}, with "
            f"{words.confidence(first)} confidence that it "
            f"{words.gains(first)}.{words.inconclusive(first)}"
        )
        yield from ctx.bullets([reason for reason in first.reasons[1:4] if not reason.startswith("Precedent")])
    yield from proof(ctx, first)
    if len(rows) > 1:
        yield from proposals_table(ctx, data)
    if first.trade_offs:
        yield from ctx.say("Trade-off:", first.trade_offs[0])
    yield from unknown_facts(ctx, data.not_known)


@capability(
    "The proposals",
    "Show me the proposals.",
    "List all options with their predicted speedups.",
    "What configurations do you suggest?",
)
def proposals(ctx: AnswerContext, given: NoArguments) -> Answer:
    """Current proposals: configuration, predicted time, interval, confidence, memory, status."""
    data = yield from get(ctx, ModelTools.proposals)
    yield from proposals_table(ctx, data)
    yield from ctx.bullets([f"Proposal {r.number}: {words.lower_first(r.title)} ({r.status})." for r in data.proposals])
    yield from ctx.say(
        f"Chosen from {data.candidates_priced:,} candidates on {data.meshes_considered:,} meshes considered."
    )


@capability(
    "A proposal explained",
    "Explain this proposal.",
    "Why do you propose this?",
    "What are the reasons behind the first proposal?",
    "What does the proposal change and why should it be faster?",
)
def explain(ctx: AnswerContext, given: About) -> Answer:
    """One proposal: reasons, communication before and after, evidence, trade-offs, citations."""
    row = yield from whole(ctx, which(ctx, given))
    yield from ctx.say(
        f"{words.title(row)}: predicted {words.speed(row)}, confidence {words.sure(row)}."
        if row.speedup_per_token
        else f"{words.title(row)}."
    )
    if row.status != "proposed":
        yield from ctx.more(f"It is {row.status}.")
    yield from ctx.bullets(list(row.reasons))
    if row.communication:
        lines = [
            [f"{item.moves}{' (' + ' and '.join(item.axes) + ')' if item.axes else ''}",
             *words.traffic(item)]
            for item in row.communication
        ]  # fmt: skip
        yield from ctx.table(["Exposed communication", "Now", "Predicted"], lines)
    yield from check(ctx, row)
    yield from proof(ctx, row)
    if row.trade_offs:
        yield from ctx.say("Trade-offs:", *row.trade_offs[:2])
    cited = [f"`{item.key}`" for item in row.citations if item.key and item.source != "history"]
    if cited:
        yield from ctx.say(f"Sources in the knowledge base: {listed(cited[:3])}.")


class Sides(Configured):
    proposals: Numbers = ()
    meshes: Annotated[tuple[str, ...], Field(max_length=4, description="Meshes such as fsdp=32, tp=8.")] = ()


@capability(
    "Comparison",
    "Compare the proposals.",
    "Compare proposal 1 and 3.",
    "What is the difference between these two meshes?",
    "Which of these is faster, and which is safer?",
    "Which proposal needs the least memory?",
    "Set this mesh against the first proposal.",
)
def compare(ctx: AnswerContext, given: Sides) -> Answer:
    """Proposals and meshes compared: time, interval, confidence, memory; fastest, most certain, least memory."""
    config = ctx.bench.config
    items: list[dict[str, Any]] = []
    each = [given.but("mesh").model_copy(update={"mesh": text}) for text in given.meshes]
    for one in each or ([given.but()] if given.named else []):
        items += yield from predict_arguments(ctx, one)
    rows = (yield from get(ctx, ModelTools.proposals)).proposals
    by = {row.number or 0: row for row in rows}
    absent = [n for n in given.proposals if n not in by]
    if absent:
        raise ToolError(f"There is no proposal {absent[0]}; the proposals are {listed([str(n) for n in by])}.")
    wanted = list(given.proposals) or ([] if len(items) > 1 else [1] if items else list(by))
    if len(wanted) + len(items) < 2:
        current = config.mesh.to_json()
        items.append({"ici": current["ici"], **({"dcn": current["dcn"]} if current["dcn"] else {}), "changes": {}})
    items = [*(as_arguments(by[n]) for n in wanted), *items][:6]
    compared = yield from get(ctx, ModelTools.compare_meshes, configurations=items)
    every = compared.configurations
    # A proposal that is also described by its settings is one configuration.
    apart: dict[str, Priced] = {}
    for row in every:
        apart.setdefault(words.located(row), row)
    sides = list(apart.values())
    yield from priced_table(ctx, sides, compared.current)
    for row in sides:
        if row.violations:
            yield from ctx.say(f"{words.capital(name_of(row))} is not legal: {row.violations[0].reason}")
    fastest = next((row for row in every if row.configuration == compared.fastest_legal), None)
    yield from _winners(ctx, sides, fastest)
    yield from _ranked(ctx, [row for row in sides if row.proposal_number], by)
    yield from offers(sides)


def _ranked(ctx: AnswerContext, sides: Sequence[Priced], by: Mapping[int, Priced]) -> Answer:
    """Why the first of the compared proposals is ranked above the others."""
    if len(sides) < 2:
        return
    rows = [row.model_copy(update={"kind": by[row.proposal_number or 0].kind}) for row in sides]
    first, *others = sorted(rows, key=lambda row: row.proposal_number or 0)
    own = name_of(first)
    yield from ctx.say(
        f"**{words.capital(own)} is ranked first of these**: expected gain minus the cost of a failed run."
    )
    yield from ctx.bullets([" ".join(verdict.argued(name_of(row), row, own, first)) for row in others])
    if all(row.memory_headroom_bytes is not None for row in rows):
        yield from ctx.more("The ranking counts free memory only through the probability that a configuration fits.")


def _winners(ctx: AnswerContext, rows: Sequence[Priced], best: Priced | None) -> Answer:
    """The fastest, the most certain to gain, the least memory."""
    legal = [row for row in rows if not row.violations]
    if best is None or not legal:
        yield from ctx.say("None of these configurations is both legal and priced, so there is no fastest.")
        return
    items = [f"**Fastest by prediction: {name_of(best)}**, {words.gain(best)} per token"]
    gaining = [row for row in legal if not words.keeps(row) and row.confidence_share is not None]
    if gaining:
        sure = max(gaining, key=lambda row: row.sure)
        items.append(f"Most certain to gain: {name_of(sure)}, confidence {words.sure(sure)}")
    held = [(row.hbm_per_chip_bytes.total, row) for row in legal if row.hbm_per_chip_bytes]
    if held:
        least = min(held, key=lambda item: item[0])[1]
        items.append(f"Least memory per chip: {name_of(least)}, {words.memory(least)}")
    yield from ctx.bullets(items)
    others = [row for row in legal if row.configuration != best.configuration]
    if any((row.speedup_high80 or 0) > (best.speedup_low80 or 0) for row in others):
        yield from ctx.say("Their 80 % intervals overlap: only a measurement decides.")


class Preference(Configured):
    proposals: Numbers = ()


@capability(
    "Your preference vs. the recommendation",
    "The other two seem more promising to me.",
    "I would rather start with another proposal.",
    "I think my mesh is better than yours.",
    "I find proposals 2 and 3 more promising.",
    "Would it not be better to take the bolder option?",
)
def prefer(ctx: AnswerContext, given: Preference) -> Answer:
    """Compares your preferred proposal with proposal 1: where it wins, where it loses, and which measurement would
    reverse the ranking."""
    rows = (yield from get(ctx, ModelTools.proposals)).proposals
    first = rows[0]
    own = f"proposal {first.number}"
    wanted = given.proposals or ((given.proposal,) if given.proposal else ())
    items = []
    if given.mesh or (not wanted and given.named):
        configurations = yield from predict_arguments(ctx, given.but())
        items = configurations[:1]
    absent = [n for n in wanted if all(row.number != n for row in rows)]
    if absent:
        raise ToolError(f"There is no proposal {absent[0]}; the proposals are {listed([str(r.number) for r in rows])}.")
    if not items:
        items = [as_arguments(row) for row in rows[1:] if not wanted or row.number in wanted]
    if not items:
        yield from ctx.say(f"That is {own}, which is recommended: predicted {words.speed(first)}.")
        return
    compared = yield from get(ctx, ModelTools.compare_meshes, configurations=[as_arguments(first), *items][:6])
    mine, *theirs = compared.configurations
    mine = mine.model_copy(update={"kind": first.kind, "number": first.number})
    yield from priced_table(ctx, [mine, *theirs], compared.current)
    cases = [(verdict.case(mine, row), row) for row in theirs]
    for _, row in cases:
        yield from ctx.say(*verdict.argued(name_of(row), row, own, mine, row.time_per_token_over_fastest))
    turn = [verdict.turns(name_of(row), row, own, mine) for _, row in cases[:2]]
    better = [row for case, row in cases if case == "better"]
    bolder = [row for case, row in cases if case == "bolder"]
    if better:
        best = max(better, key=lambda row: row.gain)
        yield from ctx.say(f"**Agreed**: by gain and by confidence {name_of(best)} is the better start.")
    elif bolder:
        best = max(bolder, key=lambda row: row.gain)
        yield from ctx.say(
            f"**Partly agreed**: for the larger gain take {name_of(best)}; as the first trial {own} stays, which "
            f"{verdict.stays_because(mine, best)}.",
            *turn,
        )
    else:
        yield from ctx.say(f"**{words.capital(own)} stays first.**", *turn)
    yield from offers(theirs)
