"""Matmuls and kernels: MXU or tensor-core utilisation, padding, attention, recomputation, what no cost model covers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import ceil, prod

from diagnosis.analyzer.facts import Facts, OpFacts, total_share
from diagnosis.analyzer.quantity import OPS, count_of, evidence, share_of
from diagnosis.analyzer.rules.base import (
    WORTH_SAYING,
    Claim,
    claim,
    leading,
    lines,
    time_of,
)
from experiments.hlo import text as hlo
from experiments.sentences import say
from perfmodel import accounting

LOW_EFFICIENCY = 0.50
PADDING = 0.10
#: Attention kernels that never write the scores, by their names: FlashAttention, Splash, Transformer Engine, cuDNN.
_FUSED_ATTENTION = re.compile(r"flash|splash|fused_attn|fused_attention|fmha|cudnn", re.I)
#: Ops whose shapes are read; they come by descending time.
MOST_OPS = 3000


def low_efficiency(facts: Facts) -> Iterator[Claim]:
    """Matmuls that are bound by compute yet run far below the peak."""
    ops = facts.where(
        lambda op: (
            not op.collective
            and op.limit == "compute"
            and op.family in ("matmul", "attention kernel", "custom call")
            and op.efficiency is not None
            and op.efficiency < LOW_EFFICIENCY
            and op.limit_source == "roofline"
        )
    )
    lost = sum(op.share * (1.0 - (op.efficiency or 0.0)) for op in ops)
    if not ops or (lost < WORTH_SAYING and not facts.thin):
        return
    cost = time_of("compute-bound ops below half of the peak", ops)
    mean = sum(op.share * (op.efficiency or 0.0) for op in ops) / total_share(ops)
    reached = share_of("their mean efficiency", mean, "Σ time × efficiency ÷ Σ time", ops, "roofline")
    worst = max(ops, key=lambda op: op.share * (1.0 - (op.efficiency or 0.0)))
    own = evidence(
        f"efficiency of {worst.op.name}", worst.efficiency, "share", "measured", "", "roofline", (worst.key,)
    )
    unit = "tensor-core" if facts.on_gpu else "MXU"
    yield claim(
        facts, "low_matrix_efficiency", f"Matmuls far below peak {unit} utilisation",
        say(
            "Compute-bound ops below half of the peak take {} {} and average {} of peak FLOP/s; the "
            "costliest, {}, reaches {}{}.", cost, facts.base, reached, worst.op.name, own, lines(ops)),
        "Give each chip larger matmuls: more rows per chip (batch or sequence shard) or a smaller tensor axis; fuse "
        "matmuls that share an input, and tune the kernel's block sizes.",
        lost, ops=ops,
    )  # fmt: skip


def unaligned_shapes(facts: Facts) -> Iterator[Claim]:
    """Dimensions that the MXU pads: FLOPs spent on zeros."""
    if facts.chip is None or not facts.chip.matrix_tile:
        return
    unit = facts.chip.matrix_tile
    padded: list[tuple[OpFacts, float, tuple[int, ...]]] = []
    for op in facts.ops[:MOST_OPS]:
        if op.family == "matmul" and not op.collective and op.limit == "compute" and op.op.hlo:
            waste, dims = padding_waste(op.op.hlo, unit)
            # An op that does more useful FLOPs than its shapes seem to leave room for is not padded as they suggest:
            # the fusion reads other operands, or XLA folds dimensions.
            if waste >= PADDING and (op.efficiency is None or waste <= 1.0 - op.efficiency):
                padded.append((op, waste, dims))
    lost = sum(op.share * waste for op, waste, _ in padded)
    if lost < WORTH_SAYING:
        return
    ops = tuple(op for op, _, _ in padded)
    worst, waste, dims = max(padded, key=lambda item: item[0].share * item[1])
    cost = time_of("matmuls with padded dimensions", ops)
    formula = "1 − Π size ÷ padded size over features and contraction, at most 1 − measured efficiency"
    part = share_of(f"padded FLOPs of {worst.op.name}", waste, formula, (worst,))
    edge = count_of("edge of an MXU tile", unit, "chips.toml")
    size = evidence(
        f"dimension of {worst.op.name}", float(dims[0]), "count", "measured", source="HLO shapes", ops=(worst.key,)
    )
    yield claim(
        facts, "unaligned_shapes", "Matmul dimensions padded to MXU tiles",
        say(
            "Matmuls with a dimension that is not a multiple of {} take {} {}; {} has a dimension of {} per "
            "chip and spends up to {} of its FLOPs on padding{}.", edge, cost, facts.base,
            worst.op.name, size, part, lines(ops)),
        "Reduce the tensor axis so that heads and features per chip fill whole tiles, or choose widths whose shards "
        "are multiples of the tile.",
        lost, ops=ops,
    )  # fmt: skip


def padding_waste(line: str, unit: int) -> tuple[float, tuple[int, ...]]:
    """(share of the unit's FLOPs on padding, the dimensions at fault, smallest first) of one matmul.

    The last two dimensions of the two largest operands are features and contraction; a dimension of many tiles wastes
    little and does not count.
    """
    instruction = hlo.parse(line)
    if instruction is None:
        return 0.0, ()
    arrays = sorted(
        (shape for shape in instruction.operands if len(shape.dims) >= 2), key=lambda shape: -prod(shape.dims)
    )[:2]
    if len(arrays) < 2:
        return 0.0, ()
    sizes = {size for shape in arrays for size in shape.dims[-2:] if 1 < size}
    faulty = sorted(size for size in sizes if size % unit and size < 4 * unit)
    filled = 1.0
    for size in faulty:
        filled *= size / (ceil(size / unit) * unit)
    return 1.0 - filled, tuple(faulty)


def attention_dominates(facts: Facts) -> Iterator[Claim]:
    """Attention over a long sequence outweighs the layers' matmuls (book 4.3: beyond about 8 × d_model tokens)."""
    # What only moves data there is the layout's cost, not attention's.
    ops = facts.where(lambda op: op.module == "attention" and not op.collective and op.family != "data movement")
    core = [
        op for op in ops if op.family == "attention kernel" or "softmax" in op.path or "flash" in op.op.name.lower()
    ] or list(ops)
    share = total_share(core)
    if share < 0.30:
        return
    cost = time_of("attention", core)
    text = say("Attention takes {} {}{}.", cost, facts.base, lines(core))
    model = facts.config.model if facts.config else None
    seq = facts.config.training.seq_len if facts.config else None
    if model and seq:
        flops = accounting.forward_flops(model, seq)
        of_flops = flops.attention_scores / flops.total
        part = share_of(
            "attention scores in the model's FLOPs", of_flops, "score FLOPs ÷ forward FLOPs", source="scaling book 4.3"
        )
        length = count_of("sequence length", seq)
        text += say(" At {} tokens, attention scores are {} of the model's FLOPs", length, part)
        text += (
            ", so most of this time is inherent to the sequence length."
            if share < 2 * of_flops
            else ", far below their share of the time: the kernel is slow, and the sequence length is not the cause."
        )
    fused = total_share(op for op in core if _FUSED_ATTENTION.search(op.op.name) or _FUSED_ATTENTION.search(op.path))
    already = fused >= 0.5 * share
    kernel = (
        "The attention kernel is already fused: tune its block sizes for this chip"
        if already
        else "Use a fused attention kernel with block sizes tuned for this chip"
    )
    yield claim(
        facts, "attention_dominates", "Attention dominates the step", text,
        f"{kernel}, skip masked blocks, split heads or sequence over more chips, or use sliding-window layers where "
        "the model allows it.",
        share, ops=core,
    )  # fmt: skip


def recompute(facts: Facts) -> Iterator[Claim]:
    """Activations recomputed in the backward pass although memory could hold them."""
    ops = facts.where(lambda op: op.phase == "recompute")
    share = total_share(ops)
    # What the configuration says is recomputed nowhere is no choice that could be taken back.
    if share < 0.05 or (facts.config is not None and facts.config.training.remat == "none"):
        return
    used = facts.kpis.get("memory_peak_share")
    if used is not None and used >= 0.85:
        return
    cost = time_of("recomputed forward ops", ops)
    text = say(
        "Rematerialisation recomputes forward ops in the backward pass for {} {}{}", cost, facts.base, lines(ops)
    )
    action = "Save the outputs of the large matmuls (`remat: minimal`), or all activations if they fit"
    if used is not None and used <= 1.0:
        part = share_of("peak memory ÷ capacity", used, "peak ÷ capacity", source="memory profile")
        text += say(", while memory peaks at {} of capacity: more is recomputed than memory requires.", part)
        action += "."
    else:
        text += "; no memory peak was recorded, so the headroom for saving more is unknown."
        action += "; record a memory profile to see the headroom."
    yield claim(
        facts, "recompute", "High rematerialisation overhead", text, action, share, ops=ops,
    )  # fmt: skip


def _opaque(op: OpFacts) -> bool:
    unlabelled = (op.op.bound_by or "unknown").strip().lower() in ("unknown", "none", "-", "")
    return not op.collective and "custom" in op.category and unlabelled and not op.efficiency


def opaque_custom_calls(facts: Facts) -> Iterator[Claim]:
    """Custom calls without recorded FLOPs or bytes: their time is known, their efficiency is not."""
    ops = facts.where(_opaque)
    share = total_share(ops)
    is_notable = share >= 0.03 or leading(facts, ops, 0.25) or (facts.thin and share >= 0.2 * total_share(facts.ops))
    if not ops or not is_notable:
        return
    cost = time_of("custom calls without a cost model", ops)
    count = count_of("such ops", len(ops), OPS)
    words = ("transpose", "p2p", "point-to-point", "copy", "permute")
    moves = [op for op in ops if any(word in op.op.name.lower() for word in words)]
    text = say(
        "{} custom calls without recorded FLOPs or bytes take {} {}, the largest {}{}.", count, cost, facts.base,
        ops[0].op.name, lines(ops),
    )  # fmt: skip
    if moves:
        part = time_of("of it, data movement by op name", moves)
        text += say(" By op name, {} is data movement (communication or layout) rather than compute.", part)
    yield claim(
        facts, "opaque_custom_calls", "Custom calls without a cost model", text,
        "Compare the largest with the FLOPs its shapes imply: library kernels report none to XLA."
        if facts.on_gpu
        else "Give these kernels a cost estimate (pl.CostEstimate for Pallas) so that the roofline covers them, and "
        "profile the largest by itself.",
        None, ops=ops,
        impact="The potential saving is unknown until these kernels report FLOPs and bytes.",
    )  # fmt: skip
