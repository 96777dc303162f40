"""What one line of HLO text says: opcode, result and operand shapes, operand names, attributes.

The text comes from the user's program and may be cut short; whatever cannot be read is simply absent.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from math import prod

#: Bytes per element; sub-byte types are packed.
_ITEM_BYTES = {
    "pred": 1.0, "s2": 0.25, "u2": 0.25, "s4": 0.5, "u4": 0.5, "s8": 1.0, "u8": 1.0, "s16": 2.0, "u16": 2.0, "s32": 4.0,
    "u32": 4.0, "s64": 8.0, "u64": 8.0, "bf16": 2.0, "f16": 2.0, "f32": 4.0, "f64": 8.0, "c64": 8.0, "c128": 16.0,
}  # fmt: skip
_SHAPE = re.compile(r"\b(pred|bf16|[sufc]\d+|f\d+e\d+m\d+\w*|f4e2m1fn)\[([\d,<=\s]*)\]")
_OPCODE = re.compile(r"(?:^|[\s})\]])([a-z][a-z0-9_\-]*)\(")
_OPERAND = re.compile(r"%([\w.\-]+)")
_BARE_OPERAND = re.compile(r"(?:^|,)\s*(?:\S+\s+)?([A-Za-z_][\w.\-]*)\s*(?=,|$)")
_DIGITS = re.compile(r"\d+")
_PARENTHESIS = re.compile(r"[()]")
_CALLS = re.compile(r"\bcalls=%?([\w.\-]+)")
_TARGET = re.compile(r'custom_call_target="([^"]*)"')
_OP_NAME = re.compile(r'op_name="([^"]*)"')


@dataclass(frozen=True)
class Shape:
    """One array: element type and dimensions, layout left aside."""

    dtype: str
    dims: tuple[int, ...]

    @property
    def bytes(self) -> float:
        return item_bytes(self.dtype) * prod(self.dims)


@dataclass(frozen=True)
class Instruction:
    """One HLO instruction as printed.  results and operands: array shapes, tuples flattened."""

    name: str
    opcode: str
    results: tuple[Shape, ...]
    operands: tuple[Shape, ...]
    operand_names: tuple[str, ...]
    calls: str
    attributes: str

    @property
    def result_bytes(self) -> float:
        return sum(shape.bytes for shape in self.results)

    @property
    def operand_bytes(self) -> float:
        return sum(shape.bytes for shape in self.operands)


def item_bytes(dtype: str) -> float:
    if dtype in _ITEM_BYTES:
        return _ITEM_BYTES[dtype]
    return 0.5 if dtype.startswith("f4") else 1.0


@lru_cache(maxsize=16384)
def _sizes(dims: str) -> tuple[int, ...]:
    return tuple(int(size) for size in _DIGITS.findall(dims))


def shapes(text: str) -> tuple[Shape, ...]:
    read = []
    for dtype, dims in _SHAPE.findall(text):
        read.append(Shape(dtype, _sizes(dims)))
    return tuple(read)


def _closing(text: str, start: int) -> int:
    """Index of the parenthesis that closes the one at `start`; the end of the text if it was cut off."""
    depth = 0
    for match in _PARENTHESIS.finditer(text, start):
        depth += 1 if match.group() == "(" else -1
        if depth == 0:
            return match.start()
    return len(text)


def _result_end(text: str) -> int:
    """Where the result shape ends: a leading tuple in parentheses may hold anything."""
    stripped = len(text) - len(text.lstrip())
    if text[stripped : stripped + 1] == "(":
        return min(len(text), _closing(text, stripped) + 1)
    return 0


@lru_cache(maxsize=65536)
def parse(text: str) -> Instruction | None:
    """The instruction of one HLO line (``%name = shape opcode(operands), attributes``); None if it is not one."""
    left, equals, right = text.partition(" = ")
    if not equals or len(left) > 400:
        return None
    name = left.replace("ROOT", "").strip().lstrip("%")
    end = _result_end(right)
    match = _OPCODE.search(right, max(0, end - 1))
    if not match:
        return None
    opening = match.end() - 1
    closing = _closing(right, opening)
    inner = right[opening + 1 : closing]
    names = tuple(_OPERAND.findall(inner))
    if not names and inner:
        names = tuple(_BARE_OPERAND.findall(re.sub(r"\[[^\]]*\]|\{[^}]*\}|\([^)]*\)", "", inner)))
    attributes = right[closing + 1 :]
    calls = _CALLS.search(attributes)
    return Instruction(
        name=name,
        opcode=match.group(1),
        results=shapes(right[: match.start(1)]),
        operands=shapes(inner),
        operand_names=names,
        calls=calls.group(1) if calls else "",
        attributes=attributes,
    )


def custom_call_target(text: str) -> str:
    match = _TARGET.search(text)
    return match.group(1) if match else ""


def op_name(text: str) -> str:
    """The framework path in the line's metadata, empty if it has none."""
    match = _OP_NAME.search(text)
    return match.group(1) if match else ""
