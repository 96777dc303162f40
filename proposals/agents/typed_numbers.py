"""Which numbers a text of a language model may hold as digits; all others are references.

A quantity (a decimal, or a number with a unit) must occur in the conversation, with the same unit.  A whole number may
also be any that results, tool calls or the conversation hold; beside a noun that keys of results have (*16 chips*) one
of that key.  A mesh must be one that was priced, proposed or stated; a chip, an op or the size of a model one that was
named.  Single digits and levels of intervals pass, and in backticks what a result says word for word, but for bare
quantities.
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
from perfmodel.chips import load_chips
from proposals.agents.settings import ROLE_WORDS
from proposals.agents.tool_result import members_of

_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]+`", re.DOTALL)
#: A number with the letters, points and hyphens that belong to the same word; or a figure that is no digit to Python,
#: such as ½, unless it is the exponent of a letter.
_WORD = re.compile(
    r"(?<!\w)(?<!\w[-./])(?:[A-Za-z_]\w*[-./](?=\w))*\w*\d(?:[\w]|[.,](?=\d)|-(?=\w)|/(?=\w))*"
    r"|(?<![A-Za-z])[²³¹¼-¾\u2070-\u2089\u2150-\u218b\u2460-\u249b\u24ea-\u24ff\u2776-\u2793]"
)
_NUMBER = re.compile(
    r"(\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?)(?:\s?(k|m|b|t|thousand|million|billion|trillion)\b)?", re.IGNORECASE
)
_POWERS = {"": (1,), "k": (1000, 1024), "m": (10**6,), "b": (10**9,), "t": (10**12, 10**3)}
#: What makes a quantity of a number that it follows, and how others write the same.
_UNIT = re.compile(
    r"\s*(%|(?<!\s)×|(?<!\s)x\b|times\b|percent\b|fold\b|[µnm]?s\b|sec(?:onds?)?\b|min(?:utes?)?\b|h(?:ours?)?\b|days?\b"
    r"|(?:[GMKTP]i?B|B|G)\b(?!\s*(?:tok|param))|[GMKTP]FLOP|FLOPS?/s|(?:in|of) a hundred\b)",
    re.IGNORECASE,
)
_SAME_UNIT = {
    "percent": "%", "in a hundred": "%", "of a hundred": "%", "x": "×", "times": "×", "fold": "×", "sec": "s",
    "second": "s", "seconds": "s", "minute": "min", "minutes": "min", "hour": "h", "hours": "h", "day": "days",
    "g": "gb",
}  # fmt: skip
#: Numbers of a list's items, levels of intervals, chapters; and names: versions, years, sizes of models.
_COUNTED = re.compile(
    rf"""^[ \t]*(?:>[ \t]*)?(?:\#+[ \t]*|\*\*)?\d+[.)](?=\s) | \b(?:sections?|chapters?)\s+\d+(?:\.\d+)*
    | \b(?:80|95)\s?%(?=[-*_ ]*(?:interval|range|prediction|confidence|band|level|bounds?\b)) | (?<=at\ )80\s?%
    | \b(?:CUDA|cuDNN|NCCL|ROCm|JAX|jaxlib|libtpu|PyTorch|Python|Triton|arXiv:?|version|Llama|Gemma|Qwen|Phi|GPT)
      [ -]?v?\d+(?:\.\d+)*\b(?!{_UNIT.pattern}|[\d.]|-\w) | (?<![\w.])\d+(?:\.\d+){{2,}}(?![\w.]*\d)
    | \b(?:in|since|of|by|from|until|before|after)\s+(?:199|20[0-3])\d\b(?!-\d)
      (?!{_UNIT.pattern}|[\d.,]*\s+(?:chip|core|token|step|op|layer|sequence|head|expert|run|shard|mesh))""",
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)
#: Whole numbers below this are counts and ordinals of what is before the reader.
_FEW = 10
#: What a number counts: the word behind it, or the one after that.
_NOUN = re.compile(r"(?<=[\w`])[ \u00a0](kv|[a-z]{3,})(?:[ ]([a-z]{3,}))?")
#: Nouns whose single digits are sizes, not ordinals.
_PARTS = frozenset(("chip", "core", "layer", "expert", "head", "host", "slice"))
#: An op of a program by its number, a release by year and month, and a date.
_OP = re.compile(r"[a-z][a-z_-]*[.]\d+", re.IGNORECASE)
_RELEASE = re.compile(r"\d\d[.](?:0[1-9]|1[0-2])|20\d\d-\d\d(?:-\d\d)?")
_THOUSANDS = re.compile(r"(?<!\d)\d{1,3}(,\d{3})+(?!\d)")
#: Quotations from here on are sentences, not settings.
_SENTENCE = 30
#: A program's own variable or flag, which is not priced; axes and training keys are looked at before.
_VARIABLE = re.compile(r"(?:[A-Z_]{3}|\b(?!\w*(?:batch|seq|len|parallel))[a-z0-9]+(?:_[a-z0-9]+){3,})=\Z")
_SEPARATORS = re.compile(r"(?<=\d)[-–/x:×](?=\d)")
_PAIR = re.compile(r"([A-Za-z_][\w.]*)(?:\s*[=:]\s*[\"']?| (?:of )?(?=\d))(\w*)")
#: What programs write around the name of an axis.
_AXIS = re.compile(r"^.*\.|^(?:ici|dcn)_|_parallelism$")
_MESH = re.compile(rf"(?:{_PAIR.pattern}(?:[,;·× `]+(?:and |by )?`?|\Z|(?=[.)|])))+")
#: Axes that are no other word, and the global batch: one that was never priced is not spoken of.
_SHORT = frozenset(("tp", "fsdp", "dp", "ep", "pp", "cp"))
_BATCH = re.compile(
    r"(?<!micro[ _-])(?<!mini[ _-])(?<!local )(?<!chip )(?<!device )\bbatch(?:[ _-]size)?(?: (?:of|is) |[ =:] ?)"
    r"(\d[\d,]*)\b",
    re.IGNORECASE,
)
_TYPED = "is a number that you typed; refer to the value of a result instead, such as {r1.step_time_s}"
_UNKNOWN = (
    "is no size or mesh that is current, proposed, priced in this conversation or stated by the engineer; price the "
    "configuration first, or refer to the value of a result"
)


@dataclass(frozen=True)
class Typed:
    """What a text may hold as digits.

    words: of the conversation.  results: tool results by their name.  arguments: of tool calls.
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
            is_setting = len(sizes) > 1 or "=" in match[0] or any(start <= match.start() < end for start, end in code)
            is_setting |= match[1].casefold() in _SHORT
            if sizes and is_setting and not self._is_mesh(sizes):
                yield *match.span(), f"“{match[0].strip()[:60]}” {_UNKNOWN}."
                text = text[: match.start()] + _blank(match) + text[match.end() :]
        for match in _BATCH.finditer(text):
            if whole_number(match[1].replace(",", "")) not in self._batches:
                yield *match.span(), f"“{match[0]}” {_UNKNOWN}."
                text = text[: match.start()] + _blank(match) + text[match.end() :]
        for match in _WORD.finditer(text):
            if not self._may_stand(match):
                around = text[max(0, match.start() - 20) : match.end() + 20].strip()
                yield match.start(), match.end(), f"“{match[0][:60]}” in “{' '.join(around.split())}” {_TYPED}."

    def may_compute_with(self, number: float) -> bool:
        """Return True for a number that an expression may hold unsaid: a stated one, a known size, a power of ten."""
        return number in self._stated or number in self._sizes or (number >= 1 and log10(number).is_integer())

    def _may_stand(self, word: re.Match[str]) -> bool:
        """Return True for names, for stated numbers, and for whole numbers that results or arguments hold."""
        text = word.string
        if word[0].casefold() in self._names and not re.match(r"\s*(?:tok|param)", text[word.end() :]):
            return True
        if word[0].casefold() in load_chips() or _OP.fullmatch(word[0]):
            return False
        if _RELEASE.fullmatch(word[0]):
            return any(word[0] in said for said in self._small)
        number = _NUMBER.match(text, word.start())
        end = max(word.end(), number.end()) if number else word.end()
        unit = _UNIT.match(text, end)
        if number is None:
            return word[0][0].isascii() and not unit
        is_list = "," in word[0] and not _THOUSANDS.search(word[0])
        if is_list or _SEPARATORS.search(word[0]):  # a range or a shape: each of its numbers for itself
            parts = _SEPARATORS.sub(" ", word[0].replace(",", " ") if is_list else word[0]).split()
            tail = text[word.end() : unit.end()] if unit else ""
            return all(self._may_stand(each) for part in parts for each in _WORD.finditer(f"{part}{tail}"))
        rest = text[number.end() : end]
        if re.search(r"\d", rest):
            return bool(re.fullmatch(r"[A-Z]\d+[A-Z]?", rest))  # 1F1B, 8X7B
        unit = unit or _UNIT.match(text, number.end(), end)
        values = _values(number)
        if any((value, _unit(unit)) in self._quantities or (not unit and value in self._stated) for value in values):
            return True
        if unit or text[word.start() - 1 : word.start()] == "$":
            titled = re.search(r"\w*\d[\w-]*\s+\Z", text[: word.start()])
            said = text[titled.start() : unit.end()] if titled and unit else ""
            return bool(said) and any(said.casefold() in text for text in self._small)
        if _VARIABLE.search(text, 0, word.start()):
            return True
        if whole_number(number[1].replace(",", "")) is None:
            return False
        behind = _NOUN.match(text, end)
        nouns = [noun.removesuffix("s") for noun in behind.groups("") if noun] if behind else []
        of = next((self._counts[noun] for noun in nouns if noun in self._counts), self._sizes)
        is_part = any(noun in _PARTS for noun in nouns) and of is not self._sizes
        return any((value < _FEW and not is_part) or value in of for value in values)

    def _is_mesh(self, sizes: Mapping[str, int]) -> bool:
        """Return True if one known mesh has these sizes; an axis that it lacks is 1."""
        return any(all(mesh.get(axis, 1) == size for axis, size in sizes.items()) for mesh in self._meshes)

    def _is_said(self, code: str) -> bool:
        """Return True for a piece of a result's text, word for word; shortened at its end where it ends in …"""
        said = code.strip("`").strip().casefold().partition("…")[0]
        number = _NUMBER.match(said)
        if number and (unit := _UNIT.match(said, number.end())) and len(said) < unit.end() + 3:
            return False
        is_text = len(said) > 3 and bool(re.search(r"[a-z].*\d|\d.*[a-z]", said))
        is_setting = len(said) < _SENTENCE and bool(_PAIR.search(said))
        return is_text and not is_setting and any(said in text for text in self._small)

    @cached_property
    def _quantities(self) -> frozenset[tuple[float, str]]:
        """Numbers of the conversation, each with its unit, empty where it has none."""
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
        """Words with a digit in texts of results, and in the conversation; topologies as `4x4x8`."""
        words = [word.casefold() for text in self._texts for word in _WORD.findall(text)]
        words += [part for word in words for part in re.split(r"[-/_.]", word)]
        shapes = ("x".join(map(str, each)) for _, each in self._nodes if isinstance(each, list))
        return frozenset(word for word in (*words, *shapes) if re.search(r"[a-z_]|\..*\.", word))

    @cached_property
    def _sizes(self) -> frozenset[float]:
        """Whole numbers in results, in their texts and in arguments."""
        texts = (re.sub(r",(?!\d{3}(?!\d))", " ", text) for text in self._texts)  # a shape holds several numbers
        said = (value for text in texts for number in _NUMBER.finditer(text) for value in _values(number))
        return frozenset((*(value for _, value in self._nodes if type(value) is int), *said))

    @cached_property
    def _counts(self) -> Mapping[str, set[float]]:
        """Whole numbers by the nouns in their keys, and by the nouns behind them in texts: `chips`, `16 chips`."""
        counts: dict[str, set[float]] = {}
        for key, value in self._nodes:
            for noun in key.casefold().split("_") if type(value) is int else ():
                counts.setdefault(noun.removesuffix("s"), set()).add(value)
        for text in self._texts:
            for number in _NUMBER.finditer(text):
                behind = _NOUN.match(text, number.end())
                for noun in behind.groups("") if behind else ():
                    if (known := counts.get(noun.removesuffix("s"))) is not None:
                        known.update(_values(number))
        if "token" in counts:
            counts["token"] |= counts.get("len", set())  # of a sequence
        return counts

    @cached_property
    def _batches(self) -> frozenset[object]:
        """Global batches in results and arguments, and all numbers of the engineer."""
        said = (whole_number(match[1].replace(",", "")) for text in self._texts for match in _BATCH.finditer(text))
        held = (value for key, value in self._nodes if key.endswith("global_batch"))
        return frozenset((*self._stated, *said, *(value for value in held if isinstance(value, int))))

    @cached_property
    def _meshes(self) -> list[dict[str, int]]:
        """Sizes by role of every mesh in results, arguments and the conversation."""
        written = [_axes(match[0]) for text in self._texts for match in _MESH.finditer(text)]
        return written + [_roles(value.items()) for _, value in self._nodes if isinstance(value, dict)]


def _nodes(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (key, value) of JSON and of all that is in it; rows of a list have its key."""
    yield key, value
    inside = ((key, each) for each in value) if isinstance(value, list) else members_of(value)
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
    named = ((_AXIS.sub("", name.casefold()), size) for name, size in sizes if type(size) is int)
    return {ROLE_WORDS[name]: size for name, size in named if name in ROLE_WORDS}


def _blank(match: re.Match[str]) -> str:
    return " " * len(match[0])


def _unit(found: re.Match[str] | None) -> str:
    name = found[1].casefold() if found else ""
    return _SAME_UNIT.get(name, name)


def _values(number: re.Match[str]) -> list[float]:
    """Return what a number may mean: `32k` is 32,000 or 32,768."""
    return [float(number[1].replace(",", "")) * each for each in _POWERS[(number[2] or "")[:1].casefold()]]
