"""Collectives that nothing hides: by the tensors they move and the axes they run on, and all of them together."""

from __future__ import annotations

from collections.abc import Iterator

from diagnosis.analyzer.breakdown import axis_label
from diagnosis.analyzer.facts import Facts, OpFacts, hidden_part, keys, total_exposed, total_share
from diagnosis.analyzer.links import dcn_bytes_per_s
from diagnosis.analyzer.quantity import count_of, evidence, share_of
from diagnosis.analyzer.rules.base import (
    SMALLER_TENSOR_AXIS,
    WORTH_SAYING,
    Claim,
    claim,
    costliest_axis_of,
    exposed,
    exposed_of,
    leading,
    time_of,
)
from diagnosis.analyzer.rules.links import bandwidth, bandwidth_text, gather_intensity, largest_width, tokens_per_chip
from diagnosis.analyzer.statement import bar_words
from experiments.sentences import join, say

#: Axes over which whole weights are sharded or repeated; experts are split over their own.
WEIGHT_ROLES = {"data", "fsdp", "replica", "seq"}
#: Roles of axes whose collectives run in every layer, tensor first.
EVERY_LAYER = ("model", "expert", "seq")
#: A hidden share from here on prints as all of it, which would contradict the finding.
MOSTLY_HIDDEN = 0.995
#: Below it, start and done stand together, as in a synchronous collective.
HARDLY_HIDDEN = 0.05
#: Exposed time of start ops from this share of the step is worth naming.
LEAST_START = 0.005


def _moves(op: OpFacts, *tensors: str) -> bool:
    return bool(op.collective and op.collective.tensor in tensors)


def _is(op: OpFacts, kind: str) -> bool:
    return op.collective is not None and op.collective.kind == kind


def _over(ops: tuple[OpFacts, ...]) -> str:
    """`` over the data and seq axes``: where the ops run, named as the breakdown's bars; of several the costliest."""
    costs: dict[str, float] = {}
    for op in (op for op in ops if op.axes):
        costs[axis_label(op)] = costs.get(axis_label(op), 0.0) + op.share
    if not costs:
        return ""
    return f"{', mostly' if len(costs) > 1 else ''} over {bar_words(max(costs, key=lambda bar: costs[bar]))}"


def tensor_parallel(facts: Facts) -> Iterator[Claim]:
    """Collectives on a tensor axis, which move activations in every layer and direction (book 5.2).

    What also crosses slices waits for DCN, on whatever axes it runs inside a slice.
    """
    ops = facts.where(lambda op: bool(op.collective) and not op.over_dcn and "model" in facts.roles(op))
    # Of several axes with the role, the one that carries most.
    used = [axis for op in ops for axis in op.axes if facts.role_of(axis) == "model"]
    busiest = max(used, key=lambda axis: total_exposed(op for op in ops if axis in op.axes), default=None)
    name, size = busiest or facts.axis_of("model") or "model", facts.axis_size("model")
    more = bandwidth_text(ops)
    # Tensor parallelism is bound by the links where Y > F × W_ici ÷ C (book 5.2), per torus axis.
    width = largest_width(facts)
    if width is not None and 1 <= width < size:
        limit = evidence(
            "largest tensor axis that the links support", width, "", "computed",
            "d_ff × W_ici ÷ peak FLOP/s, one torus axis", "scaling book 5.2",
        )  # fmt: skip
        more += say(
            " Tensor parallelism this wide is bound by link bandwidth: on this chip, the links "
            "support at most about {} chips per axis.",
            limit,
        )
    smaller = evidence("half of it", size / 2, "count", "computed", "size ÷ 2", "configuration")
    yield from exposed(
        facts, "tensor_parallel_communication", f"Exposed communication on `{name}`", ops,
        say("Collectives over the {} chips of axis `{}`", count_of(f"size of axis {name}", size), name),
        say(
            "Reduce `{}` to {} in favour of a batch axis, if weights and activations still fit; otherwise map"
            " it to the fastest torus dimension with wraparound and overlap its collectives with the adjacent"
            " matmuls (collective matmul).", name, smaller),
        label=f"exposed collectives on axis {name}", more="." + more, axis=name,
        advice=SMALLER_TENSOR_AXIS,
    )  # fmt: skip


def fsdp_gathers(facts: Facts) -> Iterator[Claim]:
    """Exposed all-gathers of fully sharded weights, and reduce-scatters of their gradients (book 5.1)."""
    if facts.configured.training.weight_sharding != "fsdp":
        return
    ops = facts.where(
        lambda op: (
            not op.over_dcn
            and bool(facts.roles(op))
            and facts.roles(op) <= WEIGHT_ROLES
            and (_moves(op, "parameters") or (_moves(op, "gradients") and _is(op, "reduce-scatter")))
        )
    )
    if not any(_moves(op, "parameters") for op in ops):
        return
    more = "." + bandwidth_text(ops)
    tokens = tokens_per_chip(facts)
    intensity = gather_intensity(facts, max(ops, key=lambda op: op.share).axes)
    action = "Raise the batch per chip, or add a small TP axis so that each chip gathers fewer bytes."
    if tokens is not None and intensity is not None:
        each = evidence(
            "tokens per chip", tokens, "count", "computed", "global batch × sequence ÷ chips", "configuration"
        )
        need = evidence(
            "tokens per chip that hide an all-gather on these axes", intensity, "count", "computed",
            "peak FLOP/s ÷ all-gather bandwidth of the axes", "scaling book 5.1, chips.toml",
        )  # fmt: skip
        if tokens < intensity:
            more += say(
                " At {} tokens per chip, matmuls are too short to hide an all-gather, which takes about {}.", each, need
            )
        else:
            more += say(
                " {} tokens per chip suffice to hide them (about {} needed): the schedule leaves them exposed.",
                each,
                need,
            )
            action = "Prefetch the next layer's weights during the current layer."
    gathers, scatters = "all-gathers of weights", "reduce-scatters of gradients"
    named = f"{gathers} and {scatters}" if any(_moves(op, "gradients") for op in ops) else gathers
    yield from exposed(
        facts, "fsdp_gathers_exposed", "Exposed FSDP all-gathers", ops, f"FSDP {named}", action,
        label=f"exposed {named}", more=more,
    )  # fmt: skip


def gradient_reduction(facts: Facts) -> Iterator[Claim]:
    """Exposed gradient all-reduces of replicated weights over batch axes."""
    ops = facts.where(lambda op: _moves(op, "gradients") and not op.over_dcn and _is(op, "all-reduce"))
    sharded = facts.config is not None and facts.config.training.weight_sharding == "fsdp"
    shard = (
        "The weights are configured as fully sharded, but their gradients are all-reduced: check the gradient "
        "sharding, since a reduce-scatter moves half the bytes of an all-reduce. "
        if sharded
        else "Shard the optimizer state over that axis (zero1): a reduce-scatter moves half the bytes here, and the "
        "gather of the updated weights can overlap with the next forward pass. "
    )
    yield from exposed(
        facts, "gradient_reduction", "Exposed gradient all-reduce", ops, f"Gradient all-reduces{_over(ops)}",
        f"Overlap them layer by layer with the backward pass. {shard}A larger batch or more gradient accumulation "
        "amortises them over more tokens.",
        label="exposed gradient all-reduces", more="." + bandwidth_text(ops),
    )  # fmt: skip


def sequence_parallel(facts: Facts) -> Iterator[Claim]:
    """Collectives of a sequence axis that attention does not hide: the exchange of keys and values (ring permutes,
    gathers, all-to-alls), and the all-reduce of their gradients.
    """
    ops = facts.where(
        lambda op: op.collective is not None and facts.roles(op) == {"seq"}
        and _moves(op, "keys and values", "activations")
    )  # fmt: skip
    reduced = tuple(op for op in ops if _is(op, "all-reduce") and op.phase == "backward")
    exchanged = tuple(op for op in ops if op not in reduced)
    attention = facts.where(lambda op: op.module == "attention" and not op.collective)
    for some, title, what, remedy in (
        (exchanged, "Exposed KV exchange", "Transfers of keys, values and activations",
         "Double-buffer the KV exchange so that attention on one block hides the transfer of the next"),
        (reduced, "Exposed all-reduce of KV gradients", "All-reduces of the gradients of keys and values",
         "Reduce-scatter them instead, which moves half the bytes, and overlap them with the backward pass of the "
         "layer below"),
    ):  # fmt: skip
        costliest = costliest_axis_of(some)
        axis = "seq" if costliest in (None, "dcn") else costliest
        more = "." + bandwidth_text(some)
        if attention:
            more += say(" Attention itself takes {}: ", time_of("attention compute", attention))
            hides = total_share(attention) > total_exposed(some)
            more += "long enough to hide the transfers." if hides else "too short to hide all of them."
        yield from exposed(
            facts, "sequence_parallel_exposed", f"{title} on `{axis}`", some, f"{what} along `{axis}`",
            f"{remedy}, or reduce `{axis}` in favour of a batch axis.",
            label=f"collectives of attention on axis {axis}", more=more,
        )  # fmt: skip


def expert_dispatch(facts: Facts) -> Iterator[Claim]:
    """Report all-to-alls that carry tokens to their experts and back, and collectives beside them on an expert axis."""
    ops = facts.where(
        lambda op: _moves(op, "expert dispatch") or (_is(op, "all-to-all") and "expert" in facts.roles(op))
    )
    more = ""
    if sent := bandwidth(ops):
        achieved, possible = sent
        slow = (achieved.value or 0.0) < 0.5 * (possible.value or 0.0)
        more = say(". They reach {} of {} link bandwidth", achieved, possible)
        more += ": chips wait for the one with the most tokens, or the messages are too small." if slow else "."
    yield from exposed(
        facts, "expert_all_to_all", "Exposed expert all-to-all", ops, "Expert dispatch and combine all-to-alls",
        "Reduce the expert axis or map it to the fastest links, overlap dispatch with the shared expert or the "
        "attention of another micro-batch, and check the load-balancing loss and capacity factor for imbalance.",
        label="exposed expert all-to-alls", more=more,
    )  # fmt: skip


def embedding_exchange(facts: Facts) -> Iterator[Claim]:
    """Report all-to-alls of a recommender: looked-up rows travel from the ranks that hold the tables."""
    yield from exposed(
        facts, "embedding_exchange", "Exposed exchange of embedding rows",
        facts.where(lambda op: _is(op, "all-to-all")), "All-to-alls between the ranks that hold the embedding tables",
        "Exchange the next batch's rows while the dense layers of this one run, balance the tables over the ranks, and "
        "send rows in lower precision.",
        label="all-to-alls of embedding rows",
    )  # fmt: skip


def exposed_dcn(facts: Facts) -> Iterator[Claim]:
    """Time the step waits for DCN, and whether more than gradients crosses it (book 5.4)."""
    ops = facts.where(lambda op: op.over_dcn)
    more = "."
    if rate := dcn_bytes_per_s(facts.config):
        row = evidence(
            "DCN bandwidth per chip", rate, "bytes_per_s", "computed", "host network ÷ chips per host", "chips.toml"
        )
        more += say(" Each chip's share of its host's DCN bandwidth is {}.", row)
    title = "Exposed DCN gradient all-reduce"
    action = (
        "Overlap the reduction over DCN with the backward pass, reduce-scatter within the slice first so that only "
        "a shard crosses DCN, or accumulate gradients over more micro-batches."
    )
    other = [op for op in ops if op.collective and not _moves(op, "gradients", "scalars", "")]
    if total_exposed(other) >= WORTH_SAYING:
        title = "Exposed DCN communication"
        part = exposed_of("of it, not gradients", other)
        more += say(" Of this, {} is not gradient traffic and recurs in every layer.", part)
        action = "Keep only gradient traffic (replica or data axes) on DCN and every other axis on ICI. " + action
    yield from exposed(
        facts, "exposed_dcn", title, ops, "Collectives between slices", action,
        label="exposed collectives over DCN", more=more, axis="dcn",
    )  # fmt: skip


def stalled_collectives(facts: Facts) -> Iterator[Claim]:
    """Asynchronous collectives: the time of their start ops, and what is waited in their done ops."""
    ops = facts.where(lambda op: op.collective is not None and op.collective.part != "sync")
    lead = leading(facts, ops, 0.1) or (facts.thin and total_exposed(ops) >= 0.1 * total_share(facts.ops))
    starts = tuple(op for op in ops if op.collective and op.collective.part == "start")
    more, action = ".", ""
    if total_exposed(starts) >= LEAST_START:
        part = exposed_of("of it, in their start ops", starts)
        more = say(", {} of it in their start ops, which run on the core.", part)
        action = "Nothing hides the time in start ops: make these collectives fewer or smaller. "
    hidden = hidden_part(ops)
    if hidden is not None and hidden < MOSTLY_HIDDEN:
        row = evidence(
            "hidden share of time in flight", hidden, "share", "measured",
            "1 − Σ exposed ÷ Σ time from start to done", "intervals of the trace", keys(ops),
        )  # fmt: skip
        more += (
            say(" Other ops hide {} of the time they are in flight: each is awaited as soon as it starts.", row)
            if hidden < HARDLY_HIDDEN
            else say(" They start early and other ops hide {} of the time they are in flight, but not the rest.", row)
        )
    yield from exposed(
        facts, "async_collective_waits", "Asynchronous collectives not fully hidden", ops, "Asynchronous collectives",
        f"{action}Start them earlier (more compute between start and done), or move fewer bytes over that axis.",
        label="exposed asynchronous collectives", more=more, least=0.0 if lead else WORTH_SAYING,
    )  # fmt: skip


def unplaced_collectives(facts: Facts) -> Iterator[Claim]:
    """Collectives that lead the profile without a known axis: no HLO text, or no configuration."""
    ops = facts.where(lambda op: op.collective is not None and not op.axes and not op.over_dcn)
    share, listed = total_exposed(ops), total_share(facts.ops)
    kinds = list(dict.fromkeys(op.collective.kind for op in ops if op.collective))
    more = ""
    if facts.thin and listed:
        part = share_of("of the time of the listed ops", share / listed, "Σ self time ÷ Σ self time")
        more = say(", {} of the time of the listed ops", part)
    more += ". The profile does not report their mesh axis"
    action = (
        "Record a full XSpace: its HLO text lists the replica groups of each collective, and so the costliest axis."
        if facts.of_xla
        else "Record one trace per rank with the ranks of each process group, so that collectives have an axis."
    )
    if facts.config is None:
        action = "Add a configuration with the run's mesh, so that each collective can be attributed to an axis."
    advice = ""
    if role := next((role for role in EVERY_LAYER if facts.axis_of(role)), None):
        name = facts.axis_of(role)
        chips = count_of(f"size of axis {name}", facts.axis_size(role))
        more += say("; of the axes in use, {} ({} chips) communicates in every layer", name, chips)
        if role == "model":
            advice = SMALLER_TENSOR_AXIS
            action = (
                f"Reduce the {name} axis in favour of a batch axis: tensor-parallel collectives run in every layer, "
                "forward and backward; gradient reductions run once per step. " + action
            )
    count = count_of("such ops", len(ops), "op profile")
    yield from exposed(
        facts, "collectives_of_unknown_axis", "Collectives on an unknown mesh axis", ops,
        say("{} collectives ({})", count, ", ".join(kinds[:4])), action,
        label="collectives without a known axis", more=more + ".", advice=advice,
        least=0.0 if facts.thin and share >= 0.3 * listed else 0.03,
    )  # fmt: skip


def all_communication(facts: Facts) -> Iterator[Claim]:
    """Report all exposed collectives together: what hiding or removing every one of them could give."""
    ops = facts.collectives
    bars = {bar: value for bar, value in facts.shares.items() if bar.startswith("ici") or bar == "dcn"}
    share = sum(bars.values())
    if share < 0.05 or max(bars.values()) > 0.95 * share:
        return  # one axis alone: its own rule says it
    total = share_of("exposed collectives", share, "Σ exposed time of collectives ÷ step time", ops)
    largest = sorted(bars, key=lambda bar: -bars[bar])[:4]
    rows = [
        share_of(f"collectives on {bar_words(bar)}", bars[bar], "Σ exposed time ÷ step time",
                 [op for op in ops if axis_label(op) == bar])
        for bar in largest
    ]  # fmt: skip
    parts = (say("{} on {}", row, bar_words(bar)) for row, bar in zip(rows, largest, strict=True))
    yield claim(
        facts, "exposed_communication", "Exposed communication on several axes",
        say("Collectives expose {} {}: {}.", total, facts.base, join(", ", parts)),
        "Start with the costliest axis: reduce it, map it to faster links, or overlap it; a different sharding "
        "saves at most all of this time.",
        share, ops=ops,
    )  # fmt: skip
