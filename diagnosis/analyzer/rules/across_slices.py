"""Collectives over the network between slices."""

from __future__ import annotations

from collections.abc import Iterator

from diagnosis.analyzer.facts import Facts, total_share
from diagnosis.analyzer.links import dcn_bytes_per_s
from diagnosis.analyzer.quantity import evidence
from diagnosis.analyzer.rules.base import WORTH_SAYING, finding, lines, time_of
from diagnosis.report import Evidence, Finding


def exposed_dcn(facts: Facts) -> Iterator[Finding]:
    """Time the step waits for DCN, and whether more than gradients crosses it (book 5.4)."""
    ops = facts.where(lambda op: op.over_dcn)
    share = total_share(ops)
    if share < WORTH_SAYING or facts.config is None:
        return
    cost = time_of(facts, "collectives that cross slices", ops)
    rows: list[Evidence | None] = [cost]
    text = f"Collectives that cross slices take {cost} {facts.base} in the open{lines(ops)}."
    rate = dcn_bytes_per_s(facts.config)
    if rate:
        row = evidence(
            "network bandwidth per chip", rate, "bytes_per_s", "computed", "host network ÷ chips per host", "chips.toml"
        )
        rows.append(row)
        text += f" A chip's share of its host's network is {row}."
    other = [op for op in ops if op.collective and op.collective.tensor not in ("gradients", "scalars", "")]
    action = (
        "Overlap the reduction over slices with the backward pass, reduce inside the slice first so that only a shard "
        "crosses, or accumulate gradients over more micro-batches."
    )
    if total_share(other) >= WORTH_SAYING:
        row = time_of(facts, "of it not gradients", other)
        rows.append(row)
        text += f" Of it {row} moves something other than gradients, which happens in every layer."
        action = "Keep only replica (gradient) traffic between slices: put every other axis on ICI. " + action
    yield finding(facts, "exposed_dcn", "Collectives between slices are exposed", text, action, rows, share, axis="dcn")
