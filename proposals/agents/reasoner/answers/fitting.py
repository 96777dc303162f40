"""Whether a configuration fits in memory, and what fills it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proposals import facts
from proposals.agents.reasoner import words
from proposals.agents.reasoner.answers import common, pricing, what_if
from proposals.agents.reasoner.desk import Answer, Desk
from proposals.agents.reasoner.understand import Asked

Row = Mapping[str, Any]


def memory(desk: Desk, asked: Asked) -> Answer:
    """Does it fit, and what fills the chip."""
    if asked.supposed:
        yield from what_if.suppose(desk, asked)
        return
    number = common.meant(desk, asked, default=0)
    if ((asked.mesh or asked.changes) and number is None) or (number is None and desk.focus.configured):
        meant = yield from common.configurations(desk, asked)
        if meant.problem:
            yield from desk.say(meant.problem)
            return
        yield from desk.say("I compute what it needs per chip.")
        for item in meant.configurations[:2]:
            row = yield from desk.look("legality", **item)
            if not row:
                yield from desk.say(row.error)
                return
            yield from _fits(desk, row.data, words.configuration(row.data))
        return
    if number:
        yield from desk.say(f"I compute what proposal {number} needs per chip.")
        one = yield from common.whole(desk, number)
        if isinstance(one, str):
            yield from desk.say(one)
            return
        found = yield from desk.look("legality", **common.as_arguments(one))
        yield from (_fits(desk, found.data, f"proposal {number}") if found else desk.say(found.error))
        return
    yield from _measured_memory(desk)
    board = yield from common.board(desk)
    if board.error:
        yield from desk.say(board.error)
        return
    rows = [row for row in board.rows if row.get("hbm_per_chip_bytes")]
    if not rows:
        unknown = board.data.get("not_known", ())
        yield from desk.say(f"What the proposals need can not be computed, because {facts.not_known(unknown)}.")
        yield from common.ask_back(desk, common.decisive(unknown, desk))
        return
    lines = [
        [
            f"proposal {row['number']}, {words.configuration(row)}",
            words.memory(row),
            words.size(row["memory_headroom_bytes"]),
        ]
        for row in rows
    ]
    if board.ran.get("hbm_per_chip_bytes"):
        lines.append(["what runs", words.memory(board.ran), words.size(board.ran["memory_headroom_bytes"])])
    yield from desk.table(["Per chip, computed", "Memory needed", "Memory left free"], lines)
    over = [row for row in rows if row["memory_headroom_bytes"] < 0]
    tight = [row for row in rows if 0 <= row["memory_headroom_bytes"] < 0.1 * row["hbm_per_chip_bytes"]["capacity"]]
    yield from desk.bullets(
        [f"**Proposal {each['number']} does not fit**, by computation: {_short_of(each, 'it')}" for each in over]
    )
    if over:
        yield from pricing.ran_too(desk, board.ran.get("hbm_per_chip_bytes"))
    if tight:
        yield from desk.say(
            f"Proposal {tight[0]['number']} is close to the limit; compilers need buffers that no formula "
            f"knows, so check it first with an ahead-of-time compile (see the launch files)."
        )
    elif len(over) < len(rows):
        which = "All of them fit" if not over else "The others fit"
        yield from desk.say(f"{which} with room to spare.")


def _short_of(row: Row, name: str) -> str:
    held = row["hbm_per_chip_bytes"]
    return (
        f"{name} needs {words.size(held['total'])} per chip where a program can fill {words.size(held['capacity'])}, "
        f"{words.size(-row['memory_headroom_bytes'])} too much"
    )


def _measured_memory(desk: Desk) -> Answer:
    found = yield from desk.look("kpis")
    held = found.data.get("memory") or {}
    if held.get("peak_bytes") and held.get("capacity_bytes"):
        yield from desk.say(
            f"Measured in this run: a peak of {words.size(held['peak_bytes'])} of "
            f"{words.size(held['capacity_bytes'])} per chip."
        )
    elif held.get("peak_bytes"):
        yield from desk.say(f"Measured in this run: a peak of {words.size(held['peak_bytes'])} per chip.")
    elif found.data.get("profile"):
        yield from desk.say("The peak memory of this run was not measured: there is no profile, and none was given.")
    else:
        yield from desk.say("The peak memory of this run was not measured: the profile holds no memory events.")


def _fits(desk: Desk, row: Row, name: str) -> Answer:
    fits = row.get("fits")
    if fits is None:
        yield from desk.say(
            f"Whether {name} fits can not be computed, because {facts.not_known(row.get('not_known', ()))}."
        )
        yield from common.ask_back(desk, common.decisive(row.get("not_known", ()), desk))
        return
    room = row["memory_headroom_bytes"]
    if fits:
        yield from desk.say(
            f"**It fits**, by computation: {name} needs {words.memory(row)} per chip and leaves "
            f"{words.size(room)} free."
        )
    else:
        yield from desk.say(f"**It does not fit**, by computation: {_short_of(row, name)}.")
    others = [item for item in row.get("violations", ()) if item["rule"] != "memory"]
    if others:
        yield from desk.say(f"Memory aside, it can not run: {words.lower_first(others[0]['reason'])}")
    yield from pricing.memory_parts(desk, row)
