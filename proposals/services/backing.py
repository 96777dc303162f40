"""Does every number in a sentence come from something that was measured, computed or predicted in this run?

A number in text is compared, in SI and to the digits it is printed with, to the facts of the run: every number of the
diagnosis, the plan, the configuration, the profile and the chip, and a few stated derivations of them.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

#: What one of the unit is in SI.  Anything after a number that is no unit leaves it a bare number.
UNITS = {
    "s": 1.0,
    "ms": 1e-3,
    "µs": 1e-6,
    "us": 1e-6,
    "ns": 1e-9,
    "min": 60.0,
    "%": 1e-2,
    "×": 1.0,
    "x": 1.0,
    "B": 1.0,
    "kB": 1e3,
    "KB": 1e3,
    "MB": 1e6,
    "GB": 1e9,
    "TB": 1e12,
    "PB": 1e15,
    "KiB": 2.0**10,
    "MiB": 2.0**20,
    "GiB": 2.0**30,
    "TiB": 2.0**40,
    "kFLOP": 1e3,
    "MFLOP": 1e6,
    "GFLOP": 1e9,
    "TFLOP": 1e12,
    "PFLOP": 1e15,
    "FLOP": 1.0,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "million": 1e6,
    "billion": 1e9,
    "trillion": 1e12,
}
_UNIT = "|".join(re.escape(unit) for unit in sorted(UNITS, key=len, reverse=True))
#: A number that stands by itself: not inside a name (`v5p`, `fusion.12`, `all-reduce.3`), not a part of a longer one.
_NUMBER = re.compile(
    rf"(?<![\w.#%/@-])[−-]?(?P<digits>\d{{1,3}}(?:,\d{{3}})+|\d+)(?P<fraction>\.\d+)?(?P<power>[eE][+-]?\d+)?"
    rf"(?:(?P<unit>[\s\u00a0\u202f]?(?:{_UNIT}))(?:s)?(?=$|[^\w]|/s))?(?![\w]|\.\d|-\w)"
)
#: Names and code are not claims: op names and HLO in backticks, the name of an interval, where a source is pointed at.
_QUOTED = re.compile(r"`[^`]*`")
_POINTER = re.compile(
    r"\b80\s%\sinterval\b|\barXiv[:\s]\s?\d{4}\.\d{4,5}\b|(?:\b(?:sections?|chapters?|chs?\.?|ch\.|appendix|appendices|experiment|figure|fig\.|table|equation|step|rank|"
    r"proposal|rule|layer|dimension|dim)\s+|§\s?)[A-Z]?\.?\d+(?:\.\d+)*(?:(?:\s?(?:,|and|–|-)\s?)\d+(?:\.\d+)*)*",
    re.IGNORECASE,
)
#: Counting words written as figures (`2 of the 3 axes`) claim nothing that could be measured.
SMALL_COUNT = 4


@dataclass(frozen=True)
class Claim:
    """A number as printed.  value in SI; half: half of the last digit printed, in SI."""

    text: str
    value: float
    half: float
    unit: str


def claims(sentence: str) -> Iterator[Claim]:
    """The numbers a sentence claims."""
    bare = _POINTER.sub(" ", _QUOTED.sub(" ", sentence))
    for match in _NUMBER.finditer(bare):
        unit = (match["unit"] or "").strip("\u00a0\u202f ")
        factor = UNITS.get(unit, 1.0)
        digits = match["digits"].replace(",", "")
        decimals = len(match["fraction"]) - 1 if match["fraction"] else 0
        power = 10.0 ** int(match["power"][1:]) if match["power"] else 1.0
        value = float(digits + (match["fraction"] or "")) * power * factor
        half = 0.5 * 10.0**-decimals * power * factor
        if not decimals and not match["power"] and (zeros := len(digits) - len(digits.rstrip("0"))):
            half *= 10.0 ** min(zeros, max(0, len(digits) - 2))  # `1,200` may be 1,234 to two digits
        yield Claim(match[0].strip(), value, half, unit)


class Facts:
    """Numbers of a run, to be looked up by value.  Signs do not count: `−12 %` is backed by 0.12."""

    def __init__(self, values: Iterable[float]) -> None:
        self._values = sorted({abs(value) for value in values})

    def back(self, claim: Claim) -> bool:
        if not claim.unit and claim.value == int(claim.value) and claim.value <= SMALL_COUNT:
            return True
        slack = claim.half * (1 + 1e-9) + 1e-12 * claim.value
        index = bisect_left(self._values, claim.value - slack)
        return index < len(self._values) and self._values[index] <= claim.value + slack


def numbers(value: Any) -> Iterator[float]:
    """Every finite number in a JSON value, those inside its texts included."""
    if isinstance(value, bool) or value is None:
        return
    if isinstance(value, int | float):
        if value - value == 0:
            yield float(value)
    elif isinstance(value, str):
        for claim in claims(value):
            yield claim.value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from numbers(item)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from numbers(item)


def derived(baseline: Mapping[str, Any], predicted: Mapping[str, Any]) -> Iterator[float]:
    """What may be said of a prediction beside its baseline: per quantity the ratio, the difference and its share.

    For shares and speed-ups also what lacks to, or exceeds, one; for communication also sums over axes.
    """
    for key in ("step_time_s", "breakdown_s", "hbm_per_chip_bytes"):
        before, after = baseline.get(key) or {}, predicted.get(key) or {}
        for part in (*before, *(part for part in after if part not in before)):
            old, new = before.get(part) or 0.0, after.get(part) or 0.0
            if not isinstance(old, int | float) or not isinstance(new, int | float):
                continue
            yield old - new
            if old:
                yield from (new / old, 1 - new / old)
            if new:
                yield from (old / new, old / new - 1)
        for group in (before, after):
            yield from _sums(group)
            whole = group.get("capacity") or group.get("estimate")
            yield from (part / whole for part in group.values() if whole and isinstance(part, int | float))
    for key in ("speedup", "speedup_low80", "speedup_high80"):
        speedup = predicted.get(key)
        if speedup:
            yield from (speedup - 1, 1 - 1 / speedup, 1 / speedup)


def _sums(parts: Mapping[str, Any]) -> Iterator[float]:
    """Communication over several axes taken together (`ici:data` and `ici:data+model`), in every combination."""
    times = [value for name, value in parts.items() if name.startswith(("ici", "dcn")) and isinstance(value, float)]
    for count in range(2, min(len(times), 6) + 1):
        yield from (sum(some) for some in combinations(times[:10], count))


def unbacked(sentence: str, facts: Facts) -> list[str]:
    """The numbers of a sentence that nothing in the run backs, as printed."""
    return [claim.text for claim in claims(sentence) if not facts.back(claim)]
