"""Configurations side by side."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from proposals import facts
from proposals.agents.reasoner import words
from proposals.agents.reasoner.answers import common, pricing, verdict
from proposals.agents.reasoner.desk import Answer, Desk
from proposals.agents.reasoner.meshes import solve
from proposals.agents.reasoner.understand import Asked

Row = Mapping[str, Any]


def compare(desk: Desk, asked: Asked) -> Answer:
    config = desk.bench.config
    items: list[dict[str, Any]] = []
    names: list[str] = []
    if asked.meshes:
        for mesh in asked.meshes:
            solved = solve(mesh, config.mesh.to_json(), config.hardware.chips_per_slice, config.mesh)
            if solved.problem:
                yield from desk.say(solved.problem)
                yield from pricing.which_axes(desk)
                return
            items.append(
                {
                    "ici": solved.meshes[0]["ici"],
                    "dcn": solved.meshes[0].get("dcn") or None,
                    "changes": dict(asked.changes),
                }
            )
            names.append(words.mesh_of(solved.meshes[0]))
    elif asked.mesh or asked.changes:
        plain = Asked("what_if", asked.text, mesh=asked.mesh, changes=asked.changes, also=asked.also)
        meant = yield from common.configurations(desk, plain)
        if meant.problem:
            yield from desk.say(meant.problem)
            yield from pricing.which_axes(desk)
            return
        items.append(meant.configurations[0])
        names.append(
            words.mesh_of({"ici": meant.configurations[0]["ici"], "dcn": meant.configurations[0]["dcn"] or {}})
        )
    elif asked.points_back and (desk.focus.mesh is not None or desk.focus.changes):
        meant = yield from common.configurations(desk, asked)
        items += meant.configurations[:1]
        names += [words.mesh_of({"ici": i["ici"], "dcn": i["dcn"] or {}}) for i in meant.configurations[:1]]
    yield from desk.say(
        f"Setting {words.listed(names)} side by side."
        if len(names) > 1
        else f"Setting {names[0]} beside it."
        if names
        else "Setting them side by side."
    )
    board = yield from common.board(desk)
    if board.error:
        yield from desk.say(board.error)
        return
    wanted = list(asked.proposals.numbers)
    if asked.proposals.every or (not wanted and not items) or asked.proposals.others:
        wanted += [row["number"] for row in board.rows if row["number"] not in wanted]
    if not wanted and len(items) == 1:
        wanted = [board.first["number"]]
    if len(wanted) == 1 and not items and not asked.proposals.every:
        wanted = list(dict.fromkeys((board.first["number"], *wanted)))
    for number in wanted:
        row = board.number(number)
        if row is None:
            have = words.listed([str(each["number"]) for each in board.rows])
            yield from desk.say(f"There is no proposal {number}; there are {have}.")
            continue
        items.append(common.as_arguments(row))
    if len(items) < 2:
        if items:
            one = yield from common.predicted(desk, items[0])
            yield from (desk.say(one) if isinstance(one, str) else pricing.priced(desk, one))
        return
    found = yield from common.side_by_side(desk, items[:6])
    if isinstance(found, str):
        yield from desk.say(found)
        return
    rows = found["configurations"]
    yield from pricing.table(desk, rows, found["what_runs"])
    about = next((answer for pattern, answer in _ASKED_FOR if pattern.search(asked.text)), None)
    if about is None:
        yield from _conclusion(desk, rows, found.get("fastest_that_may_run"))
    else:
        yield from _that_can_not(desk, rows)
        yield from about(desk, [row for row in rows if not row.get("violations")])
    for row in rows:
        yield from common.offered(row)


def _name(row: Row) -> str:
    stands = row.get("stands_as_proposal")
    return f"proposal {stands}" if stands else words.configuration(row)


def _that_can_not(desk: Desk, rows: list[Row]) -> Answer:
    for row in rows:
        if row.get("violations"):
            yield from desk.say(
                f"{_name(row)[:1].upper()}{_name(row)[1:]} can not run: {words.lower_first(words.violations(row)[0])}"
            )


def _by_memory(desk: Desk, rows: list[Row]) -> Answer:
    known = sorted(
        (row for row in rows if row.get("hbm_per_chip_bytes")), key=lambda row: row["hbm_per_chip_bytes"]["total"]
    )
    if not known:
        unknown = next((row["not_known"] for row in rows if row.get("not_known")), ())
        why = f" because {facts.not_known(unknown)}" if unknown else ""
        yield from desk.say(f"Which of them needs less memory can not be computed{why}.")
        yield from common.ask_back(desk, common.decisive(unknown, desk))
        return
    least, *others = known
    behind = [f"{_name(row)} {words.memory(row)}" for row in others]
    yield from desk.say(
        f"**Least memory per chip, by computation: {_name(least)}**, {words.memory(least)}"
        + (f"; {words.listed(behind)}." if behind else ".")
    )


def _by_risk(desk: Desk, rows: list[Row]) -> Answer:
    for row in rows:
        if words.keeps(row):
            yield from desk.say(f"{_name(row)[:1].upper()}{_name(row)[1:]} keeps what runs, which risks nothing.")
    known = sorted(
        (row for row in rows if row.get("speedup_low80") and not words.keeps(row)),
        key=lambda row: -row["confidence_share"],
    )
    if not known:
        return
    best, *others = known
    if others and best["confidence_share"] <= others[0]["confidence_share"] + verdict.SURE:
        yield from desk.say(f"**By the odds {_name(best)} and {_name(others[0])} are alike.**")
    elif others:
        yield from desk.say(f"**Safer by the odds: {_name(best)}.**")
    each = [
        f"{_name(row)} gains with a confidence of {words.sure(row)}, and the low end of its range is "
        f"{words.ratio(row['speedup_low80'])} per token"
        for row in known
    ]
    yield from desk.say("; ".join(each)[:1].upper() + "; ".join(each)[1:] + ".")


#: What a comparison is by where it is not by time.
_ASKED_FOR: tuple[tuple[re.Pattern[str], Callable[[Desk, list[Row]], Answer]], ...] = (
    (re.compile(r"\b(?:memory|hbm|head ?room|ram)\b"), _by_memory),
    (re.compile(r"\b(?:safer|safest|safe|risk\w*|surer|surest|sure|confiden\w+|certain|likel\w+|odds)\b"), _by_risk),
)


def _conclusion(desk: Desk, rows: list[Row], fastest: int | None) -> Answer:
    yield from _that_can_not(desk, rows)
    if fastest is None:
        yield from desk.say("None of them may run, so there is no winner.")
        return
    best = rows[fastest - 1]
    others = [
        row for row in rows if row is not best and not row.get("violations") and row.get("time_per_token_over_fastest")
    ]
    if not others:
        yield from desk.say(f"That leaves {_name(best)}.")
        return
    behind = [
        f"{_name(row)} takes {words.ratio(row['time_per_token_over_fastest'])} its time per token" for row in others
    ]
    near = min(row["time_per_token_over_fastest"] for row in others)
    yield from desk.say(f"**Fastest by prediction: {_name(best)}**; {words.listed(behind)}.")
    gaining = [row for row in rows if not row.get("violations") and not words.keeps(row)]
    surest = max(gaining, key=lambda row: row["confidence_share"], default=best)
    if surest is not best and surest["confidence_share"] > best["confidence_share"] + verdict.SURE:
        yield from desk.more(
            f"The surest to gain{' at all' if not words.fewer_chips(surest) else ''} is {_name(surest)}, with a "
            f"confidence of {words.sure(surest)}."
        )
    if near < 1 + words.SAME:
        yield from desk.more(
            "The first two are nearer than anyone would measure: choose by risk and by what is easier to run."
        )
    elif any((row.get("speedup_high80") or 0) > (best.get("speedup_low80") or 0) for row in others):
        yield from desk.more("Their ranges overlap, so only a measurement settles it.")
