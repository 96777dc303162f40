"""Which proposal first, how sure, against the others, and whether it still holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from perfmodel.config import ConfigError
from proposals import facts
from proposals.agents.reasoner import words
from proposals.agents.reasoner.answers import common, verdict
from proposals.agents.reasoner.desk import Answer, Desk
from proposals.agents.reasoner.told import fact_sentence
from proposals.agents.reasoner.understand import Asked

Row = Mapping[str, Any]
_VERDICTS = {
    "compute": "Arithmetic limits this step", "memory": "HBM bandwidth limits this step",
    "communication": "Communication limits this step", "input": "The input pipeline limits this step",
    "host": "The host limits this step", "idle": "Idle time limits this step",
}  # fmt: skip


def opening(desk: Desk) -> Answer:
    """The verdict in a sentence, while the proposals are priced."""
    found = yield from desk.look("bottleneck")
    primary = found.data.get("primary", "")
    if primary in _VERDICTS:
        yield from desk.say(
            f"{_VERDICTS[primary]} (a verdict of {words.percent(found.data['confidence_share'])} "
            f"confidence), so that is what a first change has to answer."
        )
    else:
        yield from desk.say(
            "What limits this step is not clear from the profile, so a first change should risk little."
        )


def table(desk: Desk, rows: list[Row]) -> Answer:
    known = any(row.get("hbm_per_chip_bytes") for row in rows)
    header = [
        "Proposal",
        "Configuration",
        "Per token, predicted",
        "Range",
        words.confidence_head(rows),
        *(["Memory per chip"] if known else []),
    ]
    lines = [
        [
            f"{row['number']}" + ("" if row.get("status", "proposed") == "proposed" else f" ({row['status']})"),
            words.configuration(row),
            words.ratio(row["speedup_per_token"]) if row.get("speedup_per_token") else "–",
            words.span(row) if row.get("speedup_per_token") else "–",
            words.percent(row["confidence_share"]),
            *([words.memory(row)] if known else []),
        ]
        for row in rows
    ]
    yield from desk.table(header, lines)


def recommend(desk: Desk, asked: Asked) -> Answer:
    yield from opening(desk)
    board = yield from common.board(desk)
    if board.error:
        yield from desk.say(f"I can make no proposals for this run: {board.error}")
        return
    first, others = board.first, list(board.rows[1:])
    better = [row for row in others if verdict.case(first, row) == "better"]
    if first["kind"] == "keep":
        yield from desk.say(f"**Start by keeping what runs**, {words.mesh(first)}. {' '.join(first['reasons'][1:3])}")
    else:
        yield from desk.say(f"Start with {words.title(first)}.")
        yield from desk.more(
            (
                f"Predicted: a step of {words.step(first)} against {words.estimate(board.ran)} measured, "
                f"{words.speed(first)}; confidence that it {words.gains(first)} "
                f"{words.percent(first['confidence_share'])}."
            )
            if isinstance(first.get("step_time_s"), Mapping)
            else (
                f"Predicted: {words.speed(first)}; confidence that it {words.gains(first)} "
                f"{words.percent(first['confidence_share'])}."
            )
        )
        yield from desk.bullets(
            [str(reason) for reason in first["reasons"][1:4] if not str(reason).startswith("Precedent")]
        )
    proof = yield from common.evidence(desk, first)
    yield from desk.say(*proof)
    if others:
        yield from table(desk, list(board.rows))
        yield from desk.say(*(text for row in others[:2] for text in _beside(row, first)))
    if better and first["kind"] != "keep":
        yield from desk.say(
            "The first stands first because the ranking weighs the gain against what is unsure and against "
            "what a change costs to try; by the two numbers alone the other would come first."
        )
    if first.get("trade_offs"):
        yield from desk.say("What it costs:", str(first["trade_offs"][0]))
    unknown = board.data.get("not_known", ())
    if unknown:
        why = (
            f"Not known: {facts.in_words(unknown)}; those terms were scaled from the profile, which widens "
            f"every range above."
        )
        yield from common.ask_back(desk, common.decisive(unknown, desk), why)


def _beside(row: Row, first: Row) -> Iterator[str]:
    found = list(verdict.argued(f"proposal {row['number']}", row, f"proposal {first['number']}", first))
    yield from found[:2]


def confidence(desk: Desk, asked: Asked) -> Answer:
    """How sure the numbers are, of what was priced last: under the facts that were supposed there."""
    supposed, held = desk.focus.supposed, desk.bench
    if not supposed or asked.proposals or asked.mesh or asked.changes:
        yield from _confidence(desk, asked)
        return
    try:
        desk.over(held.with_facts({**dict(held.facts), **dict(supposed)}))
    except ConfigError:
        yield from _confidence(desk, asked)
        return
    sentences = [fact_sentence(path, value, held.config) for path, value in supposed.items()]
    yield from desk.say("Still supposing it:", *sentences)
    yield from _confidence(desk, asked)
    desk.over(held)


def _confidence(desk: Desk, asked: Asked) -> Answer:
    number = common.meant(desk, asked)
    if number is None:
        meant = yield from common.configurations(desk, asked)
        if meant.problem:
            yield from desk.say(meant.problem)
            return
        only = meant.configurations[0]
        changed = words.changes(only)
        name = words.mesh_of({**only, "dcn": only["dcn"] or {}}) + (f" with {changed}" if changed else "")
        yield from desk.say(f"Pricing {name}, to see how sure its gain is.")
        row = yield from common.predicted(desk, only)
    else:
        name = f"proposal {number}"
        yield from desk.say(
            f"Nobody can be certain before {name} is run and measured; this is how sure the numbers are."
        )
        row = yield from common.whole(desk, number)
    if isinstance(row, str):
        yield from desk.say(row)
        return
    if row.get("violations"):
        yield from desk.say(
            f"{name[:1].upper()}{name[1:]} can not run, so there is nothing to be confident of:", *words.violations(row)
        )
        return
    value, chips = row["confidence_share"], words.fewer_chips(row)
    keeps = row.get("kind") == "keep" or common.is_what_runs(row)
    if keeps:
        yield from desk.say(
            f"**{words.percent(value)}** is the probability that keeping what runs, {words.mesh(row)}, is right: that "
            f"no legal candidate gains what is worth a change."
        )
    else:
        yield from desk.say(
            f"**{words.percent(value)}** is the calibrated probability that {name} "
            f"{'gains per token and chip' if chips else 'makes the step faster per token'}: {_level(value)}."
        )
    if row.get("speedup_per_token") and not keeps:
        low = row.get("speedup_low80") or 1.0
        tail = ""
        if chips:
            tail = " That is the whole step: on fewer chips it may take longer, and each chip still gain."
        elif low < 1 - words.SAME:
            tail = f" Its low end, {words.ratio(low)}, would be a loss."
        elif low > 1 + words.SAME:
            tail = " The whole range lies above what runs, so the question is how much, not whether."
        yield from desk.more(f"It rests on a predicted {words.speed(row)}.{tail}")
    for heading, key in (("What makes me surer:", "raises_confidence"), ("What holds me back:", "lowers_confidence")):
        if row.get(key):
            yield from desk.say(heading)
            yield from desk.bullets([str(item) for item in row[key]])
    proof = yield from common.evidence(desk, row)
    yield from desk.say(*proof)
    yield from desk.say(
        (
            "The percentage is no feeling: it comes from how far predicted gains lay from measured ones over "
            "published pairs of runs, and from the proposals that this team measured."
        )
        if value < 0.9
        else (
            "It is held below certainty on purpose: where terms were scaled and not computed, nothing above "
            "nine in ten is claimed."
            if row.get("not_known")
            else "It is held below certainty on purpose: real programs surprise too often to claim more."
        )
    )
    unknown = row.get("not_known", ())
    why = f"What would move it most is {facts.in_words(unknown)}." if unknown else ""
    yield from common.ask_back(desk, common.decisive(unknown, desk), why)


def _level(value: float) -> str:
    if value < 0.45:
        return "it more likely loses than gains"
    if value < 0.56:
        return "hardly better than the toss of a coin, so I am not sure"
    if value < 0.68:
        return "a lean, not a certainty"
    if value < 0.8:
        return "likely, with real room to be wrong"
    return "I am confident of the direction, less of the size"


def prefer(desk: Desk, asked: Asked) -> Answer:
    """The user finds others more promising: the comparison, conceding where the numbers say so."""
    if asked.mesh or asked.changes:
        yield from _prefer_own(desk, asked)
        return
    yield from desk.say("Then let the numbers decide; I set them side by side.")
    board = yield from common.board(desk)
    if board.error:
        yield from desk.say(board.error)
        return
    first = board.first
    wanted = list(asked.proposals.numbers)
    if asked.proposals.kind:
        wanted += [n for n in (common.by_kind(board.rows, asked.proposals.kind),) if n]
    if not wanted and asked.points_back and desk.focus.mesh is not None:
        yield from _prefer_own(desk, asked)
        return
    spoken = desk.focus.number
    if not wanted and asked.points_back and spoken is not None and spoken != first["number"]:
        wanted = [spoken]
    unknown = [n for n in wanted if board.number(n) is None]
    if unknown:
        have = words.listed([str(row["number"]) for row in board.rows])
        yield from desk.say(f"There is no proposal {unknown[0]}; there are {have}.")
    rows = [row for row in board.rows[1:] if not wanted or row["number"] in wanted]
    if not rows:
        if first["number"] in wanted:
            yield from desk.say(
                f"Then we agree: proposal {first['number']} is what I would start with, at a predicted "
                f"{words.speed(first)}."
            )
        return
    compared = yield from common.side_by_side(desk, [common.as_arguments(row) for row in (first, *rows)])
    if isinstance(compared, str):
        yield from desk.say(compared)
        return
    longer = {
        row["number"]: found.get("time_per_token_over_fastest")
        for row, found in zip((first, *rows), compared["configurations"], strict=True)
    }
    base = longer.get(first["number"]) or 1.0
    yield from table(desk, [first, *rows])
    own = f"proposal {first['number']}"
    found = {row["number"]: verdict.case(first, row) for row in rows}
    for row in rows:
        relative = longer.get(row["number"]) if base <= 1.0 + 1e-9 else None
        yield from desk.say(*verdict.argued(f"proposal {row['number']}", row, own, first, relative))
        yield from desk.say(*_why_behind(row, first))
    better = [row for row in rows if found[row["number"]] == "better"]
    bolder = [row for row in rows if found[row["number"]] == "bolder"]
    if better:
        best = max(better, key=lambda row: row["speedup_per_token"])
        yield from desk.say(f"**I concede**: by gain and by odds proposal {best['number']} is the better start.")
        yield from desk.say(
            f"What stays: {own} is what the ranking puts first because it also weighs what a change costs to try."
        )
        return
    if bolder:
        best = max(bolder, key=lambda row: row["speedup_per_token"])
        yield from desk.say(
            f"**Half conceded**: if the size of the gain counts more for you than the odds of any, take "
            f"proposal {best['number']}; as the first to try I hold to {own}, which is surer."
        )
        return
    yield from desk.say(
        f"**I hold to {own}.**", *[verdict.turns(f"proposal {row['number']}", row, own, first) for row in rows[:2]]
    )
    ties = [f"proposal {row['number']}" for row in rows if found[row["number"]] == "tie"]
    if ties:
        yield from desk.more(
            f"Against {words.listed(ties)} I do not insist: what is a tie for the model may be decided by what it "
            "does not know."
        )
    yield from desk.more(
        "Is there something about the run that the profile does not show? A fact would change the numbers; "
        "a preference can not."
    )


#: Settings that change how many tokens a step holds.
_TOKENS = ("global_batch", "seq_len")


def _why_behind(row: Row, first: Row) -> Iterator[str]:
    """Where the time of a proposal goes that the first saves: the part of the step in which they differ most."""
    if any((row.get("changes") or {}).get(key) != (first.get("changes") or {}).get(key) for key in _TOKENS):
        return  # steps of another number of tokens: their seconds say nothing of each other
    mine, theirs = first.get("breakdown_s") or {}, row.get("breakdown_s") or {}
    shared = [(theirs[part] - mine[part], part) for part in theirs if part in mine]
    if not shared:
        return
    worst, part = max(shared)
    if worst > 0.005 * sum(mine.values()):
        yield (
            f"The difference is mostly {_part(part)}: proposal {row['number']} spends "
            f"{words.time(theirs[part])} of {_part(part)} a step where proposal {first['number']} spends "
            f"{words.time(mine[part])}."
        )


def _part(name: str) -> str:
    if name.startswith("ici:"):
        return f"communication on {name.removeprefix('ici:')}"
    return {"hbm": "HBM time", "compute": "compute", "dcn": "communication across slices", "ici": "communication"}.get(
        name, name
    )


def _cells(row: Row) -> list[str]:
    speed, sure = words.ratio(row["speedup_per_token"]), words.percent(row["confidence_share"])
    return [words.configuration(row), words.estimate(row), speed, sure, words.memory(row)]


def _prefer_own(desk: Desk, asked: Asked) -> Answer:
    meant = yield from common.configurations(desk, asked)
    if meant.problem:
        yield from desk.say(meant.problem)
        return
    yield from desk.say("I price it and set it beside what I recommend.")
    board = yield from common.board(desk)
    if board.error:
        yield from desk.say(board.error)
        return
    first = board.first
    compared = yield from common.side_by_side(desk, [common.as_arguments(first), meant.configurations[0]])
    if isinstance(compared, str):
        yield from desk.say(compared)
        return
    mine, theirs = compared["configurations"]
    name = words.configuration(theirs)
    own = f"proposal {first['number']}"
    stands = theirs.get("stands_as_proposal")
    if stands == first["number"]:
        yield from desk.say(f"{name} is {own}: we agree, at a predicted {words.speed(theirs)}.")
        return
    found = verdict.case(mine, theirs)
    if not theirs.get("violations"):
        yours = f"yours, proposal {stands}" if stands else "yours"
        if mine.get("speedup_per_token") and theirs.get("speedup_per_token"):
            rows = [[own, *_cells(mine)], [yours, *_cells(theirs)]]
            yield from desk.table(
                [
                    "",
                    "Configuration",
                    "Step, predicted",
                    "Per token",
                    words.confidence_head([mine, theirs]),
                    "Memory per chip",
                ],
                rows,
            )
    yield from desk.say(*verdict.argued(name, theirs, own, mine, theirs.get("time_per_token_over_fastest")))
    if found == "better":
        yield from desk.say("**You are right**: I would start with yours.")
    elif found == "bolder":
        yield from desk.say(f"**Half conceded**: yours for the larger gain, {own} for the better odds.")
    elif found == "tie":
        yield from desk.say(
            (
                f"Either will do; I would take the one that is easier for you to run, and measure it against "
                f"{words.estimate(board.ran)} a step."
            )
            if board.ran.get("step_time_s")
            else "Either will do; take the one that is easier for you to run."
        )
    else:
        yield from desk.say(f"**I hold to {own}.**", verdict.turns(name, theirs, own, mine))
    yield from common.offered(theirs)


def hold(desk: Desk, asked: Asked) -> Answer:
    """Still the same, without anything new?"""
    pressed = asked.intent == "pressure"
    yield from desk.say(
        "That may be, but no fact came with it, so I can only look at the numbers again."
        if pressed
        else "I look at the numbers once more, as they stand after all that was said here."
    )
    board = yield from common.board(desk)
    if board.error:
        yield from desk.say(board.error)
        return
    first, others = board.first, list(board.rows[1:])
    number = (asked.proposals.numbers or (first["number"],))[0]
    own = f"proposal {first['number']}"
    better = [row for row in others if verdict.case(first, row) == "better"] if first["kind"] != "keep" else []
    if number == first["number"] and better:
        yield from _no_longer(desk, first, better)
        return
    if number != first["number"]:
        yield from desk.say(f"No: what I recommend first is {own}, not proposal {number}.")
    else:
        told = board.data.get("told_by_the_user") or board.data.get("held_fast_by_the_user")
        reason = (
            "what you told me is counted in, and it still leads" if told else "nothing that was said changes a number"
        )
        yield from desk.say(
            f"{'I hold to it' if pressed else '**Yes**'}: {words.title(first)} stays first, since {reason}."
        )
    sure = words.sure(first)
    yield from desk.more(
        f"That no change that may run gains what it costs to try: confidence "
        f"{words.percent(first['confidence_share'])}."
        if first["kind"] == "keep"
        else f"It is predicted at {words.speed(first)}, confidence {sure}."
    )
    bolder = [row for row in others if verdict.case(first, row) in ("better", "bolder")]
    if bolder:
        row = max(bolder, key=lambda item: item["speedup_per_token"])
        keeps = first["kind"] == "keep"
        yield from desk.say(
            *verdict.argued(f"proposal {row['number']}", row, own, first),
            "" if keeps else "I put the odds and the cost of trying before the larger number.",
        )
    elif others:
        row = max(others, key=lambda item: item.get("speedup_per_token") or 0.0)
        yield from desk.say(
            *list(verdict.argued(f"proposal {row['number']}", row, own, first))[:1], *_why_behind(row, first)
        )
    around = yield from desk.look("sensitivity", number=first["number"])
    near = (
        [
            step
            for step in around.data.get("one_step_away", ())
            if not step.get("rule") and step.get("speedup_over_this")
        ]
        if around
        else []
    )
    if near:
        best = max(near, key=lambda step: step["speedup_over_this"])
        if best["speedup_over_this"] > 1 + words.SAME:
            yield from desk.say(
                f"One step further ({words.stepped(best)}) is predicted at "
                f"{words.ratio(best['speedup_over_this'])} the speed of {own}; I would go there second, "
                f"once the first step is measured."
            )
        else:
            yield from desk.say(
                "No neighbour one step away that may run is predicted to be faster than it, so it is no "
                "edge of the search either."
            )
    if board.data.get("not_known"):
        yield from desk.say(f"What I do not know is still {facts.in_words(board.data['not_known'])}.")


def _no_longer(desk: Desk, first: Row, better: list[Row]) -> Answer:
    """The ranking's first where another has the better numbers: the same that is conceded when it is argued over."""
    own = f"proposal {first['number']}"
    best = max(better, key=lambda row: row["speedup_per_token"])
    yield from desk.say(
        f"**Only as the cheaper one to try**: {words.title(first)} leads the ranking, at a predicted "
        f"{words.speed(first)}, confidence {words.sure(first)}."
    )
    yield from desk.say(
        *verdict.argued(f"proposal {best['number']}", best, own, first),
        f"By gain and by odds proposal {best['number']} is the better start; {own} stands first because the ranking "
        f"also weighs what a change costs to try.",
    )
