"""What is known beyond this run: records of changes, passages of knowledge, other experiments."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from agent.tools import Arguments, ToolError
from proposals.agents import words
from proposals.agents.capabilities.answer_context import Answer, AnswerContext
from proposals.agents.capabilities.capability import Missing, capability
from proposals.agents.capabilities.common import About, get
from proposals.agents.tools import RetrievalTools, RunTools
from proposals.agents.tools.retrieval import RecordRow

Query = Annotated[str, Field(max_length=400, description="Words to look for.")]


class SearchWords(Arguments):
    text: Query = ""


@capability(
    "Similar past runs",
    "Has anyone tried this before?",
    "Which past runs are like this one?",
    "What worked on similar models and chips?",
    "Is there a precedent for this proposal?",
)
def similar(ctx: AnswerContext, given: About) -> Answer:
    """Measured changes of runs like this one (bottleneck, chip, model, scale), or similar to a proposal's change."""
    data = yield from get(ctx, RetrievalTools.similar_runs, proposal=given.proposal, top=5)
    if not data.records:
        yield from ctx.say(
            "No past run is similar enough for its effect to carry over: the database has none on this kind of chip "
            "with a similar model, tokens per chip and change. Search the history by keyword to see what it holds."
        )
        return
    yield from _records(ctx, data.records, "")


@capability(
    "Past records by keyword",
    "Search the history for long context runs.",
    "Find past experiments about expert parallelism.",
    "Which changes failed in the past?",
)
def history(ctx: AnswerContext, given: SearchWords) -> Answer:
    """Keyword search in measured optimisations (published and the team's own): change, effect, caveats."""
    data = yield from get(ctx, RetrievalTools.search_history, query=given.text, top=5)
    yield from _records(ctx, data.records, "No record matches these words.")


def _records(ctx: AnswerContext, rows: Sequence[RecordRow], empty: str) -> Answer:
    if not rows:
        raise ToolError(empty)
    items = []
    for row in rows:
        speed = f"; speed-up {words.ratio(row.speedup_per_token)}" if row.speedup_per_token else ""
        why = [part for text in row.why for part in text.split("; ") if not re.search(r"\d", part)][:3]
        alike = f" Similarity: {'; '.join(why)}." if why else ""
        items.append(
            f"Record `{row.id}` ({row.outcome.replace('_', ' ')}{speed}): {row.title.rstrip('.')}. "
            f"{row.effect.rstrip('.')}.{alike}"
        )
    yield from ctx.bullets(items)


@capability(
    "From the knowledge base",
    "What is FSDP?",
    "Explain how ring attention works.",
    "What does remat offload mean?",
    "When does data parallelism become communication bound?",
    "How does the XLA latency hiding scheduler work?",
    "What is the difference between ZeRO-1 and ZeRO-3?",
)
def knowledge(ctx: AnswerContext, given: SearchWords) -> Answer:
    """Passages of the knowledge base and of the team's documents that answer a question, with their sources."""
    if not given.text.strip():
        raise Missing("Name what to look up.", ("What is FSDP?", "What does remat offload mean?"))
    data = yield from get(ctx, RetrievalTools.search_knowledge, query=given.text[:400], top=3)
    rows = data.passages
    if not rows:
        raise ToolError("No passage in the knowledge base matches.")
    for row in rows[:2]:
        source = re.sub(r"\s*\([^)]*\d{4}[^)]*\)", "", row.source)
        section = f", section {row.section}" if row.section else ""
        text = re.sub(r"\s+", " ", row.text)
        yield from ctx.say(f"**{row.title}** (passage `{row.id}`; {source}{section}): {text}")
    if len(rows) > 2:
        yield from ctx.say(f"See also passage `{rows[2].id}`, {words.lower_first(rows[2].title)}.")


class ExperimentRef(Arguments):
    experiment: Annotated[int | None, Field(ge=1, description="Id of another experiment of the team.")] = None


@capability(
    "Comparison with another experiment",
    "Compare this run with another experiment.",
    "What changed since the last run?",
    "Is this faster than the run before?",
)
def against(ctx: AnswerContext, given: ExperimentRef) -> Answer:
    """Compares this run with another experiment of the team: configuration, figures and ops."""
    data = yield from get(ctx, RunTools.compare, experiment=given.experiment, top=5)
    if data.experiments:
        yield from ctx.say("Name one of these experiments by its id:")
        yield from ctx.bullets([f"{row.id}: {row.name}" for row in data.experiments[:8]])
        return
    items = [f"{row.field}: {_stated(row.before)} → {_stated(row.after)}" for row in data.configuration[:8]]
    yield from ctx.bullets(items or ["The configurations are identical."])


def _stated(value: object) -> str:
    return "not set" if value is None else str(value)


@capability(
    "Not a sharding problem",
    "My random numbers differ after resharding, why?",
    "Which block size should my Pallas or Triton kernel use?",
    "Is my benchmark timing wrong because of asynchronous dispatch?",
    "Why does the loss diverge?",
    "My program hangs or crashes at start-up.",
    "How do I write a custom kernel?",
)
def not_sharding(ctx: AnswerContext, given: SearchWords) -> Answer:
    """Questions outside sharding (kernels, RNG, numerics, benchmark timing), with knowledge-base passages."""
    yield from ctx.say(
        "That does not depend on how the run is sharded, and nothing here measures it: kernels, random numbers, "
        "numerics, timing and crashes are up to the program."
    )
    lookup = yield from ctx.look(
        RetrievalTools.search_knowledge, query=given.text[:400] or "random numbers kernels timing", top=1
    )
    for row in lookup.data.passages[:1] if lookup.data else ():
        yield from ctx.say(f"Nearest in the knowledge base: **{row.title}** (passage `{row.id}`; {row.source}).")
