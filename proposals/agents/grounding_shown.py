"""Arithmetic that a text shows: `12.7 + 3.1 = 15.8 ms`, `6 · 70.6e9 · 2.1e6 ≈ 8.9e17 FLOPs`, `80 % (12.7 / 15.8 ms)`.

An equation is read from a sentence and its numbers, and worked out; whether its operands are backed is not asked here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from proposals.agents.grounding_claims import Kind, Number

Unit = tuple[Kind, float]

#: Words that may stand between a number and the next operator, or behind an operator: `512 sequences per step × …`.
_MOST_WORDS = 6
_LEXER = re.compile(
    r"(?P<none>\s+|\*\*|\\[,;]|[~$`])|(?P<unclear>/\s?[A-Za-z]\w*|[A-Za-z]\w*(?=\()|\bper\b)"
    r"|(?P<times>\\times|\\cdot|[×·⋅∙*]|x(?=\s*[\d(]))|(?P<over>\\div|[÷/])|(?P<plus>\+)|(?P<minus>−|(?<=\s)[–-](?=\s))"
    r"|(?P<open>\()|(?P<close>\))|(?P<equal>=)|(?P<about>[≈≃≅]|\\approx)|(?P<word>[A-Za-zµ°][\w\-'’%]*)|(?P<stop>.)",
    re.DOTALL,
)
#: `12.7 ms (compute)`: a remark behind a number, without any.
_REMARK = re.compile(r"\([^()\d=]*\)")
_SIGNS = {
    "times": "*", "over": "/", "plus": "+", "minus": "-", "open": "(", "close": ")", "equal": "=", "about": "≈",
    "word": "w", "unclear": "?",
}  # fmt: skip
#: Words; the unclear ones may be an operation: `tokens / step`, `ceil(…)`.
_WORD = ("w", "?")

#: Kinds that have a unit.
_MEASURED = frozenset(("time", "bytes", "bytes_per_s", "flops", "flops_per_s"))
#: Units in which operands are printed that are set against each other without any.
_USUAL: tuple[Unit, ...] = (
    ("time", 1.0), ("time", 1e-3), ("time", 1e-6), ("bytes", 1e9), ("bytes", 1e6), ("bytes_per_s", 1e9),
    ("share", 1e-2), ("flops_per_s", 1e12),
)  # fmt: skip
_CONVERSIONS = frozenset((10.0, 24.0, 60.0, 100.0, 1000.0, 1024.0, 3600.0, 86400.0, 1e6, 1e9, 1e12))
_BITS, _BYTES_OF_A_VALUE, FLOPS_PER_PARAMETER = 8.0, 16.0, 6.0
#: A result behind ≈ is called wrong only where it is this much off, as a share.
_ABOUT = 0.03

Token = Number | str
#: A number, or an operator with the two trees that it joins.
Tree = Number | tuple[str, "Tree", "Tree"]
#: Lowest and highest value.
Span = tuple[float, float]


@dataclass(frozen=True)
class Equation:
    """A number that is said to be what a tree of numbers makes.  stated: with a sign for that, and no words that may be
    an operation; about: the sign is ≈."""

    tree: Tree
    result: Number
    stated: bool = True
    about: bool = False

    @property
    def operands(self) -> tuple[Number, ...]:
        return tuple(_leaves(self.tree))

    def units(self) -> Iterator[Unit | None]:
        """Units that its numbers without one may lack: none, those of its other numbers, else the usual ones."""
        yield None
        numbers = (self.result, *self.operands)
        if any(_is_alone(number) for number in self.operands):
            named = dict.fromkeys((n.kind, n.factor) for n in numbers if n.kind in _MEASURED)
            yield from named or _USUAL

    def holds(self, exact: Mapping[int, float]) -> bool:
        """Whether the tree makes the result, as that is rounded.  exact: what is behind operands, by their place."""
        return any(
            abs(abs(_worked_out(self.tree, point)[0]) * times - target) <= half * (1 + 1e-9) + 1e-12 * target
            for value, target, half in self._readings(exact)
            for point in (lambda number, value=value: (value(number),) * 2,)
            for times in self._conversions()
        )

    def makes(self, exact: Mapping[int, float]) -> str:
        """What the tree makes, where that is not the result, however its operands were rounded; else empty."""
        for value, target, half in self._readings(exact):
            off = half + (_ABOUT * target if self.about else 0.0)
            low, high = _worked_out(self.tree, lambda number, value=value: _span(number, value(number)))  # type: ignore[misc]
            low, high = (low, high) if low >= 0 else (-high, -low) if high <= 0 else (0.0, max(-low, high))
            if any(low * times <= target + off and high * times >= target - off for times in self._conversions()):
                return ""
        value, target, _ = list(self._readings({}))[-1]
        made = _worked_out(self.tree, lambda number: (value(number),) * 2)[0]
        printed = made * self.result.printed / target if target else made
        unit = re.sub(r"^[−-]?[\d.,\u202f]+(?:[eE][+-]?\d+)?", "", self.result.text)
        return f"`{printed:,.4g}{unit}`" if math.isfinite(printed) else ""

    def _readings(self, exact: Mapping[int, float]) -> Iterator[tuple[Callable[[Number], float], float, float]]:
        """Ways to value the numbers, each with the result and its rounding: in SI, by what is behind them, and, where
        there is but one unit, as they are printed."""
        result = self.result
        yield (lambda number: number.value), result.value, result.half
        if exact:
            yield (lambda number: exact.get(number.start, number.value)), result.value, result.half
        if len({(n.kind, n.factor) for n in (result, *self.operands) if n.kind in _MEASURED}) == 1:
            factor = result.factor if result.kind in _MEASURED else 1.0
            yield _printed, result.value / factor, result.half / factor

    def _conversions(self) -> tuple[float, ...]:
        """What the result may be multiplied by: a factor in it may convert units (`0.016 s × 1000 = 16 ms`)."""
        bits = any("b/s" in number.text for number in self.operands)
        factors = {n.printed for n in self.operands if n.printed in _CONVERSIONS or (bits and n.printed == _BITS)}
        return (1.0, *factors, *(1 / factor for factor in factors))


def is_constant(number: Number) -> bool:
    """Whether it needs nothing behind it as an operand: a small count, a conversion of units, bytes of a value, the
    FLOPs per parameter and token."""
    if number.kind == "bytes":
        return number.value <= _BYTES_OF_A_VALUE and number.factor == 1.0
    if number.kind != "bare" or number.factor != 1.0:
        return False
    return number.is_small_count or number.printed in _CONVERSIONS or number.printed == FLOPS_PER_PARAMETER


def _is_alone(number: Number) -> bool:
    return number.kind == "bare" and number.factor == 1.0


def _printed(number: Number) -> float:
    return number.printed if number.kind in _MEASURED else number.value


def _span(number: Number, value: float) -> Span:
    """A number within its rounding; a count is what it is."""
    if _is_alone(number) and not number.decimals:
        return value, value
    half = number.half * value / number.value if number.value else 0.0
    return value - half, value + half


def equations(text: str, numbers: Sequence[Number]) -> Iterator[Equation]:
    """The equations of a sentence.  found: its numbers, in order."""
    for tokens in _segments(text, numbers):
        yield from _stated(tokens)
        yield from _in_brackets(tokens)


def _segments(text: str, numbers: Sequence[Number]) -> Iterator[list[Token]]:
    """What a sentence says in numbers, operators, brackets and words (`w`), cut at anything else."""
    tokens: list[Token] = []
    at = 0
    for number in (*numbers, None):
        gap = text[at : number.start if number else len(text)]
        # The sign of a number that stands right behind another is an operator.
        for match in _LEXER.finditer(_REMARK.sub(lambda m: " " * len(m[0]), gap)):
            if match.lastgroup == "stop":
                yield tokens
                tokens = []
            elif match[0].lower() == "of" and tokens and isinstance(tokens[-1], Number) and tokens[-1].kind == "share":
                tokens.append("*")
            elif match.lastgroup != "none":
                tokens.append(_SIGNS[str(match.lastgroup)])
        if number is not None:
            if number.text[0] in "−-" and tokens and isinstance(tokens[-1], Number):
                tokens.append("-")
            tokens.append(number)
            at = number.start + len(number.text)
    yield tokens


def _stated(tokens: Sequence[Token]) -> Iterator[Equation]:
    sides: list[list[Token]] = [[]]
    signs: list[Token] = []
    for token in tokens:
        if token in ("=", "≈"):
            sides.append([])
            signs.append(token)
        else:
            sides[-1].append(token)
    for left, right, sign in zip(sides, sides[1:], signs, strict=False):
        before, (after, end) = _ending(left), _expression(tokens := _unworded(right), 0)
        if before is None or after is None:
            continue
        clear = "?" not in left and "?" not in tokens[:end]
        if isinstance(before, Number):
            if not isinstance(after, Number):
                yield Equation(after, before, clear, sign == "≈")
            continue
        # `a + b = c / d = e` says that the sum is c, and goes on from there.
        clear = clear and isinstance(after, Number)
        yield Equation(before, _leaves(after)[0], clear, sign == "≈")


def _in_brackets(tokens: Sequence[Token]) -> Iterator[Equation]:
    """`80 % (12.7 / 15.8 ms)`."""
    last_sign = max((at for at, token in enumerate(tokens) if token in ("=", "≈")), default=-1)
    for at in range(last_sign + 1, len(tokens) - 3):
        result = tokens[at]
        if isinstance(result, Number) and tokens[at + 1] == "(":
            tree, end = _expression(tokens, at + 2)
            end = _words(tokens, end)
            if tree is not None and not isinstance(tree, Number) and end < len(tokens) and tokens[end] == ")":
                yield Equation(tree, result, stated=False)


def _unworded(tokens: Sequence[Token]) -> list[Token]:
    """Without the words before the first number."""
    first = next((n for n, token in enumerate(tokens) if token not in _WORD), len(tokens))
    return list(tokens[first:]) if first <= _MOST_WORDS else []


def _ending(tokens: Sequence[Token]) -> Tree | None:
    """The longest expression with which a side ends, words aside."""
    end = len(tokens)
    while end and tokens[end - 1] in _WORD:
        end -= 1
    for start in range(end):
        if start == 0 or tokens[start - 1] in (*_WORD, "("):
            tree, reached = _expression(tokens, start)
            if tree is not None and reached >= end:
                return tree
    return None


def _expression(tokens: Sequence[Token], at: int) -> tuple[Tree | None, int]:
    """Sums of products from a place on, and where what can be read of it ends."""
    tree, at = _product(tokens, at)
    while tree is not None and (sign := _sign(tokens, at)) in ("+", "-"):
        other, end = _product(tokens, _after(tokens, at))
        if other is None:
            break
        tree, at = (sign, tree, other), end
    return tree, at


def _product(tokens: Sequence[Token], at: int) -> tuple[Tree | None, int]:
    tree, at = _atom(tokens, at)
    while tree is not None and (sign := _sign(tokens, at)) in ("*", "/"):
        other, end = _atom(tokens, _after(tokens, at))
        if other is None:
            break
        tree, at = (sign, tree, other), end
    return tree, at


def _atom(tokens: Sequence[Token], at: int) -> tuple[Tree | None, int]:
    if at >= len(tokens):
        return None, at
    token = tokens[at]
    if isinstance(token, Number):
        return token, at + 1
    if token != "(":
        return None, at
    tree, end = _expression(tokens, _words(tokens, at + 1))
    end = _words(tokens, end)
    if tree is None or end >= len(tokens) or tokens[end] != ")":
        return None, at
    return tree, end + 1


def _words(tokens: Sequence[Token], at: int) -> int:
    """Where the words that stand here end, if they are few."""
    end = at
    while end < len(tokens) and tokens[end] in _WORD:
        end += 1
    return end if end - at <= _MOST_WORDS else at


def _sign(tokens: Sequence[Token], at: int) -> str:
    """The operator that goes on here, words aside; empty where none does."""
    at = _words(tokens, at)
    return token if at < len(tokens) and isinstance(token := tokens[at], str) else ""


def _after(tokens: Sequence[Token], at: int) -> int:
    return _words(tokens, _words(tokens, at) + 1)


def _leaves(tree: Tree) -> list[Number]:
    return [tree] if isinstance(tree, Number) else [*_leaves(tree[1]), *_leaves(tree[2])]


def _worked_out(tree: Tree, value: Callable[[Number], Span]) -> Span:
    if isinstance(tree, Number):
        return value(tree)
    sign, one, other = tree
    (a, b), (c, d) = _worked_out(one, value), _worked_out(other, value)
    if sign == "+":
        return a + c, b + d
    if sign == "-":
        return a - d, b - c
    if sign == "/":
        if c <= 0 <= d:
            return float("-inf"), float("inf")
        c, d = 1 / d, 1 / c
    corners = [a * c, a * d, b * c, b * d]
    return min(corners), max(corners)
