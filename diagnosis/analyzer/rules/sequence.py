"""Sequence (context) parallelism: exposed exchange of keys and values."""

from __future__ import annotations

from collections.abc import Iterator

from diagnosis.analyzer.facts import Facts, OpFacts, total_exposed, total_share
from diagnosis.analyzer.rules.base import (
    EXPOSED,
    SMALLER_AXIS,
    WORTH_SAYING,
    Claim,
    claim,
    costliest_axis_of,
    exposed_of,
    lines,
    time_of,
)
from diagnosis.analyzer.rules.flags import advise, causes_of
from diagnosis.analyzer.rules.links import bandwidth_text
from experiments.sentences import say


def sequence_parallel(facts: Facts) -> Iterator[Claim]:
    """Collectives of a sequence axis that attention does not hide: the exchange of keys and values (ring permutes,
    gathers, all-to-alls), and the all-reduce of their gradients.
    """
    ops = facts.where(
        lambda op: (
            op.collective is not None
            and facts.roles(op) == {"seq"}
            and op.collective.tensor in ("keys and values", "activations")
        )
    )
    reduced = tuple(op for op in ops if op.collective and op.collective.kind == "all-reduce" and op.phase == "backward")
    exchanged = tuple(op for op in ops if op not in reduced)
    yield from _exposed(
        facts, exchanged, "Exposed KV exchange", "Transfers of keys, values and activations",
        "Double-buffer the KV exchange so that attention on one block hides the transfer of the next",
    )  # fmt: skip
    yield from _exposed(
        facts, reduced, "Exposed all-reduce of KV gradients", "All-reduces of the gradients of keys and values",
        "Reduce-scatter them instead, which moves half the bytes, and overlap them with the backward pass of the layer "
        "below",
    )  # fmt: skip


def _exposed(facts: Facts, ops: tuple[OpFacts, ...], title: str, what: str, remedy: str) -> Iterator[Claim]:
    share = total_exposed(ops)
    if share < WORTH_SAYING:
        return
    costliest = costliest_axis_of(ops)
    axis = "seq" if costliest in (None, "dcn") else costliest
    cost = exposed_of(f"collectives of attention on axis {axis}", ops)
    sent = bandwidth_text(ops)
    text = say("{} along `{}` expose {} {}{}.{}", what, axis, cost, facts.base, lines(ops), sent)
    attention = facts.where(lambda op: op.module == "attention" and not op.collective)
    if attention:
        work = time_of("attention compute", attention)
        text += say(" Attention itself takes {}: ", work)
        text += (
            "long enough to hide the transfers." if total_share(attention) > share else "too short to hide all of them."
        )
    flags = advise(facts, causes_of(ops))
    yield claim(
        facts, "sequence_parallel_exposed", f"{title} on `{axis}`", text,
        f"{remedy}, or reduce `{axis}` in favour of a batch axis.{flags.after}",
        share, ops=ops, part=EXPOSED, axis=costliest,
        advice=(SMALLER_AXIS,), flags=flags.flags, flags_source=flags.source,
    )  # fmt: skip
