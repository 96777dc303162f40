"""Collectives that leave their wires half empty."""

from __future__ import annotations

from collections.abc import Iterator

from diagnosis.analyzer.facts import Facts, OpFacts, keys, total_share
from diagnosis.analyzer.quantity import evidence
from diagnosis.analyzer.rules.base import OPS, WORTH_SAYING, finding, lines, time_of
from diagnosis.report import Evidence, Finding

HALF = 0.5
#: Below this a message waits for hops rather than for bandwidth on any of the chips (book 3.2: about a microsecond a
#: hop, 45 GB/s and more per link).
SMALL_BYTES = 1e6


def _use(op: OpFacts) -> float | None:
    found = op.collective
    if found is None or not found.achieved_bytes_per_s or not found.possible_bytes_per_s:
        return None
    return found.achieved_bytes_per_s / found.possible_bytes_per_s


def wires_half_empty(facts: Facts) -> Iterator[Finding]:
    """Synchronous collectives that reach less than half of what their wires give: small, frequent, or waiting."""
    ops = facts.where(lambda op: (use := _use(op)) is not None and use < HALF)
    lost = sum(op.share * (1.0 - (_use(op) or 0.0)) for op in ops)
    if lost < WORTH_SAYING:
        return
    cost = time_of(facts, "collectives below half of their wires", ops)
    mean = 1.0 - lost / total_share(ops)
    reached = evidence(
        "of what their wires give", mean, "share", "computed", "Σ time × achieved ÷ possible ÷ Σ time", OPS, keys(ops)
    )
    rows: list[Evidence | None] = [cost, reached]
    text = f"Collectives that take {cost} {facts.base} reach {reached} of what their wires could give{lines(ops)}"
    steps, cores = len(facts.profile.steps), facts.profile.device.measured_cores
    small = [op for op in ops if op.collective and (op.collective.payload_bytes or 0.0) < SMALL_BYTES]
    if steps and cores:
        count = sum(op.op.occurrences for op in ops) / (steps * cores)
        often = evidence(
            "of them per step and core", count, "count", "computed", "Σ occurrences ÷ (steps × cores)", OPS, keys(ops)
        )
        rows.append(often)
        text += f"; there are {often} of them per step"
    text += "."
    if total_share(small) >= 0.5 * total_share(ops):
        text += " Most of that time goes to small messages, which wait for hops rather than for bandwidth."
    else:
        text += (
            " They are large enough to fill the wires, so they wait: for a slower core, or for another axis "
            "on the same wires."
        )
    yield finding(
        facts,
        "wires_half_empty",
        "Collectives leave their wires half empty",
        text,
        "Combine small collectives (XLA's all-reduce, all-gather and reduce-scatter combiner thresholds), fuse "
        "those of one "
        "layer, and see whether cores reach them at different times.",
        rows,
        lost,
        axis=max(ops, key=lambda op: op.share).axes[0] if max(ops, key=lambda op: op.share).axes else None,
    )
