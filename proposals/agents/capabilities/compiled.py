"""Sentences about the compile checks of the proposals: memory and bytes sent, beside what is computed."""

from __future__ import annotations

from collections.abc import Sequence

from proposals.agents import words
from proposals.agents.capabilities.answer_context import Answer, AnswerContext
from proposals.agents.priced import Compiled, Current, Priced


def memory_column(rows: Sequence[Current | Priced]) -> list[str]:
    """Of each row what the compiler says of its memory; empty where none was compiled."""
    return [_memory(row.compiled) for row in rows] if any(row.compiled for row in rows) else []


def _memory(verdict: Compiled | None) -> str:
    if verdict and verdict.peak_bytes:
        return f"{words.size(verdict.peak_bytes)}, fits"
    if verdict and verdict.needed_at_least_bytes:
        return f"at least {words.size(verdict.needed_at_least_bytes)}, out of memory"
    return "out of memory" if verdict and verdict.outcome == "out_of_memory" else "–"


def check(ctx: AnswerContext, row: Priced) -> Answer:
    """The verdict on a proposal, and what it sends over each group of axes."""
    verdict, held = row.compiled, row.hbm_per_chip_bytes
    if not verdict:
        return
    yield from ctx.say(verdict.says + (f" Computed: {words.size(held.total)}." if held else ""))
    lines = [
        [
            " × ".join(item.axes), ", ".join(item.kinds) or "–",
            words.size(item.compiled_bytes) if item.compiled_bytes else "–",
            words.size(item.predicted_bytes) if item.predicted_bytes else "–",
        ]
        for item in verdict.sent_per_step[:6]
    ]  # fmt: skip
    if lines:
        yield from ctx.table(["Sent per chip and step", "Collectives", "Compiled", "Predicted"], lines)
