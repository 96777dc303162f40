"""Which numbers a text of a language model may hold as digits; all others are references.

Allowed are numbers that the engineer wrote, ordinals, names that begin with a letter, the level `80 %`, sizes and
settings beside their name that are known (current, proposed, predicted in this conversation, or stated), and in
backticks what a result says word for word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pydantic_core import to_jsonable_python

_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]+`", re.DOTALL)
#: A number, with the letters, points and hyphens that belong to the same word.
_WORD = re.compile(r"(?<!\w)(?<!\w[-./])(?:[A-Za-z_]\w*+[-./])*+\w*\d(?:[\w]|[.,](?=\d)|-(?=\w)|/(?=\w))*")
#: Figures that are no digits to Python, unless they are the exponent of a letter: ⑨, ½, Ⅻ.
_OTHER_FIGURE = re.compile(r"(?<![A-Za-z])[²³¹¼-¾\u2070-\u2089\u2150-\u218b\u2460-\u249b\u24ea-\u24ff\u2776-\u2793]")
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?")
_PAIR = re.compile(r"([A-Za-z_]\w*)(?:\s*[=:]\s*[\"']?| (?=\d))([\w.]*\w)")
_STATED_PAIR = re.compile(r"([A-Za-z_]\w*)\s*(?:=|:|to|of|is)?\s*(\d[\d,]*)\b|\b(\d[\d,]*)[- ](?:way )?([A-Za-z_]\w*)")
#: What makes a quantity of a number that it follows.
_UNIT = (
    r"\s*(?:%|×|x\b|times\b|percent\b|fold\b|[µnm]?s\b|min\b|hours?\b|h\b|days?\b|[GMKTP]?i?B\b|[GMKTP]?FLOP"
    r"|(?:in|of) a hundred\b)"
)
#: A number that no unit follows.
_PLACE = rf"#?\d+\b(?![.,]\d)(?!{_UNIT})"
#: What is counted off, by its number.
_ORDINAL = re.compile(
    r"\b(?:(?:sections?|chapters?)\s+\d+(?:\.\d+)*|(?:proposals?|findings?|options?|steps?|candidates?|configurations?|"
    r"alternatives?|passages?|records?|points?|stages?|turns?|experiments?|questions?|slots?|cores?|devices?|ranks?),?"
    rf"\s+(?:(?:number|no\.|nr\.?)\s+)?{_PLACE}"
    rf"(?:\s*(?:,|and|or|to|&|–|-)\s*{_PLACE})*)|\b\d+(?:st|nd|rd|th)\b|#\d+\b(?![.,]\d)|\b\d-?D\b",
    re.IGNORECASE,
)
_QUANTITY = re.compile(_UNIT, re.IGNORECASE)
_WRITTEN = re.compile(rf"(\d[\d,]*(?:\.\d+)?)({_UNIT})", re.IGNORECASE)
#: What prose calls the keys of results, before or after a whole number.
_SETTINGS = {
    "chip": ("chips",), "gpu": ("chips",), "tpu": ("chips",), "core": ("cores",), "host": ("hosts",),
    "layer": ("layers",), "expert": ("experts", "expert"), "head": ("heads", "kv_heads"), "slice": ("slices",),
    "batch": ("global_batch", "micro_batch"), "microbatch": ("micro_batch",), "sequence": ("global_batch", "seq_len"),
    "length": ("seq_len",), "context": ("seq_len", "context", "seq"), "accumulation": ("grad_accum",),
    "tp": ("model", "tensor"), "pp": ("pipeline",), "ep": ("expert",), "dp": ("data",), "cp": ("seq", "context"),
    "replica": ("replica",), "data": ("data",), "fsdp": ("fsdp",), "seq": ("seq",), "model": ("model",),
    "tensor": ("tensor",), "pipeline": ("pipeline",), "shard": ("data", "fsdp"),
}  # fmt: skip
_WORDS_OF_SETTINGS = rf"({'|'.join(_SETTINGS)})(?:e?s)?"
_SIZE = rf"(\d[\d,]*k?)\b(?![.\-]?\d)(?!{_UNIT})"
_SETTING = re.compile(
    rf"\b{_WORDS_OF_SETTINGS}(?:\s+size)?(?:\s+(?:of|is|to|=))?\s+{_SIZE}|\b{_SIZE}\s+(?:[a-z]+\s+)?{_WORDS_OF_SETTINGS}\b",
    re.IGNORECASE,
)
#: Words of keys that a configuration has; `price` knows no others.
_KEYS = re.compile(
    r"replica|data|fsdp|seq|context|model|tensor|expert|pipeline|batch|remat|accum|layer|parallel|mesh|chips|size|degree"
    r"|(?:^|[_.-])[tdpecs]p(?:$|[_.-])"
)
#: A size behind the name of its setting in backticks.
_AFTER_NAME = re.compile(rf"`([A-Za-z_][\w.]*)`\s*(?:=|:|of|to|is|at)?\s*{_SIZE}")
_LIST_MARKER = re.compile(r"^\s*(?:>\s*)?(?:#+\s*)?\d+[.)](?=\s)", re.MULTILINE)
_LEVEL = re.compile(
    r"\b80\s?%(?=\s*(?:interval|range|prediction|confidence|band|level|bounds?\b)|[\s.,;)]*$)|(?<=at )80\s?%",
    re.I | re.M,
)
#: Half a number in words.
_MIXED = re.compile(r"(?:twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|hundred|point)-\d", re.IGNORECASE)
_UNKNOWN_SIZE = (
    "is no size or setting that is current, proposed, predicted in this conversation or stated by the engineer; price "
    "the configuration first, or refer to the value of a result"
)
_MESSAGE = "is a number that you typed; refer to the value of a result instead, such as {r1.step_time_s}"


@dataclass(frozen=True)
class Typed:
    """What a text may hold as digits.

    words: what the engineer wrote.  results: tool results by their name, whose sizes, settings and names may be in
    backticks.  arguments: of tool calls.
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
        for match in _CODE.finditer(text):
            yield from self._in_code(match[0], match.start())
        text = _AFTER_NAME.sub(lambda match: " " * len(match[0]) if self._is_pair(*_folded(match)) else match[0], text)
        for pattern in (_CODE, _LIST_MARKER, _ORDINAL, _LEVEL):
            text = pattern.sub(lambda match: " " * len(match[0]), text)
        text = _SETTING.sub(lambda match: " " * len(match[0]) if self._is_setting(match) else match[0], text)
        for match in (*_WORD.finditer(text), *_OTHER_FIGURE.finditer(text)):
            unit = _QUANTITY.match(text, match.end())
            if not self._is_known(match[0], unit[0].strip().casefold() if unit else ""):
                yield match.start(), match.end(), f"“{match[0][:40]}” {_MESSAGE}."

    def may_compute_with(self, number: str) -> bool:
        """Return True for a number that an expression without a reference may hold: small, or a known size."""
        return self._is_known(number) or number in self._sizes or float(number) in range(11)

    def _is_known(self, word: str, unit: str = "") -> bool:
        """Return True for names, and for numbers that the engineer wrote, as a quantity with its unit."""
        if _OTHER_FIGURE.match(word) or _MIXED.match(word):
            return False
        if not re.match(r"\d", word):
            return not unit or word.casefold() in self._names
        number = _NUMBER.match(word)
        if number and number[0] == word:
            return _value(word) in self._stated and (not unit or (_value(word), unit) in self._quantities)
        if re.fullmatch(r"\d+[kK]", word) and any(size in self._sizes for size in _sizes(word)):
            return True
        return word.casefold() in self._names or (
            number is not None and _value(number[0]) in self._stated and not re.search(r"\d", word[number.end() :])
        )

    def _is_setting(self, match: re.Match[str]) -> bool:
        """Return True for `64 chips` or `a batch of 512` where results or the engineer say so."""
        word, size = (match[1], match[2]) if match[1] else (match[4], match[3])
        return any((key, each) in self._pairs for key in _SETTINGS[word.casefold()] for each in _sizes(size))

    def _in_code(self, code: str, start: int) -> Iterator[tuple[int, int, str]]:
        if self._is_said(code):
            return
        pairs = [(match[1].casefold(), match[2].casefold()) for match in _PAIR.finditer(code)]
        wrong = [f"{key}={value}" for key, value in pairs if re.search(r"\d", value) and not self._is_pair(key, value)]
        rest = _PAIR.sub("", code)
        has_name = bool(re.search(r"[A-Za-z_]", code))
        for match in _WORD.finditer(rest):
            word = match[0].casefold()
            if not (word in self._names or self._is_known(word) or (has_name and word in self._sizes)):
                wrong.append(match[0])
        if wrong:
            named = f"{', '.join(wrong)[:80]} in {code.strip('`')[:60]!r}"
            yield start, start + len(code), f"{named} {_UNKNOWN_SIZE}."

    def _is_pair(self, key: str, value: str) -> bool:
        keys = (key.rpartition(".")[2], *_SETTINGS.get(key, ()))
        return (
            any((each, value) in self._pairs for each in keys)
            or value in self._names
            or not (key.isalpha() or _KEYS.search(key))  # a program's own setting, which is not priced
        )

    def _is_said(self, code: str) -> bool:
        """Return True for a piece of a result's text, word for word; shortened at its end where it ends in …"""
        said = code.strip("`").strip().casefold().partition("…")[0]
        is_text = len(said) > 3 and re.search("[a-z]", said) and not _PAIR.search(code)
        return bool(is_text) and any(said in text for text in self._said)

    @cached_property
    def _said(self) -> tuple[str, ...]:
        return tuple(text.casefold() for text in self._texts)

    @cached_property
    def _quantities(self) -> frozenset[tuple[float, str]]:
        """Numbers that the engineer wrote with a unit."""
        written = (match for text in self.words for match in _WRITTEN.finditer(text))
        return frozenset((_value(match[1]), match[2].strip().casefold()) for match in written)

    @cached_property
    def _stated(self) -> frozenset[float]:
        return frozenset(_value(number) for text in self.words for number in _NUMBER.findall(text))

    @cached_property
    def _leaves(self) -> tuple[tuple[str, str | int], ...]:
        """(key, value) of everything in results and arguments that is a text or a whole number."""
        known = to_jsonable_python([dict(self.results), list(self.arguments)], serialize_unknown=True)
        return tuple(_leaves(known, ""))

    @cached_property
    def _texts(self) -> tuple[str, ...]:
        return tuple(value for _, value in self._leaves if isinstance(value, str)) + tuple(self.words)

    @cached_property
    def _names(self) -> frozenset[str]:
        """Words with a digit in texts of results, and in what the engineer wrote."""
        words = (word for text in self._texts for word in _WORD.findall(text))
        return frozenset(word.casefold() for word in words if re.search(r"[A-Za-z_]|\..*\.", word))

    @cached_property
    def _sizes(self) -> frozenset[str]:
        """Whole numbers of results and arguments; only beside a name are they what a setting is."""
        return frozenset(str(value) for _, value in self._leaves if isinstance(value, int))

    @cached_property
    def _pairs(self) -> frozenset[tuple[str, str]]:
        pairs = {(key.rpartition(".")[2].casefold(), str(value).casefold()) for key, value in self._leaves}
        pairs |= {(match[1].casefold(), match[2].casefold()) for text in self._texts for match in _PAIR.finditer(text)}
        for text in self.words:
            for match in _STATED_PAIR.finditer(text):
                key, value = (match[1], match[2]) if match[1] else (match[4], match[3])
                pairs.add((key.casefold(), value.replace(",", "")))
        return frozenset(pairs)


def _leaves(value: Any, key: str) -> Iterator[tuple[str, str | int]]:
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield "", str(name)
            yield from _leaves(each, str(name))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _leaves(each, key)
    elif isinstance(value, str | int) and not isinstance(value, bool):
        yield key, value


def _folded(match: re.Match[str]) -> tuple[str, str]:
    return match[1].casefold(), match[2].replace(",", "").casefold()


def _sizes(written: str) -> list[str]:
    """Return the whole numbers that `32k` or `1,024` may mean."""
    number = written.replace(",", "")
    return [str(int(number[:-1]) * each) for each in (1000, 1024)] if number[-1] in "kK" else [number]


def _value(number: str) -> float:
    return float(number.replace(",", "") or 0)
