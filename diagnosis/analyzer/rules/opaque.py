"""Ops the profiler cannot judge, and waits for asynchronous collectives."""

from __future__ import annotations

from collections.abc import Iterator

from diagnosis.analyzer.facts import Facts, OpFacts, hidden_part, keys, total_exposed, total_share
from diagnosis.analyzer.quantity import evidence
from diagnosis.analyzer.rules.base import EXPOSED, Claim, claim, costliest_axis_of, exposed_of, lines, time_of
from diagnosis.analyzer.rules.flags import advise, causes_of
from diagnosis.report import SourcedValue
from experiments.sentences import say

#: A hidden share from here on prints as all of it, which would contradict the finding.
MOSTLY_HIDDEN = 0.995
#: Below it, start and done stand together, as in a synchronous collective.
HARDLY_HIDDEN = 0.05
#: Exposed time of start ops from this share of the step is worth naming.
LEAST_START = 0.005


def _opaque(op: OpFacts) -> bool:
    unlabelled = (op.op.bound_by or "unknown").strip().lower() in ("unknown", "none", "-", "")
    return not op.collective and "custom" in op.category and unlabelled and not op.efficiency


def opaque_custom_calls(facts: Facts) -> Iterator[Claim]:
    """Custom calls without recorded FLOPs or bytes: their time is known, their efficiency is not."""
    if not facts.has_roofline:
        return
    ops = facts.where(_opaque)
    share = total_share(ops)
    if not ops or (
        share < 0.03 and not (facts.thin and share >= 0.2 * total_share(facts.ops)) and not _leading(facts, ops)
    ):
        return
    cost = time_of("custom calls without a cost model", ops)
    count = evidence("such ops", float(len(ops)), "count", "measured", source="op profile")
    parts: list[SourcedValue] = []
    first = ops[0].op.name
    moves = [
        op
        for op in ops
        if any(word in op.op.name.lower() for word in ("transpose", "p2p", "point-to-point", "copy", "permute"))
    ]
    text = say(
        "{} custom calls without recorded FLOPs or bytes take {} {}, the largest {}{}.",
        count,
        cost,
        facts.base,
        first,
        lines(ops),
    )
    if moves:
        part = time_of("of it, data movement by op name", moves)
        parts.append(part)
        text += say(" By op name, {} is data movement (communication or layout) rather than compute.", part)
    gpu = facts.chip.kind == "gpu" if facts.chip else "gpu" in facts.profile.device.kind.lower()
    yield claim(
        facts, "opaque_custom_calls", "Custom calls without a cost model", text,
        "Compare the largest with the FLOPs its shapes imply: library kernels report none to XLA."
        if gpu
        else "Give these kernels a cost estimate (pl.CostEstimate for Pallas) so that the roofline covers them, and "
        "profile the largest by itself.",
        None, ops=ops, parts=parts, whole=cost,
        impact="The potential saving is unknown until these kernels report FLOPs and bytes.",
    )  # fmt: skip


def _leading(facts: Facts, ops: tuple[OpFacts, ...], part: float = 0.25) -> bool:
    """Whether they lead the list of ops, however small each is."""
    top = facts.ops[:5]
    return total_share(op for op in ops if op in top) >= part * total_share(top) > 0


def stalled_collectives(facts: Facts) -> Iterator[Claim]:
    """Asynchronous collectives: the time of their start ops, and what is waited in their done ops."""
    ops = facts.where(lambda op: op.collective is not None and op.collective.part != "sync")
    share = total_exposed(ops)
    if not ops:
        return
    if share < 0.02 and not (facts.thin and share >= 0.1 * total_share(facts.ops)) and not _leading(facts, ops, 0.1):
        return
    cost = exposed_of("exposed asynchronous collectives", ops)
    text = say("Asynchronous collectives expose {} {}{}", cost, facts.base, lines(ops))
    starts = tuple(op for op in ops if op.collective and op.collective.part == "start")
    parts: list[SourcedValue] = []
    action = ""
    if total_exposed(starts) >= LEAST_START:
        row = exposed_of("of it, in their start ops", starts)
        parts.append(row)
        text += say(", {} of it in their start ops, which run on the core", row)
        action = "Nothing hides the time in start ops: make these collectives fewer or smaller. "
    text += "."
    hidden = hidden_part(ops)
    if hidden is not None and hidden < MOSTLY_HIDDEN:
        row = evidence(
            "hidden share of time in flight", hidden, "share", "measured",
            "1 − Σ exposed ÷ Σ time from start to done", "intervals of the trace", keys(ops),
        )  # fmt: skip
        text += (
            say(" Other ops hide {} of the time they are in flight: each is awaited as soon as it starts.", row)
            if hidden < HARDLY_HIDDEN
            else say(" They start early and other ops hide {} of the time they are in flight, but not the rest.", row)
        )
    flags = advise(facts, causes_of(ops))
    yield claim(
        facts, "async_collective_waits", "Asynchronous collectives not fully hidden", text,
        f"{action}Start them earlier (more compute between start and done), or move fewer bytes over that axis."
        f"{flags.after}",
        share, ops=ops, part=EXPOSED, axis=costliest_axis_of(ops), flags=flags.flags, flags_source=flags.source,
        parts=parts, whole=cost,
    )  # fmt: skip
