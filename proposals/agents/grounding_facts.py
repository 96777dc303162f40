"""A number with what it is of, and how a text writes axes with sizes, and sizes joined by ×."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perfmodel.config import flat_sizes
from proposals.agents.grounding_claims import Kind

Mesh = frozenset[tuple[str, int]]
#: The current configuration, as the owner of a number.
CURRENT = "the current configuration"

_STEM = re.compile(r"[a-z]{3,}")
#: Stems that occur in any sentence of a diagnosis.
_ANY = frozenset(
    word[:5]
    for word in _STEM.findall(
        "take takes step steps time this that with from over than more less most much many each what which where when "
        "into they them their have been were would could should about while there other axis axes chip chips share "
        "limits mesh only also still some same does done goes every between because what whose total average mean the "
        "and for are was but not its has had out per one two all any can may now how why who our you your yes "
        "their nor yet via use used uses of"
    )
)


def stems(text: str) -> frozenset[str]:
    """Beginnings of the words that tell one text from another."""
    return frozenset(word[:5] for word in _STEM.findall(text.lower().replace("_", " ").replace("-", " "))) - _ANY


@dataclass(frozen=True)
class Fact:
    """A number that was returned or told.

    value: in SI, signs do not count.  kind: `bare` where it is a count, or its unit is not known.  path: its keys.
    term: those below the row of its configuration, the same for the same quantity of two.  owners: the names of the
    configuration or record that it is of, empty where it is of the run as a whole.  predicted: whether the performance
    model says so.  text: whether it stands inside a text.  within: for a text that the product did not write (the name
    of an op, a passage), what a sentence must name to repeat the number with its unit; else empty.
    """

    value: float
    kind: Kind
    result: str = ""
    tool: str = ""
    path: str = ""
    term: str = ""
    owners: frozenset[str] = frozenset()
    predicted: bool = False
    text: bool = False
    within: frozenset[str] = frozenset()


_PAIR = re.compile(
    r"(?<![\w-])(?P<dcn>dcn[._ ])?(?P<axis>[A-Za-z][A-Za-z0-9_]*)[`\"]*\s?(?P<sign>=|:|\s)\s?(?P<size>\d{1,7})"
    r"(?:\s?(?:→|->|⟶|to)\s?(?P<to>\d{1,7}))?(?![\w%×]|\.\d|\s?(?:×|%|[mµn]?s\b|[kMGT]i?B\b))"
)


@dataclass(frozen=True)
class Pair:
    """An axis with its size as a text has it; to: the size that it changes to.  plain: joined by a space alone."""

    axis: str
    size: int
    to: int | None
    start: int
    end: int
    plain: bool = False

    @property
    def last(self) -> int:
        return self.size if self.to is None else self.to


def axis_sizes(text: str, axes: Iterable[str]) -> list[Pair]:
    """Axes with sizes: `data 8`, `data=8`, `"data": 8`, `dcn.data 2`, `data 8 → 16`."""
    known = set(axes)
    sizes = []
    for match in _PAIR.finditer(text):
        if match["axis"] in known:
            name = f"dcn.{match['axis']}" if match["dcn"] else match["axis"]
            to = int(match["to"]) if match["to"] else None
            plain = not match["sign"].strip()
            sizes.append(Pair(name, int(match["size"]), to, match.start(), match.end(), plain))
    return sizes


def groups(pairs: Sequence[Pair]) -> list[list[Pair]]:
    """Pairs that name one mesh together: a later pair of the same axis begins another."""
    by_configuration: list[list[Pair]] = []
    for pair in pairs:
        if not by_configuration or any(item.axis == pair.axis for item in by_configuration[-1]):
            by_configuration.append([])
        by_configuration[-1].append(pair)
    return by_configuration


def mesh_of(data: Mapping[str, Any]) -> Mesh:
    """{"ici": …, "dcn": …} as pairs, axes of size 1 left out."""
    return frozenset((axis, size) for axis, size in flat_sizes(data).items() if size != 1)


def named(mesh: Mesh) -> str:
    return " ".join(f"{axis}={size}" for axis, size in sorted(mesh))


@dataclass(frozen=True)
class Product:
    """Sizes joined by ×: `8 × 8 × 8`."""

    sizes: tuple[int, ...]
    text: str
    start: int
    end: int


_SIZE = r"(?:\d{1,3}(?:,\d{3}){1,3}|\d{1,7})"
_PRODUCT = re.compile(rf"(?<![\w.,]){_SIZE}(?:\s?[×x]\s?{_SIZE})+(?!\w|[.,]\d)")


def products(text: str) -> list[Product]:
    return [
        Product(
            tuple(int(size.replace(",", "")) for size in re.findall(r"[\d,]+", match[0])),
            match[0],
            match.start(),
            match.end(),
        )
        for match in _PRODUCT.finditer(text)
    ]
