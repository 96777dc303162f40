"""The tool that reckons with numbers of results, so that no model has to do it in its head."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from typing import Any, Literal

from pydantic import Field

from agent.tools import Arguments, ToolError

_BINARY: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip
_CALLS: dict[str, Callable[..., float]] = {
    "min": min, "max": max, "sqrt": math.sqrt, "ceil": math.ceil, "floor": math.floor, "log2": math.log2,
}  # fmt: skip
Unit = Literal["", "s", "share", "speedup", "bytes", "bytes_per_s", "flops", "flops_per_s", "FLOP/byte"]


class Reckoned(Arguments):
    expression: str = Field(
        min_length=1, max_length=300,
        description="Numbers of results or of the user with + - * / // % ( ), min, max, sqrt, ceil, floor, log2, in "
        "the units of the results, such as 12.7e-3 + 3.1e-3.",
    )  # fmt: skip
    unit: Unit = Field("", description="What the result is in; empty: a count.")


class ArithmeticTools:
    def calculate(self, asked: Reckoned) -> dict[str, Any]:
        """Arithmetic on numbers that other tools returned or the user said. The result may be claimed only if all its
        operands stand in results of this conversation or in the user's words."""
        try:
            value = float(_value(ast.parse(asked.expression.replace("×", "*").replace("−", "-"), mode="eval").body))
        except (SyntaxError, ValueError, TypeError, ZeroDivisionError, OverflowError, RecursionError) as error:
            raise ToolError(f"{asked.expression[:80]!r} cannot be evaluated: {str(error)[:120]}.") from None
        if not math.isfinite(value):
            raise ToolError("The result is not finite.")
        return {"value": value, "unit": asked.unit} if asked.unit else {"value": value}


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
