"""Values that texts print: a number with its unit and origin, what it is of, and where to look it up.

`Value.text` prints one; `combined` computes with two of them under the algebra of their units.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Literal

import formatting
from formatting import MINUS, Quantity

#: From the most to the least certain: a result is as certain as the least certain of its parts.
ORIGINS = ("measured", "computed", "stated", "predicted")
Origin = Literal["measured", "computed", "stated", "predicted"]
#: Units that are numbers without a dimension; they differ in how they are printed.
_PURE = frozenset(("", "share", "probability", "chance", "speedup", "count"))
_PLURAL = {"byte": "bytes", "token": "tokens"}
_SYMBOLS = {"s": "s", "bytes": "B", "flops": "FLOP", "tokens": "tokens", "usd": "$"}
_SUFFIX = re.compile(
    r"(?:^|_)((?:flops|bytes|tokens)_per_(?:s|byte)|s|bytes|flops|tokens|usd|share|probability)"
    r"(?:_per_(?:chip|host|step|core|link|call|link_and_direction))*$"
)


@dataclass(frozen=True)
class Form:
    """How `as …` prints a value: in `unit` only, divided by `factor`, followed by `suffix`."""

    unit: str
    factor: float
    suffix: str


FORMS = {
    "ratio": Form("", 1.0, ""), "percent": Form("", 1.0, ""), "number": Form("", 1.0, ""), "count": Form("", 1.0, ""),
    "s": Form("s", 1.0, "s"), "ms": Form("s", 1e-3, "ms"), "us": Form("s", 1e-6, "µs"), "min": Form("s", 60.0, "min"),
    "h": Form("s", 3600.0, "h"), "days": Form("s", 86_400.0, "days"),
    "B": Form("bytes", 1.0, "B"), "KB": Form("bytes", 1e3, "KB"), "MB": Form("bytes", 1e6, "MB"),
    "GB": Form("bytes", 1e9, "GB"), "TB": Form("bytes", 1e12, "TB"),
    "MB/s": Form("bytes_per_s", 1e6, "MB/s"), "GB/s": Form("bytes_per_s", 1e9, "GB/s"),
    "TB/s": Form("bytes_per_s", 1e12, "TB/s"), "TFLOP": Form("flops", 1e12, "TFLOP"),
    "TFLOP/s": Form("flops_per_s", 1e12, "TFLOP/s"), "usd": Form("usd", 1.0, "$"),
}  # fmt: skip
_PRINTED_AS = {"ratio": "speedup", "percent": "share", "number": "", "count": "count", "usd": "usd"}
#: Units that an expression may name, so that a plain number has one: `300e9 tokens`.  In SI.
UNITS = {name: (name, 1.0) for name in ("tokens", "flops", "bytes")} | {
    name: (FORMS[name].unit, FORMS[name].factor) for name in ("GB", "s", "min", "h", "days", "usd")
}


class UnitError(ValueError):
    """Two quantities that cannot be combined, or a form that does not fit, in one sentence."""


@dataclass(frozen=True)
class Value:
    """Something that a text prints.

    value: a number in SI, or words.  unit: a suffix of the field's name (`s`, `bytes_per_s`, `share` …).  subject: what
    it is of.  href: where the product shows it, as `proposal:2` or `op:KEY`; empty where nowhere.  formula: of what was
    computed in the text.  low, high: its 80 % interval; in_text: the interval, else the formula, is printed beside it.
    form: of `FORMS`.  digits: significant ones, 0 for those that the origin allows.
    """

    value: float | str
    unit: str = ""
    origin: Origin = "computed"
    subject: str = ""
    href: str = ""
    formula: str = ""
    low: float | None = None
    high: float | None = None
    in_text: bool = False
    form: str = ""
    digits: int = 0

    @property
    def text(self) -> str:
        """As printed: three significant digits, two where predicted; the interval where the text asks for it."""
        if isinstance(self.value, str):
            return self.value
        return f"{self.number} ({self.beside})" if self.beside else self.number

    @property
    def beside(self) -> str:
        """What is printed in brackets behind the number; empty for nothing."""
        return self.interval or self.formula if self.in_text else ""

    @property
    def number(self) -> str:
        """The value alone with its unit."""
        return str(self._quantity(float(self.value)))

    @property
    def interval(self) -> str:
        """The 80 % interval, `590 ms–640 ms`; empty where there is none."""
        if self.low is None or self.high is None:
            return ""
        low, high = self._quantity(self.low), self._quantity(self.high)
        return f"{low.number if low.unit == high.unit else low}–{high}"

    def _quantity(self, value: float) -> Quantity:
        digits = self.digits or (2 if self.origin == "predicted" and self.unit != "bytes" else 3)
        if self.form and self.form not in _PRINTED_AS:
            form = FORMS[self.form]
            return Quantity(formatting.significant(value / form.factor, digits), form.suffix)
        unit = _PRINTED_AS.get(self.form, self.unit)
        if unit in _PURE or unit in ("s", "bytes", "flops", "bytes_per_s", "flops_per_s", "tokens_per_s"):
            return formatting.quantity(value, unit, digits)
        if unit == "usd":
            return Quantity(formatting.dollars(value), "")
        whole = unit == "tokens" and float(value).is_integer()
        return Quantity(formatting.number(value) if whole else formatting.significant(value, digits), symbol(unit))


def unit_of(key: str) -> str | None:
    """Return the unit that the name of a field says: `step_time_s` is in s; None where it says none."""
    if found := _SUFFIX.search(key):
        return found[1].replace("per_byte", "per_bytes")
    if key.startswith("speedup") or "_over_" in key or key.endswith("_ratio"):
        return "speedup"
    return None


def words_of(key: str) -> str:
    """Return the name of a field without its unit: `step_time_s` is `step time`."""
    found = _SUFFIX.search(key)
    return (key[: found.start()] if found and found.start() else key).replace("_", " ")


def symbol(unit: str) -> str:
    """Return a unit as printed: `FLOP/B`, `1/s`."""
    powers = _dimension(unit)
    over = [_SYMBOLS.get(name, name) + (str(n) if n > 1 else "") for name, n in powers.items() if n > 0]
    under = [_SYMBOLS.get(name, name) + (str(-n) if n < -1 else "") for name, n in powers.items() if n < 0]
    return ("·".join(over) or ("1" if under else "")) + "".join(f"/{name}" for name in under)


def _dimension(unit: str) -> dict[str, int]:
    """Return the powers of the base units: `bytes_per_s` is bytes¹ s⁻¹."""
    powers: dict[str, int] = {}
    if unit in _PURE:
        return powers
    for place, part in enumerate(unit.split("_per_")):
        for factor in part.split("*"):
            if factor != "1":
                factor = _PLURAL.get(factor, factor)
                powers[factor] = powers.get(factor, 0) + (-1 if place else 1)
    return {name: power for name, power in powers.items() if power}


def _unit(powers: dict[str, int]) -> str:
    over = [name for name, n in sorted(powers.items()) for _ in range(max(n, 0))]
    under = [name for name, n in sorted(powers.items()) for _ in range(max(-n, 0))]
    return "_per_".join(["*".join(over) or "1", *under]) if over or under else ""


Operand = Value | float


def combined(operator: str, one: Operand, other: Operand) -> Operand:
    """Return `one operator other`: with its unit, origin and formula; a plain number of
    two plain numbers.  Raises UnitError where the units or the values do not allow it."""
    a, b = _number(one), _number(other)
    if operator == "/" and b == 0:
        raise UnitError(f"{_named(other)} is 0")
    value = {"+": a + b, "-": a - b, "*": a * b, "/": a / b if b else 0.0}[operator]
    if not math.isfinite(value):
        raise UnitError("the result is too large a number")
    parts = [part for part in (one, other) if isinstance(part, Value)]
    if not parts:
        return value
    origins = {part.origin if isinstance(part, Value) else "stated" for part in (one, other)}
    origin: Origin = "predicted" if "predicted" in origins else origins.pop() if len(origins) == 1 else "computed"
    sign = {"+": "+", "-": MINUS, "*": "×", "/": "÷"}[operator]
    return Value(
        value, _combined_unit(operator, one, other), origin, f"{_named(one)} {sign} {_named(other)}",
        href=next((part.href for part in parts if part.href), ""),
        formula=f"{_inside(one, operator)} {sign} {_inside(other, operator)}",
    )  # fmt: skip


def _number(operand: Operand) -> float:
    value = operand.value if isinstance(operand, Value) else operand
    if isinstance(value, str):
        raise UnitError(f"{_named(operand)} is text, and nothing can be computed with it")
    return float(value)


def _named(operand: Operand) -> str:
    if isinstance(operand, Value):
        return f"({operand.subject})" if operand.formula else operand.subject or "this"
    return formatting.limit(operand, "", 6).strip()


def _inside(operand: Operand, operator: str) -> str:
    if not isinstance(operand, Value):
        return _named(operand)
    shown = replace(operand, digits=max(operand.digits, 3)).number
    return f"({operand.formula})" if operand.formula and operator != "+" else operand.formula or shown


def _unit_of(operand: Operand) -> str:
    return operand.unit if isinstance(operand, Value) else ""


def _combined_unit(operator: str, one: Operand, other: Operand) -> str:
    mine, theirs = _dimension(_unit_of(one)), _dimension(_unit_of(other))
    if operator in "+-" and 0.0 in (one, other):  # nothing of anything
        return _unit_of(one) or _unit_of(other)
    if operator in "+-":
        if mine != theirs:
            sides = [f"{_named(side)} is in {symbol(_unit_of(side)) or 'plain numbers'}" for side in (one, other)]
            verb = "added" if operator == "+" else "subtracted"
            raise UnitError(f"{' and '.join(sides)}; they cannot be {verb}")
        units = {part.unit for part in (one, other) if isinstance(part, Value)}
        unit = units.pop() if len(units) == 1 else _unit(mine)
        return "" if unit == "speedup" else unit
    powers = dict(mine)
    for name, power in theirs.items():
        powers[name] = powers.get(name, 0) + (power if operator == "*" else -power)
    if any(powers.values()):
        return _unit(powers)
    shares = [_unit_of(part) for part in (one, other) if _unit_of(part) in ("share", "probability", "chance")]
    return shares[0] if shares and (operator == "*" or not isinstance(other, Value)) else ""


def unit_named(name: str) -> Value:
    """Return one of `UNITS` as a value; as certain as what it is combined with."""
    unit, size = UNITS[name]
    return Value(size, unit, "measured", name)


def shown_as(value: Value, form: str) -> Value:
    """Return the value to be printed in one of `FORMS`.  Raises UnitError where that does not fit its unit."""
    known = FORMS.get(form)
    if known is None:
        raise UnitError(f"there is no form {form[:20]!r}; forms are {', '.join(FORMS)}")
    if isinstance(value.value, str):
        raise UnitError(f"{value.subject or 'this'} is text and has no form {form}")
    if form in ("ratio", "percent", "count") and value.unit == "tokens":  # FLOPs per token, times tokens
        value = replace(value, unit="")
    if form != "number" and _dimension(known.unit) != _dimension(value.unit):
        raise UnitError(f"{value.subject or 'this'} is in {symbol(value.unit) or 'plain numbers'}, not in {form}")
    if form == "number":
        return replace(value, unit="" if value.unit in _PURE else value.unit)
    return replace(value, form=form)
