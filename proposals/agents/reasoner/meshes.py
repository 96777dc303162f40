"""Meshes in words: read from a sentence, and solved against the chips that there are."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from math import prod

from perfmodel.config import Mesh
from proposals.agents.reasoner.axes import TAIL, axis_of, words_for
from proposals.agents.reasoner.figures import WORDS

#: Beyond this no axis is meant.
MOST = 10**6
_BRACES = re.compile(r"\{[^{}]*\}")
_PAIR = re.compile(r"['\"]?([a-z][\w.]*)['\"]?\s*[:=]\s*(\d+)")
_MAXTEXT = re.compile(r"\b(ici|dcn)_([a-z_]+)_parallelism\s*(?:=|:|\s)\s*(-?\d+)")
_POSITIONAL = re.compile(r"(?<![\w.,])(\d+(?:\s?[x×*]\s?\d+)+)(?![\w.])")
_FACTOR = {"halve": 0.5, "half": 0.5, "double": 2.0, "twice": 2.0, "quadruple": 4.0, "quarter": 0.25, "triple": 3.0}


@dataclass(frozen=True)
class MeshWords:
    """A mesh as far as words tell it.

    ici, dcn: sizes by axis.  factors: by what an axis is multiplied.  positional: sizes in the order of the axes.
    text: the words.
    """

    ici: Mapping[str, int] = field(default_factory=dict)
    dcn: Mapping[str, int] = field(default_factory=dict)
    factors: Mapping[str, float] = field(default_factory=dict)
    positional: tuple[int, ...] = ()
    text: str = ""

    def __bool__(self) -> bool:
        return bool(self.ici or self.dcn or self.factors or self.positional)

    @property
    def single(self) -> tuple[str, int] | None:
        """(axis, size) where just one axis is named."""
        if len(self.ici) == 1 and not (self.dcn or self.factors or self.positional):
            return next(iter(self.ici.items()))
        return None


@dataclass(frozen=True)
class Solved:
    """The whole meshes that the words may mean, most likely first.

    filled: axes that were not named and were set so that the product is right.  problem: a sentence where none fits.
    """

    meshes: tuple[dict[str, dict[str, int]], ...]
    filled: tuple[str, ...] = ()
    problem: str = ""


def read(text: str, mesh: Mesh) -> tuple[MeshWords, str]:
    """The mesh that plain words name, and the words with `<mesh>` in its place."""
    ici: dict[str, int] = {}
    dcn: dict[str, int] = {}
    factors: dict[str, float] = {}
    positional: tuple[int, ...] = ()
    spans: list[tuple[int, int]] = []

    def name(word: str) -> str | None:
        return axis_of(mesh, word)

    def put(word: str, size: int, across: bool) -> bool:
        axis = name(word)
        if axis is None or not 1 <= size <= MOST:
            return False
        (dcn if across else ici)[axis] = size
        return True

    for found in _MAXTEXT.finditer(text):
        if put(found[2], max(int(found[3]), 1), found[1] == "dcn") and int(found[3]) > 0:
            spans.append(found.span())
    for braces in _BRACES.finditer(text):
        pairs = [(pair[1], int(pair[2])) for pair in _PAIR.finditer(braces[0])]
        across = text[: braces.start()].rstrip(" :=").endswith("dcn")
        read_any = [put(word.removeprefix("dcn."), size, across or word.startswith("dcn.")) for word, size in pairs]
        if any(read_any):
            spans.append(braces.span())
    for start, end, word, size, across in _named(_blanked(text, spans), mesh):
        if put(word, size, across):
            spans.append((start, end))
    for start, end, word, factor in _scaled(_blanked(text, spans), mesh):
        axis = name(word)
        if axis is not None and axis not in ici:
            factors[axis] = factor
            spans.append((start, end))
    if not ici and (listed := _POSITIONAL.search(_blanked(text, spans))):
        positional = tuple(int(part) for part in re.findall(r"\d+", listed[0]))
        spans.append(listed.span())
    words = " ".join(text[start:end] for start, end in sorted(spans))
    return MeshWords(ici, dcn, factors, positional, words), _replaced(text, spans)


def _named(text: str, mesh: Mesh) -> Iterator[tuple[int, int, str, int, bool]]:
    """(start, end, axis word, size, across slices) of `data=8`, `tp4`, `8-way tensor parallelism`, `no seq`."""
    names = "|".join(re.escape(word) for word in words_for(mesh))
    size = rf"(\d{{1,6}}|{'|'.join(WORDS)})(?![\w.]?\d|[kmb%]\b|\w|\s?(?:[kmgt]i?b|%|percent|chips|tokens|proposal))"
    before = r"(?<![\w.\-])(dcn[._ ]|ici[._ ])?"
    link = (
        r"\s*(?:=|:|→|->|\bis\b|\bmust\b|\bshould\b|\bhas to\b|\bstays?\b|\bfixed\b|\bof\b|\bto\b|\bat\b|"
        r"\bsize\b|\bdown to\b|\bup to\b|\bwere\b|\bwas\b|\bbe\b|-|\s)*\s*"
    )
    after = re.compile(rf"{before}({names}){TAIL}(?:\s(?:goes?|went|from \d+))*{link}{size}", re.IGNORECASE)
    for found in after.finditer(text):
        if re.search(r"\b(?:batch|length|len)\b", found[0]):
            continue
        yield found.start(), found.end(), found[2], _int(found[3]), (found[1] or "").startswith("dcn")
    taken = [(m.start(), m.end()) for m in after.finditer(text)]
    way = re.compile(rf"\b(\d{{1,6}}|{'|'.join(WORDS)})[- ]?way\s({names}){TAIL}\b")
    for found in way.finditer(text):
        yield found.start(), found.end(), found[2], _int(found[1]), False
    without = re.compile(
        rf"\b(?:no|without|drop(?:ping)?(?: the)?|zero|get(?:ting)? rid of|remov(?:e|ing)(?: the)?)\s(?:any\s)?"
        rf"({names})(?:[- ](?:parallel(?:ism)?|shard(?:ing|s)?|axis))+\b"
        rf"|\b(?:no|without|drop(?:ping)?(?: the)?|get(?:ting)? rid "
        rf"of)\s(?:any\s)?({names})(?=\s*(?:[?.!,;]|$|and\b|at all\b|then\b))"
    )
    for found in without.finditer(text):
        if not any(start <= found.start() < end for start, end in taken):
            yield found.start(), found.end(), found[1] or found[2], 1, False
    pure = re.compile(
        r"\b(?:pure(?:ly)?|only|all|plain|just)\s(data|fsdp|tensor|model)(?:[- ]parallel(?:ism)?)?\b(?! ?\d)"
    )
    for found in pure.finditer(text):
        if "parallel" in found[0] or found[0].startswith(("pure", "plain", "all fsdp")):
            for axis, _ in mesh.ici:
                if axis != axis_of(mesh, found[1]):
                    yield found.start(), found.end(), axis, 1, False


def _scaled(text: str, mesh: Mesh) -> Iterator[tuple[int, int, str, float]]:
    names = "|".join(re.escape(word) for word in words_for(mesh))
    verb = "|".join(_FACTOR)
    of = r"(?:d|ing)?\s(?:of\s)?(?:the\s)?(?:size of\s)?(?:the\s)?"
    for found in re.finditer(rf"\b({verb}|halving|doubling){of}({names}){TAIL}\b(?!\s*(?:batch|length|len))", text):
        word = {"halving": "halve", "doubling": "double"}.get(found[1], found[1])
        yield found.start(), found.end(), found[2], _FACTOR[word]
    for found in re.finditer(rf"\b({names}){TAIL}\s(?:axis\s)?(halved|doubled|quadrupled)\b", text):
        yield found.start(), found.end(), found[1], {"halved": 0.5, "doubled": 2.0, "quadrupled": 4.0}[found[2]]
    for found in re.finditer(rf"\b({names})\s?(/|\*|×)\s?([248])\b", text):
        yield found.start(), found.end(), found[1], int(found[3]) ** (-1.0 if found[2] == "/" else 1.0)
    for found in re.finditer(rf"\b(more|less|fewer)\s({names}){TAIL}\b(?!\s*(?:batch|length|len|memory|time))", text):
        yield found.start(), found.end(), found[2], 2.0 if found[1] == "more" else 0.5


def _int(word: str) -> int:
    return int(word) if word.isdecimal() else WORDS[word]


def _blanked(text: str, spans: list[tuple[int, int]]) -> str:
    for start, end in spans:
        text = text[:start] + "\0" * (end - start) + text[end:]
    return text


def _replaced(text: str, spans: list[tuple[int, int]]) -> str:
    for start, end in sorted(spans, reverse=True):
        text = text[:start] + " <mesh> " + text[end:]
    text = re.sub(r"(?:<mesh>[\s,;·/&x]*(?:\band\b|\bwith\b)?[\s,;·/&x]*)+(?=<mesh>)", "", text)
    return re.sub(r"\s+", " ", text).strip()


def solve(words: MeshWords, base: Mapping[str, Mapping[str, int]], chips: int, mesh: Mesh) -> Solved:
    """Whole meshes over `chips` of a slice that fit the words; axes that are not named stay as in `base` if they can.

    base: {"ici": …, "dcn": …} that is changed.  Otherwise they are filled up: the only way, or all ways there are with
    powers of two, the least changed first.
    """
    ran = dict(base["ici"])
    dcn = {**base.get("dcn", {}), **words.dcn}
    named = {axis: size for axis, size in words.ici.items() if size > 1 or axis in ran}
    for axis, factor in words.factors.items():
        size = ran.get(axis, 1) * factor
        if size < 1 or size != int(size):
            return Solved((), problem=f"The {axis} axis has size {ran.get(axis, 1)}, so it cannot be cut further.")
        named[axis] = int(size)
    if words.positional:
        order = _order(ran, len(words.positional), mesh)
        if order is None:
            axes = " · ".join(ran)
            return Solved((), problem=f"{len(words.positional)} sizes do not tell which of the axes {axes} is which.")
        named |= dict(zip(order, words.positional, strict=True))
        ran |= {axis: 1 for axis in ran if axis not in order}
    start = {**ran, **named}
    if prod(start.values()) == chips or words.positional:
        return Solved(({"ici": start, "dcn": dcn},))
    free = [axis for axis in ran if axis not in named]
    ways = sorted(_fillings(named, free, ran, chips, mesh), key=lambda way: _distance(way, ran))
    if not ways and free:
        sizes = " · ".join(f"{axis} {size}" for axis, size in named.items())
        return Solved(
            (), problem=f"No mesh over the {chips:,} chips of a slice has {sizes}: the sizes must divide their number."
        )
    if not ways:
        return Solved(({"ici": {**dict.fromkeys(ran, 1), **named}, "dcn": dcn},))
    meshes = tuple({"ici": {axis: {**ran, **way}[axis] for axis in start}, "dcn": dcn} for way in ways)
    moved = {axis for way in ways[:1] for axis in free if way[axis] != ran[axis]}
    return Solved(meshes, tuple(axis for axis in ran if axis in moved))


def _order(ran: Mapping[str, int], count: int, mesh: Mesh) -> list[str] | None:
    """The axes that so many sizes mean: all of them, or all that are wide, or all but replicas."""
    every = list(ran)
    for axes in (every, [a for a in every if mesh.role(a) != "replica"], [a for a in every if ran[a] > 1]):
        if len(axes) == count:
            return axes
    return None


def _fillings(
    named: Mapping[str, int], free: list[str], ran: Mapping[str, int], chips: int, mesh: Mesh
) -> Iterator[dict[str, int]]:
    """Sizes of the axes that were not named.  One axis takes the rest where one can; replicas and stages stay."""
    left = prod(named.values())
    if left < 1 or chips % left:
        return
    movable = [axis for axis in free if mesh.role(axis) not in ("replica", "pipeline") or ran[axis] > 1]
    fixed = {axis: ran[axis] for axis in free if axis not in movable}
    rest, over = divmod(chips, left * prod(fixed.values()))
    if over:
        return
    single = []
    for axis in movable:
        others = {other: ran[other] for other in movable if other != axis}
        size, over = divmod(rest, prod(others.values()))
        if not over and size >= 1:
            single.append({**named, **fixed, **others, axis: size})
    if single:
        yield from single
        return
    sizes = [[n for n in range(1, rest + 1) if rest % n == 0] for _ in movable]
    for each in product(*sizes) if len(movable) <= 3 else ():
        if prod(each) == rest:
            yield {**named, **fixed, **dict(zip(movable, each, strict=True))}


def _distance(way: Mapping[str, int], ran: Mapping[str, int]) -> tuple[float, ...]:
    """How far a mesh is from another: axes changed, then the ratio of sizes."""
    changed = [max(size, ran.get(axis, 1)) / min(size, ran.get(axis, 1)) for axis, size in way.items()]
    return (float(sum(item > 1 for item in changed)), prod(changed))
