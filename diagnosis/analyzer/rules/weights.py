"""Weights: exposed all-gathers, gradient reductions, replicated weights, matmuls that read whole weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from diagnosis.analyzer.breakdown import axis_label
from diagnosis.analyzer.facts import Facts, OpFacts, total_exposed, total_share
from diagnosis.analyzer.quantity import evidence
from diagnosis.analyzer.rules.base import (
    EXPOSED,
    SHARD_WEIGHTS,
    TENSOR_AXIS,
    WORTH_SAYING,
    Claim,
    claim,
    costliest_axis_of,
    exposed_of,
    lines,
    seconds_of,
    time_of,
)
from diagnosis.analyzer.rules.flags import Advice, advise, causes_of
from diagnosis.analyzer.rules.links import bandwidth_text, gather_intensity, tokens_per_chip
from diagnosis.analyzer.statement import bar_words
from experiments.sentences import say

#: Matmuls bound by HBM from this part of op time on say that weights are read whole for too few tokens.
STREAMED = 0.10
#: Axes over which whole weights are sharded or repeated; experts are split over their own.
WEIGHT_ROLES = {"data", "fsdp", "replica", "seq"}


def _moves(op: OpFacts, *tensors: str) -> bool:
    return bool(op.collective and op.collective.tensor in tensors)


def _over(ops: tuple[OpFacts, ...]) -> str:
    """`` over the data and seq axes``: where the ops run, named as the breakdown's bars; of several the costliest."""
    costs: dict[str, float] = {}
    for op in (op for op in ops if op.axes):
        costs[axis_label(op)] = costs.get(axis_label(op), 0.0) + op.share
    if not costs:
        return ""
    return f"{', mostly' if len(costs) > 1 else ''} over {bar_words(max(costs, key=lambda bar: costs[bar]))}"


def fsdp_gathers(facts: Facts) -> Iterator[Claim]:
    """Exposed all-gathers of fully sharded weights, and reduce-scatters of their gradients (book 5.1)."""
    if facts.config is None or facts.config.training.weight_sharding != "fsdp":
        return
    ops = facts.where(
        lambda op: (
            not op.over_dcn
            and bool(facts.roles(op))
            and facts.roles(op) <= WEIGHT_ROLES
            and (
                _moves(op, "parameters")
                or (_moves(op, "gradients") and op.collective is not None and op.collective.kind == "reduce-scatter")
            )
        )
    )
    share = total_exposed(ops)
    gathers = total_share(op for op in ops if _moves(op, "parameters"))
    if share < WORTH_SAYING or gathers <= 0:
        return
    cost = exposed_of("exposed weight all-gathers and gradient reduce-scatters", ops)
    per_step = seconds_of(facts, "their time per step", share, ops)
    sent = bandwidth_text(ops)
    text = say("FSDP all-gathers of weights and reduce-scatters of gradients expose {} {}", cost, facts.base)
    text += say(" ({} per step){}.{}", per_step, lines(ops), sent) if per_step else say("{}.{}", lines(ops), sent)
    widest = max(ops, key=lambda op: op.share)
    tokens, intensity = tokens_per_chip(facts), gather_intensity(facts, widest.axes)
    flags = advise(facts, causes_of(ops))
    action = "Raise the batch per chip, or add a small TP axis so that each chip gathers fewer bytes"
    if tokens is not None and intensity is not None:
        each = evidence(
            "tokens per chip", tokens, "count", "computed", "global batch × sequence ÷ chips", "configuration"
        )
        need = evidence(
            "tokens per chip that hide an all-gather on these axes",
            intensity,
            "count",
            "computed",
            "peak FLOP/s ÷ all-gather bandwidth of the axes",
            "scaling book 5.1, chips.toml",
        )
        if tokens < intensity:
            text += say(
                " At {} tokens per chip, matmuls are too short to hide an all-gather, which takes about {}.", each, need
            )
            flags = Advice()  # what compute is too short for, no schedule hides
        else:
            text += say(
                " {} tokens per chip suffice to hide them (about {} needed): the schedule leaves them exposed.",
                each,
                need,
            )
            action = "Prefetch the next layer's weights during the current layer"
    yield claim(
        facts, "fsdp_gathers_exposed", "Exposed FSDP all-gathers", text, f"{action}.{flags.after}", share,
        ops=ops, part=EXPOSED, axis=costliest_axis_of(ops), flags=flags.flags, flags_source=flags.source,
    )  # fmt: skip


def gradient_reduction(facts: Facts) -> Iterator[Claim]:
    """Exposed gradient all-reduces of replicated weights over batch axes."""
    ops = facts.where(
        lambda op: (
            _moves(op, "gradients")
            and not op.over_dcn
            and op.collective is not None
            and op.collective.kind == "all-reduce"
        )
    )
    share = total_exposed(ops)
    if share < WORTH_SAYING:
        return
    cost = exposed_of("exposed gradient all-reduces", ops)
    sent = bandwidth_text(ops)
    flags = advise(facts, causes_of(ops))
    sharded = facts.config is not None and facts.config.training.weight_sharding == "fsdp"
    shard = (
        "The weights are configured as fully sharded, but their gradients are all-reduced: check the gradient "
        "sharding, since a reduce-scatter moves half the bytes of an all-reduce. "
        if sharded
        else "Shard the optimizer state over that axis (zero1): a reduce-scatter moves half the bytes here, and the "
        "gather of the updated weights can overlap with the next forward pass. "
    )
    yield claim(
        facts, "gradient_reduction", "Exposed gradient all-reduce",
        say("Gradient all-reduces{} expose {} {}{}.{}", _over(ops), cost, facts.base, lines(ops), sent),
        f"Overlap them layer by layer with the backward pass. {shard}A larger batch or more gradient accumulation "
        f"amortises them over more tokens.{flags.after}",
        share, ops=ops, part=EXPOSED, axis=costliest_axis_of(ops),
        advice=() if sharded else (SHARD_WEIGHTS,), flags=flags.flags, flags_source=flags.source,
    )  # fmt: skip


def _above_compute(ops: Iterable[OpFacts]) -> float:
    """Time of HBM-bound ops above what their arithmetic would take: splitting weights does not remove FLOPs."""
    return sum(op.share * (1.0 - min(1.0, op.op.compute_efficiency or 0.0)) for op in ops)


def _unsplit(facts: Facts) -> bool:
    """Whether no axis of the mesh splits the layers' weights by itself."""
    config = facts.config
    return config is not None and config.hardware.chips >= 2 and config.mesh.size("model", "expert", "pipeline") <= 1


def _hbm_matmuls(facts: Facts) -> tuple[OpFacts, ...]:
    """Elementwise ops stream activations, however the weights lie; a matmul bound by HBM streams weights."""
    return facts.where(lambda op: op.family == "matmul" and op.limit == "hbm" and op.limit_source == "roofline")


def replicated_weights(facts: Facts) -> Iterator[Claim]:
    """Every chip holds and updates the whole model: what that costs in updates and in HBM traffic.

    Reductions of gradients are no part of it: with sharded weights they become reduce-scatters beside gathers of the
    weights, half as many bytes again (book 5.2).
    """
    config = facts.config
    if config is None or not _unsplit(facts) or config.training.weight_sharding == "fsdp":
        return
    hbm = _hbm_matmuls(facts)
    none = config.training.weight_sharding == "none"
    updates = facts.where(lambda op: not op.collective and op.module == "optimizer") if none else ()
    chips = config.hardware.chips
    saved = total_share(updates) * (1.0 - 1.0 / chips) + _above_compute(hbm)
    if saved < WORTH_SAYING:
        return
    count = evidence("chips", float(chips), "count", "measured", source="configuration")
    text = (
        say("Weights, gradients and optimizer state are replicated on all {} chips.", count)
        if none
        else say(
            "Under ZeRO-1, weights and gradients are replicated on all {} chips; only the optimizer state is sharded.",
            count,
        )
    )
    action = ""
    if updates:
        cost = time_of("updates of full weights", updates)
        text += say(" Every chip updates all of them, {} {}.", cost, facts.base)
        action = "Shard the optimizer state or the weights over the batch axes (zero1, fsdp): each chip updates a part."
    if total_share(hbm) >= WORTH_SAYING:
        bound = time_of("HBM-bound matmuls", hbm)
        text += say(" HBM-bound matmuls, which read full weights, take {}.", bound)
        action += f"{' ' if action else ''}Add a tensor axis, so that each chip reads only a part of every weight."
    advice = ((SHARD_WEIGHTS,) if updates else ()) + ((TENSOR_AXIS,) if "tensor axis" in action else ())
    yield claim(
        facts, "replicated_weights", "Weights replicated on every chip", text, action, saved,
        ops=(*updates, *hbm), advice=advice,
    )  # fmt: skip


def whole_weight_matmuls(facts: Facts) -> Iterator[Claim]:
    """Fully sharded weights are gathered whole for every matmul: with few tokens per chip HBM bounds those."""
    config = facts.config
    if config is None or not _unsplit(facts) or config.training.weight_sharding != "fsdp":
        return
    hbm = _hbm_matmuls(facts)
    least = 0.0 if facts.thin else WORTH_SAYING
    if not hbm or total_share(hbm) < max(least, STREAMED * total_share(facts.ops)):
        return
    chips = evidence("chips", float(config.hardware.chips), "count", "measured", source="configuration")
    bound = time_of("HBM-bound matmuls", hbm)
    streaming = facts.where(
        lambda op: op.collective is not None and not op.over_dcn and (op.op.roofline_efficiency or 0.0) >= 0.05
    )
    text = say(
        "No tensor axis splits the layers over the {} chips: HBM-bound matmuls, which read full layer "
        "weights for few tokens, take {} {}{}.",
        chips,
        bound,
        facts.base,
        lines(hbm),
    )
    if total_exposed(streaming) >= WORTH_SAYING:
        cost = exposed_of("collectives that stream full weights through HBM", streaming)
        text += say(" Collectives of full weights or gradients expose another {}.", cost)
    else:
        streaming = ()
    yield claim(
        facts, "whole_weight_matmuls", "HBM-bound matmuls read full weights", text,
        "Trade part of a batch or sequence axis for a tensor axis, so that each chip reads only a part of every "
        "weight, for more tokens; or raise the tokens per chip.",
        total_exposed(streaming) + _above_compute(hbm), ops=(*streaming, *hbm), advice=(TENSOR_AXIS,),
    )  # fmt: skip
