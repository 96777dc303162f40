"""Which numbers a text of a language model may hold as digits; all others are references.

A quantity (a decimal, or a number with a unit) must be the engineer's, with the same unit.  A whole number may also be
the size of a setting that results know and that is named beside it, or in the same paragraph if nothing is; a mesh must
be one that was priced, proposed or stated.  Ordinals, names that begin with a letter and levels of intervals pass, and
in backticks what a result says word for word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import log10
from typing import Any

from pydantic_core import to_jsonable_python

from formatting.numbers import whole_number
from proposals.agents.settings import ROLE_WORDS

_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]+`", re.DOTALL)
#: A number with the letters, points and hyphens that belong to the same word; or a figure that is no digit to Python,
#: such as ½, unless it is the exponent of a letter.
_WORD = re.compile(
    r"(?<!\w)(?<!\w[-./])(?:[A-Za-z_]\w*+[-./])*+\w*\d(?:[\w]|[.,](?=\d)|-(?=\w)|/(?=\w))*"
    r"|(?<![A-Za-z])[²³¹¼-¾\u2070-\u2089\u2150-\u218b\u2460-\u249b\u24ea-\u24ff\u2776-\u2793]"
)
_NUMBER = re.compile(
    r"((?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?)"
    r"(?:\s?(k|m|b|t|thousand|million|billion|trillion)\b)?",
    re.IGNORECASE,
)
_POWERS = {"": (1,), "k": (1000, 1024), "m": (10**6,), "b": (10**9,), "t": (10**12, 10**3)}
#: What makes a quantity of a number that it follows, and how others write the same.
_UNIT = re.compile(
    r"\s*(%|×|x\b|times\b|percent\b|fold\b|[µnm]?s\b|sec(?:onds?)?\b|min(?:utes?)?\b|h(?:ours?)?\b|days?\b"
    r"|(?:[GMKTP]i?B|B|G)\b(?!\s*(?:tok|param))|[GMKTP]?FLOP|(?:in|of) a hundred\b)",
    re.IGNORECASE,
)
_SAME_UNIT = {
    "percent": "%", "in a hundred": "%", "of a hundred": "%", "x": "×", "times": "×", "fold": "×", "sec": "s",
    "second": "s", "seconds": "s", "minute": "min", "minutes": "min", "hour": "h", "hours": "h", "day": "days",
    "g": "gb",
}  # fmt: skip
#: What is counted off by its number, and levels of intervals.
_PLACE = rf"#?\d+\b(?![.,]\d)(?!{_UNIT.pattern})"
_COUNTED = re.compile(
    r"^[ \t]*(?:>[ \t]*)?(?:#+[ \t]*)?\**\d+[.)](?=\s)|\b(?:sections?|chapters?)\s+\d+(?:\.\d+)*"
    r"|\b(?:proposals?|findings?|options?|steps?|candidates?|configurations?|alternatives?|passages?|records?|points?"
    r"|stages?|turns?|experiments?|questions?|slots?|cores?|devices?|ranks?),?\s+(?:(?:number|no\.|nr\.?)\s+)?"
    rf"{_PLACE}(?:\s*(?:,|and|or|to|&|–|-)\s*{_PLACE})*|\b\d+(?:st|nd|rd|th)\b|#\d+\b(?![.,]\d)|\b\d-?D\b"
    r"|\b(?:80|95)\s?%(?=[- ]*(?:interval|range|prediction|confidence|band|level|bounds?\b)|[\s.,;)]*$)|(?<=at )80\s?%",
    re.IGNORECASE | re.MULTILINE,
)
#: Keys of results by what prose calls them; axes have their roles.
_SETTINGS = {
    "chip": ("chips",), "gpu": ("chips",), "tpu": ("chips",), "core": ("cores", "recorded_cores"),
    "host": ("hosts", "chips_per_host"),
    "layer": ("layers",), "expert": ("experts",), "head": ("heads", "kv_heads"), "slice": ("slices",),
    "dimension": ("head_dim", "d_model", "d_ff"),
    "batch": ("global_batch", "micro_batch", "grad_accum"), "microbatch": ("micro_batch", "grad_accum"),
    "stage": ("virtual_stages", "pipeline"),
    "accumulation": ("grad_accum",), "sequence": ("global_batch", "micro_batch", "seq_len"), "length": ("seq_len",),
    "context": ("seq_len",), "shard": ("data", "fsdp"), "way": tuple(dict.fromkeys(ROLE_WORDS.values())),
}  # fmt: skip
_KEYS = frozenset(key for keys in _SETTINGS.values() for key in keys)
#: The name that stands before a size, and after it.
_BEFORE = re.compile(
    r"([A-Za-z][\w.]*?)(?:_parallelism)?[`'\"]*(?:\s+size)?(?:\s*[=:]|\s+(?:of|is|to|at|stays)\s|\s)\s*[`'\"]*\Z"
)
_AFTER = re.compile(r"[-\s]+(?:[a-z]+[-\s]+)?([A-Za-z_]+)")
_PAIR = re.compile(r"([A-Za-z_][\w.]*)(?:\s*[=:]\s*[\"']?| (?:of )?(?=\d))(\w*)")
_MESH = re.compile(rf"(?:{_PAIR.pattern}(?:[,;·× `]+(?:and |by )?`?|\Z|(?=[.)|])))+")
_NEXT = re.compile(r"[-\s]*\w*")
#: A whole number from this on that results know may stand without the name of what it is of.
TELLING = 100
_TYPED = "is a number that you typed; refer to the value of a result instead, such as {r1.step_time_s}"
_UNKNOWN = (
    "is no size or mesh that is current, proposed, priced in this conversation or stated by the engineer; price the "
    "configuration first, or refer to the value of a result"
)


@dataclass(frozen=True)
class Typed:
    """What a text may hold as digits.

    words: what the engineer wrote.  results: tool results by their name.  arguments: of tool calls.
    """

    words: Sequence[str] = ()
    results: Mapping[str, object] = field(default_factory=dict)
    arguments: Sequence[object] = ()

    def refused(self, text: str, references: Iterable[tuple[int, int]] = ()) -> Iterator[tuple[int, int, str]]:
        """Yield (start, end, sentence) of each number that may not be digits in `text`.

        references: places of the references in it.
        """
        for start, end in references:
            text = text[:start] + " " * (end - start) + text[end:]
        text = re.sub(r"(?<=\d)×(?=\d)", "x", text)
        code = [match.span() for match in _CODE.finditer(text)]
        text = _CODE.sub(lambda match: _blank(match) if self._is_said(match[0]) else match[0], text)
        text = _COUNTED.sub(_blank, text)
        for match in _MESH.finditer(text):
            sizes = _axes(match[0])
            if len(sizes) > 1 and not self._is_mesh(sizes):
                yield *match.span(), f"“{match[0].strip()[:60]}” {_UNKNOWN}."
                text = text[: match.start()] + _blank(match) + text[match.end() :]
        for match in _WORD.finditer(text):
            if not self._may_stand(match, any(start <= match.start() < end for start, end in code)):
                name = _BEFORE.search(text, max(0, match.start() - 60), match.start())
                start = name.start() if name and _keys(name[1]) else match.start()
                why = _TYPED if start == match.start() else _UNKNOWN
                yield start, match.end(), f"“{text[start : match.end()][:60]}” {why}."

    def may_compute_with(self, number: float) -> bool:
        """Return True for a number that an expression may hold unsaid: the engineer's, a known size, a power of ten."""
        return number in self._stated or number in self._sizes or (number >= 1 and log10(number).is_integer())

    def _may_stand(self, word: re.Match[str], in_code: bool) -> bool:
        """Return True for names, for the engineer's numbers, and for whole numbers that are sizes of what is named."""
        text, number = word.string, _NUMBER.match(word.string, word.start())
        end = max(word.end(), number.end()) if number else word.end()
        unit = _UNIT.match(text, end)
        if word[0].casefold() in self._names or number is None:
            return word[0].casefold() in self._names or (word[0][0].isascii() and not unit)
        rest = text[number.end() : end]
        if re.search(r"\d", rest):  # a shape
            return all(int(each) in self._sizes and int(each) >= TELLING for each in re.findall(r"\d+", word[0]))
        unit = unit or _UNIT.fullmatch(rest)
        if any(
            (value, _unit(unit)) in self._quantities or (not unit and value in self._stated)
            for value in _values(number)
        ):
            return True
        if unit or whole_number(number[1].replace(",", "")) is None or text[word.start() - 1 : word.start()] == "$":
            return False
        sizes = set(map(int, _values(number)))
        before = _BEFORE.search(text, max(0, word.start() - 60), word.start())
        beside = [found[1] for found in (before, _AFTER.match(text, number.end())) if found]
        named = [name for name in beside if _keys(name)]
        if in_code and not named:  # a shape, or a program's own setting, which is not priced
            return bool(sizes & self._sizes) or before is not None
        phrase = text[word.start() : end] + _NEXT.match(text, end)[0]  # type: ignore[index]
        if not named and (self._is_said(phrase) or any(size in self._sizes for size in sizes if size >= TELLING)):
            return True
        begin, end = text.rfind("\n\n", 0, word.start()) + 1, text.find("\n\n", word.end())
        named = named or re.findall(r"[A-Za-z_]+", text[begin : end if end >= 0 else len(text)])
        keys = {key for name in named for key in _keys(name)}
        return any((key, size) in self._pairs or self._is_mesh({key: size}) for key in keys for size in sizes)

    def _is_mesh(self, sizes: Mapping[str, int]) -> bool:
        """Return True if one known mesh has these sizes; an axis that it lacks is 1."""
        return any(all(mesh.get(axis, 1) == size for axis, size in sizes.items()) for mesh in self._meshes)

    def _is_said(self, code: str) -> bool:
        """Return True for a piece of a result's text, word for word; shortened at its end where it ends in …"""
        said = code.strip("`").strip().casefold().partition("…")[0]
        is_text = len(said) > 3 and re.search(r"[a-z].*\d|\d.*[a-z]", said) and not _PAIR.search(said)
        return bool(is_text) and any(said in text for text in self._small)

    @cached_property
    def _quantities(self) -> frozenset[tuple[float, str]]:
        """Numbers that the engineer wrote, each with its unit, empty where it has none."""
        written = ((text, match) for text in self.words for match in _NUMBER.finditer(text))
        return frozenset(
            (each, _unit(_UNIT.match(text, match.end()))) for text, match in written for each in _values(match)
        )

    @cached_property
    def _stated(self) -> frozenset[float]:
        return frozenset(value for value, _ in self._quantities)

    @cached_property
    def _nodes(self) -> tuple[tuple[str, Any], ...]:
        """(key, value) of everything in results and arguments."""
        return tuple(_nodes(to_jsonable_python([dict(self.results), list(self.arguments)], serialize_unknown=True)))

    @cached_property
    def _texts(self) -> tuple[str, ...]:
        return (
            *(key for key, _ in self._nodes),
            *(each for _, each in self._nodes if isinstance(each, str)),
            *self.words,
        )

    @cached_property
    def _small(self) -> tuple[str, ...]:
        return tuple(text.casefold() for text in self._texts)

    @cached_property
    def _names(self) -> frozenset[str]:
        """Words with a digit in texts of results, and in what the engineer wrote; topologies as `4x4x8`."""
        words = [word.casefold() for text in self._texts for word in _WORD.findall(text)]
        parts = (part for word in words for part in re.split(r"[_-]", word))
        shapes = ("x".join(map(str, each)) for _, each in self._nodes if isinstance(each, list))
        return frozenset(word for word in (*words, *parts, *shapes) if re.search(r"[a-z_]|\..*\.", word))

    @cached_property
    def _sizes(self) -> frozenset[int]:
        """Whole numbers of results, and those of their texts that are large enough to tell what they are."""
        written = (int(value) for text in self._texts for match in _NUMBER.finditer(text) for value in _values(match))
        known = (value for _, value in self._nodes if type(value) is int)
        return frozenset((*known, *(value for value in written if value >= TELLING)))

    @cached_property
    def _pairs(self) -> frozenset[tuple[str, int]]:
        """(key, whole number) of results, and of settings in their texts."""
        known = [(key, value) for key, value in self._nodes if type(value) is int]
        known += [pair for text in self._texts for pair in _written(text)]
        return frozenset((key.rpartition(".")[2].casefold(), value) for key, value in known)

    @cached_property
    def _meshes(self) -> list[dict[str, int]]:
        """Sizes by role of every mesh in results, arguments and the engineer's words."""
        written = [_axes(match[0]) for text in self._texts for match in _MESH.finditer(text)]
        return written + [_roles(value.items()) for _, value in self._nodes if isinstance(value, dict)]


def _nodes(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (key, value) of JSON and of all that is in it; rows of a list have its key."""
    yield key, value
    inside = (
        value.items() if isinstance(value, dict) else ((key, each) for each in value) if isinstance(value, list) else ()
    )
    for name, each in inside:
        yield from _nodes(each, name)


def _axes(text: str) -> dict[str, int]:
    """Return the axes of a mesh as it is written, by their roles."""
    return _roles(_written(text))


def _written(text: str) -> Iterator[tuple[str, int]]:
    """Yield (key, whole number) of settings in a text."""
    named = ((match[1], whole_number(match[2])) for match in _PAIR.finditer(text))
    return ((key, value) for key, value in named if value is not None)


def _roles(sizes: Iterable[tuple[str, Any]]) -> dict[str, int]:
    named = ((name.rpartition(".")[2].casefold(), size) for name, size in sizes if type(size) is int)
    return {ROLE_WORDS[name]: size for name, size in named if name in ROLE_WORDS}


def _keys(word: str) -> tuple[str, ...]:
    """Return the keys and roles that a word of prose, an axis or a key may mean; none for other words."""
    name = re.sub(r"^(?:ici|dcn)[._]", "", word.casefold())
    names = dict.fromkeys((name, re.sub(r"(?:(?<=ch)es|s)\Z", "", name)))
    own = (each for each in names if each in _KEYS)
    return (*own, *(ROLE_WORDS[each] for each in names if each in ROLE_WORDS), *(
        key for each in names for key in _SETTINGS.get(each, ())
    ))  # fmt: skip


def _blank(match: re.Match[str]) -> str:
    return " " * len(match[0])


def _unit(found: re.Match[str] | None) -> str:
    name = found[1].casefold() if found else ""
    return _SAME_UNIT.get(name, name)


def _values(number: re.Match[str]) -> list[float]:
    """Return what a number may mean: `32k` is 32,000 or 32,768."""
    return [float(number[1].replace(",", "")) * each for each in _POWERS[(number[2] or "")[:1].casefold()]]
