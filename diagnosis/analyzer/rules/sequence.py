"""Sequence (context) parallelism: keys and values that travel in the open."""

from __future__ import annotations

from collections.abc import Iterator

from diagnosis.analyzer.facts import Facts, total_share
from diagnosis.analyzer.rules.base import WORTH_SAYING, finding, lines, time_of
from diagnosis.analyzer.rules.wires import bandwidth
from diagnosis.report import Evidence, Finding


def sequence_parallel(facts: Facts) -> Iterator[Finding]:
    """Ring permutes, gathers or all-to-alls of a sequence axis that attention does not hide."""
    ops = facts.where(
        lambda op: (
            op.collective is not None
            and facts.roles(op) == {"seq"}
            and op.collective.tensor in ("keys and values", "activations")
        )
    )
    share = total_share(ops)
    if share < WORTH_SAYING:
        return
    axis = ops[0].axes[0] if ops[0].axes else "seq"
    cost = time_of(facts, f"collectives of attention on axis {axis}", ops)
    rows: list[Evidence | None] = [cost]
    text = f"Keys, values and activations that travel along {axis} take {cost} {facts.base} in the open{lines(ops)}."
    if sent := bandwidth(ops):
        rows += [*sent]
        text += f" They reach {sent[0]} of the {sent[1]} these wires could give."
    attention = facts.where(lambda op: op.module == "attention" and not op.collective)
    if attention:
        work = time_of(facts, "attention's own work", attention)
        rows.append(work)
        text += f" Attention itself works for {work}: "
        text += "long enough to hide them." if total_share(attention) > share else "too short to hide them all."
    yield finding(
        facts,
        "sequence_parallel_exposed",
        f"Attention's exchange along {axis} is not hidden",
        text,
        f"Make the permutes asynchronous and double-buffered so that attention on one block hides the transfer of the "
        f"next, or make {axis} smaller and give its chips to the batch.",
        rows,
        share,
        axis=axis,
    )
