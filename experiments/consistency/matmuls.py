"""The matmuls of a step: their three dimensions, from the sizes of the arrays that an op reads and writes.

Of ``[m,k] × [k,n] → [m,n]`` three array sizes give the three dimensions, whatever the layout, the batch dimensions in
front, and the other operands of a fusion: ``m² = |a|·|r| / |b|``.  Where FLOPs are recorded they tell which arrays are
meant.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, product
from math import isqrt, prod

from experiments.consistency.names import short
from experiments.hlo import text as hlo_text
from experiments.hlo.text import Shape
from experiments.passes import FORWARD, pass_of
from experiments.step_profile import Op, StepProfile

#: What a matmul belongs to, by the words of its framework path: MaxText, Flax, AXLearn, Hugging Face, Megatron.
ATTENTION, MLP, LOGITS = "attention", "mlp", "logits"
_KINDS = (
    (LOGITS, re.compile(r"logits|lm_?head|unembed|output_layer|\bloss\b.*(dot_general|matmul)|/attend/")),
    (ATTENTION, re.compile(r"attention|attn|qkv|[qkvo]_proj|/(query|key|value|out)/|linear_proj")),
    (MLP, re.compile(r"mlp|ffn|feed_?forward|/w[io](_\d)?/|(gate|up|down)_proj|linear_fc|dense_(h_to_4h|4h_to_h)")),
)
#: MoE layers route tokens, so neither their number nor the width of one matmul is known.
_ROUTED = re.compile(r"moe|expert|gmm|ragged")
_COLLECTIVE = re.compile(r"^(all-|reduce-scatter|collective|async-collective|send|recv)")
#: FLOPs of an op may be stated per core of a chip with two of them; fused elementwise work adds a little.
_STATED_PER_CORE = (1, 2)
_TOLERANCE = 0.05
_MOST_ARRAYS = 12
_NAMED = re.compile(r"^aten::\w+\[(\d+)x(\d+), (\d+)x(\d+)\]")
_SMALLEST = 8


@dataclass(frozen=True)
class Matmul:
    """One matmul op.  dims: its three dimensions, ascending (per device).  dtype: of the narrower operand, "" where
    none is stated.

    kind: ATTENTION (projections), MLP, LOGITS or "" where its path does not say.  phase: its pass
    (`experiments.passes`), forward where its path names none; "" without a path.  flops: 2·m·k·n of one occurrence.
    """

    op: Op
    dims: tuple[int, int, int]
    dtype: str
    kind: str
    phase: str

    @property
    def flops(self) -> float:
        return 2.0 * prod(self.dims)

    def other(self, pair: tuple[int, int]) -> int | None:
        """The dimension beside the two given ones; None where it does not have both."""
        rest = list(self.dims)
        for size in pair:
            if size not in rest:
                return None
            rest.remove(size)
        return rest[0]

    @property
    def text(self) -> str:
        return f"{short(self.op.name)} multiplies {self.dims[0]:,} × {self.dims[1]:,} × {self.dims[2]:,}"


def matmuls(profile: StepProfile) -> tuple[Matmul, ...]:
    """Every op whose arrays are those of one matmul, longest first."""
    read = []
    for op in profile.ops:
        if (match := _dims_in_name(op.name) if not op.hlo else _dims(op) if _may_be(op) else None) is not None:
            dims, dtype = match
            path = op.op_name.lower()
            read.append(Matmul(op, dims, dtype, kind_of(path), pass_of(op.op_name) or (FORWARD if path else "")))
    return tuple(sorted(read, key=lambda matmul: -matmul.op.self_time_s))


def kind_of(path: str) -> str:
    """Part of the layer that a framework path names."""
    lower = path.lower()
    if _ROUTED.search(lower):
        return ""
    return next((kind for kind, words in _KINDS if words.search(lower)), "")


def _may_be(op: Op) -> bool:
    category, path = op.category.lower(), op.op_name.lower()
    if not op.hlo or _COLLECTIVE.search(category) or _COLLECTIVE.search(op.name):
        return False
    named = ("convolution", "dot", "gemm", "matmul")
    target = hlo_text.custom_call_target(op.hlo).lower()
    if "conv" in target:
        return False
    return any(word in category or word in target for word in named) or "dot_general" in path or "matmul" in path


def _dims_in_name(name: str) -> tuple[tuple[int, int, int], str] | None:
    """Of an op of PyTorch: its two matrices as ``aten::mm[8x4, 4x2]``, of a linear layer ``[8x4, 2x4]``."""
    shown = _NAMED.search(name)
    if shown is None:
        return None
    m, k, first, second = (int(size) for size in shown.groups())
    if k not in (first, second):
        return None
    low, middle, high = sorted((m, k, second if k == first else first))
    return (low, middle, high), ""


def _dims(op: Op) -> tuple[tuple[int, int, int], str] | None:
    instruction = hlo_text.parse(op.hlo)
    if instruction is None:
        return None
    operands = _large(instruction.operands)
    results = _large(instruction.results)
    stated = op.flops / op.occurrences if op.flops and op.occurrences else None
    best: tuple[tuple[float, float], tuple[int, int, int], str] | None = None
    for (a, b), r in product(combinations(operands, 2), results):
        dims = _of_three(a, b, r)
        if dims is None:
            continue
        flops = 2.0 * prod(dims)
        if stated is None:
            order = (0.0, -flops)
        else:
            off, cores = min((abs(flops / (cores * stated) - 1.0), cores) for cores in _STATED_PER_CORE)
            order = (off if off <= _TOLERANCE else 1.0 + off, float(cores))
        narrow = min((a, b), key=lambda shape: hlo_text.item_bytes(shape.dtype)).dtype
        if best is None or order < best[0]:
            best = (order, dims, narrow)
    if best is None:
        return None
    # FLOPs that fit nothing: only two arrays in and one out leave no doubt (an op that was split, or not counted).
    if stated is not None and best[0][0] > 1.0 and not (len(operands) == 2 and len(results) == 1):
        return None
    if stated is None and len(operands) > 3:
        return None
    return best[1], best[2]


def _large(shapes: tuple[Shape, ...]) -> list[Shape]:
    """Arrays with at least two dimensions above one, the largest first."""
    arrays = [s for s in shapes if sum(d > 1 for d in s.dims) >= 2 and prod(s.dims) >= _SMALLEST**2]
    return sorted(arrays, key=lambda shape: -prod(shape.dims))[:_MOST_ARRAYS]


@lru_cache(maxsize=65536)
def _of_three(a: Shape, b: Shape, r: Shape) -> tuple[int, int, int] | None:
    """m, k, n of ``a [m,k] × b [k,n] → r [m,n]``, ascending; None where the sizes are not those of one matmul."""
    sizes = prod(a.dims), prod(b.dims), prod(r.dims)
    m, k, n = (
        _root(sizes[0] * sizes[2], sizes[1]),
        _root(sizes[0] * sizes[1], sizes[2]),
        _root(sizes[1] * sizes[2], sizes[0]),
    )
    if m is None or k is None or n is None or min(m, k, n) < _SMALLEST:
        return None
    if not all(size in _parts(x.dims) and size in _parts(y.dims) for size, x, y in ((m, a, r), (k, a, b), (n, b, r))):
        return None
    low, middle, high = sorted((m, k, n))
    return low, middle, high


def _root(numerator: int, denominator: int) -> int | None:
    square, rest = divmod(numerator, denominator)
    root = isqrt(square)
    return root if not rest and root * root == square else None


@lru_cache(maxsize=4096)
def _parts(dims: tuple[int, ...]) -> frozenset[int]:
    """Products of some of the dimensions."""
    sizes = {1}
    for dim in dims:
        sizes |= {dim * size for size in sizes}
    return frozenset(sizes)
