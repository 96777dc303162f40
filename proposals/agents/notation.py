"""The notation of values in a message: meshes, settings, quantities with their units, chips, models, proposals, ops,
axes.

One table of patterns, tried in order at each place, the first that fits takes the words; what a number is follows from
its unit or its noun, so that `45 GB/s` is never a proposal.  What is wanted of the values is not read here.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import lru_cache
from typing import Any

from perfmodel.config import Mesh
from perfmodel.workload import REMAT
from proposals.agents.mesh_completion import ROLE_WORDS, Sizes
from proposals.agents.name_patterns import chip_named, chip_names, model_named, model_names
from proposals.agents.notation_terms import (
    BYTES,
    COUNT,
    FACTORS,
    IS,
    NUMBER,
    ORDINALS,
    PRECISIONS,
    REMATS,
    SECONDS,
    WORDS,
    Made,
    Make,
    ParseContext,
    Read,
    Value,
    axis_size,
    bits,
    count,
    counted,
    length,
    named_axis,
    number,
    numbers,
    one_axis,
    per_chip,
    product,
    remat,
    scaled,
    sharding,
    tokens,
)

#: `data 8 x fsdp 64`: two sizes, and no ratio.
_TIMES = re.compile(r"(?<=\d)(\s?)[x×*](\s?)(?=[a-z]{2,12}[ =]?\d)", re.IGNORECASE)
#: `model 4→8`: what it is changed to counts.
_BECOMES = re.compile(r"(?<![\w.])\d[\d.,]*\s?(?:→|->|=>)\s?(?=\d)")
#: What stands before a value that another one takes the place of.
_LEFT = re.compile(r"\b(?:instead of|rather than|in place of|from|not|no longer)\s(?:the\s|our\s)?$", re.IGNORECASE)
#: Words between two sizes that make them two meshes.
_PARTED = re.compile(r"\b(?:vs|versus|or|than|instead|from|to|into|against|not|but)\b|[?;]|\.\s", re.IGNORECASE)
#: Characters of a message that are read.
LONGEST = 4000


def sizes(text: str, mesh: Mesh) -> Sizes:
    """The mesh that a text in mesh notation names; empty where it names none."""
    meshes = [item.value for item in read(text, mesh=mesh).values if item.name == "mesh"]
    return joined(meshes)


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


def written(mesh: Sizes) -> str:
    """Sizes in the notation that `sizes` reads."""
    parts = [f"{axis}={size}" for axis, size in mesh.ici.items()]
    parts += [f"dcn.{axis}={size}" for axis, size in mesh.dcn.items()]
    parts += [f"{'double' if factor == 2 else 'halve'} {axis}" for axis, factor in mesh.factors.items()]
    return ", ".join(parts) or "x".join(map(str, mesh.positional))


def read(text: str, knows: ParseContext | None = None, mesh: Mesh | None = None) -> Read:
    """The values of a text.  mesh: whose axes may be named by their own names (default: the configuration's)."""
    text = _BECOMES.sub("", _TIMES.sub(lambda match: f"{match[1]},{match[2]}", text[:LONGEST]))
    mesh = mesh or (knows.config.mesh if knows else Mesh(()))
    read_values: list[Value] = []
    taken = [False] * len(text)
    for pattern, make in (*_ops(knows), *_table(tuple(axis.lower() for axis, _ in (*mesh.ici, *mesh.dcn)))):
        for match in pattern.finditer(text):
            if any(taken[match.start() : match.end()]) or match.end() == match.start():
                continue
            for name, value in make(match, mesh, knows):
                read_values.append(Value(name, value, match.start(), match.end()))
                taken[match.start() : match.end()] = [True] * (match.end() - match.start())
    read_values.sort(key=lambda item: item.start)
    read_values = _grouped(read_values, text)
    words = _replaced(text, read_values)
    return Read(tuple(_wanted(read_values, text)), words, text)


def _wanted(values: Collection[Value], text: str) -> Iterator[Value]:
    """Without values that another of the same kind takes the place of: `8k instead of 2k`, `from bf16 to fp8`."""
    for item in values:
        others = any(each is not item and each.name == item.name for each in values)
        if not (others and _LEFT.search(text[max(item.start - 20, 0) : item.start])):
            yield item


def _grouped(values: list[Value], text: str) -> list[Value]:
    """Sizes side by side as one mesh: `fsdp 32 with 4 replicas`; a `vs` or an `or` between them begins another."""
    joined_up: list[Value] = []
    for item in values:
        at = next((n for n in reversed(range(len(joined_up))) if joined_up[n].name == "mesh"), None)
        last = joined_up[at] if at is not None and item.name == "mesh" else None
        between = text[last.end : item.start] if last else ""
        near = len(between) < 40 and not _PARTED.search(between)
        if last and at is not None and near and not set(item.value.ici) & set(last.value.ici):
            joined_up[at] = Value("mesh", joined([last.value, item.value]), last.start, item.end)
        else:
            joined_up.append(item)
    return joined_up


def _replaced(text: str, values: Collection[Value]) -> str:
    """The text with what each value is in its place, for those who ask what is wanted."""
    for item in sorted(values, key=lambda each: -each.start):
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
    small = rf"(\d{{1,7}}|{'|'.join(WORDS)})(?![\w%]|[.,]\d|\s?(?:%|percent|x\b|×|[kmgt]i?b|chips|gpus|tokens))"
    each = r"\s?(?:/|(?:per|each|on each|top)\b)"  # of a chip or a token: no size of an axis
    rows: list[tuple[str, Make]] = [
        (r"--xla_[\w]+(?:=[\w.\-]+)?", lambda m, *_: iter([("xla_flags", m[0])])),
        (
            rf"(?<![\w.])({COUNT})\s?[x×]?\s?(?:(?:real|actual|new)\s)?({chip_names()})",
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
            tokens,
        ),
        (
            rf"({NUMBER})\s?([kmgt]i?b)(?:/s| per second)\b",
            lambda m, *_: iter([("bytes_per_s", number(m[1]) * BYTES[m[2].lower()])]),
        ),
        (rf"({NUMBER})\s?([gt])bit(?:s?/s|ps)?\b|({NUMBER})\s?([GT])bps\b", bits),
        (rf"({NUMBER})\s?([kmgt]i?b)\b", lambda m, *_: iter([("bytes", number(m[1]) * BYTES[m[2].lower()])])),
        (rf"({NUMBER})\s?(?:%|percent\b)", lambda m, *_: iter([("share", number(m[1]) / 100)])),
        (
            rf"\b(?:grad\w*|moments?|optimi[sz]er states?|states?|buffers?|weights?|params?)\s(?:\w+\s){{0,2}}"
            rf"({PRECISIONS})\b|\b({PRECISIONS})\s(?:grad\w*|moments?|optimi[sz]er states?|weights?|params?)\b",
            lambda m, *_: iter([("state_precision", (m[1] or m[2]).lower())]),
        ),
        (
            rf"\b(?:vpp|virtual[-_ ](?:stages?|pipeline\w*)(?: (?:stages|size))?|interleav\w+){IS}(\d{{1,3}})\b"
            rf"|(?<![\w.])(\d{{1,3}})[- ](?:virtual|interleaved) stages\b",
            lambda m, *_: iter([("virtual_stages", int(m[1] or m[2]))]),
        ),
        (rf"(?<![\w.])(?:mbs|micro[-_ ]?batch(?:[-_ ]size)?){IS}({COUNT})", lambda m, *_: counted("micro_batch", m[1])),
        (
            rf"(?<![\w.])({COUNT})\sslices\b",
            lambda m, _, knows: counted("chips", m[1], knows.config.hardware.chips_per_slice if knows else 1),
        ),
        (rf"({NUMBER})\s?(?:×|x)(?![\w×]|\s?\d)", lambda m, *_: iter([("ratio", number(m[1]))])),
        (
            rf"({NUMBER})\s?(us|µs|ms|s|sec|secs|seconds?|min|minutes?)\b(?:\s?(?:/|per|a)\s?step)?",
            lambda m, *_: (
                iter([("step_time_s", number(m[1]) * SECONDS[m[2].lower().rstrip("s") or "s"])])
                if m[2].lower() not in ("us", "µs", "ms")
                else iter([("step_time_s", number(m[1]) * SECONDS[m[2].lower()])])
            ),
        ),
        (
            rf"({NUMBER})\s?(?:hours?|hrs?|days?|weeks?|layers|heads|steps|years?)\b",
            lambda m, *_: iter([("quantity", m[0])]),
        ),
        (
            rf"(?<![\w.])({COUNT})\s?(?:chips?|gpus?|tpus?|devices?|accelerators?)\b",
            lambda m, *_: counted("chips", m[1]),
        ),
        (
            r"(?:proposals?|options?|suggestions?|candidates?|prop|no\.)\s?#?\s?(\d{1,2}(?!\d)(?:\s?(?:,|and|&|or|vs\.?|versus|with|to|against|\+)\s?(?:proposal\s|#)?\d{1,2}(?![\w.,]\d|\w|\s?%))*)",
            numbers,
        ),
        (r"(?<![\w&])#(\d{1,2})\b", numbers),
        (r"\bfindings?\s?#?\s?(\d{1,2})\b", lambda m, *_: iter([("finding", int(m[1]))])),
        (
            rf"\b(?:the\s)?({'|'.join(ORDINALS)})\s(?:one|proposals?|options?|suggestions?)\b",
            lambda m, *_: iter([("proposal", ORDINALS[m[1].lower()])]),
        ),
        (
            rf"(?<![\w.])({COUNT})\s(?:sequences|samples|examples)\s(?:per|/|a)\s?(?:chip|device|gpu|tpu|core)\b"
            rf"|\bper[- ](?:device|chip|gpu)[- ]batch(?:[- ]size)?{IS}({COUNT})",
            per_chip,
        ),
        (
            rf"(?:\b(?:global[-_ ]?)?batch(?:[-_ ]?size)?|(?<!\d)(?<!\d\s)\bgbs?){IS}({COUNT})",
            lambda m, *_: counted("batch", m[1]),
        ),
        (
            rf"(?<![\w.])({COUNT})[- ](?:global[- ])?(?:batch|sequences per step)\b",
            lambda m, *_: counted("batch", m[1]),
        ),
        (
            rf"\b(?:seq(?:uence)?[-_ ]?len(?:gth)?|max_target_length|context[-_ "
            rf"](?:length|window)|seq(?:uence)?s?|context){IS}({COUNT})(?!\s?(?:way|shards))",
            length,
        ),
        (rf"(?<![\w.])({COUNT})[- ](?:context|sequence length|seq_len|seq(?:uence)?s? long)\b", length),
        (
            rf"\b(?:grad(?:ient)?[-_ ]?accum(?:ulation)?(?:[-_ ]steps)?|ga|micro[-_ ]?batches|accumulation "
            rf"steps){IS}({COUNT})",
            lambda m, *_: counted("micro_batches", m[1]),
        ),
        (
            rf"(?<![\w.])({COUNT})\s(?:micro[-_ ]?batches|(?:gradient )?accumulation steps)\b",
            lambda m, *_: counted("micro_batches", m[1]),
        ),
        (
            rf"\b(?:remat(?:erialisation|erialization)?|checkpointing|recompute)(?: "
            rf"policy)?{IS}({'|'.join((*REMAT, *REMATS))})\b(?:\s(?:or|and|vs\.?|versus)\s({'|'.join(REMAT)})\b)?",
            remat,
        ),
        (
            r"\b(no|without|full|minimal|selective|offload(?:ing|ed)?)\s(?:activation\s)?(?:remat\w*|checkpointing|recompute)\b(?!\s(?:change|policy)s?\b)()",
            remat,
        ),
        (rf"\b({PRECISIONS})\b", lambda m, *_: iter([("precision", m[1].lower())])),
        (
            r"\b(zero[- ]?[123])\b|\bweight[_ ]sharding" + IS + r"(fsdp|zero-?[123]|none)\b|\b(replicated) weights\b",
            sharding,
        ),
        (r"\b(adamw?|adafactor|sgd|lion|shampoo|muon)\b", lambda m, *_: iter([("optimizer", m[1].lower())])),
        (
            rf"\b({'|'.join(FACTORS)})\s(?:the\s|our\s|my\s)?(?:global\s)?(batch|seq(?:uence)?[-_ "
            rf"]?len(?:gth)?|{axes}){tail}\b",
            scaled,
        ),
        (
            rf"(?<![\w.]){small}[- ](replicas|stages|experts)\b(?!{each})",
            lambda m, mesh, _: one_axis(mesh, m[2], m[1], False),
        ),
        (rf"\b(dcn|ici)(?:[._ ]|\swith\s)({axes})(?:_parallelism)?{IS}{small}", axis_size),
        (rf"(?<![\w.])()({short}){IS}-?\s?{small}", axis_size),
        (rf"(?<![\w.\-])()({axes}){tail}{IS}{small}", axis_size),
        (
            rf"(?<![\w.]){small}[- ]?(?:ways?|x)?[- ]({axes}){tail}\b(?!{each})",
            lambda m, mesh, _: one_axis(mesh, m[2], m[1], False),
        ),
        (
            rf"(?<![\w.])(\d{{1,6}})\s(?:on|over|along)\s(?:the\s)?({axes})\b",
            lambda m, mesh, _: one_axis(mesh, m[2], m[1], False),
        ),
        (
            rf"\b(?:no|without(?: any)?|drop|remove|disable)\s(?:the\s|all\s)?()(?:({axes})"
            rf"[-_ ](?:parallel\w*|shard\w*|axis)|({short}))\b(?!\s?[=\d])",
            lambda m, mesh, _: one_axis(mesh, m[2] or m[3], "1", False),
        ),
        (r"(?<![\w.])\d{1,6}(?:\s?[x×]\s?\d{1,6}){1,4}(?![\w.])", product),
        (model_names(), lambda m, *_: iter([("model_name", model_named(m[0]))])),
        (
            rf"\b({axes})[-_ "
            rf"](?:axis|parallel(?:ism)?|shard(?:ing|s)?)\b|\b(?:on|over|across|along)\s(?:the\s)?({axes}|dcn)\b(?:\saxis)?",
            named_axis,
        ),
        (r"(?<![\w.$])(\d{1,4}k)\b(?!\s?(?:steps|usd))", length),
        (
            r"(?<![\w.,$])(\d{1,6})(?:\s(?:and|or|vs\.?|versus)\s(\d{1,6}))?(?![\w%]|[.,]\d)",
            lambda m, *_: iter([("number", int(n)) for n in m.groups() if n]),
        ),
    ]
    return tuple((re.compile(pattern, re.IGNORECASE), make) for pattern, make in rows)


def _ops(knows: ParseContext | None) -> Iterator[tuple[re.Pattern[str], Make]]:
    """Names of the run's ops, and words of their form."""

    def make(m: re.Match[str], *_: Any) -> Made:
        word = m[0].strip("`%'\"")
        known = knows.ops if knows else ()
        if word in known or (re.search(r"[a-z_\-]\.\d+$", word) and not word.lower().startswith(("no.", "fig."))):
            yield "op", word

    yield re.compile(r"`[^`\s]{2,200}`|%?[A-Za-z][\w\-]*(?:\.[\w\-]+)*"), make
