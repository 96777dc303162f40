"""Arithmetic that a model asks for: its value, and the numbers in it as they are written."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable

_BINARY: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip
_CALLS: dict[str, Callable[..., float]] = {
    "min": min, "max": max, "sqrt": math.sqrt, "ceil": math.ceil, "floor": math.floor, "log2": math.log2,
}  # fmt: skip
_THOUSANDS = re.compile(r"(?<![\w.,])\d{1,3}(?:,\d{3})+(?![\w,])")


def value(expression: str) -> float:
    """Raises what a failed evaluation raises, with what is wrong in words where it is not plain arithmetic."""
    return float(_value(_parsed(expression)))


def operands(expression: str) -> list[str]:
    """The numbers of an expression, as written but for their thousands separators."""
    text = _plain(expression)
    number_nodes = [node for node in ast.walk(_parsed(expression)) if isinstance(node, ast.Constant)]
    return [ast.get_source_segment(text, node) or str(node.value) for node in number_nodes]


def _parsed(expression: str) -> ast.expr:
    return ast.parse(_plain(expression), mode="eval").body


def _plain(expression: str) -> str:
    text = expression.replace("×", "*").replace("−", "-").strip()
    if _THOUSANDS.search(text):
        if any(f"{name}(" in text for name in _CALLS):
            raise ValueError("in a call, 1,204 may be one number or two: write 1204 or 1, 204")
        text = _THOUSANDS.sub(lambda match: match[0].replace(",", ""), text)
    return text


def _value(node: ast.expr) -> float:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        return float(node.value)
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        return _BINARY[type(node.op)](_value(node.left), _value(node.right))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CALLS and not node.keywords:
        return float(_CALLS[node.func.id](*map(_value, node.args)))
    raise ValueError("only numbers, + - * / // % ( ), min, max, sqrt, ceil, floor and log2 are known")
