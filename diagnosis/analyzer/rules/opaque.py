"""Ops the profiler cannot judge."""

from __future__ import annotations

from collections.abc import Iterator

from diagnosis.analyzer.facts import Facts, OpFacts, keys, total_share
from diagnosis.analyzer.quantity import evidence
from diagnosis.analyzer.rules.base import finding, lines, time_of
from diagnosis.report import Evidence, Finding


def _opaque(op: OpFacts) -> bool:
    unlabelled = (op.op.bound_by or "unknown").strip().lower() in ("unknown", "none", "-", "")
    return not op.collective and "custom" in op.category and unlabelled and not op.efficiency


def opaque_custom_calls(facts: Facts) -> Iterator[Finding]:
    """Custom calls without recorded FLOPs or bytes: their time is known, their efficiency is not."""
    if not facts.has_roofline:
        return
    ops = facts.where(_opaque)
    share = total_share(ops)
    if not ops or (
        share < 0.03 and not (facts.thin and share >= 0.2 * total_share(facts.ops)) and not _leading(facts, ops)
    ):
        return
    cost = time_of(facts, "custom calls of unknown efficiency", ops)
    count = evidence("such ops", float(len(ops)), "count", "measured", source="op profile")
    rows: list[Evidence | None] = [cost, count]
    first = ops[0].op.name
    moves = [
        op
        for op in ops
        if any(word in op.op.name.lower() for word in ("transpose", "p2p", "point-to-point", "copy", "permute"))
    ]
    text = (
        f"{count} custom calls without recorded FLOPs or bytes take {cost} {facts.base}, the largest "
        f"{first}{lines(ops)}."
    )
    if moves:
        part = time_of(facts, "of it by names of data movement", moves)
        rows.append(part)
        text += f" Of it {part} move data by their names: exchange or layout rather than arithmetic."
    yield finding(
        facts,
        "opaque_custom_calls",
        "Custom calls the profiler cannot judge",
        text,
        "Give these kernels a cost estimate (pl.CostEstimate for Pallas) so that the roofline covers them, and "
        "profile the "
        "largest by itself.",
        rows,
        share,
    )


def _leading(facts: Facts, ops: tuple[OpFacts, ...], part: float = 0.25) -> bool:
    """Whether they lead the list of ops, however small each is."""
    top = facts.ops[:5]
    return total_share(op for op in ops if op in top) >= part * total_share(top) > 0


def stalled_collectives(facts: Facts) -> Iterator[Finding]:
    """Completions of asynchronous collectives: time waited because nothing was left to hide the transfer behind."""
    ops = facts.where(lambda op: op.collective is not None and op.collective.part == "done")
    share = total_share(ops)
    if not ops:
        return
    if share < 0.02 and not (facts.thin and share >= 0.1 * total_share(facts.ops)) and not _leading(facts, ops, 0.1):
        return
    cost = time_of(facts, "waits for asynchronous collectives", ops)
    axis = ops[0].axes[0] if ops[0].axes else None
    rows: list[Evidence | None] = [cost]
    text = (
        f"Waiting for asynchronous collectives to complete takes {cost} {facts.base}{lines(ops)}: each was started "
        "early, yet what ran meanwhile was too short to hide it."
    )
    timed = [op for op in ops if op.op.in_flight_s and op.op.exposed_s is not None]
    if timed:
        flight = sum(op.op.in_flight_s or 0.0 for op in timed)
        hidden = evidence(
            "hidden part of their time in flight",
            max(0.0, 1.0 - sum(op.op.exposed_s or 0.0 for op in timed) / flight),
            "share",
            "measured",
            "1 − Σ exposed ÷ Σ time from start to done",
            "intervals of the trace",
            keys(timed),
        )
        rows.append(hidden)
        text += f" Other work hides {hidden} of their time in flight."
    yield finding(
        facts,
        "async_collective_waits",
        "Asynchronous collectives are not fully hidden",
        text,
        "Start them earlier (latency-hiding scheduler, larger scheduling window), or move fewer bytes on that axis.",
        rows,
        share,
        axis=axis,
    )
