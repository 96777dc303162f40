"""Bandwidths and intensities that several rules speak of."""

from __future__ import annotations

from collections.abc import Iterable

from diagnosis.analyzer.facts import Facts, OpFacts, keys
from diagnosis.analyzer.links import mesh_links, wire_bytes
from diagnosis.analyzer.quantity import evidence
from diagnosis.report import SourcedValue
from experiments.sentences import say

ACHIEVED, POSSIBLE = "achieved bandwidth per chip", "link bandwidth per chip"
#: Below this a message is latency-bound on any of the chips (book 3.2: about a microsecond a
#: hop, 45 GB/s and more per link).
SMALL_BYTES = 1e6


def bandwidth(ops: Iterable[OpFacts]) -> tuple[SourcedValue, SourcedValue] | None:
    """(achieved, possible) bytes/s per chip over the synchronous collectives whose bytes and links are known."""
    timed = [
        op for op in ops if op.collective and op.collective.achieved_bytes_per_s and op.collective.possible_bytes_per_s
    ]
    if not timed:
        return None
    sent = time = least = 0.0
    for op in timed:
        collective = op.collective
        if (
            collective is None
            or not collective.payload_bytes
            or not collective.participants
            or not collective.possible_bytes_per_s
        ):
            continue
        moved = wire_bytes(collective.kind, collective.payload_bytes, collective.participants) * op.op.occurrences
        sent += moved
        time += op.op.self_time_s
        least += moved / collective.possible_bytes_per_s
    if time <= 0 or least <= 0:
        return None
    shown = keys(timed)
    achieved = evidence(
        ACHIEVED, sent / time, "bytes_per_s", "computed", "Σ bytes a chip must send ÷ Σ self time",
        "op profile and shapes", shown,
    )  # fmt: skip
    possible = evidence(
        POSSIBLE, sent / least, "bytes_per_s", "computed", "Σ bytes a chip must send ÷ Σ least time on these links",
        "chips.toml and topology", shown,
    )  # fmt: skip
    return achieved, possible


def bandwidth_text(ops: Iterable[OpFacts]) -> str:
    """`` They reach 25 GB/s of 45 GB/s link bandwidth.``; empty where unknown."""
    evidence = bandwidth(ops)
    if evidence is None:
        return ""
    return say(" They reach {} of {} link bandwidth.", *evidence)


def ici_intensity(facts: Facts) -> float | None:
    """Peak FLOP/s over the bytes/s of one torus axis both ways: FLOPs a chip can do per byte it sends (book 5.1)."""
    if facts.chip is None or facts.config is None or not facts.chip.ici_link_bytes_per_s:
        return None
    return facts.chip.peak(facts.config.training.precision) / (2.0 * facts.chip.ici_link_bytes_per_s)


def gather_intensity(facts: Facts, axes: tuple[str, ...]) -> float | None:
    """Tokens per chip whose matmuls take as long as gathering the weights over these axes (book 5.1, C ÷ W).

    W is what the links of these axes carry under this mesh: rings closed or not, several dimensions together.
    """
    if facts.chip is None or facts.config is None or not axes:
        return None
    mapped = mesh_links(facts.config.hardware, facts.config.mesh, axes)
    if mapped is None or mapped.links.gather_s_per_byte[0] <= 0:
        return None
    return facts.chip.peak(facts.config.training.precision) * float(mapped.links.gather_s_per_byte[0])


def largest_width(facts: Facts) -> float | None:
    """Chips per tensor axis at which its collectives take as long as the MLP's matmuls (book 5.2)."""
    intensity = ici_intensity(facts)
    if intensity is None or facts.config is None or facts.config.model is None:
        return None
    model = facts.config.model
    return (
        model.d_ff_expert * model.experts_per_token if model.experts and model.d_ff_expert else model.d_ff
    ) / intensity


def tokens_per_chip(facts: Facts) -> float | None:
    """Tokens per step and chip."""
    if facts.config is None or facts.config.training.global_batch_tokens is None:
        return None
    return facts.config.training.global_batch_tokens / facts.config.hardware.chips
