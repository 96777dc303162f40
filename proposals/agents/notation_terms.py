"""The terms of the notation: what a value is, how numbers are written, and what becomes of the words of a pattern."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from perfmodel.config import ExperimentConfig, Mesh
from proposals.agents.mesh_completion import MOST, Sizes, axis_of

NUMBER = r"(?<![\w.,])(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?(?:e\d+)?)"
COUNT = rf"{NUMBER}\s?(?:k|m|ki|mi)?(?![\w%])"
IS = (
    r"['\"]?(?:\s+(?:axis|size|is|of|to|at|=|be|was|were|from|stays?|must be|(?:must|has to|should) stay|at most|"
    r"at least|no more than)|\s*[=:])*\s*"
)
POWERS = {
    "": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12, "thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12,
}  # fmt: skip
BYTES = {"kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12, "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30, "tib": 2.0**40}
SECONDS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "second": 1.0, "min": 60.0, "minute": 60.0}
ORDINALS = {"first": 1, "second": 2, "third": 3, "fourth": 4, "1st": 1, "2nd": 2, "3rd": 3, "4th": 4}
WORDS = {"one": 1, "two": 2, "three": 3, "four": 4, "six": 6, "eight": 8, "sixteen": 16}
FACTORS = {"double": 2.0, "doubling": 2.0, "twice": 2.0, "halve": 0.5, "halving": 0.5, "half": 0.5, "quadruple": 4.0}
PRECISIONS = r"bf16|fp16|fp8|mxfp8|nvfp4|int8|fp32"
SHARDINGS = {"fsdp": "fsdp", "zero3": "fsdp", "zero1": "zero1", "zero2": "zero1", "replicated": "none", "none": "none"}
REMATS = {"no": "none", "off": "none", "selective": "minimal", "everything": "full", "offloading": "offload"}
#: From here on a number after `seq` or `context` is a length in tokens and no size of an axis.
LENGTH_FROM = 512
_FSDP_TOO = re.compile(r"\bfsdp\s?[=:]?\s?\d", re.IGNORECASE)
_HYBRID = re.compile(r"\b(?:hsdp|hybrid)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Value:
    """A value and its words.  name: the field of a capability's form that it fills."""

    name: str
    value: Any
    start: int
    end: int


@dataclass(frozen=True)
class Read:
    """The values of a message by name, in its order, and its words with each value replaced by what it is."""

    values: tuple[Value, ...] = ()
    words: str = ""
    text: str = ""

    def of(self, name: str) -> list[Any]:
        return [item.value for item in self.values if item.name == name]

    @property
    def rest(self) -> str:
        """The text without its values."""
        text = self.text
        for item in sorted(self.values, key=lambda each: -each.start):
            text = f"{text[: item.start]} {text[item.end :]}"
        return text

    @property
    def names(self) -> frozenset[str]:
        return frozenset(item.name for item in self.values)


@dataclass(frozen=True)
class ParseContext:
    """What the words are read against: the configuration that ran, and the names of its ops."""

    config: ExperimentConfig
    ops: Collection[str] = ()
    proposals: Collection[int] = field(default=(1, 2, 3))


def number(text: str) -> float:
    return float(text.replace(",", ""))


def count(text: str) -> int | None:
    """`16k` sequences or tokens are 16 × 1,024, `10k` ten thousand; None where it is no whole number."""
    match = re.fullmatch(rf"({NUMBER})\s?([km]?)i?", text.strip().lower())
    if match is None:
        return WORDS.get(text.strip().lower())
    value, unit = number(match[1]), match[2]
    binary = unit and value == int(value) and int(value) & (int(value) - 1) == 0
    value *= {"": 1, "k": 1024 if binary else 1000, "m": 2**20 if binary else 10**6}[unit]
    return int(value) if value == int(value) and value < 1e15 else None


Made = Iterator[tuple[str, Any]]
Make = Callable[[re.Match[str], Mesh, ParseContext | None], Made]


def product(m: re.Match[str], mesh: Mesh, knows: ParseContext | None) -> Made:
    """`32x8` is a mesh, unless it says how the chips are arranged: `128 chips (8x16)`, `a second 8x8x8`."""
    factors = tuple(map(int, re.findall(r"\d+", m[0])))
    near = m.string[max(m.start() - 25, 0) : m.end() + 12]
    topology = knows is not None and factors == knows.config.hardware.topology and len(factors) != len(mesh.ici)
    if topology or re.search(r"\b(?:chips|slices?|pod|topology|torus|nodes?)\b", near, re.IGNORECASE):
        yield "topology", factors
    else:
        yield "mesh", Sizes(positional=factors)


def counted(name: str, text: str, times: int = 1) -> Made:
    value = count(text)
    if value:
        yield name, value * times


def per_chip(m: re.Match[str], mesh: Mesh, knows: ParseContext | None) -> Made:
    value = count(m[1] or m[2])
    if value and knows:
        yield "batch", value * knows.config.hardware.chips


def bits(m: re.Match[str], *_: Any) -> Made:
    yield "bytes_per_s", number(m[1] or m[3]) * BYTES[f"{(m[2] or m[4]).lower()}b"] / 8


def tokens(m: re.Match[str], *_: Any) -> Made:
    value = number(m[1]) * POWERS[(m[2] or "").lower()]
    whole = count(m[1] + (m[2] or "")) if (m[2] or "").lower() in ("", "k") else None
    yield ("seq_len", whole) if whole and whole <= 2**21 else ("tokens", value)


def length(m: re.Match[str], mesh: Mesh, _: ParseContext | None) -> Made:
    value = count(m[1])
    if (value and value >= LENGTH_FROM and (value & (value - 1) == 0 or not m[0].endswith("k"))) or (
        value and re.search(r"len|window", m[0], re.IGNORECASE)
    ):
        yield "seq_len", value


def remat(m: re.Match[str], *_: Any) -> Made:
    word = m[1].lower()
    yield "remat", "offload" if word.startswith("offload") else "none" if word == "without" else REMATS.get(word, word)
    if m[2]:
        yield "remat", m[2].lower()


def sharding(m: re.Match[str], *_: Any) -> Made:
    word = next(group for group in m.groups() if group).lower()
    yield "weight_sharding", SHARDINGS.get(re.sub(r"[- ]", "", word), word)


def scaled(m: re.Match[str], mesh: Mesh, knows: ParseContext | None) -> Made:
    factor, what = FACTORS[m[1].lower()], m[2].lower()
    if what == "batch" or (what.startswith("seq") and "len" in what):
        now = knows and getattr(knows.config.training, "global_batch" if what == "batch" else "seq_len")
        if now:
            yield ("batch" if what == "batch" else "seq_len"), int(now * factor)
        return
    axis = axis_of(mesh, what)
    if axis:
        yield "mesh", Sizes(factors={axis: factor})


def axis_size(m: re.Match[str], mesh: Mesh, _: ParseContext | None) -> Made:
    word = m[2].lower()
    if word in ("data", "dp") and _FSDP_TOO.search(m.string):  # beside fsdp, data is an axis of its own
        own = axis_of(mesh, word) != axis_of(mesh, "fsdp")
        word, mesh = "replica" if _HYBRID.search(m.string) else "data", mesh if own else Mesh(())
    yield from one_axis(mesh, word, m[3], m[1].lower() == "dcn")


def one_axis(mesh: Mesh, word: str, size: str, across: bool) -> Made:
    axis, value = axis_of(mesh, word), count(size)
    if axis and value and 1 <= value <= MOST:
        yield "mesh", Sizes(dcn={axis: value}) if across else Sizes(ici={axis: value})


def named_axis(m: re.Match[str], mesh: Mesh, _: ParseContext | None) -> Made:
    word = m[1] or m[2]
    axis = "dcn" if word.lower() == "dcn" else axis_of(mesh, word)
    if axis:
        yield "axis", axis


def numbers(m: re.Match[str], *_: Any) -> Made:
    for text in re.findall(r"\d+", m[1]):
        yield "proposal", int(text)
