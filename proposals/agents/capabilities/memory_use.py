"""Sentences about what fills a chip's memory, what reduces each part, and a peak that the user measured."""

from __future__ import annotations

import re
from collections.abc import Iterator

from perfmodel.workload import chip_of
from proposals.agents import words
from proposals.agents.capabilities.answer_context import Answer, AnswerContext
from proposals.agents.tools import MemoryTools
from proposals.agents.tools.memory_use import HeldMemory

_GB = r"(\d+(?:\.\d+)?)\s?(g(?:i?b)?|gigs?|mb|mib)?(?!\w|%|×|\.\d)(?!\s?(?:%|percent|ms|s\b|x\b|times))"
#: How somebody says that a number is the memory that was really in use: after words of measuring, or before them.
_WORDS = r"nvidia-?smi|rocm-?smi|\bmeasured|\bactual\w*|\breally\b|in use|\bused|\bmy\b"
_AFTER = r"nvidia-?smi|rocm-?smi|measured|in use|used|allocated|reserved"
_MEASURED = (
    re.compile(rf"(?:{_WORDS})[^.?!\d]{{0,24}}{_GB}", re.IGNORECASE),
    re.compile(rf"(?<![\w.]){_GB}[^.?!\d]{{0,14}}(?:{_AFTER})", re.IGNORECASE),
)
_SCALES = {"m": 1e6, "mib": 2.0**20, "g": 1e9, "gib": 2.0**30}
_ABOUT = re.compile(r"\bg(?:i?b|igs?)?\b|\d\s?g\b|hbm|memory|smi\b", re.IGNORECASE)
#: Share of the usable memory above which a fit is risky: allocators fragment, and libraries take their own.
TIGHT = 0.95
_NAMES = {"params": "weights", "optimizer": "optimizer state"}


def stated_peak(ctx: AnswerContext) -> float | None:
    """The peak per chip that the user says was measured, in this message or an earlier one; None where none is."""
    about = any(_ABOUT.search(text) for text in ctx.user_messages[:3])
    for text in ctx.user_messages[:3] if about else ():
        for pattern in _MEASURED:
            match = pattern.search(text)
            if match is not None and float(match[1]) > 0:
                unit = (match[2] or "g").lower()
                return float(match[1]) * _SCALES["mib" if unit == "mib" else "gib" if unit == "gib" else unit[0]]
    return None


def filling(ctx: AnswerContext) -> Answer:
    """What fills the memory and what reduces each part; with a measured peak what lies beyond the computed parts."""
    stated = stated_peak(ctx)
    data = (yield from ctx.look(MemoryTools.memory_use, **({"stated_bytes": stated} if stated else {}))).data
    if data is None:
        return
    yield from ctx.say("In the current configuration:")
    if stated:
        yield from _against(ctx, data)
    yield from ctx.bullets(list(_parts(data)))


def _against(ctx: AnswerContext, data: HeldMemory) -> Answer:
    beyond = data.unaccounted_bytes or 0.0
    more = "above" if beyond >= 0 else "below"
    yield from ctx.say(
        f"Your measured **{words.size(data.stated_bytes or 0.0)}** per chip is {words.size(abs(beyond))} {more} the "
        f"{words.size(data.total_bytes)} predicted from the parts, and leaves "
        f"{words.size(data.measured_headroom_bytes or 0.0)} of {words.size(data.capacity_bytes)}."
    )
    if beyond > 0:
        yield from ctx.more(
            "The difference is what a program holds besides its tensors: reserved but free blocks and fragmentation "
            "of the caching allocator, the runtime context, NCCL and other collective buffers, workspaces. "
            "`nvidia-smi` counts all of it; the allocator's own peak is lower."
            if chip_of(ctx.bench.config.hardware).kind == "gpu"
            else "The difference is what the compiled program holds besides the predicted tensors: temporary "
            "buffers of its buffer assignment, padding, the program itself and what the runtime reserves."
        )
    lines = [
        [
            f"proposal {row.number}", words.size(row.total_bytes), words.size(row.projected_bytes),
            words.size(row.projected_headroom_bytes or 0.0), _verdict(row.share_of_the_capacity or 0.0),
        ]
        for row in data.rows if row.projected_bytes
    ]  # fmt: skip
    if lines:
        yield from ctx.table(["Configuration", "Predicted", "With the difference added", "Headroom", "Safe"], lines)


def _verdict(share: float) -> str:
    return "no: it does not fit" if share > 1 else "risky: little headroom" if share > TIGHT else "yes"


def _parts(data: HeldMemory) -> Iterator[str]:
    """Each part with what it is sharded over and what reduces it, the largest first."""
    replicas, only = data.replicas, data.weight_sharding
    for key, value in sorted(data.parts_bytes.items(), key=lambda item: -item[1]):
        if not value:
            continue
        said = f"{_NAMES.get(key, key)} **{words.size(value)}**"
        if key == "activations":
            yield (
                f"{said}: what is kept for the backward pass under remat {data.remat}, the working set of a layer "
                "and the logits. Reduced by more rematerialisation, offload, more micro-batches, a sequence axis or a "
                "smaller batch"
            )
        elif key == "optimizer":
            over = data.optimizer_sharded_over_replicas
            where = (
                f"{only} shards it over {over:,} replicas" if over > 1 else
                "there is one replica, so nothing is sharded" if replicas == 1 else
                f"weight sharding {only} keeps it whole on each of {replicas:,} replicas"
            )  # fmt: skip
            yield (
                f"{said}: moments and master weights of {data.optimizer}; {where}. Reduced by more replicas under "
                "ZeRO-1 or FSDP, a factored optimizer such as Adafactor, or moments in bf16, which is not priced here"
            )
        elif key == "params":
            over = data.weights_sharded_over_replicas
            how = f" and over {over:,} replicas" if over > 1 else ""
            cut = f"sharded by the mesh over {data.weight_shards:,} chips{how}"
            yield f"{said}: {data.weights_held_in}, {cut}. Reduced by a tensor, pipeline or FSDP axis"
        else:
            whole = (
                f": {only} shards the optimizer alone, so these are whole on every replica" if only == "zero1" else ""
            )
            yield f"{said}{whole if replicas > 1 else ''}"
