"""What a priced configuration is told in: its numbers, a table of several, its memory by parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from proposals import facts
from proposals.agents.reasoner import words
from proposals.agents.reasoner.answers import common
from proposals.agents.reasoner.desk import Answer, Desk
from proposals.agents.reasoner.understand import Asked

Row = Mapping[str, Any]


def priced(desk: Desk, row: Row) -> Answer:
    """One configuration as `predict` has it."""
    broken = words.violations(row)
    if broken:
        yield from desk.say(f"**It can not run as it is**: {broken[0]}", *broken[1:3])
        if row.get("step_time_s") and not any(item["rule"] in ("chips", "axis_role") for item in row["violations"]):
            yield from desk.more(f"If it could, it would be predicted at {words.speed(row)}.")
        if any(item["rule"] == "memory" for item in row["violations"]):
            yield from memory_parts(desk, row)
        return
    stands = row.get("stands_as_proposal")
    ran = row.get("what_runs") or {}
    if common.is_what_runs(row):
        yield from desk.say(f"That is what runs: {words.estimate(ran)} a step, measured.")
        return
    doubts = words.open_questions(row)
    head = (
        f"It is proposal {stands}. "
        if stands
        else f"It breaks no rule that can be checked, but: {doubts[0]} "
        if doubts
        else "It may run. "
    )
    value = row.get("speedup_per_token")
    if value is None:
        yield from desk.say(
            f"{head}No speed-up can be predicted: not known: {facts.in_words(row.get('not_known', ()))}."
        )
        return
    yield from desk.say(
        f"{head}**Predicted {words.ratio(value)} per token**{words.within(row)}, confidence "
        f"{words.percent(row['confidence_share'])} that it {words.gains(row)}."
    )
    if isinstance(row.get("step_time_s"), Mapping) and ran.get("step_time_s"):
        yield from desk.more(f"The step would take {words.step(row)}; {words.estimate(ran)} was measured.")
        if {"global_batch", "seq_len"} & set(row.get("changes") or {}):
            yield from desk.more(
                "The step holds another number of tokens, so compare the time per token, not the step."
            )
    yield from desk.bullets(list(_effects(row)))
    if _wide(row):
        yield from desk.say(
            "The range is so wide because that lies far from what was measured: take the direction from "
            "it, not the size."
        )


def _wide(row: Row) -> bool:
    low, high = row.get("speedup_low80"), row.get("speedup_high80")
    return bool(low and high and high > 3 * low)


def _effects(row: Row) -> Iterator[str]:
    """What changes most: communication per axis, memory, what lowers the confidence."""
    moved = sorted(row.get("communication") or (), key=lambda item: -abs(item["after_share"] - item["before_share"]))
    for item in moved[:2]:
        if abs(item["after_share"] - item["before_share"]) < 1e-9:
            continue
        axes = (
            f" on the {' and '.join(item['axes'])} {'axis' if len(item['axes']) == 1 else 'axes'}"
            if item.get("axes")
            else ""
        )
        before, after = words.traffic(item, "before"), words.traffic(item, "after")
        yield f"exposed communication of {item['moves']}{axes} goes from {before} to {after}{words.per_step(item)}"
    if row.get("hbm_per_chip_bytes"):
        ran = (row.get("what_runs") or {}).get("hbm_per_chip_bytes")
        was = f" (memory of what runs: {words.size(ran['total'])})" if ran and ran.get("total") else ""
        yield f"memory per chip, computed: {words.memory(row)}{was}"
    elif row.get("not_known"):
        yield f"whether it fits in memory is open, because {facts.not_known(row['not_known'])}"
    doubts = words.open_questions(row)
    for text in [text for text in row.get("lowers_confidence") or () if text not in doubts][:2]:
        yield f"against it: {words.lower_first(str(text))}"


def table(desk: Desk, rows: list[Row], ran: Row, names: list[str] | None = None) -> Answer:
    memory = any(row.get("hbm_per_chip_bytes") for row in rows)
    header = [
        "Configuration",
        "Step, predicted",
        "Per token",
        "Range",
        words.confidence_head(rows),
        *(["Memory per chip"] if memory else []),
        "May run",
    ]
    lines = []
    for at, row in enumerate(rows):
        name = names[at] if names else words.configuration(row)
        if row.get("stands_as_proposal") and not names:
            name += f" (proposal {row['stands_as_proposal']})"
        speedup = row.get("speedup_per_token")
        known = speedup and not any(item["rule"] == "chips" for item in row.get("violations", ()))
        lines.append(
            [
                name,
                words.estimate(row) if known else "–",
                words.ratio(speedup) if known and speedup else "–",
                words.span(row) if known else "–",
                words.percent(row["confidence_share"]) if known and not row.get("violations") else "–",
                *([words.memory(row)] if memory else []),
                words.allowed(row),
            ]
        )
    if ran.get("step_time_s"):
        lines.append(
            [
                f"what runs, {words.mesh(ran)}",
                f"{words.estimate(ran)} measured",
                "1",
                "–",
                "–",
                *([words.memory(ran)] if memory else []),
                "yes",
            ]
        )
    yield from desk.table(header, lines)


def memory_parts(desk: Desk, row: Row) -> Answer:
    """Memory per chip by parts, computed, beside what runs."""
    held = row.get("hbm_per_chip_bytes")
    if not held or held.get("total") is None:
        if row.get("not_known"):
            yield from desk.say(f"Memory per chip can not be computed: not known: {facts.in_words(row['not_known'])}.")
        return
    ran = (row.get("what_runs") or {}).get("hbm_per_chip_bytes")
    header = ["Per chip, computed", f"Memory, {words.configuration(row)}", *(["Memory, what runs"] if ran else [])]
    parts = ("params", "optimizer", "gradients", "activations", "total", "capacity")
    names = {"params": "weights", "total": "**total**", "capacity": "a program can fill"}
    yield from desk.table(
        header,
        [
            [names.get(part, part), words.size(held[part]), *([words.size(ran[part])] if ran else [])]
            for part in parts
            if part in held
        ],
    )
    yield from ran_too(desk, ran)


def ran_too(desk: Desk, ran: Row | None) -> Answer:
    """Where what runs would not fit either, memory that is too large says little."""
    if ran and ran["total"] > ran["capacity"]:
        yield from desk.say(
            "By the same computation what runs would not fit either, and it ran: so the model errs here, "
            "or the configuration is not that of the profile."
        )


def which_axes(desk: Desk) -> Answer:
    found = yield from desk.look("run")
    if found:
        yield from desk.say(
            f"The mesh that runs is {words.mesh(found.data)} on {found.data['chips']:,} chips; name its "
            f"axes with their sizes."
        )


def unknown_before(desk: Desk, asked: Asked, meant: common.Meant, unknown: tuple[str, ...]) -> Answer:
    """A setting would change that nobody knows now: whether it may run can be told, a gain can not."""
    found = yield from desk.look("legality", **meant.configurations[0])
    names = [common.FACTS[f"training.{key}"] for key in unknown]
    if found and found.data.get("violations"):
        yield from desk.say(f"It can not run: {words.violations(found.data)[0]}")
    elif found:
        yield from desk.say("Nothing that is known forbids it.")
    elif found.error:
        yield from desk.say(found.error)
    yield from desk.say(
        f"A gain I can not tell, and will not guess: {words.listed(names)} of what ran is not known, so "
        f"nobody knows what it would change from."
    )
    yield from common.ask_back(desk, common.decisive([f"training.{key}" for key in unknown], desk))
