"""Which figures a message means: those with its numbers, within their rounding, and those that its words name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, permutations

from formatting import plain, significant
from proposals.agents.figures.figure import Figure
from proposals.agents.grounding_claims import QUANTITIES, Number, numbers
from proposals.agents.grounding_facts import stems
from proposals.agents.grounding_match import proposals_named

#: A number said with a single digit still means values no further off than this.
CLOSEST = 0.06
#: Numbers of a message that are looked up, and figures that its words may name.
MOST_NUMBERS, MOST_NAMED = 8, 4
#: What engineers call what figures have another name for.
_CALLED = (
    (
        re.compile(r"\b(?:moe|all-?to-?all|all2all|dispatch\w*|deepep)\b", re.IGNORECASE),
        "expert tokens exposed communication",
    ),
    (re.compile(r"\b(?:tp|tensor[- ]parallel\w*)\b", re.IGNORECASE), "activations model exposed communication"),
    (re.compile(r"\b(?:fsdp|zero-?[123]|gather\w*)\b", re.IGNORECASE), "weights gradients exposed communication"),
    (re.compile(r"\b(?:pp|bubbles?)\b", re.IGNORECASE), "pipeline bubble idle"),
    (re.compile(r"\b(?:gaps?|nothing)\b", re.IGNORECASE), "idle"),
)
#: Spellings of units that engineers type.
_SPELT = (
    (re.compile(r"(?<=\d)(\s?)([TGPM])F(?:/s|lops?/s|lops)?\b"), r"\1\2FLOP/s"),
    (re.compile(r"(?<=\d)\s?gigs?\b", re.IGNORECASE), " GB"),
    (re.compile(r"(?<=\d)(\s?)gb(/s)?\b"), r"\1GB\2"),
    (re.compile(r"(?<=\d)(\s?)mb(/s)?\b"), r"\1MB\2"),
    (re.compile(r"(?<=\d)\s?per ?cent\b", re.IGNORECASE), " %"),
    (re.compile(r"(\d)\s*\+\s*(?=\d)"), r"\1, "),
)


@dataclass(frozen=True)
class Named:
    """A number of a message.  found: the figures that it can be, the likeliest first; nearest: what the run says of the
    same thing where none has it; follows: how it follows from two other figures of the message."""

    said: str
    number: Number
    found: tuple[Figure, ...]
    nearest: Figure | None = None
    follows: str = ""


def with_canonical_units(text: str) -> str:
    """The text with its units as `numbers` reads them."""
    for pattern, to in _SPELT:
        text = pattern.sub(to, text)
    return text


#: What follows a number that shares its unit with the next one: `45, 60 and 90 GB/s`.
_LISTED = re.compile(r"\s*(?:,|and|or|/|vs\.?|→|to)\s*\d")


def numbers_in_text(text: str) -> list[Number]:
    """Numbers of a message that may be figures: with a unit, of three digits, or beside one that has a unit."""
    stated = [n for n in numbers(with_canonical_units(text)) if not n.is_small_count]
    plain, any_unit = with_canonical_units(text), any(n.kind != "bare" for n in stated)
    return [
        n
        for n in stated
        if n.kind != "bare"
        or n.value >= 100
        or n.decimals
        or (any_unit and _LISTED.match(plain, n.start + len(n.text)))
    ]


def _readings(number: Number, beside: Sequence[Number]) -> Iterator[Number]:
    """What a number can mean: itself; one without a unit has that of another, the nearest first; GB may be GiB."""
    yield number
    if number.kind == "bare":
        for like in sorted(beside, key=lambda n: abs(n.start - number.start)):
            factor = like.value / _digits(like.text) if _digits(like.text) else 1.0
            yield replace(number, value=number.value * factor, half=number.half * factor, kind=like.kind)
        if number.decimals:
            yield replace(number, value=number.value / 100, half=number.half / 100, kind="share")
    elif number.kind == "bytes":
        yield replace(number, value=number.value * 2.0**30 / 1e9, half=number.half)


def _digits(text: str) -> float:
    match = re.search(r"[\d,]*\.?\d+", text)
    return float(match[0].replace(",", "")) if match else 0.0


def look_up(text: str, figures: Sequence[Figure]) -> list[Named]:
    """The numbers of a message with the figures that they can be; one without a unit that none has is left out."""
    words, asked = _words(text), proposals_named(text)
    named: list[Named] = []
    said = numbers_in_text(text)
    units = [number for number in said if number.kind != "bare"]
    for number in said[:MOST_NUMBERS]:
        same: list[Figure] = []
        for reading in _readings(number, units):
            same = [item for item in figures if _is(reading, item, text, words)]
            if same:
                break
        ranked = sorted(same, key=lambda item: _rank(number, item, words, asked, text))
        chosen = tuple(_distinct(ranked, words))
        near = None if chosen else _nearest(number, figures, words)
        if chosen or number.kind != "bare":
            named.append(Named(number.text, number, chosen, near))
    first = [item.found[0] for item in named if item.found and item.number.half < 0.05 * item.number.value]
    return [_following(item, first) for item in named]


def _following(item: Named, first: Sequence[Figure]) -> Named:
    """With how it follows from two other numbers, where no figure has it for certain."""
    follows = "" if item.found and item.number.half < 0.05 * item.number.value else _follows(item.number, first)
    return replace(item, found=(), nearest=None, follows=follows) if follows else item


_GAINS = re.compile(r"gain|fast|slow|sav|speed|improv|better|win\b", re.IGNORECASE)


def _follows(number: Number, first: Sequence[Figure]) -> str:
    """How a share or a ratio follows from two figures of the same message; empty where it does not."""
    if number.kind not in ("share", "ratio"):
        return ""
    for one, other in permutations(first, 2):
        if one.kind != other.kind or not other.value or one.kind in ("share", "ratio"):
            continue
        ratio = one.value / other.value
        value = abs(ratio - 1) if number.kind == "share" else ratio
        if abs(value - number.value) <= max(number.half, 0.15 * number.value if number.kind == "share" else 0.0):
            much = plain(value, "share" if number.kind == "share" else "speedup")
            return f"{one.text} against {other.text}: {much}"
    return ""


def _words(text: str) -> frozenset[str]:
    """Stems of a message, with what its words call by another name."""
    called = " ".join(to for pattern, to in _CALLED if pattern.search(text))
    return stems(f"{with_canonical_units(text)} {called}")


def _is(number: Number, item: Figure, text: str, words: frozenset[str]) -> bool:
    if number.kind == "share" and item.kind == "ratio" and _GAINS.search(text):
        return abs(abs(item.value - 1) - number.value) <= number.half * 1.02
    if item.kind != number.kind:
        return False
    if _rough(number) and not item.stems & words:
        return False
    slack = min(number.half * 1.02, CLOSEST * abs(number.value)) or 1e-12
    return abs(abs(item.value) - number.value) <= slack + 2e-3 * number.value * (number.kind != "bare")


def _rough(number: Number) -> bool:
    """Whether it is said with so few digits that many figures have it: one, or as a share two."""
    return number.kind != "bare" and number.half >= (0.01 if number.kind == "share" else 0.05) * number.value


def _rank(number: Number, item: Figure, words: frozenset[str], asked: set[int], text: str) -> tuple[float, ...]:
    named = any(len(of) > 2 and of.lower() in text.lower() for of in item.of)
    other = bool(asked) and not any(f"proposal {n}" in item.of for n in asked) and item.place.startswith("proposal")
    return other, -2 * named - len(item.stems & words), -item.weight, abs(abs(item.value) - number.value)


def _distinct(ranked: Sequence[Figure], words: frozenset[str], most: int = 3) -> list[Figure]:
    """Figures of different quantities, no less named by the message than the first, and no copies for further
    configurations."""
    kept: list[Figure] = []
    for item in ranked:
        if kept and len(item.stems & words) < len(kept[0].stems & words):
            continue
        if all(item.quantity != other.quantity for other in kept):
            kept.append(item)
    return kept[:most]


def _nearest(number: Number, figures: Sequence[Figure], words: frozenset[str]) -> Figure | None:
    """The figure of the same kind that shares most words with the message, at least two; of those the nearest."""
    same = [i for i in figures if i.kind == number.kind and i.value and 0.1 < abs(i.value) / (number.value or 1) < 10]
    best = max((len(item.stems & words) for item in same), default=0)
    if best < 2:
        return None
    kin = [item for item in same if len(item.stems & words) == best]
    return min(kin, key=lambda item: (-item.weight, abs(abs(item.value) / number.value - 1) if number.value else 0.0))


def by_words(text: str, figures: Sequence[Figure]) -> list[Figure]:
    """The figures that the words of a message name, at least two of them or a whole name, the likeliest first."""
    words, lower = _words(text), text.lower()
    scored = []
    for item in figures:
        score = len(item.stems & words) + sum(_name_weight(of.lower(), lower) for of in item.of)
        if score >= 2:
            scored.append((score, item.weight, item))
    scored.sort(key=lambda row: (-row[0], -row[1]))
    return _distinct([item for _, _, item in scored], frozenset(), MOST_NAMED)


def _name_weight(name: str, text: str) -> int:
    """How much a name in a text counts: an op's, which no other word has, more than an axis's."""
    if len(name) < 3 or not re.search(rf"(?<![\w.]){re.escape(name)}(?![\w]|\.\d)", text):
        return 0
    return 6 if re.search(r"[\d_.]", name) else 2


def relations(figures: Sequence[Figure], step: float | None) -> list[str]:
    """Relations between figures next to each other in a message, in sentences."""
    said: list[str] = []
    for one, other in pairwise(dict.fromkeys(figures)):
        if sentence := _relation(one, other, step):
            said.append(sentence)
    return said[:3]


def _relation(one: Figure, other: Figure, step: float | None) -> str:
    kinds = {one.kind: one, other.kind: other}
    if step and {"time", "share"} == set(kinds):
        time, share = kinds["time"], kinds["share"]
        if abs(share.value * step - time.value) <= 0.02 * time.value:
            return f"{time.text} is {share.text} of the step of {plain(step, 's')}: the same thing in two units."
        return ""
    if one.kind != other.kind or not one.value or not other.value or one.label == other.label:
        return ""
    if max(abs(one.value), abs(other.value)) > 30 * min(abs(one.value), abs(other.value)):
        return ""  # a part beside the whole step
    apart = plain(abs(one.value - other.value), QUANTITIES[one.kind])
    factor = max(abs(one.value), abs(other.value)) / min(abs(one.value), abs(other.value))
    differ = f"they differ by {apart}, a factor of {significant(factor)}"
    how = differ if apart.strip("0 %") else "they are equal as printed"
    ways = [item.counts or item.formula.splitlines()[0] if item.counts or item.formula else "" for item in (one, other)]
    if all(ways) and ways[0] != ways[1]:
        return (
            f"{one.text} and {other.text} are counted differently, so both can be right: the first {ways[0]}; the "
            f"second {ways[1]}; {how}."
        )
    if one.origin != other.origin:
        return f"{one.text} is {one.origin}, {other.text} {other.origin}: two sources; {how}."
    return f"{one.text} is the {one.label}, {other.text} the {other.label}: two quantities; {how}."
