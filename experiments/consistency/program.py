"""Infer layers, recomputation and precision of the program."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence

import formatting
from experiments.consistency.facts import Fact
from experiments.consistency.matmuls import Matmul
from experiments.consistency.names import short
from experiments.hlo import text as hlo_text
from experiments.passes import BACKWARD, FORWARD, RECOMPUTE, pass_of
from experiments.step_profile import Op, StepProfile

_LAYER = re.compile(r"\blayers?[_.](\d+)\b")
_LOOP = re.compile(r"(?:^|/)[^/]*while[^/]*/body(?=/|$)")
#: Below this share of the forward FLOPs, what is recomputed is not the matmuls.
_FULL = 0.5
_SOME = 0.01

#: Precisions of `training.precision` by the operands' element type.
_PRECISION = {
    "bf16": "bf16", "f16": "fp16", "f32": "fp32", "s8": "int8",
    "f8e4m3fn": "fp8", "f8e4m3": "fp8", "f8e5m2": "fp8", "f8e4m3fnuz": "fp8", "f8e5m2fnuz": "fp8",
}  # fmt: skip


def layers(profile: StepProfile, products: Sequence[Matmul]) -> Fact | str:
    """Layers per device (of one pipeline stage), or why that is unavailable.

    Scanned layers: how often an op of the loop's body runs for each time that an op outside it runs, times the layers
    that one iteration names; updates of stacked arrays must agree where there are any.  Unrolled: as many as are named.
    """
    named = [m for m in products if m.kind and m.op.op_name]
    depth = {m.op.key: len(_LOOP.findall(m.op.op_name)) for m in named}
    inside = [m for m in named if depth[m.op.key] == 1]
    if any(value > 1 for value in depth.values()):
        return "loops are nested: one of them may iterate over micro-batches"
    numbers = {match.group(1) for m in named if (match := _LAYER.search(m.op.op_name))}
    if not inside:
        if len(numbers) < 2:
            return "no loop over layers and no numbered layers in the framework paths"
        names = f"The paths of the matmuls name {len(numbers):,} layers."
        return Fact(len(numbers), f"{len(numbers):,}", (names,))
    trips = _stacked(profile)
    outside = [m for m in named if depth[m.op.key] == 0]
    ratio = None
    if outside:
        per_loop = Counter(m.op.occurrences for m in inside).most_common(1)[0][0]
        per_step = Counter(m.op.occurrences for m in outside).most_common(1)[0][0]
        ratio = round(per_loop / per_step) if abs(per_loop / per_step - round(per_loop / per_step)) < 0.02 else None
    if trips is None and ratio is None:
        return "the loop over layers does not run a whole number of times per recorded step"
    if trips is not None and ratio is not None and trips[0] != ratio:
        return f"stacked arrays have {trips[0]:,} entries, the loop runs {ratio:,} times per step"
    count = trips[0] if trips is not None else ratio
    per_iteration = max(1, len(numbers))
    evidence = []
    if ratio is not None:
        evidence.append(f"Ops in the loop over layers run {ratio:,} times for each op outside it.")
    if trips is not None:
        evidence.append(f"{short(trips[1].name)} updates one of {trips[0]:,} stacked layers.")
    if per_iteration > 1:
        evidence.append(f"Each iteration names {per_iteration:,} layers.")
    total = (count or 1) * per_iteration
    return Fact(total, f"{total:,}", tuple(evidence))


def _stacked(profile: StepProfile) -> tuple[int, Op] | None:
    """Entries of the arrays of which a loop over layers updates one per iteration, and such an op."""
    seen: Counter[int] = Counter()
    example: dict[int, Op] = {}
    for op in profile.ops:
        if "dynamic-update-slice(" not in op.hlo or len(_LOOP.findall(op.op_name)) != 1:
            continue
        instruction = hlo_text.parse(op.hlo)
        if instruction is None or len(instruction.operands) < 2:
            continue
        whole, part = instruction.operands[0].dims, instruction.operands[1].dims
        if len(whole) != len(part) or len(whole) < 3:
            continue
        differing = [size for size, one in zip(whole, part, strict=True) if size != one]
        if len(differing) == 1 and min(part) == 1:
            seen[differing[0]] += round(op.self_time_s * 1e12)
            example.setdefault(differing[0], op)
    if not seen:
        return None
    count, time = seen.most_common(1)[0]
    return (count, example[count]) if time > 0.6 * sum(seen.values()) else None


def remat(profile: StepProfile, products: Sequence[Matmul]) -> Fact | str:
    """`full`, `minimal` or `none`, or why that is unavailable.

    full: most of the forward matmuls run again in the backward pass, by name or by its matmul FLOPs (of the forward
    FLOPs, else of its time, where no matmul of readable shapes does); minimal: other ops do; none: a backward pass is
    named, and nothing in it as recomputed.
    """
    backward = [op for op in profile.ops if pass_of(op.op_name) == BACKWARD]
    if not backward:
        return "no op name belongs to a backward pass"
    again = [op for op in profile.ops if pass_of(op.op_name) == RECOMPUTE]
    share = sum(op.time_share for op in again)
    flops: defaultdict[str, float] = defaultdict(float)
    for m in products:
        flops[m.phase] += m.flops * m.op.occurrences
    if share < _SOME and not any(m.phase == RECOMPUTE for m in products):
        if not flops[FORWARD] or not flops[BACKWARD]:
            return "no matmul can be attributed to both passes"
        basis = [f"{len(backward):,} ops belong to the backward pass by name, none of them to recompute."]
        # Of every matmul there are two gradients; a compiled graph recomputes in its backward pass without saying so.
        if (times := flops[BACKWARD] / flops[FORWARD]) < 2.0 + _FULL:
            return Fact("none", "none", tuple(basis))
        basis.append(f"It has {times:.2g} times the forward matmul FLOPs, where gradients alone have twice.")
        return Fact("full", "full", tuple(basis), "computed")
    basis = [f"{formatting.share(share)} of the time is forward ops recomputed in the backward pass, by op name."]
    forward = [op for op in profile.ops if pass_of(op.op_name) == FORWARD]
    ahead = sum(op.time_share for op in forward)
    counted = sum(op.flops or 0.0 for op in forward)
    part = flops[RECOMPUTE] / flops[FORWARD] if flops[FORWARD] else 0.0
    if part:
        basis.append(f"They recompute {formatting.share(min(part, 1.0), 2)} of the forward matmul FLOPs.")
    elif counted:
        part = sum(op.flops or 0.0 for op in again) / counted
        basis.append(f"They recompute {formatting.share(min(part, 1.0), 2)} of the forward FLOPs.")
    elif ahead:
        part = share / ahead
        basis.append(f"They take {formatting.share(part, 2)} of the forward pass's time.")
    policy = "full" if part >= _FULL else "minimal"
    return Fact(policy, policy, tuple(basis), "computed" if flops[RECOMPUTE] else "likely")


def precision(products: Sequence[Matmul], on_cpu: bool) -> Fact | str:
    """Precision of the matmuls' operands, or why that is unavailable."""
    if on_cpu:
        return "on a CPU, XLA uses other precisions than on the chip"
    flops: Counter[str] = Counter()
    example: dict[str, Matmul] = {}
    for m in products:
        if (name := _PRECISION.get(m.dtype)) is not None:
            flops[name] += round(m.flops * m.op.occurrences)
            example.setdefault(name, m)
    if not flops:
        return "no matmul states the type of its operands" if products else "no matmuls with readable shapes"
    name, most = flops.most_common(1)[0]
    if most < 0.6 * sum(flops.values()):
        return "the matmuls use several precisions"
    part = most / sum(flops.values())
    first = example[name]
    what = f"{formatting.share(part, 2)} of the matmul FLOPs have {first.dtype} operands, e.g. {short(first.op.name)}."
    return Fact(name, name, (what,))
