"""What a configuration or a supposed fact would do."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

from experiments.step_profile import MODEL, STEP_TIME
from perfmodel.config import ConfigError
from proposals.agents.conversation import Question, Said
from proposals.agents.reasoner import settings, words
from proposals.agents.reasoner.answers import common, pricing, retelling
from proposals.agents.reasoner.desk import Answer, Desk
from proposals.agents.reasoner.told import fact_sentence
from proposals.agents.reasoner.understand import Asked

Row = Mapping[str, Any]


def what_if(desk: Desk, asked: Asked) -> Answer:
    if asked.supposed:
        yield from suppose(desk, asked)
        if not (asked.mesh or asked.changes):
            return
    meant = yield from common.configurations(desk, asked)
    if meant.problem:
        yield from desk.say(meant.problem)
        yield from pricing.which_axes(desk)
        return
    many = len(meant.configurations) > 1
    yield from desk.say(_opening(desk, asked, meant))
    if unknown := settings.unknown_before(asked.changes, desk.bench.config.training):
        yield from pricing.unknown_before(desk, asked, meant, unknown)
        return
    if many:
        yield from _ways(desk, meant, asked)
        return
    row = yield from common.predicted(desk, meant.configurations[0])
    if isinstance(row, str):
        yield from desk.say(f"That can not be priced: {row}")
        return
    yield from pricing.priced(desk, row)
    if (
        asked.changes
        and not common.is_what_runs(row)
        and not asked.mesh
        and not asked.also
        and not asked.points_back
        and not asked.proposals
    ):
        yield from _on_the_first(desk, asked, row)
    yield from common.offered(row)


def _opening(desk: Desk, asked: Asked, meant: common.Meant) -> str:
    ways = [words.mesh_of({"ici": item["ici"], "dcn": item["dcn"] or {}}) for item in meant.configurations]
    changed = words.changes({"changes": meant.configurations[0]["changes"]})
    if len(ways) > 1:
        single = asked.mesh.single
        named = f"{single[0]} {single[1]}" if single else "What you named"
        return (
            f"{named} leaves open which axis takes the rest, so I price "
            f"{words.listed(ways)}{f' with {changed}' if changed else ''}."
        )
    filled = f" ({words.listed(list(meant.filled))} set so that the product is right)" if meant.filled else ""
    of = (
        f", on {meant.base}"
        if not asked.mesh and meant.base != "what runs"
        else ", on the mesh that runs"
        if not asked.mesh
        else ""
    )
    known = {
        STEP_TIME: "calibrated by the measured step time, without a profile",
        MODEL: "by the performance model alone, as nothing was measured",
    }.get(desk.bench.profile.basis, "from what this profile measured")
    return f"Pricing {ways[0]}{filled}{f' with {changed}' if changed else ''}{of}, {known}."


def _on_the_first(desk: Desk, asked: Asked, on_ran: Row) -> Answer:
    """The same change on the mesh that is recommended, since one may not exclude the other."""
    board = yield from common.board(desk)
    if board.error or board.first.get("keeps_the_mesh"):
        return
    first = board.first
    both = {
        "ici": first["mesh"]["ici"],
        "dcn": first["mesh"].get("dcn") or None,
        "changes": {**first.get("changes", {}), **asked.changes},
    }
    row = yield from common.predicted(desk, both)
    if isinstance(row, str):
        return
    if row.get("violations"):
        yield from desk.say(
            f"On the mesh of proposal {first['number']}, {words.mesh(row)}, it can not run: "
            f"{words.lower_first(words.violations(row)[0])}"
        )
        return
    yield from desk.say(
        f"On the mesh of proposal {first['number']}, {words.mesh(row)}, the same change is predicted at "
        f"{words.speed(row)}; proposal {first['number']} alone at "
        f"{words.ratio(first['speedup_per_token'])}."
    )
    yield from common.offered(row)


def _ways(desk: Desk, meant: common.Meant, asked: Asked) -> Answer:
    """Several meshes that the words may mean, side by side."""
    rows: list[Row] = []
    for item in meant.configurations:
        found = yield from common.predicted(desk, item)
        if isinstance(found, str):
            yield from desk.say(found)
            return
        rows.append(found)
    yield from pricing.table(desk, rows, rows[0].get("what_runs") or {})
    fit = [row for row in rows if not row.get("violations") and row.get("speedup_per_token")]
    if fit:
        best = max(fit, key=lambda row: row["speedup_per_token"])
        word = "The best of them that may run" if len(fit) > 1 else "Only one of them breaks no rule"
        yield from desk.say(
            (f"{word}: {words.mesh(best)}, predicted at {words.speed(best)}, confidence {words.sure(best)}."),
            *words.open_questions(best),
        )
        yield from common.offered(best)
    else:
        yield from desk.say(
            f"None of them may run: {words.violations(rows[0])[0]}"
            if words.violations(rows[0])
            else "None of them can be priced."
        )
    if len(fit) > 1:
        options = tuple(words.mesh(row).strip("`") for row in rows)
        question = Question("Which of them do you mean?", options)
        yield from desk.more(question.text)
        yield question


def suppose(desk: Desk, asked: Asked) -> Generator[Said, None, None]:
    """A fact that is only supposed: what the proposals would be under it."""
    config = desk.bench.config
    sentences = [fact_sentence(path, value, config) for path, value in asked.supposed.items()]
    yield from desk.say("Supposing it:", *sentences)
    before = yield from common.board(desk)
    held = desk.bench
    try:
        desk.over(held.with_facts({**dict(held.facts), **dict(asked.supposed)}))
    except ConfigError as error:
        yield from desk.say(f"That does not fit this run: {error}")
        return
    after = yield from common.board(desk)
    if after.error:
        yield from desk.say(f"Then nothing can be proposed: {words.brief(after.error)}.")
    else:
        yield from retelling.changed(desk, before, after, "under that")
        options = tuple(text.rstrip(".") for text in sentences)
        question = Question("Shall I hold that as a fact of the run?", options)
        yield from desk.say(question.text)
        yield question
    desk.over(held)
