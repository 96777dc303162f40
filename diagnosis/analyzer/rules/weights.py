"""Weights: replicated ones, and matmuls that read whole ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from diagnosis.analyzer.facts import Facts, OpFacts, total_exposed, total_share
from diagnosis.analyzer.quantity import count_of
from diagnosis.analyzer.rules.base import (
    TENSOR_AXIS,
    WORTH_SAYING,
    Claim,
    claim,
    exposed_of,
    lines,
    time_of,
)
from experiments.sentences import say

#: Matmuls bound by HBM from this part of op time on say that weights are read whole for too few tokens.
STREAMED = 0.10


def _above_compute(ops: Iterable[OpFacts]) -> float:
    """Time of HBM-bound ops above what their arithmetic would take: splitting weights does not remove FLOPs."""
    return sum(op.share * (1.0 - min(1.0, op.op.compute_efficiency or 0.0)) for op in ops)


def _unsplit(facts: Facts) -> bool:
    """Whether no axis of the mesh splits the layers' weights by itself."""
    config = facts.configured
    return config.hardware.chips >= 2 and config.mesh.size("model", "expert", "pipeline") <= 1


def _hbm_matmuls(facts: Facts) -> tuple[OpFacts, ...]:
    """Elementwise ops stream activations, however the weights lie; a matmul bound by HBM streams weights."""
    return facts.where(lambda op: op.family == "matmul" and op.limit == "hbm" and op.limit_source == "roofline")


def replicated_weights(facts: Facts) -> Iterator[Claim]:
    """Every chip holds and updates the whole model: what that costs in updates and in HBM traffic.

    Reductions of gradients are no part of it: with sharded weights they become reduce-scatters beside gathers of the
    weights, half as many bytes again (book 5.2).
    """
    config = facts.configured
    if not _unsplit(facts) or config.training.weight_sharding == "fsdp":
        return
    hbm = _hbm_matmuls(facts)
    none = config.training.weight_sharding == "none"
    updates = facts.where(lambda op: not op.collective and op.module == "optimizer") if none else ()
    chips = config.hardware.chips
    saved = total_share(updates) * (1.0 - 1.0 / chips) + _above_compute(hbm)
    if saved < WORTH_SAYING:
        return
    count = count_of("chips", chips)
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
    advice = TENSOR_AXIS if total_share(hbm) >= WORTH_SAYING else ""
    if advice:
        bound = time_of("HBM-bound matmuls", hbm)
        text += say(" HBM-bound matmuls, which read full weights, take {}.", bound)
        action += f"{' ' if action else ''}Add a tensor axis, so that each chip reads only a part of every weight."
    yield claim(
        facts, "replicated_weights", "Weights replicated on every chip", text, action, saved,
        ops=(*updates, *hbm), advice=advice,
    )  # fmt: skip


def whole_weight_matmuls(facts: Facts) -> Iterator[Claim]:
    """Fully sharded weights are gathered whole for every matmul: with few tokens per chip HBM bounds those."""
    config = facts.configured
    if not _unsplit(facts) or config.training.weight_sharding != "fsdp":
        return
    hbm = _hbm_matmuls(facts)
    least = 0.0 if facts.thin else WORTH_SAYING
    if not hbm or total_share(hbm) < max(least, STREAMED * total_share(facts.ops)):
        return
    chips = count_of("chips", config.hardware.chips)
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
        total_exposed(streaming) + _above_compute(hbm), ops=(*streaming, *hbm), advice=TENSOR_AXIS,
    )  # fmt: skip
