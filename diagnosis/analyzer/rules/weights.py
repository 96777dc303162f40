"""Weights: gathers not hidden, gradient reductions, replicated weights and optimizer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from diagnosis.analyzer.breakdown import axis_label
from diagnosis.analyzer.facts import Facts, OpFacts, total_share
from diagnosis.analyzer.quantity import evidence
from diagnosis.analyzer.rules.base import WORTH_SAYING, finding, lines, seconds_of, time_of
from diagnosis.analyzer.rules.wires import bandwidth, gather_intensity, tokens_per_chip
from diagnosis.analyzer.statement import bar_words
from diagnosis.report import Evidence, Finding

#: Products bound by HBM from this part of op time on say that weights are read whole for too few tokens.
STREAMED = 0.10
BATCH_ROLES = {"data", "fsdp", "replica", "seq"}


def _moves(op: OpFacts, *tensors: str) -> bool:
    return bool(op.collective and op.collective.tensor in tensors)


def _axis(ops: tuple[OpFacts, ...]) -> str | None:
    costs: dict[str, float] = {}
    for op in ops:
        for axis in op.axes:
            costs[axis] = costs.get(axis, 0.0) + op.share
    return max(costs, key=lambda axis: costs[axis]) if costs else None


def _over(ops: tuple[OpFacts, ...]) -> str:
    """`` over the data and seq axes``: where the ops run, named as the breakdown's bars; of several the costliest."""
    costs: dict[str, float] = {}
    for op in (op for op in ops if op.axes):
        costs[axis_label(op)] = costs.get(axis_label(op), 0.0) + op.share
    if not costs:
        return ""
    return f"{', mostly' if len(costs) > 1 else ''} over {bar_words(max(costs, key=lambda bar: costs[bar]))}"


def fsdp_gathers(facts: Facts) -> Iterator[Finding]:
    """Parameter gathers (and gradient scatters) of fully sharded weights that the step waits for (book 5.1)."""
    if facts.config is None or facts.config.training.weight_sharding != "fsdp":
        return
    ops = facts.where(
        lambda op: (
            not op.over_dcn
            and bool(facts.roles(op))
            and facts.roles(op) <= BATCH_ROLES
            and (
                _moves(op, "parameters")
                or (_moves(op, "gradients") and op.collective is not None and op.collective.kind == "reduce-scatter")
            )
        )
    )
    share = total_share(ops)
    gathers = total_share(op for op in ops if _moves(op, "parameters"))
    if share < WORTH_SAYING or gathers <= 0:
        return
    axis = _axis(ops)
    cost = time_of(facts, "exposed parameter gathers and gradient scatters", ops)
    per_step = seconds_of(facts, "their time per step", share, ops)
    rows: list[Evidence | None] = [cost, per_step]
    text = (
        f"Gathers of sharded weights and scatters of their gradients that the step waits for take {cost} {facts.base}"
    )
    text += f" ({per_step} per step){lines(ops)}." if per_step else f"{lines(ops)}."
    if sent := bandwidth(ops):
        rows += [*sent]
        text += f" They reach {sent[0]} of the {sent[1]} these wires could give."
    widest = max(ops, key=lambda op: op.share)
    tokens, intensity = tokens_per_chip(facts), gather_intensity(facts, widest.axes)
    if tokens is not None and intensity is not None:
        each = evidence(
            "tokens per chip", tokens, "count", "computed", "global batch × sequence ÷ chips", "configuration"
        )
        need = evidence(
            "tokens per chip that hide a gather on these axes",
            intensity,
            "count",
            "computed",
            "peak FLOP/s ÷ gather bandwidth of the axes",
            "scaling book 5.1, chips.toml",
        )
        rows += [each, need]
        if tokens < intensity:
            text += f" With {each} tokens per chip, products are too short to hide a gather, which needs about {need}."
        else:
            text += (
                f" With {each} tokens per chip (about {need} are enough) they could be hidden: the schedule "
                "leaves them "
                "exposed."
            )
    yield finding(
        facts,
        "fsdp_gathers_exposed",
        "Gathers of sharded weights are not hidden",
        text,
        "Raise the batch per chip, or add a small tensor axis so that each chip gathers less; where the batch per chip "
        "suffices, turn on the latency-hiding scheduler and asynchronous collectives so that the gather of the next "
        "layer runs behind this one.",
        rows,
        share,
        axis=axis,
    )


def gradient_reduction(facts: Facts) -> Iterator[Finding]:
    """Gradient all-reduces of replicated weights over batch axes that the step waits for."""
    ops = facts.where(
        lambda op: (
            _moves(op, "gradients")
            and not op.over_dcn
            and op.collective is not None
            and op.collective.kind == "all-reduce"
        )
    )
    share = total_share(ops)
    if share < WORTH_SAYING:
        return
    axis = _axis(ops)
    cost = time_of(facts, "gradient all-reduces", ops)
    rows: list[Evidence | None] = [cost]
    text = f"Gradient all-reduces{_over(ops)} take {cost} {facts.base}{lines(ops)}."
    if sent := bandwidth(ops):
        rows += [*sent]
        text += f" They reach {sent[0]} of the {sent[1]} these wires could give."
    yield finding(
        facts,
        "gradient_reduction",
        "Gradient all-reduces are not hidden behind the backward pass",
        text,
        "Overlap them layer by layer with the backward pass, or shard weights and optimizer over that axis: a "
        "reduce-scatter moves half of what an all-reduce moves. A larger batch or more gradient accumulation spreads "
        "them over more tokens.",
        rows,
        share,
        axis=axis,
    )


def _above_compute(ops: Iterable[OpFacts]) -> float:
    """Time of HBM-bound ops above what their arithmetic would take: splitting weights does not remove FLOPs."""
    return sum(op.share * (1.0 - min(1.0, op.op.compute_efficiency or 0.0)) for op in ops)


def replicated_weights(facts: Facts) -> Iterator[Finding]:
    """Every chip works with the whole model: no tensor axis, and what that costs in HBM and in reductions."""
    config = facts.config
    if config is None or config.hardware.chips < 2 or config.mesh.size("model", "expert", "pipeline") > 1:
        return
    sharded = config.training.weight_sharding
    # Elementwise ops stream activations, however the weights lie; a product bound by HBM streams weights.
    hbm = facts.where(lambda op: op.family == "matmul" and op.limit == "hbm" and op.limit_source == "roofline")
    optimizer = facts.where(lambda op: not op.collective and op.module == "optimizer")
    reductions = facts.where(
        lambda op: (
            op.collective is not None
            and not op.over_dcn
            and (
                op.collective.tensor in ("gradients", "parameters")
                or (op.collective.kind in ("all-reduce", "collective") and not op.collective.tensor)
            )
        )
    )
    fully_replicated = sharded == "none"
    if fully_replicated:
        cost_ops = {op.key: op for op in (*reductions, *optimizer)}
    elif sharded == "zero1":
        cost_ops = {op.key: op for op in reductions}
    else:
        # Sharded at rest: replication shows as whole tensors streamed through HBM, by products above all.
        cost_ops = {op.key: op for op in reductions if (op.op.roofline_efficiency or 0.0) >= 0.05}
        if total_share(hbm) < STREAMED * total_share(facts.ops):
            return
    share = sum(op.share for op in cost_ops.values())
    chips = evidence("chips", float(config.hardware.chips), "count", "measured", source="configuration")
    if (
        share + total_share(hbm) < WORTH_SAYING
        and not facts.thin
        and not (fully_replicated and (facts.kpis.get("memory_peak_share") or 0.0) > 0.6)
    ):
        return
    cost = time_of(facts, "collectives and optimizer work on whole weights", cost_ops.values())
    bound = time_of(facts, "products bound by HBM", hbm)
    rows: list[Evidence | None] = [chips, cost if cost_ops else None, bound]
    how = {
        "none": f"Weights, gradients and optimizer state are replicated on all {chips} chips",
        "zero1": f"Under zero1, weights and gradients lie whole on all {chips} chips (only the optimizer is sharded)",
    }.get(sharded, f"No axis splits the layers: each of the {chips} chips runs products with the whole weights")
    names = [axis for axis, size in config.mesh.ici if facts.role_of(axis) == "model"]
    axis = names[0] if names else None
    moved = "No recorded op reduces or moves them"
    if cost_ops:
        moved = f"Reducing and moving them takes {cost} {facts.base}"
    text = f"{how}{f' (axis {axis} is not used)' if axis else ''}. {moved}"
    text += (
        f", and {bound} goes to products that HBM bandwidth limits: they read the whole weights."
        if total_share(hbm) >= WORTH_SAYING
        else "."
    )
    yield finding(
        facts,
        "replicated_weights",
        "Weights are replicated on every chip",
        text,
        "Split the model: give chips of a batch or sequence axis to a tensor axis, so that each chip reads, "
        "reduces and "
        "updates a part of every weight"
        + ("." if sharded == "fsdp" else ", or shard weights and optimizer over the batch axes (fsdp)."),
        rows,
        share + _above_compute(op for op in hbm if op.key not in cost_ops),
        axis=axis,
    )
