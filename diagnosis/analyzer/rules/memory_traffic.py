"""HBM: elementwise chains, stacked gradients of scanned layers, data movement, capacity."""

from __future__ import annotations

from collections.abc import Iterator

from diagnosis.analyzer.facts import Facts, OpFacts, total_share
from diagnosis.analyzer.quantity import OPS, count_of, evidence, share_of
from diagnosis.analyzer.rules.base import Claim, claim, lines, time_of
from experiments.sentences import say

NOTABLE_CHAIN = 0.10
NOTABLE_SHUFFLE = 0.05
NEAR_CAPACITY = 0.90


def elementwise_chains(facts: Facts) -> Iterator[Claim]:
    """Elementwise and reduction ops that stream tensors through HBM for little arithmetic (book 1, 4.4)."""
    ops = facts.where(
        lambda op: (
            not op.collective
            and op.family in ("elementwise", "reduction", "custom call")
            and op.limit == "hbm"
            and op.module != "optimizer"
            and not _stacks(op)
            and (op.limit_source == "roofline" or (op.family != "custom call" and not facts.has_roofline))
        )
    )
    share = total_share(ops)
    if share < NOTABLE_CHAIN:
        return
    cost = time_of("HBM-bound elementwise and reduction ops", ops)
    count = count_of("such ops", len(ops), OPS)
    bound = "bound by HBM bandwidth" if facts.has_roofline else "(assumed HBM-bound, no roofline was recorded)"
    text = say("{} elementwise and reduction ops {} take {} {}{}.", count, bound, cost, facts.base, lines(ops))
    timed = [op for op in ops if op.op.hbm_bytes_per_s and op.op.self_time_s and op.efficiency is not None]
    peak = facts.profile.device.peak_hbm_bytes_per_s
    if timed and peak:
        time = sum(op.op.self_time_s for op in timed)
        rate = sum((op.op.hbm_bytes_per_s or 0.0) * op.op.self_time_s for op in timed) / time
        if rate <= peak:
            reached = share_of("HBM bandwidth they reach", rate / peak, "Σ rate × time ÷ Σ time ÷ peak")
            text += say(" They reach {} of peak HBM bandwidth: ", reached)
            text += (
                "only moving fewer bytes makes them faster."
                if rate > 0.6 * peak
                else "they also leave bandwidth unused."
            )
    yield claim(
        facts, "hbm_bound_elementwise", "Unfused elementwise ops are HBM-bound", text,
        "Keep chains fusible (no layout change or sharding constraint between them), keep activations in bf16, use "
        "fused kernels for norm, rotary embedding, softmax and loss, and shard the activations of these ops further.",
        share, ops=ops,
    )  # fmt: skip


def optimizer_update(facts: Facts) -> Iterator[Claim]:
    """The optimizer's pass over weights and moments."""
    ops = facts.where(lambda op: not op.collective and op.module == "optimizer")
    share = total_share(ops)
    if share < 0.05:
        return
    cost = time_of("optimizer update", ops)
    alone = (facts.recording.run_devices or facts.recording.devices) < 2
    sharded = alone or (facts.config is not None and facts.config.training.weight_sharding != "none")
    yield claim(
        facts, "optimizer_update", "Long optimizer update",
        say(
            "Updating weights and moments takes {} {}{}; it reads and writes every state once, so its time "
            "grows with the optimizer state per chip, not with the batch.", cost, facts.base, lines(ops)),
        ("" if sharded else "Shard the optimizer state over all batch axes. ")
        + "Accumulate more tokens per update, or store the moments in lower precision.",
        share, ops=ops,
    )  # fmt: skip


def _stacks(op: OpFacts) -> bool:
    """Whether an op writes one layer's tensor into the array that stacks those of all layers of a scan."""
    text = f"{op.category} {op.op.name} {op.path}".replace("_", "-")
    return not op.collective and op.family != "host transfer" and "dynamic-update-slice" in text


def stacked_layers(facts: Facts) -> Iterator[Claim]:
    """Tensors of scanned layers written slice by slice into stacked arrays: gradients, and saved activations."""
    ops = facts.where(_stacks)
    share = total_share(ops)
    if share < NOTABLE_SHUFFLE:
        return
    cost = time_of("dynamic-update-slice into stacked arrays", ops)
    backward = tuple(op for op in ops if op.phase in ("backward", "recompute"))
    text = say(
        "Writing tensors of scanned layers into stacked arrays (dynamic-update-slice) takes {} {}", cost, facts.base
    )
    if total_share(backward) >= 0.5 * share:
        row = time_of("of it in the backward pass", backward)
        text += say(", {} of it gradients in the backward pass", row)
    text += f"{lines(ops)}."
    timed = [op for op in ops if op.limit == "hbm" and op.efficiency is not None]
    if total_share(timed) >= 0.5 * share:
        mean = sum(op.share * (op.efficiency or 0.0) for op in timed) / total_share(timed)
        formula = "Σ time × efficiency ÷ Σ time"
        reached = share_of("HBM bandwidth by the recorded bytes", mean, formula, timed, "roofline")
        text += say(" From the recorded bytes, it reaches {} of peak HBM bandwidth", reached)
        text += (
            ": only moving fewer bytes makes it faster."
            if mean >= 0.6
            else ", so either whole arrays are copied or the writes are strided."
        )
    yield claim(
        facts, "stacked_layers", "HBM-bound stacking of scanned layers", text,
        "Unroll the scan over layers by a small factor (`unroll` of jax.lax.scan) so that fewer slices are written, "
        "keep stacked gradients in bf16, check that the stacked arrays are donated and updated in place (no copy "
        "beside the update), and save fewer activations per layer.",
        share, ops=ops,
    )  # fmt: skip


def data_shuffle(facts: Facts) -> Iterator[Claim]:
    """Copies, transposes, reshapes, slices, pads: bytes moved for layout alone."""
    ops = facts.where(lambda op: not op.collective and op.family == "data movement" and not _stacks(op))
    share = total_share(ops)
    if share < NOTABLE_SHUFFLE:
        return
    cost = time_of("copies, transposes and other data movement", ops)
    yield claim(
        facts, "data_shuffle", "High data-movement overhead",
        say("Copies, transposes, slices and pads take {} {}{}.", cost, facts.base, lines(ops)),
        "Keep one layout from producer to consumer (einsum with the axes in the order of use, jit with AUTO layouts), "
        "donate buffers, and avoid concatenations and slices inside the layer loop."
        if facts.of_xla
        else "Keep one layout from producer to consumer, fuse casts and permutes into the kernels beside them, and "
            "avoid "
        "concatenations and slices between layers.",
        share, ops=ops,
    )  # fmt: skip


def near_capacity(facts: Facts) -> Iterator[Claim]:
    """Memory near capacity: the next larger batch will not fit, and the compiler may recompute or spill."""
    share = facts.kpis.get("memory_peak_share")
    peak = facts.profile.memory.peak_bytes
    if share is None or peak is None or not NEAR_CAPACITY <= share <= 1.0:
        return
    used = evidence("peak memory", peak, "bytes", "measured", source="memory profile")
    part = share_of("of capacity", share, "peak ÷ capacity", source="memory profile")
    yield claim(
        facts, "memory_near_capacity", "HBM nearly full",
        say(
            "Peak memory of the fullest core is {}, {} of its capacity: there is no room for a larger batch "
            "or for keeping more activations.", used, part),
        "Shard weights or optimizer state further, recompute or offload more activations, or use more micro-batches "
        "before any change that needs memory.",
        None,
        impact="A constraint on other changes rather than a cost: it rules out meshes that need more memory per chip.",
    )  # fmt: skip
