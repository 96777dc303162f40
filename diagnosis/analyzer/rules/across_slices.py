"""Collectives over DCN."""

from __future__ import annotations

from collections.abc import Iterator

from diagnosis.analyzer.facts import Facts, total_exposed
from diagnosis.analyzer.links import dcn_bytes_per_s
from diagnosis.analyzer.quantity import evidence
from diagnosis.analyzer.rules.base import EXPOSED, WORTH_SAYING, Claim, claim, exposed_of, lines
from diagnosis.analyzer.rules.flags import advise, causes_of
from diagnosis.report import SourcedValue
from experiments.sentences import say


def exposed_dcn(facts: Facts) -> Iterator[Claim]:
    """Time the step waits for DCN, and whether more than gradients crosses it (book 5.4)."""
    ops = facts.where(lambda op: op.over_dcn)
    share = total_exposed(ops)
    if share < WORTH_SAYING or facts.config is None:
        return
    cost = exposed_of("exposed collectives over DCN", ops)
    text = say("Collectives between slices expose {} {}{}.", cost, facts.base, lines(ops))
    rate = dcn_bytes_per_s(facts.config)
    if rate:
        row = evidence(
            "DCN bandwidth per chip", rate, "bytes_per_s", "computed", "host network ÷ chips per host", "chips.toml"
        )
        text += say(" Each chip's share of its host's DCN bandwidth is {}.", row)
    other = [op for op in ops if op.collective and op.collective.tensor not in ("gradients", "scalars", "")]
    parts: list[SourcedValue] = []
    title = "Exposed DCN gradient all-reduce"
    action = (
        "Overlap the reduction over DCN with the backward pass, reduce-scatter within the slice first so that only "
        "a shard crosses DCN, or accumulate gradients over more micro-batches."
    )
    if total_exposed(other) >= WORTH_SAYING:
        row = exposed_of("of it, not gradients", other)
        parts.append(row)
        title = "Exposed DCN communication"
        text += say(" Of this, {} is not gradient traffic and recurs in every layer.", row)
        action = "Keep only gradient traffic (replica or data axes) on DCN and every other axis on ICI. " + action
    flags = advise(facts, causes_of(ops))
    yield claim(
        facts, "exposed_dcn", title, text, f"{action}{flags.after}", share, ops=ops, part=EXPOSED,
        axis="dcn", flags=flags.flags, flags_source=flags.source, parts=parts, whole=cost,
    )  # fmt: skip
