"""Collectives that use little of link bandwidth."""

from __future__ import annotations

from collections.abc import Iterator

from diagnosis.analyzer.facts import Facts, OpFacts, keys, total_exposed
from diagnosis.analyzer.quantity import evidence
from diagnosis.analyzer.rules.base import (
    BELOW_LINKS,
    COMBINE_SMALL,
    OPS,
    WORTH_SAYING,
    Claim,
    claim,
    costliest_axis_of,
    exposed_of,
    lines,
)
from diagnosis.analyzer.rules.flags import Advice, advise
from diagnosis.analyzer.rules.links import SMALL_BYTES
from experiments.sentences import say

HALF = 0.5


def _use(op: OpFacts) -> float | None:
    collective = op.collective
    if collective is None or not collective.achieved_bytes_per_s or not collective.possible_bytes_per_s:
        return None
    return collective.achieved_bytes_per_s / collective.possible_bytes_per_s


def low_link_bandwidth(facts: Facts) -> Iterator[Claim]:
    """Synchronous collectives below half of the link bandwidth: small ones are latency-bound, large ones wait for
    others."""
    slow = facts.where(lambda op: (use := _use(op)) is not None and use < HALF)
    small = tuple(op for op in slow if op.collective and (op.collective.payload_bytes or 0.0) < SMALL_BYTES)
    large = tuple(op for op in slow if op not in small)
    for ops in (large, small):
        lost = sum(op.exposed_share * (1.0 - (_use(op) or 0.0)) for op in ops)
        if lost >= WORTH_SAYING:
            yield _claim(facts, ops, lost, are_small=ops is small)


def _claim(facts: Facts, ops: tuple[OpFacts, ...], lost: float, are_small: bool) -> Claim:
    words = "small collectives" if are_small else "collectives"
    cost = exposed_of(f"{words} below half of link bandwidth", ops)
    reached = evidence(
        "of link bandwidth", 1.0 - lost / total_exposed(ops), "share", "computed",
        "Σ time × achieved ÷ possible ÷ Σ time", OPS, keys(ops),
    )  # fmt: skip
    text = say(
        "{} that expose {} {} reach {} of link bandwidth{}", words.capitalize(), cost, facts.base, reached, lines(ops)
    )
    steps, cores = len(facts.profile.steps), facts.profile.device.measured_cores
    if steps and cores:
        count = sum(op.op.occurrences for op in ops) / (steps * cores)
        often = evidence(
            "of these per step and core", count, "count", "computed", "Σ occurrences ÷ (steps × cores)", OPS, keys(ops)
        )
        text += say("; there are {} per step", often)
    flags = Advice()
    if are_small:
        text += ". Messages this small are latency-bound: hops, not bandwidth, set their time."
        flags = advise(facts, ("small_collectives",), "combine")
        action = f"Combine small collectives of the same kind, or fuse those within a layer.{flags.after}"
    else:
        text += (
            ". They are large enough to be bandwidth-bound, so they are waiting for a straggler or for another axis "
            "on the same links."
        )
        action = (
            "Compare when each core enters these collectives: a late core is a straggler. If all enter together, "
            "look for a concurrent collective on the same links, or an axis mapped to shared links or links without "
            "wraparound."
        )
    return claim(
        facts, "low_link_bandwidth",
        "Latency-bound small collectives" if are_small else "Low link-bandwidth utilisation", text, action, lost,
        ops=ops, part=BELOW_LINKS, axis=costliest_axis_of(ops), advice=(COMBINE_SMALL,) if are_small else (),
        flags=flags.flags, flags_source=flags.source,
    )  # fmt: skip
