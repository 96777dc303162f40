"""HBM: elementwise chains, data shuffles, capacity."""

from __future__ import annotations

from collections.abc import Iterator

from diagnosis.analyzer.facts import Facts, total_share
from diagnosis.analyzer.quantity import evidence
from diagnosis.analyzer.rules.base import finding, lines, seconds_of, time_of
from diagnosis.report import Evidence, Finding

NOTABLE_CHAIN = 0.10
NOTABLE_SHUFFLE = 0.05
NEAR_CAPACITY = 0.90


def elementwise_chains(facts: Facts) -> Iterator[Finding]:
    """Elementwise and reduction ops that stream tensors through HBM for little arithmetic (book 1, 4.4)."""
    ops = facts.where(
        lambda op: (
            not op.collective
            and op.family in ("elementwise", "reduction", "custom call")
            and op.limit == "hbm"
            and op.module != "optimizer"
            and (op.limit_source == "roofline" or (op.family != "custom call" and not facts.has_roofline))
        )
    )
    share = total_share(ops)
    if share < NOTABLE_CHAIN:
        return
    cost = time_of(facts, "HBM-bound elementwise and reduction ops", ops)
    count = evidence("such ops", float(len(ops)), "count", "measured", source="op profile")
    rows: list[Evidence | None] = [cost, count]
    measured = facts.has_roofline
    bound = "bound by HBM bandwidth" if measured else "(taken to be memory-bound, no roofline was recorded)"
    text = f"{count} elementwise and reduction ops {bound} take {cost} {facts.base}{lines(ops)}."
    timed = [op for op in ops if op.op.hbm_bytes_per_s and op.op.self_time_s]
    peak = facts.profile.device.peak_hbm_bytes_per_s
    if timed and peak:
        time = sum(op.op.self_time_s for op in timed)
        rate = sum((op.op.hbm_bytes_per_s or 0.0) * op.op.self_time_s for op in timed) / time
        reached = evidence(
            "HBM bandwidth they reach", rate / peak, "share", "computed", "Σ rate × time ÷ Σ time ÷ peak", "op profile"
        )
        rows.append(reached)
        text += f" They reach {reached} of the HBM peak: "
        text += "only fewer bytes make them faster." if rate > 0.6 * peak else "they also leave bandwidth unused."
    yield finding(
        facts,
        "hbm_bound_elementwise",
        "Elementwise chains stream through memory",
        text,
        "Keep chains fusible (no layout change or sharding constraint between them), keep activations in bf16, "
        "use fused "
        "kernels for norm, rotary embedding, softmax and loss, and shard the activations of these ops further.",
        rows,
        share,
    )


def optimizer_update(facts: Facts) -> Iterator[Finding]:
    """The optimizer's pass over weights and moments."""
    ops = facts.where(lambda op: not op.collective and op.module == "optimizer")
    share = total_share(ops)
    if share < 0.05:
        return
    cost = time_of(facts, "optimizer update", ops)
    yield finding(
        facts,
        "optimizer_update",
        "The optimizer update takes much of the step",
        f"Updating weights and moments takes {cost} {facts.base}{lines(ops)}; it reads and writes every state "
        "once and grows "
        "with what each chip holds, not with the batch.",
        "Shard the optimizer state over all batch axes, accumulate more tokens per update, or hold moments in "
        "fewer bytes.",
        [cost],
        share,
    )


def data_shuffle(facts: Facts) -> Iterator[Finding]:
    """Copies, transposes, reshapes, slices, pads: bytes moved for layout alone."""
    ops = facts.where(lambda op: not op.collective and op.family == "data movement")
    share = total_share(ops)
    if share < NOTABLE_SHUFFLE:
        return
    cost = time_of(facts, "copies, transposes and other data movement", ops)
    per_step = seconds_of(facts, "its time per step", share, ops)
    yield finding(
        facts,
        "data_shuffle",
        "Data is moved only to change its layout",
        f"Copies, transposes, slices and pads take {cost} "
        f"{facts.base}{f' ({per_step} per step)' if per_step else ''}{lines(ops)}.",
        "Keep one layout from producer to consumer (einsum with the axes in the order of use, jit with AUTO "
        "layouts), donate "
        "buffers, and avoid concatenations and slices inside the layer loop.",
        [cost, per_step],
        share,
    )


def near_capacity(facts: Facts) -> Iterator[Finding]:
    """Memory near capacity: the next larger batch will not fit, and the compiler may recompute or spill."""
    share = facts.kpis.get("memory_peak_share")
    peak = facts.profile.memory.peak_bytes
    if share is None or peak is None or share < NEAR_CAPACITY:
        return
    used = evidence("peak memory", peak, "bytes", "measured", source="memory profile")
    part = evidence("of capacity", share, "share", "computed", "peak ÷ capacity", "memory profile")
    yield finding(
        facts,
        "memory_near_capacity",
        "Device memory is nearly full",
        f"Peak memory of the worst core is {used}, {part} of its capacity: there is no room for a larger batch or "
        "for keeping "
        "more activations.",
        "Shard weights or optimizer further, recompute or offload more activations, or use more micro-batches before "
        "anything that needs memory.",
        [used, part],
        None,
        impact="A limit on other changes rather than a cost of its own: it forbids meshes that keep more on each chip.",
    )
