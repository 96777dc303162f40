"""What stands over the single costs: little to gain, too little recorded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from diagnosis.analyzer.facts import Facts, total_share
from diagnosis.analyzer.quantity import OPS, count_of, share_of
from diagnosis.analyzer.rules.base import Claim, claim, lines, time_of
from diagnosis.report import Finding
from experiments.sentences import say


def little_to_gain(facts: Facts, findings: Sequence[Finding]) -> Iterator[Claim]:
    """The truth when it is so: matmuls near the peak take the step, and nothing else costs much."""
    if not facts.recording.meets(("most ops", "roofline")):
        return
    matmuls = [op for op in facts.ops if op.limit == "compute" and op.efficiency is not None and not op.collective]
    share = total_share(matmuls)
    if share < 0.70 or any((one.saving_share or 0.0) >= 0.10 for one in findings):
        return
    mean = sum(op.share * (op.efficiency or 0.0) for op in matmuls) / share
    if mean < 0.65:
        return
    cost = time_of("compute-bound ops", matmuls)
    reached = share_of("their mean efficiency", mean, "Σ time × efficiency ÷ Σ time", source="roofline")
    outside = share_of("all but compute-bound ops", max(0.0, 1.0 - share), "1 − share of compute-bound ops")
    yield claim(
        facts, "little_to_gain", "Little headroom left in sharding",
        say("Compute-bound ops take {} {} and run at {} of peak FLOP/s{}.", cost, facts.base, reached, lines(matmuls)),
        "Keep the current configuration. The remaining levers are in the matmuls: lower precision, better kernels, "
        "or fewer FLOPs (less recompute, a smaller model).",
        None, ops=matmuls,
        impact=say("A better mesh saves at most the {} that is not compute-bound.", outside),
    )  # fmt: skip


def record_more(facts: Facts) -> Iterator[Claim]:
    """What this profile cannot tell, and what to record next time."""
    wants = facts.recording.missing
    if not wants:
        return
    # Idle time is known no better.
    listed = share_of("listed ops' share of op time", round(facts.coverage, 4), "Σ time share")
    count = count_of("ops in the profile", len(facts.ops), OPS)
    lacking = [want.what for want in wants]
    text = say(
        "The profile contains {} ops that account for {} of op time. Missing: {}.", count, listed, "; ".join(lacking)
    )
    yield claim(
        facts, "record_more", "Missing profile data", text, " ".join(want.action for want in wants),
        None, impact="Raises the confidence of the diagnosis; saves no time by itself.",
    )  # fmt: skip
