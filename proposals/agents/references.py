"""Texts that state numbers by reference: code looks each up, computes, checks units, and prints.

`resolve` is where to start.  A reference is in braces: `{r3.proposals[0].step_time_s.estimate}`, an expression
`{r1.a / r2.b as ratio}`, or a quotation `{r2.passages[0] "850 GB/s"}`, which must occur in what it quotes.
"""

from __future__ import annotations

import ast
import keyword
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from pydantic import TypeAdapter

from formatting import NBSP, listed
from proposals.agents import markdown
from proposals.agents.lookup import Node, PathError, nearest
from proposals.agents.typed_numbers import Typed
from proposals.agents.values import UNITS, Operand, UnitError, Value, combined, shown_as, unit_named

_BRACES = re.compile(r"\{([^{}\n]{1,400})\}")
_FORM = re.compile(r"\A(.+?)\s+as\s+([\w/%]{1,12})\s*\Z")
#: An expression of plain numbers alone.
_ARITHMETIC = re.compile(r"[\d\s._eE()]*\d[\d\s._eE()]*(?:[-+*/][\d\s._eE()]+)+")
_QUOTATION = re.compile(r"\A\s*(\S+)\s+[\"“](.+)[\"”]\s*\Z")
#: Names with a path behind them.
_NAMES = re.compile(r"(?<![\w.\]\"'])([A-Za-z_]\w*)(?=\s*[.\[])")
#: Keys of results that are words of Python's grammar.
_KEYWORD = re.compile(rf"\.({'|'.join(keyword.kwlist)})\b")
_OPEN = re.compile(r"\{\s*[rpe]\d+[.\[][^{}\n]*(?:\n|\Z)")
_UNIT_OF_NUMBER = re.compile(rf"(?<![\w.\]])(\d[\d_.]*(?:[eE][-+]?\d+)?)\s+({'|'.join(UNITS)})\b")
_MARKER = re.compile(r"\s*(?:[-*+]|\d+[.)]|#+)?\s*")
_BOUNDARY = re.compile(r"[.!?:][\"”*_]*[ \t]+(?=\S)")
_RESULT_ID = re.compile(r"[rp]\d+")
_OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}


@dataclass(frozen=True)
class Complaint:
    """What is wrong with a piece of a template, from `start` to `end`, as a sentence for its author."""

    start: int
    end: int
    message: str


@dataclass(frozen=True)
class Rendered:
    """A text with its values.  parts: words, and the values between them; complaints: what could not be resolved."""

    parts: tuple[str | Value, ...]
    complaints: tuple[Complaint, ...] = ()

    @property
    def plain(self) -> str:
        """As plain text, for the command line, REST and MCP."""
        return "".join(part if isinstance(part, str) else part.text for part in self.parts)

    @property
    def values(self) -> tuple[Value, ...]:
        return tuple(part for part in self.parts if isinstance(part, Value))

    def html(self, link: markdown.Link = markdown.no_link) -> str:
        """As HTML of its Markdown, each value with its subject and origin.  link: the address of a `Value.href`."""
        return markdown.to_html(self.parts, link)

    def to_json(self) -> list[Any]:
        """What is stored beside a template, so that it can be shown without its results."""
        return list(_PARTS.dump_python(self.parts, mode="json", exclude_defaults=True))

    @classmethod
    def from_json(cls, data: Iterable[Any]) -> Rendered:
        return cls(_PARTS.validate_python(data))


_PARTS: TypeAdapter[tuple[str | Value, ...]] = TypeAdapter(tuple[str | Value, ...])


def resolve(template: str, results: Mapping[str, object], typed: Typed | None = None) -> Rendered:
    """Return the template with its references resolved.

    results: by the name that references begin with; `ToolResult`s, dataclasses or JSON.  typed: which numbers may
    be digits in the template; None: any.  Braces that refer to nothing are words.
    """
    pieces: list[tuple[int, int, Sequence[str | Value]]] = []
    complaints: list[Complaint] = []
    for match in _BRACES.finditer(template):
        if not _refers(match[1], results) and not _is_arithmetic(match[1]):
            continue
        try:
            pieces.append((*match.span(), _resolved(match[1], results, typed)))
        except (PathError, UnitError) as error:
            pieces.append((*match.span(), [match[0]]))
            complaints.append(Complaint(*match.span(), f"`{match[0]}`: {error}."))
    found = list(typed.found(template, [(start, end) for start, end, _ in pieces])) if typed else []
    pieces += [(start, end, [value]) for start, end, value in found if isinstance(value, Value)]
    complaints += [Complaint(start, end, said) for start, end, said in found if isinstance(said, str)]
    parts: list[str | Value] = []
    last = 0
    for start, end, values in sorted(pieces, key=lambda piece: piece[0]):
        parts += [template[last:start], *values]
        last = end
    parts = _told_apart(_without_second_units([*parts, template[last:]]))
    complaints += [
        Complaint(*opened.span(), f"`{opened[0].strip()[:60]}`: its closing brace is missing.")
        for opened in _OPEN.finditer(template)
    ]
    return Rendered(tuple(part for part in parts if part != ""), tuple(sorted(complaints, key=lambda c: c.start)))


def _without_second_units(parts: Sequence[str | Value]) -> list[str | Value]:
    """Return the parts without a unit that the author wrote behind a value, which is printed with it."""
    cleaned = list(parts)
    for place, (part, text) in enumerate(pairwise(parts)):
        if isinstance(part, Value) and isinstance(text, str) and not isinstance(part.value, str) and not part.beside:
            unit = re.search(r"[^\d\s.,–-]+\Z", part.number)
            second = re.match(rf"[ {NBSP}]?{re.escape(unit[0])}(?![\w/])", text) if unit else None
            cleaned[place + 1] = text[second.end() :] if second else text
    return cleaned


def _told_apart(parts: Sequence[str | Value]) -> list[str | Value]:
    """Return the parts with three digits for numbers within 5 % of another one of their unit, four within 0.5 %."""
    numbers = [part for part in parts if isinstance(part, Value) and not isinstance(part.value, str)]
    near: dict[tuple[str, float | str], float] = {}
    for low, high in pairwise(sorted({(part.unit, float(part.value)) for part in numbers})):
        gap = (high[1] - low[1]) / max(abs(low[1]), abs(high[1])) if low[0] == high[0] else 1.0
        near |= {each: min(gap, near.get(each, 1.0)) for each in (low, high)}
    return [
        replace(part, digits=3 if gap >= 0.005 else 4)
        if isinstance(part, Value) and (gap := near.get((part.unit, part.value), 1.0)) < 0.05
        else part
        for part in parts
    ]


def without_sentences(template: str, complaints: Sequence[Complaint]) -> tuple[str, int]:
    """Return the template without the sentences, rows and list items that complaints are about, and how many went."""
    spans = list(_sentences(template))
    starts = [start for start, _ in spans]
    wrong = {max(bisect_right(starts, each.start) - 1, 0) for each in complaints}
    for start, end in (spans[place] for place in sorted(wrong, reverse=True)):
        template = template[:start] + template[end:]
    lines = template.split("\n")
    kept = [line for line in lines if not re.fullmatch(r"\s*(?:[-*+]|\d+[.)])\s*", line)]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip(), len(wrong)


def _sentences(text: str) -> Iterator[tuple[int, int]]:
    """Yield the place of each sentence; the row of a table is one, and the marker of a list item is part of none."""
    start = 0
    for line in text.splitlines(keepends=True):
        begin, stop = start, start + len(line)
        if not line.lstrip().startswith("|"):
            marker = _MARKER.match(line)
            begin = start + (marker.end() if marker else 0)
            for boundary in _BOUNDARY.finditer(text, begin, stop):
                yield begin, boundary.end()
                begin = boundary.end()
            stop = start + len(line.rstrip("\n"))
        yield min(begin, stop), stop
        start += len(line)


def _refers(content: str, results: Mapping[str, object]) -> bool:
    """Return True if braces hold a reference, right or wrong, and not words, code or a mesh."""
    names = _NAMES.findall(content) or [content.split(maxsplit=1)[0] if content.strip() else ""]
    return any(name in results or _RESULT_ID.fullmatch(name) for name in names) or bool(
        _NAMES.findall(content) and "=" not in content and ":" not in content
    )


def _is_arithmetic(content: str) -> bool:
    form = _FORM.fullmatch(content)
    return bool(_ARITHMETIC.fullmatch(form[1] if form else content))


def _resolved(content: str, results: Mapping[str, object], typed: Typed | None) -> tuple[Value, ...]:
    if quotation := _QUOTATION.fullmatch(content):
        return (_lookup(_parsed(quotation[1]), results).quoted(quotation[2]),)
    form = _FORM.fullmatch(content)
    tree = _parsed(form[1] if form else content)
    if not form and isinstance(tree, ast.Attribute | ast.Subscript | ast.Name):
        return _lookup(tree, results).values()
    value = _evaluated(tree, results)
    own = [number for number in _constants(tree) if typed is not None and not typed.may_compute_with(number)]
    if not any(name.id in results for name in _names(tree)):
        if isinstance(value, Value) or any(number not in range(11) for number in own):
            raise PathError("it refers to no result; a number of your own is not printed")
        value = Value(value, subject=(form[1] if form else content).strip())
    assert isinstance(value, Value)
    value = replace(value, in_text=bool(own and value.formula))  # who reads it sees what was put in
    return (shown_as(value, form[2]) if form else value,)


def _constants(tree: ast.expr) -> Iterator[float]:
    """Yield the plain numbers of an expression."""
    if isinstance(tree, ast.BinOp):
        yield from (*_constants(tree.left), *_constants(tree.right))
    elif isinstance(tree, ast.UnaryOp):
        yield from _constants(tree.operand)
    elif isinstance(tree, ast.Constant):
        yield _plain(tree)


def _plain(tree: ast.Constant) -> float:
    if not isinstance(tree.value, int | float) or isinstance(tree.value, bool):
        raise PathError("only paths, numbers and + - * / are read in braces")
    try:
        return float(tree.value)
    except OverflowError:
        raise UnitError("a constant is too large a number") from None


def _parsed(text: str) -> ast.expr:
    try:
        return ast.parse(_UNIT_OF_NUMBER.sub(r"(\1*\2)", _KEYWORD.sub(r'["\1"]', text.strip())), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise PathError("it is neither a path such as r1.a.b[0].c_s nor an expression of paths with + - * /") from None


def _evaluated(tree: ast.expr, results: Mapping[str, object]) -> Operand:
    if isinstance(tree, ast.BinOp) and type(tree.op) in _OPERATORS:
        return combined(_OPERATORS[type(tree.op)], _evaluated(tree.left, results), _evaluated(tree.right, results))
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
        return combined("*", -1.0, _evaluated(tree.operand, results))
    if isinstance(tree, ast.Constant):
        return _plain(tree)
    if isinstance(tree, ast.Name) and tree.id in UNITS and tree.id not in results:
        return unit_named(tree.id)
    return _lookup(tree, results).value()


def _names(tree: ast.expr) -> Iterator[ast.Name]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Name))


def _lookup(tree: ast.expr, results: Mapping[str, object]) -> Node:
    keys = list(_keys(tree))
    name, *path = reversed(keys)
    if not isinstance(name, str) or name not in results:
        raise PathError(f"there is no result {name!s:.40}; there are {listed(list(results)) or 'none'}")
    node = Node.of(results[name], name)
    while path:
        key = path.pop(0)
        found = node.child(key) or node.only_grandchild(key)
        if found is None and path:  # a key with a point in it
            found = node.child(f"{key}_{path.pop(0)}")
        if found is None:
            near = nearest(results, name, [str(each) for each in reversed(keys[:-1])])
            hint = f"; nearest: {', '.join(near)}" if near else ""
            raise PathError(f"{node.path} has no {key!s:.60}{hint}")
        node = found
    return node


def _keys(tree: ast.expr) -> Iterator[str | int]:
    """Yield the keys of a path, the last first."""
    while True:
        if isinstance(tree, ast.Attribute):
            yield tree.attr
            tree = tree.value
        elif isinstance(tree, ast.Subscript) and isinstance(tree.slice, ast.Constant):
            if not isinstance(tree.slice.value, str | int):
                raise PathError("in brackets stands a number or a quoted key")
            yield tree.slice.value
            tree = tree.value
        elif isinstance(tree, ast.Name):
            yield tree.id
            return
        else:
            raise PathError("only paths, numbers and + - * / are read in braces")
