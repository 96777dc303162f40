"""The tool that reckons with numbers of results, so that no model has to do it in its head."""

from __future__ import annotations

import math
from typing import Any, Literal

from pydantic import Field

from agent.tools import Arguments, ToolError
from proposals.agents import expressions

Unit = Literal["", "s", "share", "speedup", "bytes", "bytes_per_s", "flops", "flops_per_s", "FLOP/byte"]


class Calculation(Arguments):
    expression: str = Field(
        min_length=1, max_length=300,
        description="Numbers of results or of the user with + - * / // % ( ), min, max, sqrt, ceil, floor, log2, in "
        "the units of the results, such as 12.7e-3 + 3.1e-3.",
    )  # fmt: skip
    unit: Unit = Field("", description="What the result is in; empty: a count.")


class ArithmeticTools:
    def calculate(self, asked: Calculation) -> dict[str, Any]:
        """Arithmetic on numbers that other tools returned or the user said. The result may be claimed only if all its
        operands are in results of this conversation or in the user's words."""
        try:
            value = expressions.value(asked.expression)
        except (SyntaxError, ValueError, TypeError, ZeroDivisionError, OverflowError, RecursionError) as error:
            raise ToolError(f"{asked.expression[:80]!r} cannot be evaluated: {str(error)[:120]}.") from None
        if not math.isfinite(value):
            raise ToolError("The result is not finite.")
        return {"value": value, "unit": asked.unit} if asked.unit else {"value": value}
