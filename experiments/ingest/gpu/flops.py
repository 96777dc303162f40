"""FLOPs and least memory traffic of a framework op, from the shapes that Kineto records (`Input Dims`).

Two FLOPs per multiply-add, as torch.utils.flop_counter counts: a product of m×k and k×n is 2mkn; a convolution
2 · batch · output positions · weights; attention forward 4bhsqskd, backward 10bhsqskd (the scores are computed again).
Causal attention is counted in full, as flop_counter does.  Source: torch/utils/flop_counter.py (PyTorch 2.7).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

Dims = Sequence[int]

#: Bytes per element and our name, by Kineto's name of a type.
_TYPES = {
    "float": (4, "fp32"),
    "double": (8, "fp64"),
    "c10::bfloat16": (2, "bf16"),
    "c10::half": (2, "fp16"),
    "bfloat16": (2, "bf16"),
    "half": (2, "fp16"),
    "c10::float8_e4m3fn": (1, "fp8"),
    "c10::float8_e5m2": (1, "fp8"),
    "c10::float8_e4m3fnuz": (1, "fp8"),
    "c10::float8_e5m2fnuz": (1, "fp8"),
    "float8_e4m3fn": (1, "fp8"),
    "float8_e5m2": (1, "fp8"),
    "signed char": (1, "int8"),
    "char": (1, "int8"),
    "unsigned char": (1, ""),
    "byte": (1, ""),
    "bool": (1, ""),
    "int": (4, ""),
    "long int": (8, ""),
    "long": (8, ""),
    "short": (2, ""),
}
_INTEGERS = re.compile(r"-?\d+")


def type_bytes(name: str) -> int | None:
    known = _TYPES.get(name.strip().lower())
    return known[0] if known else None


@dataclass(frozen=True)
class Work:
    """flops of one call; moved_bytes: operands and result once each, None where a type is not known."""

    flops: float
    moved_bytes: float | None
    dtype: str
    shapes: str


def work(op: str, dims: object, types: object, values: object) -> Work | None:
    """What one call of `op` computes; None for ops without matmul, and where shapes are missing.

    dims, types, values: Kineto's `Input Dims`, `Input type`, `Concrete Inputs`.
    """
    formula = _FORMULAS.get(op)
    if formula is None or not isinstance(dims, list) or not dims:
        return None
    try:
        counted = formula([_shape(item) for item in dims], values if isinstance(values, list) else [])
    except (IndexError, ValueError, TypeError, ZeroDivisionError):
        return None
    if counted is None or counted[0] <= 0:
        return None
    flops, elements, shapes = counted
    first = next((str(item) for item in types if str(item)), "") if isinstance(types, list) else ""
    size, dtype = _TYPES.get(first.lower(), (None, ""))
    return Work(float(flops), float(elements * size) if size else None, dtype, shapes)


_Found = tuple[int, int, str] | None


def _shape(item: object) -> tuple[int, ...]:
    if not isinstance(item, list):
        return ()
    return tuple(int(size) for size in item if isinstance(size, int) and 0 <= size < 1 << 40)


def _text(*shapes: Dims) -> str:
    return ", ".join("x".join(map(str, shape)) for shape in shapes)


def _product(at: int) -> Callable[[list[tuple[int, ...]], list[object]], _Found]:
    """Matmul of operands `at` and `at + 1`, with or without a leading batch."""

    def formula(dims: list[tuple[int, ...]], values: list[object]) -> _Found:
        one, two = dims[at], dims[at + 1]
        if len(one) < 2 or len(two) < 2 or one[-1] != two[-2]:
            return None
        batch = prod(one[:-2])
        result = batch * one[-2] * two[-1]
        return 2 * result * one[-1], prod(one) + prod(two) + result, _text(one, two)

    return formula


def _linear(dims: list[tuple[int, ...]], values: list[object]) -> _Found:
    one, weight = dims[0], dims[1]
    if len(weight) != 2 or not one or one[-1] != weight[1]:
        return None
    rows = prod(one[:-1])
    return 2 * rows * one[-1] * weight[0], prod(one) + prod(weight) + rows * weight[0], _text(one, weight)


def _integers(value: object) -> list[int]:
    return [int(number) for number in _INTEGERS.findall(str(value))]


def _spread(values: list[int], count: int) -> list[int]:
    return (values * count)[:count] if len(values) == 1 else values


def _convolution(at: Sequence[int]) -> Callable[[list[tuple[int, ...]], list[object]], _Found]:
    """Forward convolution; at: positions of stride, padding, dilation, transposed among the op's inputs (-1: none)."""

    def formula(dims: list[tuple[int, ...]], values: list[object]) -> _Found:
        image, weight = dims[0], dims[1]
        space = len(image) - 2
        if space < 1 or len(weight) != len(image):
            return None
        stride, padding, dilation = (_spread(_integers(values[place]), space) for place in at[:3])
        transposed = at[3] >= 0 and str(values[at[3]]).strip().lower() == "true"
        if transposed:  # every input position meets every weight of its input channel
            flops = 2 * prod(image) * prod(weight[1:])
            return flops, 2 * prod(image) + prod(weight), _text(image, weight)
        outs = [
            (size + 2 * pad - dil * (kernel - 1) - 1) // step + 1
            for size, kernel, step, pad, dil in zip(image[2:], weight[2:], stride, padding, dilation, strict=True)
        ]
        positions = image[0] * prod(outs)
        return (
            2 * positions * prod(weight),
            prod(image) + prod(weight) + positions * weight[0],
            _text(image, weight),
        )

    return formula


def _convolution_backward(dims: list[tuple[int, ...]], values: list[object]) -> _Found:
    """Gradients of image and weight, each as much as the forward; `output_mask` says which are computed."""
    gradient, image, weight = dims[0], dims[1], dims[2]
    if len(gradient) < 3 or len(weight) != len(gradient):
        return None
    mask = re.findall(r"true|false", str(values[10]).lower()) if len(values) > 10 else []
    wanted = sum(flag == "true" for flag in mask[:2]) if mask else 2
    positions = gradient[0] * prod(gradient[2:])
    elements = prod(gradient) + prod(image) + prod(weight)
    return 2 * positions * prod(weight) * wanted, elements * wanted, _text(image, weight)


def _attention(query: int, factor: int, heads_second: bool) -> Callable[[list[tuple[int, ...]], list[object]], _Found]:
    """Attention on q, k, v from position `query`; heads_second: [b, h, s, d], else [b, s, h, d]."""

    def formula(dims: list[tuple[int, ...]], values: list[object]) -> _Found:
        q, k, v = dims[query : query + 3]
        if not len(q) == len(k) == len(v) == 4:
            return None
        heads, rows, columns = (q[1], q[2], k[2]) if heads_second else (q[2], q[1], k[1])
        per_pair = q[-1] + v[-1]  # scores and values: 2 FLOPs each per pair of positions
        flops = factor * q[0] * heads * rows * columns * per_pair // 2
        return flops, (prod(q) * 2 + prod(k) + prod(v)) * (1 if factor == 4 else 2), _text(q, k)

    return formula


_FORMULAS: dict[str, Callable[[list[tuple[int, ...]], list[object]], _Found]] = {
    "aten::mm": _product(0),
    "aten::bmm": _product(0),
    "aten::addmm": _product(1),
    "aten::_addmm_activation": _product(1),
    "aten::baddbmm": _product(1),
    "aten::_scaled_mm": _product(0),
    "aten::_int_mm": _product(0),
    "aten::linear": _linear,
    "aten::convolution": _convolution((3, 4, 5, 6)),
    "aten::_convolution": _convolution((3, 4, 5, 6)),
    "aten::cudnn_convolution": _convolution((3, 2, 4, -1)),
    "aten::miopen_convolution": _convolution((4, 3, 5, -1)),
    "aten::convolution_backward": _convolution_backward,
    "aten::scaled_dot_product_attention": _attention(0, 4, True),
    "aten::_scaled_dot_product_flash_attention": _attention(0, 4, True),
    "aten::_scaled_dot_product_efficient_attention": _attention(0, 4, True),
    "aten::_scaled_dot_product_cudnn_attention": _attention(0, 4, True),
    "aten::_scaled_dot_product_flash_attention_backward": _attention(1, 10, True),
    "aten::_scaled_dot_product_efficient_attention_backward": _attention(1, 10, True),
    "aten::_scaled_dot_product_cudnn_attention_backward": _attention(1, 10, True),
    "flash_attn::_flash_attn_forward": _attention(0, 4, False),
    "flash_attn::_flash_attn_backward": _attention(1, 10, False),
    "FlashAttnFunc": _attention(0, 4, False),
    "aiter::fmha_v3_fwd": _attention(0, 4, False),
    "aiter::mha_fwd": _attention(0, 4, False),
}


def has_formula(op: str) -> bool:
    return op in _FORMULAS


def least_traffic(op: str, dims: object, types: object) -> float | None:
    """Bytes an elementwise op must read and write: its operands and a result as large as the largest, once each."""
    if not isinstance(dims, list) or not isinstance(types, list) or not _ELEMENTWISE.match(op):
        return None
    sizes = []
    for shape, kind in zip((_shape(item) for item in dims), types, strict=False):
        size = type_bytes(str(kind))
        if shape and size:
            sizes.append(prod(shape) * size)
    if not sizes:
        return None
    # A copy's or fill's result is among its operands already.
    return float(sum(sizes) + (0 if _OVERWRITES.match(op) else max(sizes)))


_OVERWRITES = re.compile(r"aten::(copy_|fill_|zero_)$")
_ELEMENTWISE = re.compile(
    r"aten::(add|sub|mul|div|copy|fill|zero|neg|pow|sqrt|rsqrt|exp|sin|cos|relu|silu|gelu|tanh|sigmoid|clamp|clamp_min|where|"
    r"threshold_backward|gelu_backward|silu_backward|tanh_backward|dropout|native_dropout|softmax|_softmax|"
    r"native_layer_norm|rms_norm|layer_norm)_?$"
)
