"""Sentences about the compile checks of the proposals: memory and bytes sent, beside what is computed."""

from __future__ import annotations

from collections.abc import Sequence

from proposals.agents import words
from proposals.agents.capabilities.answer_context import Answer, AnswerContext
from proposals.agents.capabilities.common import Row


def memory_column(rows: Sequence[Row]) -> list[str]:
    """Of each row what the compiler says of its memory; empty where none was compiled."""
    if not any(row.get("compiled") for row in rows):
        return []
    return [_memory(row.get("compiled") or {}) for row in rows]


def _memory(verdict: Row) -> str:
    if verdict.get("peak_bytes"):
        return f"{words.size(verdict['peak_bytes'])}, fits"
    if verdict.get("needed_at_least_bytes"):
        return f"at least {words.size(verdict['needed_at_least_bytes'])}, out of memory"
    return "out of memory" if verdict.get("outcome") == "out_of_memory" else "–"


def check(ctx: AnswerContext, row: Row) -> Answer:
    """The verdict on a proposal, and what it sends over each group of axes."""
    verdict = row.get("compiled")
    if not verdict:
        return
    held = row.get("hbm_per_chip_bytes") or {}
    computed = f" Computed: {words.size(held['total'])}." if held.get("total") else ""
    yield from ctx.say(f"{verdict['says']}{computed}")
    lines = [
        [
            " × ".join(item["axes"]), ", ".join(item.get("kinds", ())) or "–",
            words.size(item["compiled_bytes"]) if item.get("compiled_bytes") else "–",
            words.size(item["predicted_bytes"]) if item.get("predicted_bytes") else "–",
        ]
        for item in verdict.get("sent_per_step", ())[:6]
    ]  # fmt: skip
    if lines:
        yield from ctx.table(["Sent per chip and step", "Collectives", "Compiled", "Predicted"], lines)
