"""Time of the step by a property of its ops, what the message names first; and ops set beside each other."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agent.tools import ToolError
from formatting import listed, plain, significant
from proposals.agents import words
from proposals.agents.capabilities.answer_context import Answer, AnswerContext
from proposals.agents.capabilities.common import get
from proposals.agents.capabilities.explaining import no_profile, predicted_instead
from proposals.agents.diagnosed import OpDetail, OpRow
from proposals.agents.tools import OpTools

NO_OPS = "No profile was recorded, so neither ops nor collectives were measured"
#: Rows of a table, and parts of a group that are columns.
MOST_ROWS, MOST_PARTS = 8, 4
#: Words for groups, beside their own names.
_CALLED = {
    "MLP": r"\bmlps?\b|\bffn\b|feed[- ]?forward", "attention": r"\battn\b|attention|softmax|\bqkv\b",
    "loss": r"logits|\bloss\b|lm[_ -]?head|output head|vocab", "embedding": r"embed", "expert": r"\bmoe\b|experts?\b",
    "forward": r"\bfwd\b|forward", "backward": r"\bbwd\b|backward", "recompute": r"remat|recomput",
    "optimizer": r"optimi[sz]er|\badam\w*\b|update", "collective": r"collective|communicat",
    "matmul": r"matmul|gemm|\bmm\b",
}  # fmt: skip


def time_of(row: OpRow) -> str:
    return words.time(row.time_s) if row.time_s else "–"


def shares(ctx: AnswerContext, by: str, head: str, empty: str, then_by: str = "") -> Answer:
    """Time per step and share of the step by a property of the ops, and of each group by another; what is named in the
    message first, in words."""
    if no_profile(ctx):
        yield from predicted_instead(ctx, NO_OPS)
        return
    data = yield from get(ctx, OpTools.ops, group_by=by, top=20, **({"then_by": then_by} if then_by else {}))
    rows = [row for row in data.rows if row.time_share]
    if not any(row.of(by) for row in rows):
        raise ToolError(empty)
    named = [row for row in rows if row.of(by) and _names(ctx.message, row.of(by))]
    lead = named or [row for row in rows if row.of(by)][:1]
    yield from ctx.say(*(_sentence(row, by, then_by, not named) for row in lead[:3]), "Measured, per step and core.")
    parts = _columns(rows, then_by)
    lines = [
        [
            row.of(by) or "unattributed", time_of(row), words.share(row.time_share),
            *(_part(row, then_by, name) for name in parts),
        ]
        for row in rows[:MOST_ROWS]
    ]  # fmt: skip
    of = [f"of which {name}" for name in parts]
    yield from ctx.table([head, "Time per step", "Share of device time", *of], lines)


def _names(message: str, group: str) -> bool:
    called = _CALLED.get(group, re.escape(group.lower()))
    return bool(message) and bool(re.search(called, message, re.IGNORECASE))


def _sentence(row: OpRow, by: str, then_by: str, first: bool) -> str:
    most = "Most time goes to " if first else ""
    name, share = row.of(by), words.share(row.time_share)
    took = f"{time_of(row)} ({share})" if row.time_s else share
    said = f"{most}**{name if first else words.capital(name)}**{', ' if first else ' takes '}{took}"
    known = [part for part in row.parts if part.of(then_by) != "unattributed" and part.time_share >= 0.0005]
    if len(known) > 1 or (known and known[0].time_share < 0.999 * row.time_share):
        parts = [f"{part.of(then_by)} {words.share(part.time_share)}" for part in known[:MOST_PARTS]]
        said += f", of which {listed(parts)}"
    return f"{said}."


def _columns(rows: Sequence[OpRow], then_by: str) -> list[str]:
    """The largest parts over all groups; none where there is one alone."""
    sums: dict[str, float] = {}
    for row in rows:
        for part in row.parts:
            if (name := part.of(then_by)) != "unattributed":
                sums[name] = sums.get(name, 0.0) + part.time_share
    largest = sorted(sums, key=lambda name: -sums[name])[:MOST_PARTS]
    return largest if len(largest) > 1 else []


def _part(row: OpRow, then_by: str, name: str) -> str:
    return next((words.share(part.time_share) for part in row.parts if part.of(then_by) == name), "–")


def ops_named(ctx: AnswerContext) -> list[str]:
    """Ops of the profile that the message names: whole, or by a part that only one of them has."""
    message = ctx.message
    if not message:
        return []
    names = [op.name.lstrip("%") for op in ctx.bench.diagnosis.ops]
    places: list[tuple[int, str]] = []
    for match in re.finditer(r"[A-Za-z_][\w.:\-]{3,}", message):
        word = match[0].rstrip(".:-")
        whole = [name for name in names if name == word]
        within = [name for name in names if len(word) >= 6 and re.search(r"[_.\d:]", word) and word in name]
        kept = whole or (within if len(within) == 1 else [])
        if not kept and len(word) >= 6 and "_" in word:
            kept = [name for name in names if name.rpartition(".")[0] == word][:1]
        places += [(match.start(), name) for name in kept]
    return list(dict.fromkeys(name for _, name in sorted(places)))


def beside(ctx: AnswerContext, names: Sequence[str]) -> Answer:
    """Ops side by side: time, rate, roofline, intensity, and what sets them apart."""
    rows = []
    for name in names[:5]:
        rows.append((yield from get(ctx, OpTools.op, op=name, hops=0)))
    yield from ctx.table(
        ["Op", "Time per step", "Share", "Bound by", "Of its roofline", "FLOP/byte", "FLOP rate"],
        [
            [
                f"`{row.name}`", time_of(row), words.share(row.time_share), row.bound_by or "–",
                words.share(row.roofline_efficiency) if row.roofline_efficiency is not None else "–",
                significant(row.operational_intensity) if row.operational_intensity else "–",
                words.flops(row.flops_per_s) if row.flops_per_s else "–",
            ]
            for row in rows
        ],
    )  # fmt: skip
    one, other = rows[:2]
    if one.time_s and other.time_s:
        slow, fast = (one, other) if one.time_s >= other.time_s else (other, one)
        took = f"{time_of(slow)} against {time_of(fast)}"
        yield from ctx.say(f"`{slow.name}` takes longer: {took}.", *_efficiency_differences(slow, fast))


def _efficiency_differences(slow: OpDetail, fast: OpDetail) -> Sequence[str]:
    said, same = [], False
    if slow.flops and fast.flops:
        same = abs(slow.flops / fast.flops - 1) < 0.05
        said.append(
            "Both do the same FLOPs." if same else
            f"It does {plain(slow.flops, 'flops')} against {plain(fast.flops, 'flops')}."
        )  # fmt: skip
    low, high = (row.operational_intensity or 0.0 for row in (slow, fast))
    if same and 0 < low < 0.95 * high:
        said.append("The slower one moves more bytes for its FLOPs, so a fused epilogue or another layout is likely.")
    said.append(
        "The exact cause (tiles, layout, masking) is not in the profile; its HLO or a kernel profile would show it."
    )
    return said
