"""Why a configuration is not proposed: rules, memory, time, or no good reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from proposals.agents.reasoner import settings, words
from proposals.agents.reasoner.answers import common, pricing, standing, verdict
from proposals.agents.reasoner.desk import Answer, Desk
from proposals.agents.reasoner.understand import Asked
from proposals.constraints import same_mesh

Row = Mapping[str, Any]


def why_not(desk: Desk, asked: Asked) -> Answer:
    if asked.proposals and not asked.mesh:
        yield from desk.say("Nothing forbids it; the question is what it is set against.")
        yield from standing.prefer(desk, asked)
        return
    if not asked.mesh and not asked.changes and desk.focus.mesh is None and not desk.focus.changes:
        yield from rejected_hint(desk)
        return
    meant = yield from common.configurations(desk, asked)
    if meant.problem:
        yield from desk.say(f"{meant.problem} So there is nothing to price.")
        yield from pricing.which_axes(desk)
        return
    ways = [words.mesh_of({"ici": item["ici"], "dcn": item["dcn"] or {}}) for item in meant.configurations]
    changed = words.changes({"changes": meant.configurations[0]["changes"]})
    yield from desk.say(
        f"I check {words.listed(ways, 'or')}{f' with {changed}' if changed else ''} against the rules, the "
        f"memory and the time."
    )
    if unknown := settings.unknown_before(asked.changes, desk.bench.config.training):
        yield from pricing.unknown_before(desk, asked, meant, unknown)
        return
    board = yield from common.board(desk)
    if board.error:
        yield from desk.say(board.error)
        return
    rows: list[Row] = []
    for item in meant.configurations:
        row = yield from common.predicted(desk, item)
        if isinstance(row, str):
            yield from desk.say(row)
            return
        rows.append(row)
    if len(rows) == 1 and common.is_what_runs(rows[0]):
        yield from desk.say(
            f"{words.configuration(rows[0])} is what runs; the proposals are what is predicted to be faster than it."
        )
        return
    first = board.first
    for other in board.rows:
        like = [row for row in rows if same_mesh(row["mesh"], other["mesh"]) and not row.get("stands_as_proposal")]
        if like and other.get("changes") and not other.get("keeps_the_mesh"):
            yield from desk.say(
                f"That mesh is proposed, with other settings: proposal {other['number']} is "
                f"{words.configuration(other)}, predicted at {words.speed(other)}."
            )
    stands = [row for row in rows if row.get("stands_as_proposal")]
    if stands:
        row = stands[0]
        yield from desk.say(
            f"It is proposed: {words.configuration(row)} stands as proposal {row['stands_as_proposal']}, "
            f"predicted at {words.speed(row)}."
        )
    if len(rows) > 1:
        yield from pricing.table(desk, rows, board.ran)
    fit = [row for row in rows if not row.get("violations")]
    for row in [row for row in rows if row.get("violations")][:2]:
        yield from desk.say(f"{words.configuration(row)} can not run: {words.lower_first(words.violations(row)[0])}")
    if any(item["rule"] == "memory" for row in rows for item in row.get("violations", ())) or (
        fit and fit[0].get("hbm_per_chip_bytes")
    ):
        yield from pricing.memory_parts(
            desk,
            next((row for row in rows if row.get("hbm_per_chip_bytes") and row.get("violations")), (fit or rows)[0]),
        )
    runs = [row for row in fit if row.get("speedup_per_token") is not None]
    if not runs:
        if not fit and rows:
            yield from _what_would_allow(desk, rows[0])
        return
    best = max(runs, key=lambda row: row["speedup_per_token"])
    if best.get("stands_as_proposal") == first["number"]:
        yield from desk.say("It is what I recommend first.")
        return
    name, own = words.configuration(best), f"proposal {first['number']}"
    ran_ici = (board.ran.get("mesh") or {}).get("ici")
    if best["mesh"]["ici"] == ran_ici and not best.get("changes"):
        yield from desk.say(f"{name} is what runs; the proposals are what is predicted to be faster than it.")
        return
    found = verdict.case(first, best)
    yield from desk.say(*verdict.argued(name, best, own, first))
    if found in ("better", "bolder"):
        word = (
            "That is a fair objection: by these numbers it belongs among the candidates."
            if found == "better"
            else "So it is left out for the odds, not for the speed."
        )
        yield from desk.say(word)
    elif found == "slower":
        legal = "Nothing that is known forbids it" if words.open_questions(best) else "It is legal"
        yield from desk.say(
            f"{legal}, so the reason is time:"
            if best["speedup_per_token"] < 1
            else f"{legal}, and it was weighed; the reason is time:",
            *_slower_by(best, first),
        )
        yield from desk.say(verdict.turns(name, best, own, first))
    yield from common.offered(best)


def _slower_by(row: Row, first: Row) -> Iterator[str]:
    """The parts of communication in which a configuration pays, then what it has against it."""
    moved = sorted(row.get("communication") or (), key=lambda item: item["before_share"] - item["after_share"])
    if moved and moved[0]["after_share"] > moved[0]["before_share"]:
        item = moved[0]
        before, after = words.traffic(item, "before"), words.traffic(item, "after")
        yield f"exposed communication of {item['moves']} grows from {before} to {after}{words.per_step(item)}."
    else:
        yield f"what it saves is less than what proposal {first['number']} saves."
    for text in (row.get("trade_offs") or ())[:1]:
        yield str(text)


def _what_would_allow(desk: Desk, row: Row) -> Answer:
    rule = row["violations"][0]["rule"]
    if rule.startswith("your constraint"):
        yield from desk.say("It is your own constraint that forbids it; tell me to forget it, and I price the mesh.")
    elif rule.endswith("_unknown"):
        yield from common.ask_back(
            desk,
            common.decisive(row.get("not_known", ()), desk),
            "It is not known to be illegal, only not known to be legal.",
        )
    elif rule == "batch":
        yield from desk.say("Another global batch would allow it; name one and I price both together.")
    elif rule == "memory":
        yield from desk.say(
            "More rematerialisation, more micro-batches or a larger model axis would make room; name one "
            "and I price it."
        )


def rejected_hint(desk: Desk) -> Answer:
    yield from desk.say(
        "Why not which one? Name a mesh, one axis with a size, a setting or a proposal, and I check it "
        "against rules, memory and time."
    )
