"""Digits in a text of a language model: bound to what they state, else refused.

A mesh or setting is bound to one that was priced, proposed or is current, *proposal 2* to that proposal, a piece in
backticks to the result that says it word for word, and a number to the conversation where the engineer wrote it: each
is printed with its subject and origin, as references are, and so is a name that a later result alone has.  Levels of
intervals, numbers of list items and names of the run pass.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import log10

from proposals.agents.lookup import Node
from proposals.agents.settings import ROLE_WORDS, SETTING_WORDS
from proposals.agents.tool_result import members_of
from proposals.agents.values import Value

_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]+`", re.DOTALL)
#: Numbers in words from four up, as counts, ordinals and fractions; smaller ones before a unit.
_FROM_FOUR = ("four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_SPELLED = (
    rf"(?i:\b(?:{'|'.join(_FROM_FOUR)}|fifth|eighth|ninth|twelfth|\w+teen|(?:twen|thir|for|fif|six|seven|eigh|nine)t(?:y|ie)"
    r"|hundred|(?:thous|mill|bill|trill)(?:and|ion)|dozen|quarter|thirds|quadruple|quintuple|triple)(?:th|fold|d)?s?\b"
    r"|\bthird (?=of|more|less|faster|slower)|(?-i:\bzero\b(?! ?[-1-3]))"
    r"|\b(?:(?:two|three|one point|point)[ -]){1,6}"
    r"(?:percent|m?s|(?:milli)?seconds?|minutes?|hours?|days?|[GT]B|\w+bytes?)\b)"
)
#: A number with the letters, points and hyphens that belong to the same word; or a figure that is no digit to Python,
#: such as ½, unless it is the exponent of a letter; or a number in words.
_WORD = re.compile(
    r"(?<!\w)(?<!\w[-./])(?:[A-Za-z_]\w*[-./](?=\w))*\w*\d(?:[\w]|[.,](?=\d)|-(?=\w)|/(?=\w))*"
    r"|(?<![A-Za-z])[²³¹¼-¾\u2070-\u2089\u2150-\u218b\u2460-\u249b\u24ea-\u24ff\u2776-\u2793]"
    rf"|{_SPELLED}"
)
_NUMBER = re.compile(
    r"(\d(?:[\d,]*\d)?(?:\.\d+)?(?:[eE][-+]?\d+)?)(?:\s?(k|m|b|t|thousand|million|billion|trillion)\b)?", re.IGNORECASE
)
_POWERS = {"": (1,), "k": (1000, 1024), "m": (10**6,), "b": (10**9,), "t": (10**12, 10**3)}
#: What makes a quantity of a number that it follows, and how others write the same.
_UNIT = re.compile(
    r"\s*(%|(?<!\s)×|(?<!\s)x\b|times\b|percent\b|fold\b|[µnm]?s\b|sec(?:onds?)?\b|min(?:utes?)?\b|h(?:ours?)?\b|days?\b"
    r"|(?:[GMKTP]i?B|gigs?|B|G)\b(?!\s*(?:tok|param))|[GMKTP]FLOP|FLOPS?/s|(?:in|of) a hundred\b)",
    re.IGNORECASE,
)
_SAME_UNIT = {
    "percent": "%", "in a hundred": "%", "of a hundred": "%", "x": "×", "times": "×", "fold": "×", "sec": "s",
    "second": "s", "seconds": "s", "minute": "min", "minutes": "min", "hour": "h", "hours": "h", "day": "days",
    "g": "gb", "gig": "gb", "gigs": "gb",
}  # fmt: skip
#: The number of a list's item or of a heading.
_ITEM = re.compile(r"^[ \t]*(?:>[ \t]*)?(?:\#+[ \t]*|\*\*)?(\d+)[.)](?=\s)", re.MULTILINE)
#: Levels of intervals, and words of the field.
_COUNTED = re.compile(
    r"""\b80\s?%(?=[-*_ ]*(?:interval|range|prediction|confidence|band|level|bounds?\b))
    | (?:(?<=interval\ of\ )|(?<=interval\ of\ \*)|(?<=range\ of\ ))80\s?%
    | \b(?:\d-?D|1F1B|\d(?:st|nd|rd|th))\b""",
    re.IGNORECASE | re.VERBOSE,
)
_TERM = re.compile(r"zero-?[123]|f32|tf32")
_ORDINAL = re.compile(
    r"\b(proposal|finding)s?,?(?: number)?((?: #?\d{1,2}\b(?!%|\.\d)(?:,|,? and|,? or|,? to)?)+)", re.IGNORECASE
)
#: A name and its version, size or number in a text: `Llama 3`, `JAX 0.4`, `CPU:7`.
_NAMED = re.compile(r"([A-Za-z]*[A-Z][A-Za-z]+)[ :-]([\d.]*\d)(?!\w)")
_KEYS = {**ROLE_WORDS, **SETTING_WORDS}
_KEY = "|".join(re.escape(key).replace("_", "[-_]") for key in sorted(_KEYS, key=len, reverse=True))
#: A size of an axis or training key, as programs and people write it: `ici_tensor_parallelism=16`, tp4, a batch of 8.
_PAIR = re.compile(
    rf"(?<![\w-])(?:ici_|dcn_)?(?P<key>{_KEY})(?:_parallelism)?"
    r"(?:\s*[=:]\s*[\"']?|`?[ -]?(?:(?:of|to) )?`?)(?P<size>\d+)(?![\w%]|\.\d|,\d{3})",
    re.IGNORECASE,
)
#: Between the sizes of one configuration.
_GAP = re.compile(r"[` ]*[,;·×]?[` ]*(?:(?:and|by) )?`?")
_DIGITS = re.compile(r"\d+")
_TYPED = "is a number that you typed; refer to the value of a result instead, such as {r1.run.chips}"
_UNKNOWN = (
    "is no size or mesh that is current, proposed, priced in this conversation or stated by the engineer; price the "
    "configuration first, or refer to the value of a result"
)
#: The root of the arguments of tool calls.
_CALLS = "call"
_SAID = "stated in this conversation"
#: A piece of a text from start to end: the value that it states, or what is wrong with it.
Found = tuple[int, int, Value | str]


@dataclass(frozen=True)
class Typed:
    """What a text may hold as digits.

    words: of the conversation.  results: tool results by their name.  arguments: of tool calls.
    """

    words: Sequence[str] = ()
    results: Mapping[str, object] = field(default_factory=dict)
    arguments: Sequence[object] = ()

    def found(self, text: str, references: Iterable[tuple[int, int]] = ()) -> Iterator[Found]:
        """Yield the value of each number that is bound, and a sentence about each that may not be digits in `text`.

        references: places of the references in it.
        """
        for start, end in references:
            text = text[:start] + "\0" * (end - start) + text[end:]  # no settings are read across it
        text = re.sub(r"(?<=\d)×(?=\d)", "x", text)
        as_written, text = text, re.sub(r"\b(micro|global)[- ](?=batch)", r"\1_", text, flags=re.IGNORECASE)
        for match in _CODE.finditer(text):
            said = match[0].strip("`")
            if node := self._said(said):
                text = text[: match.start()] + _blank(match) + text[match.end() :]
                if isinstance(node, Node) and match[0] == f"`{said}`":
                    yield match.start() + 1, match.end() - 1, _bound(said, node)
        items = 0
        for match in _ITEM.finditer(text):
            if int(match[1]) in (1, items + 1):
                items = int(match[1])
                text = text[: match.start()] + _blank(match) + text[match.end() :]
        text = _COUNTED.sub(_blank, text)
        for start, end, sizes in _settings(text):
            for first, last, what in self._setting(text[start:end], sizes):
                written = as_written[start + first : start + last]
                yield start + first, start + last, replace(what, value=written) if isinstance(what, Value) else what
            text = text[:start] + " " * (end - start) + text[end:]
        for pattern, bound in ((_ORDINAL, self._ordinal), (_NAMED, self._named)):
            for match in pattern.finditer(text):
                if (pieces := bound(match)) is not None:
                    yield from pieces
                    text = text[: match.start()] + _blank(match) + text[match.end() :]
        end = 0
        for match in _WORD.finditer(text):
            if match.start() < end:  # 300 billion is one number
                continue
            end = self._stated_until(match)
            if end > match.start():
                yield match.start(), end, Value(text[match.start() : end], origin="stated", subject=_SAID)
            elif of := self._names.get(match[0].casefold()):
                yield match.start(), match.end(), _bound(match[0], of)
            elif not self._is_name(match):
                around = text[max(0, match.start() - 20) : match.end() + 20].strip()
                yield match.start(), match.end(), f"“{match[0][:60]}” in “{' '.join(around.split())}” {_TYPED}."

    def may_compute_with(self, number: float) -> bool:
        """Return True for a number that an expression may hold unsaid: a stated one, 0, a power of ten."""
        known = any(number == value for value, _ in self._quantities)
        return known or number == 0 or (number >= 1 and log10(number).is_integer())

    def _setting(self, said: str, sizes: Mapping[str, int]) -> list[Found]:
        """Return what a mesh, or settings, state."""
        axes = {key: size for key, size in sizes.items() if key in ROLE_WORDS}
        parts = [axes] * bool(axes) + [{key: size} for key, size in sizes.items() if key not in axes]
        places = [next((node or True for of, node in self._configurations if _has(of, part)), None) for part in parts]
        if None in places:
            return [(0, len(said), f"“{said[:60]}” {_UNKNOWN}.")]
        known = next((node for node in places if isinstance(node, Node)), None)
        known = (known.child(next(iter(sizes))) if known and len(sizes) == 1 else None) or known
        whole = [(0, len(said))] if "`" not in said else [each.span() for each in _DIGITS.finditer(said)]
        return [(start, end, _bound(said[start:end], known)) for start, end in whole if known]

    def _ordinal(self, match: re.Match[str]) -> list[Found] | None:
        """Return the proposals or findings that are named by their numbers."""
        noun, numbers = match[1].casefold(), _DIGITS.finditer(match[2])
        places = [(match.start(2) + each.start(), self._subjects.get(f"{noun} {each[0]}"), each[0]) for each in numbers]
        if not all(node for _, node, _ in places):
            return [(*match.span(), f"“{match[0]}” is no {noun} that this conversation has looked at.")]
        return [(start, start + len(digits), _bound(digits, node)) for start, node, digits in places if node]

    def _named(self, match: re.Match[str]) -> list[Found] | None:
        """Return nothing for a name with its number that a result or the conversation has; None for others."""
        said = re.compile(rf"(?<!\w){match[1]}[ :_-]?{re.escape(match[2])}(?![\d.]*\d)", re.IGNORECASE)
        return [] if any(said.search(text) for text, _ in self._texts) else None

    def _stated_until(self, word: re.Match[str]) -> int:
        """Return the end of a number that the engineer wrote, with its unit; -1 for others."""
        text = word.string
        number = _NUMBER.match(text, word.start())
        if number is None:
            return -1
        unit = _UNIT.match(text, number.end())
        end = unit.end() if unit else number.end()
        is_said = any((value, _unit(number)) in self._quantities for value in _values(number))
        return end if end >= word.end() and is_said else -1

    def _is_name(self, word: re.Match[str]) -> bool:
        """Return True for a name with a digit that the conversation has or the field uses, and a count that it has."""
        said = word[0].casefold()
        if said in self._names:
            return True
        if said in _FROM_FOUR and any(_FROM_FOUR.index(said) + 4 == value for value, _ in self._quantities):
            return True
        if said.isalpha():
            return any(said in text.casefold().split() for text in self.words)
        if said.endswith("-bit"):  # of a precision that the conversation has
            return any(re.fullmatch(rf"[a-z]*(?:fp|bf|int){said.removesuffix('-bit')}", name) for name in self._names)
        return _TERM.fullmatch(said) is not None

    def _said(self, code: str) -> Node | bool:
        """Return the place of a piece of a text, shortened where it ends in …; True where the conversation has it."""
        said, shortened, _ = code.strip().casefold().partition("…")
        number = _NUMBER.match(said)
        if number and (unit := _UNIT.match(said, number.end())) and len(said) < unit.end() + 3:
            return False
        is_text = len(said) > 3 and bool(re.search(r"[a-z].*\d|\d.*[a-z]|^\{.*\d.*\}", said))
        whole = re.compile(rf"(?<![\w.]){re.escape(said)}{'' if shortened else r'(?![.-]?[a-z0-9_])'}")
        places = (node or True for text, node in self._texts if whole.search(text.casefold()))
        return is_text and not _PAIR.search(said) and next(places, False)

    @cached_property
    def _quantities(self) -> frozenset[tuple[float, str]]:
        """Numbers of the conversation, each with its unit, empty where it has none."""
        written = (match for text in self.words for match in _NUMBER.finditer(text))
        return frozenset((each, _unit(match)) for match in written for each in _values(match))

    @cached_property
    def _nodes(self) -> tuple[Node, ...]:
        """Return everything in results and arguments."""
        calls = Node(list(self.arguments), _CALLS, origin="stated")
        whole = (*(Node.of(result, name) for name, result in self.results.items()), calls)
        return tuple(node for each in whole for node in _nodes(each))

    @cached_property
    def _texts(self) -> tuple[tuple[str, Node | None], ...]:
        """Texts of results with their places, their keys, and the words of the conversation."""
        keys = ((key, None) for node in self._nodes for key, _ in members_of(node.item))
        return (
            *((node.item, node) for node in self._nodes if isinstance(node.item, str)),
            *keys, *((text, None) for text in self.words),
        )  # fmt: skip

    @cached_property
    def _names(self) -> Mapping[str, Node | None]:
        """Map words with a digit in texts of results and of the conversation, topologies as `4x4x8`, and ranges, to
        the place that alone has them; to None those of the overview and of the conversation."""
        texts = [(word.casefold(), node) for text, node in self._texts for word in _WORD.findall(text)]
        texts += [(part, node) for word, node in texts for part in re.split(r"[-/_.]", word)]
        texts += [("x".join(map(str, node.item)), node) for node in self._nodes if isinstance(node.item, list)]
        words = (each for each in texts if re.search(r"[a-z_].*\d|\d.*[a-z_]|\..*\.|\d-", each[0]))
        of_run = re.compile(r"r1\b")
        known = [(word, None if node is None or of_run.match(node.path) else node) for word, node in words][::-1]
        return dict(sorted(known, key=lambda of: (of[1] is None, not (of[1] and of[1].path.startswith(_CALLS)))))

    @cached_property
    def _subjects(self) -> Mapping[str, Node]:
        """Map what rows say that they are, `proposal 2`, to their first place."""
        return {node.subject: node for node in reversed(self._nodes) if node.subject}

    @cached_property
    def _configurations(self) -> list[tuple[dict[str, int], Node | None]]:
        """Sizes of axes by role, and of training keys, of everything in results, arguments and the conversation that
        has some, with its place in results."""
        whole = [(_sizes(node.item.items()), node) for node in self._nodes if isinstance(node.item, Mapping)]
        written = ((sizes, node) for text, node in self._texts for _, _, sizes in _settings(text))
        known = [(sizes, node) for sizes, node in (*whole, *written) if sizes]
        return sorted(known, key=lambda each: each[1] is not None and each[1].path.startswith(_CALLS))


def _nodes(node: Node) -> Iterator[Node]:
    """Yield a place and all that is in it."""
    yield node
    keys = range(len(node.item)) if isinstance(node.item, list) else [key for key, _ in members_of(node.item)]
    for key in keys:
        if inside := node.child(key):
            yield from _nodes(inside)


def _bound(text: str, node: Node) -> Value:
    """Return a piece of a text as a value with the subject of its place, and its title."""
    title = node.child("title")
    subject = "asked in this conversation" if node.path.startswith(_CALLS) else node.named or node.path
    subject += f" · {title.item}" if title else ""
    return Value(text, origin=node.origin, subject=subject, href=node.href)  # type: ignore[arg-type]


def _settings(text: str) -> Iterator[tuple[int, int, dict[str, int]]]:
    """Yield (start, end, sizes) of each configuration, or part of one, in a text."""
    group: list[re.Match[str]] = []
    for pair in [*_PAIR.finditer(text), None]:
        if group and (pair is None or not _GAP.fullmatch(text, group[-1].end(), pair.start())):
            yield group[0].start(), group[-1].end(), _sizes((each["key"], int(each["size"])) for each in group)
            group = []
        group += [pair] if pair else []


def _sizes(written: Iterable[tuple[str, object]]) -> dict[str, int]:
    """Return the axes of a configuration by their roles, and its training keys."""
    whole = [(name, size) for name, size in written if type(size) is int]
    named = ((name.casefold().rpartition(".")[2].replace("-", "_"), size) for name, size in whole)
    return {_KEYS[name]: size for name, size in named if name in _KEYS}


def _has(known: Mapping[str, int], part: Mapping[str, int]) -> bool:
    """Return True if a configuration has these sizes; an axis that a mesh does not name is of size 1."""
    least = 1 if known.keys() & ROLE_WORDS.keys() else 0
    return all(known.get(key, least if key in ROLE_WORDS else 0) == size for key, size in part.items())


def _blank(match: re.Match[str]) -> str:
    return " " * len(match[0])


def _unit(number: re.Match[str]) -> str:
    """Return the unit of a number in a text; empty where it has none."""
    if number.string[number.start() - 1 : number.start()] == "$":
        return "$"
    found = _UNIT.match(number.string, number.end())
    name = found[1].casefold() if found else ""
    return _SAME_UNIT.get(name, name)


def _values(number: re.Match[str]) -> list[float]:
    """Return what a number may mean: `32k` is 32,000 or 32,768."""
    return [float(number[1].replace(",", "")) * each for each in _POWERS[(number[2] or "")[:1].casefold()]]
