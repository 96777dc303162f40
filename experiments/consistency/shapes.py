"""Sizes of the model and of what a device works on, from matmuls and attention kernels."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from experiments.consistency.facts import Fact
from experiments.consistency.matmuls import LOGITS, MLP, Matmul
from experiments.consistency.names import short, short_path
from experiments.hlo import text as hlo_text
from experiments.step_profile import Op, StepProfile
from formatting import counted

_KERNEL = re.compile(r"splash|flash|fused_attn|fmha|dot_product_attention|sdpa|_mha_|ring_attention")
_HEAD_DIMS = range(32, 513)
#: Of the time of the matmuls of a known part of the layer, so much must have a pair of dimensions in common.
_COMMON = 0.6


@dataclass(frozen=True)
class Kernel:
    """Shapes of a fused attention kernel.  batch: None where the kernel runs over one sequence at a time."""

    op: Op
    batch: int | None
    heads: int
    kv_heads: int
    query_len: int
    kv_len: int
    head_dim: int

    @property
    def text(self) -> str:
        return f"{short(self.op.name)} attends {self.heads:,} heads of {self.head_dim:,} over {self.kv_len:,} tokens"


def sizes(profile: StepProfile, products: Sequence[Matmul]) -> tuple[dict[str, Fact], dict[str, str]]:
    """Facts by name, and why the others are unavailable."""
    facts: dict[str, Fact] = {}
    unavailable: dict[str, str] = {}
    kernel = attention_kernel(profile)
    if kernel is not None:
        facts |= _of_kernel(kernel)
    pair = _tokens_and_width(profile, products, kernel)
    if isinstance(pair, str):
        why = pair
        unavailable |= dict.fromkeys(("d_model", "tokens_per_device", "d_ff_per_device", "vocab_per_device"), why)
        return facts, unavailable
    tokens, width = pair
    known = [m for m in products if m.kind and m.other(pair) is not None]
    parts = ", ".join(sorted({m.kind for m in known}))
    basis = (f"All {parts} matmuls share {tokens:,} tokens and a width of {width:,}; {known[0].text}.",)
    facts["d_model"] = Fact(width, f"{width:,}", basis)
    facts["tokens_per_device"] = Fact(tokens, f"{tokens:,} tokens", basis)
    for name, kind in (("d_ff_per_device", MLP), ("vocab_per_device", LOGITS)):
        rest: Counter[int] = Counter()
        for m in known:
            if m.kind == kind and (size := m.other(pair)) is not None:
                rest[size] += round(m.op.self_time_s * 1e12)
        if rest:
            size = rest.most_common(1)[0][0]
            if kind == MLP and size % 2 == 0 and rest[size // 2]:  # a gate and its up-projection in one matmul
                size //= 2
            longest = next(m for m in known if m.kind == kind and m.other(pair) == size)
            facts[name] = Fact(size, f"{size:,}", (f"{longest.text} ({short_path(longest.op.op_name)}).",))
        else:
            unavailable[name] = f"no matmul belongs to the {kind} by name"
    facts |= _batch(profile, tokens, width, kernel)
    for name in ("batch_per_device", "seq_len_per_device"):
        if name not in facts:
            unavailable[name] = (
                "no [batch, sequence, width] array and no attention kernel identifies the token dimension"
            )
    return facts, unavailable


def _of_kernel(kernel: Kernel) -> dict[str, Fact]:
    basis = (f"{kernel.text}.",)
    facts = {
        "head_dim": Fact(kernel.head_dim, f"{kernel.head_dim:,}", basis),
        "heads_per_device": Fact(kernel.heads, f"{kernel.heads:,}", basis),
        "seq_len_per_device": Fact(kernel.query_len, f"{kernel.query_len:,} tokens", basis),
        "kv_len": Fact(kernel.kv_len, f"{kernel.kv_len:,} tokens", basis),
    }
    if kernel.kv_heads < kernel.heads:
        facts["kv_heads_per_device"] = Fact(kernel.kv_heads, f"{kernel.kv_heads:,}", basis)
    if kernel.batch is not None:
        facts["batch_per_device"] = Fact(kernel.batch, counted(kernel.batch, "sequence"), basis)
    return facts


def _tokens_and_width(profile: StepProfile, products: Sequence[Matmul], kernel: Kernel | None) -> tuple[int, int] | str:
    """(tokens, d_model) per device: the two dimensions that matmuls of different parts of the layer have in common.

    Which is which: an attention kernel tells the tokens; else activations are arrays whose one dimension is the width,
    and the others together the tokens.  A sentence why where that does not tell.
    """
    named = [m for m in products if m.kind]
    time: defaultdict[tuple[int, int], float] = defaultdict(float)
    parts: dict[tuple[int, int], set[str]] = defaultdict(set)
    total = sum(m.op.self_time_s for m in named)
    for m in named:
        a, b, c = m.dims
        for pair in {(a, b), (a, c), (b, c)}:
            time[pair] += m.op.self_time_s
            parts[pair].add(m.kind)
    several = [pair for pair in time if len(parts[pair]) > 1 and time[pair] >= _COMMON * total]
    if not several:
        if not products:
            return "no matmuls with readable shapes"
        return "no framework path names matmuls of two parts of a layer that share two dimensions"
    votes = {pair: _votes(profile, pair) for pair in several}
    low, high = max(several, key=lambda pair: (len(parts[pair]), time[pair], sum(votes[pair])))
    if low == high:
        return low, high
    if kernel is not None and kernel.batch is not None:
        tokens = kernel.batch * kernel.query_len
        if tokens in (low, high):
            return tokens, low + high - tokens
    as_low, as_high = votes[low, high]
    if max(as_low, as_high) == 0.0 or min(as_low, as_high) > 0.5 * max(as_low, as_high):
        return f"it is ambiguous which of {low:,} and {high:,} is tokens and which is width"
    return (high, low) if as_low > as_high else (low, high)


def _votes(profile: StepProfile, pair: tuple[int, int]) -> tuple[float, float]:
    """Seconds of ops with an activation array of width pair[0] and pair[1] tokens, and the other way round."""
    counts = [0.0, 0.0]
    for op in profile.ops:
        if "[" not in op.hlo:
            continue
        shapes = {shape.dims for shape in _arrays(op) if len(shape.dims) == 3}
        for at, (width, tokens) in enumerate((pair, pair[::-1])):
            if any(width in dims and prod(dims) == width * tokens for dims in shapes):
                counts[at] += op.self_time_s
    return counts[0], counts[1]


def _batch(profile: StepProfile, tokens: int, width: int, kernel: Kernel | None) -> dict[str, Fact]:
    """Sequences per device and tokens of each: from the kernel, else from activations [batch, sequence, width]."""
    if kernel is not None and tokens % kernel.query_len == 0:
        batch = tokens // kernel.query_len
        basis = (f"{kernel.text}; the matmuls work on {tokens:,} tokens.",)
        return {
            "batch_per_device": Fact(batch, counted(batch, "sequence"), basis),
            "seq_len_per_device": Fact(kernel.query_len, f"{kernel.query_len:,} tokens", basis),
        }
    if tokens == width:
        return {}  # a weight [heads, head_dim, width] looks the same, and so does its gradient
    seen: Counter[tuple[int, int]] = Counter()
    example: dict[tuple[int, int], Op] = {}
    for op in profile.ops:
        for shape in set(_arrays(op)):
            if len(shape.dims) == 3 and shape.dims[2] == width and shape.dims[0] * shape.dims[1] == tokens:
                key = shape.dims[0], shape.dims[1]
                seen[key] += round(op.self_time_s * 1e12)
                example.setdefault(key, op)
    if not seen:
        return {}
    batch, length = seen.most_common(1)[0][0]
    basis = (f"{short(example[batch, length].name)} holds activations [{batch:,}, {length:,}, {width:,}].",)
    return {
        "batch_per_device": Fact(batch, counted(batch, "sequence"), basis, "likely"),
        "seq_len_per_device": Fact(length, f"{length:,} tokens", basis, "likely"),
    }


def _arrays(op: Op) -> tuple[hlo_text.Shape, ...]:
    instruction = hlo_text.parse(op.hlo)
    return (*instruction.results, *instruction.operands) if instruction is not None else ()


def attention_kernel(profile: StepProfile) -> Kernel | None:
    """Shapes of the longest fused attention kernel; None where none is readable without doubt."""
    for op in profile.ops:
        instruction = hlo_text.parse(op.hlo) if op.hlo else None
        if instruction is None or instruction.opcode not in ("custom-call", "fusion"):
            continue
        if not _KERNEL.search(f"{op.name} {op.op_name} {hlo_text.custom_call_target(op.hlo)}".lower()):
            continue
        shapes = [kind for shape in _arrays(op) if (kind := _heads_and_tokens(shape.dims)) is not None]
        shapes = [kind for kind in shapes if kind[3] == shapes[0][3]]
        if shapes:
            queries = min(shapes, key=lambda kind: (kind[2], -kind[1]))
            heads = max(kind[1] for kind in shapes if kind[2] == queries[2])
            longest = max(kind[2] for kind in shapes)
            kv_heads = min(kind[1] for kind in shapes if kind[2] == longest)
            return Kernel(op, queries[0], heads, kv_heads, queries[2], longest, queries[3])
    return None


def _heads_and_tokens(dims: tuple[int, ...]) -> tuple[int | None, int, int, int] | None:
    """(batch, heads, tokens, head_dim) of an array of queries, keys or values; None where it is none.

    [batch, heads, tokens, head_dim] or with heads and tokens swapped, without batch, or with queries, keys and values
    in one array.  There are more tokens than heads.
    """
    if len(dims) == 5 and 3 in dims[1:4]:
        at = dims.index(3, 1)
        dims = dims[:at] + dims[at + 1 :]
    if len(dims) not in (3, 4) or dims[-1] not in _HEAD_DIMS:
        return None
    one, two = dims[-3], dims[-2]
    if one == two or max(one, two) < 128:
        return None
    return (dims[0] if len(dims) == 4 else None), min(one, two), max(one, two), dims[-1]
