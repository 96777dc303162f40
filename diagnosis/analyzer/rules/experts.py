"""Mixtures of experts: dispatch and imbalance."""

from __future__ import annotations

from collections.abc import Iterator

from diagnosis.analyzer.facts import Facts, OpFacts, keys, total_exposed, total_share
from diagnosis.analyzer.quantity import evidence
from diagnosis.analyzer.rules.base import (
    EXPOSED,
    OPS,
    WORTH_SAYING,
    Claim,
    claim,
    costliest_axis_of,
    exposed_of,
    lines,
    time_of,
)
from diagnosis.analyzer.rules.flags import advise, causes_of
from diagnosis.analyzer.rules.links import bandwidth
from experiments.sentences import say


def embedding_exchange(facts: Facts) -> Iterator[Claim]:
    """All-to-alls of a recommender: looked-up rows travel from the ranks that hold the tables."""
    if facts.recording.program != "recommender":
        return
    ops = facts.where(lambda op: op.collective is not None and op.collective.kind == "all-to-all")
    share = total_exposed(ops)
    if share < WORTH_SAYING:
        return
    cost = exposed_of("all-to-alls of embedding rows", ops)
    yield claim(
        facts, "embedding_exchange", "Exposed exchange of embedding rows",
        say("All-to-alls between the ranks that hold the embedding tables expose {} {}{}.", cost, facts.base,
            lines(ops)),
        "Exchange the next batch's rows while the dense layers of this one run, balance the tables over the ranks, and "
        "send rows in lower precision.",
        share, ops=ops, part=EXPOSED, axis=costliest_axis_of(ops),
    )  # fmt: skip


def expert_dispatch(facts: Facts) -> Iterator[Claim]:
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
    share = total_exposed(ops)
    if share < WORTH_SAYING:
        return
    cost = exposed_of("exposed expert all-to-alls", ops)
    text = say("Expert dispatch and combine all-to-alls expose {} {}{}.", cost, facts.base, lines(ops))
    sent = bandwidth(ops)
    if sent:
        achieved, possible = sent
        text += say(" They reach {} of {} link bandwidth", achieved, possible)
        slow = (achieved.value or 0.0) < 0.5 * (possible.value or 0.0)
        text += ": chips wait for the one with the most tokens, or the messages are too small." if slow else "."
    flags = advise(facts, causes_of(ops))
    yield claim(
        facts, "expert_all_to_all", "Exposed expert all-to-all", text,
        "Reduce the expert axis or map it to the fastest links, overlap dispatch with the shared expert or the "
        f"attention of another micro-batch, and check the load-balancing loss and capacity factor for imbalance."
        f"{flags.after}",
        share, ops=ops, part=EXPOSED, axis=costliest_axis_of(ops),
        flags=flags.flags, flags_source=flags.source,
    )  # fmt: skip


def _excess(facts: Facts, ops: tuple[OpFacts, ...]) -> tuple[float, float] | None:
    """(share of the step, mean time as a share) by which the fullest core exceeds the mean, op by op.

    Every op is followed by an exchange, so each waits for its own fullest core: the sum of the maxima counts.
    """
    cores = facts.profile.device.measured_cores
    timed = [op for op in ops if op.op.core_max_s is not None and op.op.core_count and op.op.self_time_s > 0]
    if not timed or cores < 2:
        return None
    mean = total_share(timed)
    most = sum(op.share * (op.op.core_max_s or 0.0) * (op.op.core_count or 0) / op.op.self_time_s for op in timed)
    return max(0.0, most - mean), mean


def expert_imbalance(facts: Facts) -> Iterator[Claim]:
    """Cores whose experts got more tokens than others': the rest wait for them in the exchange that follows."""
    experts = facts.where(lambda op: op.module == "experts" and not op.collective)
    excess_and_mean = _excess(facts, experts)
    if excess_and_mean is None or excess_and_mean[1] <= 0:
        return
    excess, mean = excess_and_mean
    other = facts.where(lambda op: op.module != "experts" and not op.collective and op.limit == "compute")
    usual = _excess(facts, other)
    # A core that is slow in everything is a straggler, not a full expert.
    general = usual[0] / usual[1] if usual and usual[1] > 0 else 0.0
    lost = excess - general * mean
    # What the others wait for shows in the exchange that follows.  A wait longer than that was not recorded as one.
    waits = facts.where(lambda op: op.collective is not None)
    if lost < WORTH_SAYING or lost > total_share(waits) + facts.shares.get("idle", 0.0) + WORTH_SAYING:
        return
    largest = max(experts, key=lambda op: op.share)
    load = evidence(
        "time on the most loaded core ÷ mean",
        1.0 + excess / mean,
        "speedup",
        "measured",
        "Σ longest time on a core ÷ Σ mean time over cores, expert ops",
        "intervals of the trace",
        keys(experts),
    )
    cost = time_of("expert ops", experts)
    wait = evidence(
        "waiting for the most loaded core",
        lost,
        "share",
        "computed",
        "Σ (longest − mean) ÷ step time, less the spread of other matmuls",
        OPS,
        keys(experts),
    )
    text = say(
        "Expert matmuls take {} {} on average and {} as long on the most loaded core{}; the others wait "
        "for it in the all-to-all that follows, {} {}.",
        cost,
        facts.base,
        load,
        lines(experts),
        wait,
        facts.base,
    )
    if largest.op.slowest_core:
        text += f" {largest.op.name} takes longest on {largest.op.slowest_core}."
    axes = (
        [axis for axis, size in facts.config.mesh.ici if facts.role_of(axis) == "expert" and size > 1]
        if (facts.config)
        else []
    )
    yield claim(
        facts, "expert_imbalance", "Expert load imbalance", text,
        "Raise the weight of the load-balancing loss or use a bias per expert, lower the capacity factor so that "
        "full experts drop or reroute tokens, and place experts that are often used together on different chips.",
        lost, ops=(*experts, *waits), stalls=("idle",), axis=axes[0] if axes else None,
    )  # fmt: skip
