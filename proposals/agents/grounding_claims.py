"""What a text claims: its sentences with their place in the markdown, and the numbers in each, in SI.

A number keeps its kind (a time, a share, a ratio, bytes, …), so that `23 %` is looked up among shares and `23 s` among
times.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

Kind = Literal["time", "share", "ratio", "bytes", "bytes_per_s", "flops", "flops_per_s", "intensity", "bare"]
#: The unit of each for `formatting.quantity`.
QUANTITIES: dict[Kind, str] = {
    "time": "s", "share": "share", "ratio": "speedup", "bytes": "bytes", "bytes_per_s": "bytes_per_s",
    "flops": "flops", "flops_per_s": "flops_per_s", "intensity": "FLOP/byte", "bare": "count",
}  # fmt: skip

_PREFIX = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_WORDS = {"kilo": 1e3, "mega": 1e6, "giga": 1e9, "tera": 1e12, "peta": 1e15, "exa": 1e18}
_UNITS: dict[str, tuple[Kind, float]] = {
    "s": ("time", 1.0), "sec": ("time", 1.0), "secs": ("time", 1.0), "second": ("time", 1.0),
    "ms": ("time", 1e-3), "millisecond": ("time", 1e-3), "µs": ("time", 1e-6), "μs": ("time", 1e-6),
    "us": ("time", 1e-6), "microsecond": ("time", 1e-6), "ns": ("time", 1e-9), "min": ("time", 60.0),
    "minute": ("time", 60.0), "h": ("time", 3600.0), "hour": ("time", 3600.0),
    "%": ("share", 1e-2), "percent": ("share", 1e-2), "per cent": ("share", 1e-2), "pp": ("share", 1e-2),
    "percentage point": ("share", 1e-2),
    "×": ("ratio", 1.0), "x": ("ratio", 1.0), "-fold": ("ratio", 1.0), "fold": ("ratio", 1.0), "times": ("ratio", 1.0),
    "FLOP per byte": ("intensity", 1.0), "FLOPs per byte": ("intensity", 1.0),
    "FLOP/byte": ("intensity", 1.0), "FLOPs/byte": ("intensity", 1.0), "FLOP/B": ("intensity", 1.0),
    "thousand": ("bare", 1e3), "million": ("bare", 1e6), "billion": ("bare", 1e9), "trillion": ("bare", 1e12),
    "k": ("bare", 1e3), "K": ("bare", 1e3), "M": ("bare", 1e6), "B": ("bare", 1e9), "T": ("bare", 1e12),
}  # fmt: skip
for _p, _f in _PREFIX.items():
    if _p:
        _UNITS[f"{_p}B"], _UNITS[f"{_p}B/s"] = ("bytes", _f), ("bytes_per_s", _f)
        if _p not in ("k", "K"):
            _UNITS[f"{_p}b/s"] = ("bytes_per_s", _f / 8)
        _b = 1024.0 ** ("KMGTPE".index(_p.upper()) + 1)
        _UNITS[f"{_p.upper()}iB"], _UNITS[f"{_p.upper()}iB/s"] = ("bytes", _b), ("bytes_per_s", _b)
    for _w in ("FLOP", "FLOPs", "flop", "flops"):
        _UNITS[f"{_p}{_w}"] = ("flops", _f)
        _UNITS |= dict.fromkeys((f"{_p}{_w}/s", f"{_p}{_w} per second"), ("flops_per_s", _f))
    _UNITS[f"{_p}FLOPS"] = ("flops_per_s", _f)
for _p, _f in {"": 1.0, **_WORDS}.items():
    _UNITS[f"{_p}byte"], _UNITS[f"{_p}bytes/s"] = ("bytes", _f), ("bytes_per_s", _f)
    for _w in ("FLOP", "flop"):
        _UNITS[f"{_p}{_w}"], _UNITS[f"{_p}{_w}s"] = ("flops", _f), ("flops", _f)
        _UNITS |= dict.fromkeys((f"{_p}{_w}/s", f"{_p}{_w}s/s", f"{_p}{_w}s per second"), ("flops_per_s", _f))

UNIT = "|".join(
    # Between two numbers × multiplies.
    rf"{re.escape(unit)}(?!\s?\d)" if unit in ("×", "x") else re.escape(unit)
    for unit in sorted(_UNITS, key=len, reverse=True)
)
_NUMBER = re.compile(
    r"(?:(?<![\w.#@/-])(?<!\w:)|(?<=\d[-–/]))[−-]?(?P<digits>\d{1,3}(?:[,\u202f]\d{3})+|\d+)(?P<fraction>\.\d+)?"
    rf"(?P<power>[eE][+-]?\d+)?(?:[\s\u00a0\u202f]?(?P<unit>{UNIT})s?(?![\w%]|-\w))?(?![\w%]|\.\d)"
)
#: Where a source is pointed at, or things are counted off: nothing that could be measured.
_POINTER = re.compile(
    r"\barXiv[:\s]\s?\d{4}\.\d{4,5}\b|https?://\S+|(?:\b(?:sections?|chapters?|chs?\.?|appendix|appendices|experiment|exercises?|"
    r"figure|fig\.|table|equation|rank|rule|finding|findings|option)\s+|§\s?)[A-Z]?\.?#?\d+(?:\.\d+)*"
    r"(?:(?:\s?(?:,|and|–|-)\s?)\d+(?:\.\d+)*)*|^\s*\d+[.)]\s|\b\d{4}-\d{2}(?:-\d{2})?\b|"
    r"\b80\s?%(?=[\s-](?:confidence )?(?:range|interval|band))",
    re.IGNORECASE,
)
#: `Llama 3.1 405B`, `Qwen 2.5`: digits of a name, which is no name where a sentence begins.
_NAME = re.compile(
    r"(?<=[\w,(`] )(?:[A-Z][A-Za-z]*[a-z][A-Za-z]*)(?:[ -]v?\d+(?:\.\d+)*[BMK]?(?![\w%]|\.\d|[ \u00a0](?:%|×|"
    + UNIT
    + r")s?\b))+"
)
_CODE = re.compile(r"`[^`\n]{1,300}`")
#: What joins numbers that share the unit of one of them: `27–42 s`, `12, 14 and 16 GB`, `8 → 16 GB`, `from 12.7
#: (compute) down to 3.1 ms`.
_JOINT = re.compile(
    r"\s*(?:\([^()\d]*\)\s*)?(?:–|-|—|→|->|/|;|,?\s*(?:(?:down |up )?to|and|or|vs\.?|versus|against|than|"
    r"(?:but |and )?not|rather than|instead of|but)\b|,)\s*[−-]?$"
)


@dataclass(frozen=True)
class Number:
    """A number as printed.  value in SI; half: half of the last digit printed, in SI; start: in its sentence.

    printed: the value as its digits stand, whatever the unit.  otherwise: another reading, where a neighbour lends
    its unit or the number has none.
    """

    text: str
    value: float
    half: float
    kind: Kind
    start: int
    decimals: int = 0
    printed: float = 0.0
    otherwise: Number | None = None

    @property
    def factor(self) -> float:
        """What its unit is in SI."""
        return self.value / self.printed if self.printed else 1.0

    def read_as(self, kind: Kind, factor: float) -> Number:
        """The same digits with another unit."""
        times = factor / self.factor
        return replace(
            self, kind=kind, value=_finite(self.value * times), half=_finite(self.half * times), otherwise=None
        )

    @property
    def is_small_count(self) -> bool:
        """A counting word written as a figure (`2 of the 3 axes`), which claims nothing that could be measured."""
        return self.kind == "bare" and self.value <= 4 and self.value == int(self.value) and not self.decimals

    @property
    def is_finite(self) -> bool:
        """Whether a float holds it; otherwise its value is the largest float."""
        return self.value < sys.float_info.max


@dataclass(frozen=True)
class Sentence:
    """A sentence, list item, heading or table row.  start, end: its place in the markdown.

    before: what stands before it in its block, then its heading, for what it takes up; header: of a table's columns;
    lead: the paragraph that introduces its list or table.
    """

    text: str
    start: int
    end: int
    before: str = ""
    heading: str = ""
    header: tuple[str, ...] = ()
    block: int = 0
    lead: str = ""

    @property
    def context(self) -> tuple[str, ...]:
        """Where its subject may be named, nearest first."""
        return tuple(part for part in (self.text, " ".join(self.header), self.before, self.heading) if part)


def numbers(text: str, header: tuple[str, ...] = ()) -> Iterator[Number]:
    """The numbers that a sentence claims.  header: the columns of the table whose row it is."""
    plain = text
    for pattern in (_POINTER, _NAME):
        plain = pattern.sub(lambda match: " " * len(match[0]), plain)
    code = [match.span() for match in _CODE.finditer(plain) if not _NUMBER.fullmatch(match[0].strip("` "))]
    printed: list[_Printed] = []
    for match in _NUMBER.finditer(plain):
        unit = match["unit"] or ""
        kind, factor = _UNITS.get(unit) or _UNITS.get(unit.removesuffix("s")) or ("bare", 1.0)
        if not unit and header:
            kind, factor = _of_column(plain, match.start(), header)
        printed.append((match, (kind, factor), bool(unit)))
    for (match, (kind, factor), _), (lent, first) in zip(printed, _lent_units(plain, printed), strict=True):
        number = _number(match, *(lent if lent and first else (kind, factor)))
        if number.kind == "bare" and any(start < match.start() < end for start, end in code):
            continue  # a size in code is no claim
        if lent and not first:
            number = replace(number, otherwise=number.read_as(*lent))
        yield number


#: A number in its text, its unit in SI, and whether the unit stands at it.
_Printed = tuple[re.Match[str], tuple[Kind, float], bool]


def _lent_units(plain: str, printed: Sequence[_Printed]) -> list[tuple[tuple[Kind, float] | None, bool]]:
    """Per number the unit that a neighbour lends it, and whether it is read so at first: where the very next number
    has it."""
    lent: list[tuple[tuple[Kind, float] | None, bool]] = [(None, False)] * len(printed)
    alone = [unit[0] == "bare" and not stands for _, unit, stands in printed]
    joint = [bool(_JOINT.fullmatch(plain[one[0].end() : other[0].start()])) for one, other in pairwise(printed)]
    for place in reversed(range(len(joint))):
        if joint[place] and alone[place]:
            _, unit, stands = printed[place + 1]
            lent[place] = (unit, True) if stands else (lent[place + 1][0], False)
    for place in range(1, len(printed)):
        if joint[place - 1] and alone[place] and lent[place][0] is None and printed[place][0]["fraction"]:
            _, unit, stands = printed[place - 1]
            lent[place] = (unit if stands else lent[place - 1][0], False)
    return lent


def _number(match: re.Match[str], kind: Kind, factor: float) -> Number:
    digits = re.sub(r"[,\u202f]", "", match["digits"])
    decimals = len(match["fraction"]) - 1 if match["fraction"] else 0
    power = match["power"] or ""
    value = _finite(float(f"{digits}{match['fraction'] or ''}{power}") * factor)
    half = min(_finite(0.5 * 10.0**-decimals * float(f"1{power}") * factor), 0.5 * value if power else math.inf)
    if not decimals and not match["power"] and (zeros := len(digits) - len(digits.rstrip("0"))):
        half = _finite(half * 10.0 ** min(zeros, max(0, len(digits) - 2), 300))  # `1,200` may be 1,234 to two digits
    return Number(match[0].strip(), value, half, kind, match.start(), decimals, value / factor if factor else value)


def _finite(value: float) -> float:
    """A number as printed may have any exponent; nothing that was measured comes near the largest one."""
    return min(value, sys.float_info.max)


_IN_HEADER = re.compile(rf"(?:[(\[,]|\bin\b)\s*(?P<unit>{UNIT})s?\s*[)\]]?\s*$")


def _of_column(row: str, at: int, header: tuple[str, ...]) -> tuple[Kind, float]:
    column = row[:at].count("|") - (1 if row.lstrip().startswith("|") else 0)
    if not 0 <= column < len(header):
        return "bare", 1.0
    match = _IN_HEADER.search(header[column].strip())
    if match is None:
        scale = re.search(r"\b(?:thousand|million|billion|trillion)\b", header[column].lower())
        return _UNITS[scale[0]] if scale else ("bare", 1.0)
    return _UNITS.get(match["unit"]) or ("bare", 1.0)


_LIST = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+")
_FENCE = re.compile(r"\s*(```|~~~)")
_HEADING = re.compile(r"\s{0,3}#{1,6}\s")
_RULE = re.compile(r"\s*\|?\s*:?-{2,}:?\s*(\|\s*:?-{2,}:?\s*)*\|?\s*$")
#: A sentence ends at a stop before a capital, a figure, a quotation or a formatted word; not inside a number, after an
#: initial or a common abbreviation.
_END = re.compile(
    r"(?<!\be\.g)(?<!\bi\.e)(?<!\bvs)(?<!\bcf)(?<!\bFig)(?<![ (][A-Z])[.!?][\"'”’)*_]*\s+(?=[A-Z0-9`\"“'(*_\[])"
)


def sentences(markdown: str) -> list[Sentence]:
    """The sentences of a markdown text, in order; each with its place, so that it can be taken out."""
    read: list[Sentence] = []
    heading, before, row_before, lead = "", "", "", ""
    header: tuple[str, ...] = ()
    prose: list[tuple[int, str]] = []  # lines of the paragraph or list item that is being read
    block = at = 0

    def close() -> None:
        nonlocal before, lead
        if not prose:
            return
        start, text = prose[0][0], "".join(line for _, line in prose)
        prose.clear()
        marker = _LIST.match(text)
        lead = lead if marker else ""
        offset, least = 0, marker.end() if marker else 0
        for end in [m.end() for m in _END.finditer(text) if m.end() > least] + [len(text)]:
            piece = text[offset:end]
            if said := " ".join(piece[least:].split() if offset < least else piece.split()):
                read.append(Sentence(said, start + offset, start + end, before, heading, (), block, lead))
                before = said
            offset = end
        if not marker and text.rstrip().endswith(":"):
            lead = " ".join(text.split())

    for line in markdown.splitlines(keepends=True):
        start, at = at, at + len(line)
        text = line.strip()
        if not text or _FENCE.match(line):
            close()
            before, header, row_before, block = "", (), "", block + 1
        elif _RULE.match(line) and "|" in row_before:
            header = tuple(part.strip() for part in row_before.strip("|").split("|"))
            read.pop()  # the header claims nothing by itself
        elif _HEADING.match(line):
            close()
            heading, before, lead, header, block = text.lstrip("# "), "", "", (), block + 1
            read.append(Sentence(heading, start, at, block=block))
        elif text.startswith("|") or header:
            close()
            row_before = text
            read.append(Sentence(text, start, at, "", heading, header, block, lead))
        else:
            if _LIST.match(line):
                close()
                block += 1
            prose.append((start, line))
    close()
    return read
