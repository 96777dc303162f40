"""Quantities as text: SI units after a no-break space, minus as −, times as ×.  Pure functions.

Every function takes an SI value and returns what a reader sees: three significant digits, since no measurement here is
known better, and two of what is predicted (`by_origin`).  Errors, answers, the command line and JSON take the same with
ordinary spaces (`plain`).  None is the caller's to handle: a missing value is "not measured" with its reason, which no
formatter can know.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from math import floor, isfinite, log10

NBSP = "\u00a0"
MINUS = "\u2212"
TIMES = "\u00d7"

_SI_PREFIXES = (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1.0))

#: From so many seconds on, in this unit.
_TIMES = (
    (86_400.0 * 2, 86_400.0, "days"),
    (3_600.0 * 3, 3_600.0, "h"),
    (1.0, 1.0, "s"),
    (1e-3, 1e-3, "ms"),
    (1e-6, 1e-6, "µs"),
)

#: Evidence units (diagnosis.report.SourcedValue.unit) and how their numbers end.
_SUFFIXES = {"bytes": "B", "bytes_per_s": "B/s", "flops_per_s": "FLOP/s", "flops": "FLOP", "tokens_per_s": "tokens/s"}


@dataclass(frozen=True)
class Quantity:
    """A number and its unit, apart, so that a page can set the unit smaller."""

    number: str
    unit: str

    def __str__(self) -> str:
        if not self.unit:
            return self.number
        return f"{self.number}{self.unit}" if self.unit == TIMES else f"{self.number}{NBSP}{self.unit}"


def number(value: float, decimals: int = 0) -> str:
    """Thousands separated by commas, minus as −."""
    return f"{value:,.{decimals}f}".replace("-", MINUS)


def significant(value: float, digits: int = 3) -> str:
    """So many significant digits; whole digits before the point are never dropped.  `–` for what is no number."""
    if not isfinite(value):
        return "–"
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits - 1}e}")  # 99.97 has as many decimals as the 100 it is printed as
    return number(value, min(max(0, digits - 1 - floor(log10(abs(rounded)))), 8))


def seconds(value: float, precise: bool = False, digits: int = 3) -> Quantity:
    """Time in the unit an engineer would use: days, h, s, ms, µs or ns.  precise: one digit more."""
    digits += precise
    size = abs(float(f"{value:.{digits - 1}e}"))  # 0.9997 s is 1.00 s, not 1,000 ms
    if size == 0:
        return Quantity("0", "ms")
    for least, unit, name in _TIMES:
        if size >= least:
            return Quantity(significant(value / unit, digits), name)
    return Quantity(significant(value * 1e9, digits), "ns")


def duration(value: float) -> str:
    """How long a piece of work took, for people: `0.4 s`, `12 s`, `3 min 20 s`."""
    if value < 0.05:
        return f"{number(value * 1e3)}{NBSP}ms"
    if round(value) < 60:
        return f"{number(value, 1 if value < 10 else 0)}{NBSP}s"
    return f"{number(round(value) // 60)}{NBSP}min {number(round(value) % 60)}{NBSP}s"


def dollars(value: float) -> str:
    """Return money with as many digits as it needs: `$0.07`, `$0.00042`, `$12,500,000`."""
    if value >= 1000:
        return f"${number(float(f'{value:.3g}'))}"
    return f"${number(value, 2)}" if value >= 0.01 or value == 0 else f"${significant(value, 2)}"


#: Percent that floating point leaves of nothing.
ROUNDING_PERCENT = 1e-6
#: Percent below which a share is shown as a bound: no profile tells more of it.
SMALLEST_PERCENT = 0.1


def share(value: float, digits: int = 3) -> Quantity:
    """A share 0–1 in percent; 99.993 % is 100 %, 0.0002 % is < 0.1 %."""
    percent = value * 100
    if ROUNDING_PERCENT <= abs(percent) < SMALLEST_PERCENT:
        return Quantity(f"< {SMALLEST_PERCENT}" if percent > 0 else f"> {MINUS}{SMALLEST_PERCENT}", "%")
    if abs(percent) < ROUNDING_PERCENT or abs(percent) >= 100:
        return Quantity(number(percent), "%")
    if abs(percent) < 1:
        return Quantity(significant(percent, digits).rstrip("0").rstrip("."), "%")
    return Quantity(significant(percent, digits), "%")


def probability(value: float) -> Quantity:
    """As people say it: `73 %`; never 0 or 100 unless it is."""
    percent = round(value * 100)
    return Quantity(str(min(max(percent, 1), 99) if 0 < value < 1 else percent), "%")


#: The ends of what is stated of a chance.
LEAST_CHANCE, MOST_CHANCE = 0.02, 0.95


def chance(value: float) -> Quantity:
    """Return a stated probability, `≥ 95 %` or `≤ 2 %` at the ends of what is stated."""
    bound = "≥ " if value >= MOST_CHANCE else "≤ " if value <= LEAST_CHANCE else ""
    return Quantity(f"{bound}{probability(value).number}", "%")


def _prefixed(value: float, suffix: str, digits: int = 3) -> Quantity:
    size = abs(float(f"{value:.{digits - 1}e}"))  # 999.9 MB is 1.00 GB, not 1,000 MB
    for prefix, factor in _SI_PREFIXES:
        if size >= factor:
            return Quantity(significant(value / factor, digits) if factor > 1 else number(value), f"{prefix}{suffix}")
    return Quantity(significant(value, digits), suffix)


def quantity(value: float, unit: str, digits: int = 3) -> Quantity:
    """Return a value by its unit: one of the cases below, or a plain number of so many digits."""
    if unit == "s":
        return seconds(value, digits=digits)
    if unit == "share":
        return share(value, digits)
    if unit == "speedup":
        return Quantity(number(value, 2) if 0.1 <= abs(value) < 10 else significant(value), TIMES)
    if unit in ("probability", "chance"):
        return probability(value) if unit == "probability" else chance(value)
    if unit in _SUFFIXES:
        return _prefixed(value, _SUFFIXES[unit], digits)
    if unit in ("count", "") and float(value).is_integer():
        return Quantity(number(value), "")
    return Quantity(significant(value, digits), unit if unit != "count" else "")


def by_origin(value: float, unit: str, origin: str) -> Quantity:
    """The digits that its origin allows: two of what is predicted, else three.  A speed-up has two decimals, since what
    it gains is read off them, and memory three digits, since it is held against a capacity."""
    return quantity(value, unit, 2 if origin == "predicted" and unit != "bytes" else 3)


def plain(value: float, unit: str, origin: str = "") -> str:
    """`by_origin` with ordinary spaces."""
    return str(by_origin(value, unit, origin)).replace(NBSP, " ")


def limit(value: float, unit: str, digits: int = 3) -> str:
    """A limit or setting, which is exact: without trailing zeros, with ordinary spaces: `50 MB`, `2.5 s`.

    digits: six of what a person has given, which is repeated as it was said.
    """
    shown = quantity(value, unit, digits)
    return f"{shown.number.rstrip('0').rstrip('.') if '.' in shown.number else shown.number} {shown.unit}"


def compared(one: float, other: float, unit: str) -> tuple[str, str]:
    """Both sides of a comparison with the digits that tell them apart, with ordinary spaces: `192.4 GB`, `191.9 GB`."""
    first, second = (str(shown).replace(NBSP, " ") for shown in _told_apart(one, other, unit, 3))
    return first, second


def _told_apart(one: float, other: float, unit: str, digits: int) -> tuple[Quantity, Quantity]:
    """Both with so many digits, or as many more as tell them apart."""
    pairs = [(quantity(one, unit, n), quantity(other, unit, n)) for n in range(digits, 7)]
    return next((pair for pair in pairs if pair[0] != pair[1]), pairs[0])


def span(low: float, high: float, unit: str, digits: int = 3) -> str:
    """A range, with ordinary spaces: `0.85–1.37×`, `1.22–1.25 s`, `980 ms–1.02 s`."""
    one, other = _told_apart(low, high, unit, digits)
    return f"{one.number if one.unit == other.unit else one}–{other}".replace(NBSP, " ")


def large(value: float) -> str:
    """A large count: `70.6 billion`, `420 trillion`."""
    rounded = float(f"{value:.2e}")
    for size, word in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if rounded >= size:
            return f"{rounded / size:,g} {word}"
    return number(value)


def counted(count: float, noun: str) -> str:
    """`1 op`, `2,000 ops`, `4 batches`."""
    return limit(count, f"{noun}{'' if count == 1 else 'es' if noun.endswith(('ch', 'sh')) else 's'}")


def listed(words: Sequence[str], word: str = "and") -> str:
    """`data`, `data and seq`, `data, seq and model`."""
    return f" {word} ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def first(words: Sequence[str], most: int) -> str:
    """`a, b, c and 4 more`."""
    return ", ".join(words[:most]) + (f" and {number(len(words) - most)} more" if len(words) > most else "")


def with_sign(value: float, text: str) -> str:
    """The text of a change, with a + where it is a rise; a fall has its − and what reads 0 has neither."""
    return f"+{text}" if value > 0 and text != "0" else text


def did_you_mean(word: str, known: Iterable[str], most: int = 3, cutoff: float = 0.6, quote: str = "") -> str:
    """` Did you mean axis_size or axis_sum?`, to follow the sentence that refuses a word; empty if nothing is near."""
    near = [f"{quote}{name}{quote}" for name in get_close_matches(word, list(known), n=most, cutoff=cutoff)]
    return f" Did you mean {listed(near, 'or')}?" if near else ""


def topology(dims: Iterable[int]) -> str:
    return TIMES.join(str(dim) for dim in dims)
