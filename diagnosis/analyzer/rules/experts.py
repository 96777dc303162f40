"""Mixtures of experts: dispatch and imbalance."""

from __future__ import annotations

from collections.abc import Iterator

from diagnosis.analyzer.facts import Facts, total_share
from diagnosis.analyzer.rules.base import WORTH_SAYING, finding, lines, time_of
from diagnosis.analyzer.rules.wires import bandwidth
from diagnosis.report import Evidence, Finding


def expert_dispatch(facts: Facts) -> Iterator[Finding]:
    """All-to-alls that carry tokens to their experts and back, and collectives beside them on an expert axis."""
    ops = facts.where(
        lambda op: (
            op.collective is not None
            and (
                op.collective.tensor == "expert dispatch"
                or (op.collective.kind == "all-to-all" and "expert" in facts.roles(op))
            )
        )
    )
    share = total_share(ops)
    if share < WORTH_SAYING:
        return
    axis = ops[0].axes[0] if ops[0].axes else None
    cost = time_of(facts, "expert all-to-alls", ops)
    rows: list[Evidence | None] = [cost]
    text = f"All-to-alls that carry tokens to their experts take {cost} {facts.base}{lines(ops)}."
    sent = bandwidth(ops)
    if sent:
        achieved, possible = sent
        rows += [achieved, possible]
        text += f" They reach {achieved} of the {possible} these wires could give"
        slow = (achieved.value or 0.0) < 0.5 * (possible.value or 0.0)
        text += ": chips wait for the one with the most tokens, or messages are too small." if slow else "."
    yield finding(
        facts,
        "expert_all_to_all",
        "Expert dispatch is exposed",
        text,
        "Make the expert axis smaller or put it on the fastest links, overlap dispatch with the shared expert or the "
        "attention of another micro-batch, and check the load-balancing loss and capacity factor for imbalance.",
        rows,
        share,
        axis=axis,
    )
