"""Digits in a text of a language model: bound to what they state, else refused.

A whole number is bound to a value of a result or of a tool call whose key or text has the same word next to it (*16
chips*, *batch of 64*), a mesh or setting to one that was priced, proposed or is current, *proposal 2* to that proposal:
each is printed with its subject and origin, as references are.  A quantity (a decimal, or a number with a unit) is
refused unless the conversation has it.  Levels of intervals, names, and in backticks what a result says word for word
pass.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import log10

from formatting.numbers import whole_number
from perfmodel.chips import PRECISIONS, load_chips
from proposals.agents.lookup import Node
from proposals.agents.settings import ROLE_WORDS, SETTING_WORDS
from proposals.agents.tool_result import members_of
from proposals.agents.values import Value

_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]+`", re.DOTALL)
#: A number with the letters, points and hyphens that belong to the same word; or a figure that is no digit to Python,
#: such as ½, unless it is the exponent of a letter.
_WORD = re.compile(
    r"(?<!\w)(?<!\w[-./])(?:[A-Za-z_]\w*[-./](?=\w))*\w*\d(?:[\w]|[.,](?=\d)|-(?=\w)|/(?=\w))*"
    r"|(?<![A-Za-z])[²³¹¼-¾\u2070-\u2089\u2150-\u218b\u2460-\u249b\u24ea-\u24ff\u2776-\u2793]"
)
_NUMBER = re.compile(
    r"(\d(?:[\d,]*\d)?(?:\.\d+)?(?:[eE][-+]?\d+)?)(?:\s?(k|m|b|t|thousand|million|billion|trillion)\b)?", re.IGNORECASE
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
#: Numbers of a list's items, levels of intervals, chapters; and names: versions, sizes of models.
_COUNTED = re.compile(
    rf"""^[ \t]*(?:>[ \t]*)?(?:\#+[ \t]*|\*\*)?\d+[.)](?=\s) | \b(?:sections?|chapters?)\s+\d+(?:\.\d+)*
    | \b(?:80|95)\s?%(?=[-*_ ]*(?:interval|range|prediction|confidence|band|level|bounds?\b)) | (?<=at\ )80\s?%
    | \b(?:CUDA|cuDNN|NCCL|ROCm|JAX|jaxlib|libtpu|PyTorch|Python|Triton|version|Llama|Gemma|Qwen|Phi|GPT)
      [ -]?v?\d+(?:\.\d+)*\b(?!{_UNIT.pattern}|[\d.]|-\w) | (?<![\w.])\d+(?:\.\d+){{2,}}(?![\w.]*\d)""",
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)
#: Whole numbers below this may be ordinals of what is before the reader, and are with one of these words before them.
_FEW = 10
_ORDINAL = re.compile(
    r"\b(proposal|finding|step|core|stage|layer|row|host|chip|device|option|point|item|number|slot)s?"
    r"((?: #?\d\b(?![.%\d])(?:,|,? and|,? or|,? to)?)+)",
    re.IGNORECASE,
)
#: A word beside a number, and how many of them are looked at on either side, within a clause.
_BESIDE = re.compile(r"[a-z]+", re.IGNORECASE)
_CLAUSE = re.compile(r"[.;!?()|](?=\s|\Z|\()|\n")
_BEFORE, _BEHIND = 4, 3
#: What a word of a key means in text; words that say nothing of what a number counts.
_SAID_OF = {
    "seq": ("sequence",), "len": ("length", "token"), "accum": ("accumulate", "micro"), "vocab": ("vocabulary",),
}  # fmt: skip
_SILENT = frozenset(
    ["per", "the", "and", "for", "all", "are", "its", "was", "has", "with", "from", "than", "that", "one"]
)
#: An op of a program by its number; a release by year and month, a date, and a paper.
_OP = re.compile(r"[a-z][a-z_-]*[.]\d+", re.IGNORECASE)
_RELEASE = re.compile(r"\d\d[.](?:0[1-9]|1[0-2])|20\d\d-\d\d(?:-\d\d)?|\d{4}[.]\d{5}")
#: What in a text counts nothing: the letters and digits of a name; and commas of a shape, which holds several numbers.
_NO_COUNT = re.compile(r"\b[A-Za-z]+\d\w*|,(?!\d{3}(?!\d))")
_BEHIND_COUNT = re.compile(r"(?<![\w.])\d+ ([a-z]{4,})")
_THOUSANDS = re.compile(r"(?<!\d)\d{1,3}(,\d{3})+(?!\d)")
_SEPARATORS = re.compile(r"(?<=\d)[-–/x:×](?=\d)")
_PAIR = re.compile(r"([A-Za-z_][\w.]*?)(?:\s*[=:]\s*[\"']?|(?: (?:of )?)?(?=\d))(\w*)")
#: What programs write around the name of an axis.
_AXIS = re.compile(r"^.*\.|^(?:ici|dcn)_|_parallelism$")
_MESH = re.compile(rf"(?:{_PAIR.pattern}(?:[,;·× `]+(?:and |by )?`?|\Z|(?=[.)|])))+")
_SETTINGS = frozenset((*ROLE_WORDS, *SETTING_WORDS, *SETTING_WORDS.values()))
#: Axes that are no other word: one that was never priced is not spoken of.
_SHORT = frozenset(("tp", "fsdp", "dp", "ep", "pp", "cp"))
_TYPED = "is a number that you typed; refer to the value of a result instead, such as {r1.step_time_s}"
_UNKNOWN = (
    "is no size or mesh that is current, proposed, priced in this conversation or stated by the engineer; price the "
    "configuration first, or refer to the value of a result"
)
#: The root of the arguments of tool calls.
_CALLS = "call"
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
            text = text[:start] + " " * (end - start) + text[end:]
        text = re.sub(r"(?<=\d)×(?=\d)", "x", text)
        code = [match.span() for match in _CODE.finditer(text)]
        for match in _CODE.finditer(text):
            said = match[0].strip("`")
            if node := self._said(said):
                text = text[: match.start()] + _blank(match) + text[match.end() :]
                if isinstance(node, Node) and match[0] == f"`{said}`":
                    yield match.start() + 1, match.end() - 1, _bound(said, node)
        text = _COUNTED.sub(_blank, text)
        for pattern, bound in ((_MESH, self._mesh), (_ORDINAL, self._ordinal)):
            for match in pattern.finditer(text):
                if (pieces := bound(match, code)) is not None:
                    yield from pieces
                    text = text[: match.start()] + _blank(match) + text[match.end() :]
        for match in _WORD.finditer(text):
            value = self._value(match)
            if isinstance(value, Value):
                yield match.start(), match.start() + len(str(value.value)), value
            elif not value:
                around = text[max(0, match.start() - 20) : match.end() + 20].strip()
                yield match.start(), match.end(), f"“{match[0][:60]}” in “{' '.join(around.split())}” {_TYPED}."

    def may_compute_with(self, number: float) -> bool:
        """Return True for a number that an expression may hold unsaid: a stated one, a known size, a power of ten."""
        return number in self._stated or number in self._counts or (number >= 1 and log10(number).is_integer())

    def _mesh(self, match: re.Match[str], code: Sequence[tuple[int, int]]) -> list[Found] | None:
        """Return what a mesh or one size of it states; None for other words."""
        sizes = _roles(_written(match[0]))
        is_setting = len(sizes) > 1 or "=" in match[0] or any(start <= match.start() < end for start, end in code)
        if not sizes or not (is_setting or match[1].casefold() in _SHORT):
            return None
        said = match[0].rstrip(" ,;·×`")
        known = [node for mesh, node in self._meshes if all(mesh.get(axis, 1) == size for axis, size in sizes.items())]
        if not known:
            return [(*match.span(), f"“{match[0].strip()[:60]}” {_UNKNOWN}.")]
        node = known[0] if "`" not in said else None
        return [(match.start(), match.start() + len(said), _bound(said, node))] if node else []

    def _ordinal(self, match: re.Match[str], _: Sequence[tuple[int, int]]) -> list[Found] | None:
        """Return the proposals or findings that are named by their numbers; nothing of other ordinals."""
        noun, numbers = match[1].casefold(), re.finditer(r"\d", match[2])
        places = [(match.start(2) + each.start(), self._subjects.get(f"{noun} {each[0]}"), each[0]) for each in numbers]
        if noun in ("proposal", "finding") and f"{noun} 1" in self._subjects and not all(node for _, node, _ in places):
            return [(*match.span(), f"“{match[0]}” is no {noun} of this run.")]
        return [(start, start + 1, _bound(digit, node)) for start, node, digit in places if node]

    def _value(self, word: re.Match[str]) -> Value | bool:
        """Return what a number is bound to; True for names and stated numbers, False for what may not be digits."""
        text = word.string
        if word[0].casefold() in self._names and not re.match(r"\s*(?:tok|param)", text[word.end() :]):
            return True
        if word[0].casefold() in load_chips() or _OP.fullmatch(word[0]) or _stem(word[0].casefold()) in self._stems:
            return False
        if _RELEASE.fullmatch(word[0]):
            return any(word[0] in said for said, _ in self._small)
        number = _NUMBER.match(text, word.start())
        end = max(word.end(), number.end()) if number else word.end()
        unit = _UNIT.match(text, end)
        if number is None:
            return word[0][0].isascii() and not unit
        is_list = "," in word[0] and not _THOUSANDS.search(word[0])
        if is_list or _SEPARATORS.search(word[0]):  # a range or a shape: each of its numbers for itself
            parts = _SEPARATORS.sub(" ", word[0].replace(",", " ") if is_list else word[0]).split()
            each = (_WORD.match(f"{part}{text[word.end() :]}", 0, len(part)) for part in parts)
            return all(found is None or self._value(found) for found in each)
        rest = text[number.end() : end]
        if re.search(r"\d", rest):
            return bool(re.fullmatch(r"[A-Z]\d+[A-Z]?", rest))  # 1F1B, 8X7B
        unit = unit or _UNIT.match(text, number.end(), end)
        values = _values(number)
        if any((value, _unit(unit)) in self._quantities or (not unit and value in self._stated) for value in values):
            return True
        if unit or text[word.start() - 1 : word.start()] == "$" or whole_number(number[1].replace(",", "")) is None:
            return False
        beside = _beside(text, word.start(), number.end())
        known = [each for value in values for each in self._counts.get(value, ())]
        words, node = max(known, key=lambda each: len(each[0] & beside), default=(frozenset(), None))
        if node and (words & beside or ".facts." in node.path):
            return _bound(number[0], node)
        return values[0] < _FEW and not beside & self._counted

    def _said(self, code: str) -> Node | bool:
        """Return the place of a piece of a text, shortened where it ends in …; True where the conversation has it."""
        said = code.strip().casefold().partition("…")[0]
        number = _NUMBER.match(said)
        if number and (unit := _UNIT.match(said, number.end())) and len(said) < unit.end() + 3:
            return False
        is_text = len(said) > 3 and bool(re.search(r"[a-z].*\d|\d.*[a-z]", said))
        is_setting = any(_AXIS.sub("", key) in _SETTINGS for key, _ in _written(said))
        places = (node or True for text, node in self._small if said in text)
        return is_text and not is_setting and next(places, False)

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
    def _small(self) -> tuple[tuple[str, Node | None], ...]:
        return tuple((text.casefold(), node) for text, node in self._texts)

    @cached_property
    def _names(self) -> frozenset[str]:
        """Words with a digit in texts of results, and in the conversation; topologies as `4x4x8`."""
        words = [word.casefold() for text, _ in self._texts for word in _WORD.findall(text)]
        words += [part for word in words for part in re.split(r"[-/_.]", word)]
        shapes = ("x".join(map(str, node.item)) for node in self._nodes if isinstance(node.item, list))
        return frozenset(word for word in (*words, *shapes) if re.search(r"[a-z_]|\..*\.", word))

    @cached_property
    def _stems(self) -> frozenset[str]:
        """Return the names of the conversation that others differ from in digits alone: `v5p-512` beside `v5p-256`."""
        return frozenset(map(_stem, self._names)) - {""}

    @cached_property
    def _counts(self) -> Mapping[float, list[tuple[frozenset[str], Node]]]:
        """Map whole numbers to what they count: words of their keys, or next to them in texts of results."""
        counts: dict[float, list[tuple[frozenset[str], Node]]] = {}
        for node in self._nodes:
            if type(node.item) in (int, float) and node.unit in ("", "count", "tokens") and node.item % 1 == 0:
                counts.setdefault(node.item, []).append((_key_words(node), node))
        told = ((text, place) for text, place in self._texts if place is not None)
        for said, place in told:
            text = _NO_COUNT.sub(" ", said)
            for number in _NUMBER.finditer(text):
                for value in _values(number):
                    counts.setdefault(value, []).append((_beside(text, *number.span()), place))
        return counts

    @cached_property
    def _counted(self) -> frozenset[str]:
        """Return what whole numbers count: words of their keys, and the word behind one in a text."""
        counts = (node for node in self._nodes if type(node.item) is int and not node.unit)
        behind = (word for text, place in self._texts if place for word in _BEHIND_COUNT.findall(text))
        return frozenset(word for node in counts for word in _key_words(node)) | {
            word.removesuffix("s") for word in behind
        }

    @cached_property
    def _subjects(self) -> Mapping[str, Node]:
        """Map what rows say that they are, `proposal 2`, to their first place."""
        return {node.subject: node for node in reversed(self._nodes) if node.subject}

    @cached_property
    def _meshes(self) -> list[tuple[dict[str, int], Node | None]]:
        """Sizes by role of every mesh in results, arguments and the conversation, with its place in results."""
        whole = [(_roles(node.item.items()), node) for node in self._nodes if isinstance(node.item, Mapping)]
        written = ((_roles(_written(match[0])), node) for text, node in self._texts for match in _MESH.finditer(text))
        known = [(sizes, node) for sizes, node in (*whole, *written) if sizes]
        return sorted(known, key=lambda each: each[1] is not None and each[1].path.startswith(_CALLS))


def _nodes(node: Node) -> Iterator[Node]:
    """Yield a place and all that is in it."""
    yield node
    keys = range(len(node.item)) if isinstance(node.item, list) else [key for key, _ in members_of(node.item)]
    for key in keys:
        if inside := node.child(key):
            yield from _nodes(inside)


def _key_words(node: Node) -> frozenset[str]:
    """Return the words of the key of a value."""
    key = re.sub(r"(?:\[\d+\])+\Z", "", node.path).rpartition(".")[2].casefold()
    words = [word.removesuffix("s") for word in key.split("_") if len(word) > 1 and word not in _SILENT]
    return frozenset((*words, *(said for word in words for said in _SAID_OF.get(word, ()))))


def _beside(text: str, start: int, end: int) -> frozenset[str]:
    """Return the words next to a number, within its clause."""
    before = _BESIDE.findall(_CLAUSE.split(text[max(0, start - 60) : start])[-1])[-_BEFORE:]
    behind = _BESIDE.findall(_CLAUSE.split(text[end : end + 60])[0])[:_BEHIND]
    said = [word.casefold() for word in (*before, *behind) if len(word) > 1]
    meant = (part for word in said for part in SETTING_WORDS.get(word, word).split("_"))
    return frozenset(word.removesuffix("s") for word in (*said, *meant)) - _SILENT


def _bound(text: str, node: Node) -> Value:
    """Return a piece of a text as a value with the subject of its place, and its title."""
    title = node.child("title")
    subject = "asked in this conversation" if node.path.startswith(_CALLS) else node.named or node.path
    subject += f" · {title.item}" if title else ""
    return Value(text, origin=node.origin, subject=subject, href=node.href)  # type: ignore[arg-type]


def _stem(name: str) -> str:
    """Return a name without its last digits; nothing of a short one."""
    return re.sub(r"\d+(?=\D*\Z)", "", name) if len(name) > 4 and name not in PRECISIONS else ""


def _written(text: str) -> Iterator[tuple[str, int]]:
    """Yield (key, whole number) of settings in a text."""
    named = ((match[1], whole_number(match[2])) for match in _PAIR.finditer(text))
    return ((key, value) for key, value in named if value is not None)


def _roles(sizes: Iterable[tuple[str, object]]) -> dict[str, int]:
    """Return the axes of a mesh by their roles."""
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
