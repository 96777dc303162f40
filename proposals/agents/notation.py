"""The notation of values in a message: meshes, settings, quantities with their units, chips, models, proposals, ops,
axes.

One table of patterns, tried in order at each place, the first that fits takes the words; what a number is follows from
its unit or its noun, so that `45 GB/s` is never a proposal.  What is wanted of the values is not read here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from perfmodel.config import ExperimentConfig, Mesh
from perfmodel.workload import REMAT
from proposals.agents.filling import MOST, ROLE_WORDS, Sizes, axis_of
from proposals.agents.part_names import chip_named, chip_names, model_named, model_names

NUMBER = r"(?<![\w.,])(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?(?:e\d+)?)"
_COUNT = rf"{NUMBER}\s?(?:k|m|ki|mi)?(?![\w%])"
_IS = (
    r"['\"]?(?:\s+(?:axis|size|is|of|to|at|=|be|was|were|from|stays?|must be|(?:must|has to|should) stay|at most|"
    r"at least|no more than)|\s*[=:])*\s*"
)
_POWERS = {
    "": 1.0,
    "k": 1e3,
    "m": 1e6,
    "b": 1e9,
    "t": 1e12,
    "thousand": 1e3,
    "million": 1e6,
    "billion": 1e9,
    "trillion": 1e12,
}
_BYTES = {"kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12, "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30, "tib": 2.0**40}
_SECONDS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "second": 1.0, "min": 60.0, "minute": 60.0}
_ORDINALS = {"first": 1, "second": 2, "third": 3, "fourth": 4, "1st": 1, "2nd": 2, "3rd": 3, "4th": 4}
_WORDS = {"one": 1, "two": 2, "three": 3, "four": 4, "six": 6, "eight": 8, "sixteen": 16}
_FACTORS = {"double": 2.0, "doubling": 2.0, "twice": 2.0, "halve": 0.5, "halving": 0.5, "half": 0.5, "quadruple": 4.0}
_PRECISIONS = r"bf16|fp16|fp8|mxfp8|nvfp4|int8|fp32"
_SHARDINGS = {"fsdp": "fsdp", "zero3": "fsdp", "zero1": "zero1", "zero2": "zero1", "replicated": "none", "none": "none"}
_REMATS = {"no": "none", "off": "none", "selective": "minimal", "everything": "full", "offloading": "offload"}
#: From here on a number after `seq` or `context` is a length in tokens and no size of an axis.
LENGTH_FROM = 512
#: Characters of a message that are read.
LONGEST = 4000


@dataclass(frozen=True)
class Value:
    """A value and the words that it stands in.  name: the field of a capability's form that it fills."""

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
    def names(self) -> frozenset[str]:
        return frozenset(item.name for item in self.values)


@dataclass(frozen=True)
class Knows:
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
        return _WORDS.get(text.strip().lower())
    value, unit = number(match[1]), match[2]
    binary = unit and value == int(value) and int(value) & (int(value) - 1) == 0
    value *= {"": 1, "k": 1024 if binary else 1000, "m": 2**20 if binary else 10**6}[unit]
    return int(value) if value == int(value) and value < 1e15 else None


def sizes(text: str, mesh: Mesh) -> Sizes:
    """The mesh that a text in mesh notation names; empty where it names none."""
    found = [item.value for item in read(text, mesh=mesh).values if item.name == "mesh"]
    return joined(found)


def joined(parts: Collection[Sizes]) -> Sizes:
    """Sizes named one after the other as one mesh."""
    ici: dict[str, int] = {}
    dcn: dict[str, int] = {}
    factors: dict[str, float] = {}
    positional: tuple[int, ...] = ()
    for part in parts:
        ici |= part.ici
        dcn |= part.dcn
        factors |= part.factors
        positional = positional or part.positional
    return Sizes(ici, dcn, factors, positional)


def written(found: Sizes) -> str:
    """Sizes in the notation that `sizes` reads."""
    parts = [f"{axis}={size}" for axis, size in found.ici.items()]
    parts += [f"dcn.{axis}={size}" for axis, size in found.dcn.items()]
    parts += [f"{'double' if factor == 2 else 'halve'} {axis}" for axis, factor in found.factors.items()]
    return ", ".join(parts) or "x".join(map(str, found.positional))


def read(text: str, knows: Knows | None = None, mesh: Mesh | None = None) -> Read:
    """The values of a text.  mesh: whose axes may be named by their own names (default: the configuration's)."""
    text = text[:LONGEST]
    mesh = mesh or (knows.config.mesh if knows else Mesh(()))
    found: list[Value] = []
    taken = [False] * len(text)
    for pattern, make in (*_ops(knows), *_table(tuple(axis.lower() for axis, _ in (*mesh.ici, *mesh.dcn)))):
        for match in pattern.finditer(text):
            if any(taken[match.start() : match.end()]) or match.end() == match.start():
                continue
            for name, value in make(match, mesh, knows):
                found.append(Value(name, value, match.start(), match.end()))
                taken[match.start() : match.end()] = [True] * (match.end() - match.start())
    found.sort(key=lambda item: item.start)
    found = _grouped(found, text)
    return Read(tuple(found), _replaced(text, found), text)


Made = Iterator[tuple[str, Any]]
Make = Callable[[re.Match[str], Mesh, Knows | None], Made]


def _grouped(found: list[Value], text: str) -> list[Value]:
    """Sizes side by side as one mesh: `fsdp 32 with 4 replicas`; a `vs` or an `or` between them begins another."""
    joined_up: list[Value] = []
    for item in found:
        last = joined_up[-1] if joined_up else None
        between = text[last.end : item.start] if last else ""
        near = re.fullmatch(r"[\s,;/·x×+&(){}\[\]'\"|*]*(?:and|with|by|plus)?[\s,;/·(){}'\"]*", between)
        if last and item.name == last.name == "mesh" and near and not set(item.value.ici) & set(last.value.ici):
            joined_up[-1] = Value("mesh", joined([last.value, item.value]), last.start, item.end)
        else:
            joined_up.append(item)
    return joined_up


def _replaced(text: str, found: Collection[Value]) -> str:
    """The text with what each value is in its place, for those who ask what is wanted."""
    for item in sorted(found, key=lambda each: -each.start):
        text = f"{text[: item.start]} {_SPOKEN.get(item.name, item.name.replace('_', ' '))} {text[item.end :]}"
    return " ".join(text.split())


_SPOKEN = {
    "mesh": "this mesh", "op": "this op", "proposal": "proposal", "number": "", "chip": "the chip",
    "xla_flags": "the flag",     "step_time_s": "seconds",
    "usd_per_chip_hour": "dollars per chip-hour", "usd": "dollars", "bytes": "GB",
    "bytes_per_s": "GB/s", "share": "percent", "tokens": "tokens", "model_name": "the model",
}  # fmt: skip


@lru_cache(maxsize=64)
def _table(own: tuple[str, ...]) -> tuple[tuple[re.Pattern[str], Make], ...]:
    axes = "|".join(re.escape(word) for word in sorted({*own, *ROLE_WORDS}, key=len, reverse=True))
    short = "|".join(sorted((word for word in ROLE_WORDS if len(word) == 2 or word in ("fsdp", "ddp")), key=len))
    tail = r"(?:[-_ ](?:parallel(?:ism)?|shard(?:ing|s)?|axis|ways?|degree|replicate|size))*"
    small = rf"(\d{{1,7}}|{'|'.join(_WORDS)})(?![\w%]|[.,]\d|\s?(?:%|percent|x\b|×|[kmgt]i?b|chips|gpus|tokens))"
    rows: list[tuple[str, Make]] = [
        (r"--xla_[\w]+(?:=[\w.\-]+)?", lambda m, *_: iter([("xla_flags", m[0])])),
        (
            rf"(?<![\w.])({_COUNT})\s?[x×]?\s?({chip_names()})",
            lambda m, *_: iter([("chips", count(m[1])), ("chip", chip_named(m[2]))]),
        ),
        (chip_names(), lambda m, *_: iter([("chip", chip_named(m[0]))])),
        (
            rf"(?:\$|usd\s?)\s?({NUMBER})(?:\s?(?:/|per|a|an)\s?(?:chip|gpu|tpu|accelerator)[- ]?(?:hour|hr|h)?\b)?"
            rf"(?:\s?(?:/|per|a|an)\s?(?:hour|hr|h)\b)?",
            lambda m, *_: iter([("usd_per_chip_hour", number(m[1]))]),
        ),
        (
            rf"({NUMBER})\s?(?:dollars?|usd|\$)(?:\s?(?:/|per|a|an)\s?(?:chip|gpu|tpu)?[- ]?(?:hour|hr|h)\b)?",
            lambda m, *_: iter([("usd_per_chip_hour", number(m[1]))]),
        ),
        (
            rf"({NUMBER})\s?(k|m|b|t|thousand|million|billion|trillion)?\s?(?:more )?tokens?\b(?!\s?(?:/|per))",
            _tokens,
        ),
        (
            rf"({NUMBER})\s?([kmgt]i?b)(?:/s| per second)\b",
            lambda m, *_: iter([("bytes_per_s", number(m[1]) * _BYTES[m[2].lower()])]),
        ),
        (rf"({NUMBER})\s?([gt])bit(?:s?/s|ps)?\b|({NUMBER})\s?([GT])bps\b", _bits),
        (rf"({NUMBER})\s?([kmgt]i?b)\b", lambda m, *_: iter([("bytes", number(m[1]) * _BYTES[m[2].lower()])])),
        (rf"({NUMBER})\s?(?:%|percent\b)", lambda m, *_: iter([("share", number(m[1]) / 100)])),
        (rf"({NUMBER})\s?(?:×|x)(?![\w×])", lambda m, *_: iter([("ratio", number(m[1]))])),
        (
            rf"({NUMBER})\s?(us|µs|ms|s|sec|secs|seconds?|min|minutes?)\b(?:\s?(?:/|per|a)\s?step)?",
            lambda m, *_: (
                iter([("step_time_s", number(m[1]) * _SECONDS[m[2].lower().rstrip("s") or "s"])])
                if m[2].lower() not in ("us", "µs", "ms")
                else iter([("step_time_s", number(m[1]) * _SECONDS[m[2].lower()])])
            ),
        ),
        (
            rf"({NUMBER})\s?(?:hours?|hrs?|days?|weeks?|layers|heads|steps|years?)\b",
            lambda m, *_: iter([("quantity", m[0])]),
        ),
        (
            rf"(?<![\w.])({_COUNT})\s?(?:chips?|gpus?|tpus?|devices?|accelerators?)\b",
            lambda m, *_: _counted("chips", m[1]),
        ),
        (
            r"(?:proposals?|options?|suggestions?|candidates?|prop|no\.)\s?#?\s?(\d{1,2}(?!\d)(?:\s?(?:,|and|&|or|vs\.?|versus|with|to|against|\+)\s?(?:proposal\s|#)?\d{1,2}(?![\w.,]\d|\w|\s?%))*)",
            _numbers,
        ),
        (r"(?<![\w&])#(\d{1,2})\b", _numbers),
        (r"\bfindings?\s?#?\s?(\d{1,2})\b", lambda m, *_: iter([("finding", int(m[1]))])),
        (
            rf"\b(?:the\s)?({'|'.join(_ORDINALS)})\s(?:one|proposals?|options?|suggestions?)\b",
            lambda m, *_: iter([("proposal", _ORDINALS[m[1].lower()])]),
        ),
        (
            rf"(?<![\w.])({_COUNT})\s(?:sequences|samples|examples)\s(?:per|/|a)\s?(?:chip|device|gpu|tpu|core)\b"
            rf"|\bper[- ](?:device|chip|gpu)[- ]batch(?:[- ]size)?{_IS}({_COUNT})",
            _per_chip,
        ),
        (rf"\b(?:global[-_ ]?)?batch(?:[-_ ]?size)?{_IS}({_COUNT})", lambda m, *_: _counted("batch", m[1])),
        (
            rf"(?<![\w.])({_COUNT})[- ](?:global[- ])?(?:batch|sequences per step)\b",
            lambda m, *_: _counted("batch", m[1]),
        ),
        (
            rf"\b(?:seq(?:uence)?[-_ ]?len(?:gth)?|max_target_length|context[-_ "
            rf"](?:length|window)|seq(?:uence)?s?|context){_IS}({_COUNT})(?!\s?(?:way|shards))",
            _length,
        ),
        (rf"(?<![\w.])({_COUNT})[- ](?:context|sequence length|seq_len|seq(?:uence)?s? long)\b", _length),
        (
            rf"\b(?:grad(?:ient)?[-_ ]?accum(?:ulation)?(?:[-_ ]steps)?|micro[-_ ]?batches|accumulation "
            rf"steps){_IS}({_COUNT})",
            lambda m, *_: _counted("micro_batches", m[1]),
        ),
        (
            rf"(?<![\w.])({_COUNT})\s(?:micro[-_ ]?batches|(?:gradient )?accumulation steps)\b",
            lambda m, *_: _counted("micro_batches", m[1]),
        ),
        (
            rf"\b(?:remat(?:erialisation|erialization)?|checkpointing|recompute)(?: "
            rf"policy)?{_IS}({'|'.join((*REMAT, *_REMATS))})\b",
            _remat,
        ),
        (
            r"\b(no|without|full|minimal|selective|offload(?:ing|ed)?)\s(?:activation\s)?(?:remat\w*|checkpointing|recompute)\b",
            _remat,
        ),
        (rf"\b({_PRECISIONS})\b", lambda m, *_: iter([("precision", m[1].lower())])),
        (
            r"\b(zero[- ]?[123])\b|\bweight[_ ]sharding" + _IS + r"(fsdp|zero-?[123]|none)\b|\b(replicated) weights\b",
            _sharding,
        ),
        (r"\b(adamw?|adafactor|sgd|lion|shampoo|muon)\b", lambda m, *_: iter([("optimizer", m[1].lower())])),
        (
            rf"\b({'|'.join(_FACTORS)})\s(?:the\s|our\s|my\s)?(?:global\s)?(batch|seq(?:uence)?[-_ "
            rf"]?len(?:gth)?|{axes}){tail}\b",
            _scaled,
        ),
        (rf"(?<![\w.]){small}[- ](replicas|stages|experts)\b", lambda m, mesh, _: _one_axis(mesh, m[2], m[1], False)),
        (rf"\b(dcn|ici)[._ ]({axes})(?:_parallelism)?{_IS}{small}", _axis),
        (rf"(?<![\w.])()({short}){_IS}-?\s?{small}", _axis),
        (rf"(?<![\w.\-])()({axes}){tail}{_IS}{small}", _axis),
        (
            rf"(?<![\w.]){small}[- ]?(?:ways?|x)?[- ]({axes}){tail}\b",
            lambda m, mesh, _: _one_axis(mesh, m[2], m[1], False),
        ),
        (
            rf"\b(?:no|without(?: any)?)\s()({axes})[-_ ](?:parallel(?:ism)?|shard(?:ing|s)?|axis)\b()",
            lambda m, mesh, _: _one_axis(mesh, m[2], "1", False),
        ),
        (
            r"(?<![\w.])\d{1,6}(?:\s?[x×]\s?\d{1,6}){1,4}(?![\w.])",
            lambda m, *_: iter([("mesh", Sizes(positional=tuple(map(int, re.findall(r"\d+", m[0])))))]),
        ),
        (model_names(), lambda m, *_: iter([("model_name", model_named(m[0]))])),
        (
            rf"\b({axes})[-_ "
            rf"](?:axis|parallel(?:ism)?|shard(?:ing|s)?)\b|\b(?:on|over|across|along)\s(?:the\s)?({axes}|dcn)\b(?:\saxis)?",
            _named,
        ),
        (
            r"(?<![\w.,$])(\d{1,6})(?:\s(?:and|or|vs\.?|versus)\s(\d{1,6}))?(?![\w%]|[.,]\d)",
            lambda m, *_: iter([("number", int(n)) for n in m.groups() if n]),
        ),
    ]
    return tuple((re.compile(pattern, re.IGNORECASE), make) for pattern, make in rows)


def _counted(name: str, text: str) -> Made:
    value = count(text)
    if value:
        yield name, value


def _per_chip(m: re.Match[str], mesh: Mesh, knows: Knows | None) -> Made:
    value = count(m[1] or m[2])
    if value and knows:
        yield "batch", value * knows.config.hardware.chips


def _bits(m: re.Match[str], *_: Any) -> Made:
    yield "bytes_per_s", number(m[1] or m[3]) * _BYTES[f"{(m[2] or m[4]).lower()}b"] / 8


def _tokens(m: re.Match[str], *_: Any) -> Made:
    value = number(m[1]) * _POWERS[(m[2] or "").lower()]
    whole = count(m[1] + (m[2] or "")) if (m[2] or "").lower() in ("", "k") else None
    yield ("seq_len", whole) if whole and whole <= 2**21 else ("tokens", value)


def _length(m: re.Match[str], mesh: Mesh, _: Knows | None) -> Made:
    value = count(m[1])
    if (value and value >= LENGTH_FROM) or (value and re.search(r"len|window", m[0], re.IGNORECASE)):
        yield "seq_len", value


def _remat(m: re.Match[str], *_: Any) -> Made:
    word = m[1].lower()
    word = "offload" if word.startswith("offload") else "none" if word == "without" else _REMATS.get(word, word)
    yield "remat", word


def _sharding(m: re.Match[str], *_: Any) -> Made:
    word = next(group for group in m.groups() if group).lower()
    yield "weight_sharding", _SHARDINGS.get(re.sub(r"[- ]", "", word), word)


def _scaled(m: re.Match[str], mesh: Mesh, knows: Knows | None) -> Made:
    factor, what = _FACTORS[m[1].lower()], m[2].lower()
    if what == "batch" or (what.startswith("seq") and "len" in what):
        now = knows and getattr(knows.config.training, "global_batch" if what == "batch" else "seq_len")
        if now:
            yield ("batch" if what == "batch" else "seq_len"), int(now * factor)
        return
    axis = axis_of(mesh, what)
    if axis:
        yield "mesh", Sizes(factors={axis: factor})


def _axis(m: re.Match[str], mesh: Mesh, _: Knows | None) -> Made:
    yield from _one_axis(mesh, m[2], m[3], m[1].lower() == "dcn")


def _one_axis(mesh: Mesh, word: str, size: str, across: bool) -> Made:
    axis, value = axis_of(mesh, word), count(size)
    if axis and value and 1 <= value <= MOST:
        yield "mesh", Sizes(dcn={axis: value}) if across else Sizes(ici={axis: value})


def _named(m: re.Match[str], mesh: Mesh, _: Knows | None) -> Made:
    word = m[1] or m[2]
    axis = "dcn" if word.lower() == "dcn" else axis_of(mesh, word)
    if axis:
        yield "axis", axis


def _numbers(m: re.Match[str], *_: Any) -> Made:
    for text in re.findall(r"\d+", m[1]):
        yield "proposal", int(text)


def _ops(knows: Knows | None) -> Iterator[tuple[re.Pattern[str], Make]]:
    """Names of the run's ops, and words of their form."""

    def make(m: re.Match[str], *_: Any) -> Made:
        word = m[0].strip("`%'\"")
        known = knows.ops if knows else ()
        if word in known or (re.search(r"[a-z_\-]\.\d+$", word) and not word.lower().startswith(("no.", "fig."))):
            yield "op", word

    yield re.compile(r"`[^`\s]{2,200}`|%?[A-Za-z][\w\-]*(?:\.[\w\-]+)*"), make
