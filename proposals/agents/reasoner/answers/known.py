"""What is known beyond this run: records of changes, passages of knowledge, how good predictions are."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from proposals import facts
from proposals.agents.reasoner import words
from proposals.agents.reasoner.answers import common
from proposals.agents.reasoner.desk import Answer, Desk
from proposals.agents.reasoner.understand import Asked

Row = Mapping[str, Any]
_FIGURE = re.compile(r"\d")
_ENDS = {"faster": "faster", "slower": "slower", "no_change": "no change", "failed": "failed", "not_timed": "not timed"}


def similar(desk: Desk, asked: Asked) -> Answer:
    number = (
        asked.proposals.numbers[0]
        if asked.proposals.numbers
        else desk.focus.number
        if asked.points_back
        and desk.focus.intent != "similar"
        and re.search(r"\bit\b|\bthat\b|\bbefore\b|\bmove\b", asked.text)
        else None
    )
    yield from desk.say(
        f"I look for measured runs that made a move like proposal {number}."
        if number
        else "I look for measured runs that are like this one in bottleneck, chip, model and scale."
    )
    found = yield from desk.look("similar_runs", proposal=number, top=5)
    if not found:
        yield from desk.say(found.error)
        return
    rows = found.data.get("records") or []
    if not rows:
        yield from desk.say("There is no record of a run like this one.")
        return
    # A record with which nothing but its size is alike is no run like this one, while there are others.
    rows = [row for row in rows if _alike(row)] or rows
    yield from desk.bullets([_record(row) for row in rows])
    faster = [row for row in rows if row["outcome"] == "faster" and _moved(row)]
    failed = [row for row in rows if row["outcome"] in ("failed", "slower")]
    if failed:
        row = failed[0]
        yield from desk.say(
            f"Mind `{row['id']}`, which {'failed' if row['outcome'] == 'failed' else 'got slower'}: "
            f"{words.lower_first(str(row['effect']).rstrip('.'))}."
        )
    if number and not faster:
        yield from desk.say(f"None of them proves the move of proposal {number}.")
    yield from desk.say(
        "A record carries over as far as bottleneck, move and chip agree; what is alike stands behind each."
    )


def _moved(row: Row) -> bool:
    return any("moved the same way" in str(why) for why in row.get("why", ()))


def _alike(row: Row) -> list[str]:
    return [str(text) for text in row.get("why", ()) if not _FIGURE.search(str(text)) or "same chip" in str(text)]


def _record(row: Row) -> str:
    by = f", measured as {row['measure']}" if row.get("measure") else ""
    speed = f"; speed-up {words.ratio(row['speedup_per_token'])}{by}" if row.get("speedup_per_token") else ""
    why = _alike(row)
    alike = f" Alike: {'; '.join(why[:3])}." if why else ""
    caveat = next((str(text).rstrip(".") for text in row.get("caveats", ()) if not _FIGURE.search(str(text))), "")
    return (
        f"Record `{row['id']}` ({_ENDS.get(row['outcome'], row['outcome'])}{speed}): {str(row['title']).rstrip('.')}. "
        f"{str(row.get('effect', '')).rstrip('.')}.{alike}" + (f" Caveat: {caveat}." if caveat else "")
    )


def knowledge(desk: Desk, asked: Asked) -> Answer:
    query = (
        re.sub(
            (
                r"^(?:and |but |so |please )*(?:what (?:is|are|does|do)|how (?:does|do|is)|explain|tell me "
                r"about|define)\s+(?:an?\s|the\s)?|[?.!]"
            ),
            "",
            asked.text,
        ).strip()[:400]
        or asked.text[:400]
    )
    yield from desk.say("From the knowledge base:")
    found = yield from desk.look("search_knowledge", query=query, top=3)
    rows = found.data.get("passages") or [] if found else []
    if not rows:
        yield from desk.say("It holds nothing on that.")
        return
    for row in rows[:2]:
        text = re.sub(r"\s+", " ", str(row["text"]))
        source = re.sub(r"\s*\([^)]*\d{4}[^)]*\)", "", str(row["source"]))
        section = f", section {row['section']}" if row.get("section") else ""
        yield from desk.say(
            f"**{row['title']}** (passage `{row['id']}`; {source}{section}): {text}"
            + (f" Applies when: {row['applies_when']}" if row.get("applies_when") else "")
        )
    if len(rows) > 2:
        yield from desk.say(f"See also passage `{rows[2]['id']}`, {words.lower_first(str(rows[2]['title']))}.")


_SECONDS = re.compile(r"(\d[\d,]*(?:\.\d+)?)\s?(ms|s|sec|secs|seconds?)\b")


def result(desk: Desk, asked: Asked) -> Answer:
    """The user measured a proposal: where its result is told, and how it stands beside the prediction."""
    number = (asked.proposals.numbers or (1,))[0]
    row = yield from common.whole(desk, number)
    if isinstance(row, str):
        yield from desk.say(row)
        return
    if row.get("kind") == "keep":
        yield from desk.say(f"Proposal {number} keeps what runs, so this run is its measurement; it needs no other.")
        return
    first = "" if row.get("status") == "approved" else "once it is approved, "
    yield from desk.say(
        f"A measurement counts once its profile is there: {first}upload the run on the card of proposal {number}, and "
        f"prediction and measurement stand side by side; the confidence of further proposals then moves by it."
    )
    told, time = _SECONDS.search(asked.text), row.get("step_time_s")
    if told is None or not isinstance(time, Mapping):
        return
    measured = float(told[1].replace(",", "")) * (1e-3 if told[2] == "ms" else 1.0)
    where = (
        "slower than its range"
        if measured > time["high80"]
        else "faster than its range"
        if measured < time["low80"]
        else "within its range"
    )
    board = yield from common.board(desk)
    ran = board.ran.get("step_time_s") if not board.error else None
    gain = (
        f", and {'less' if measured < ran else 'no less'} than the {words.time(ran)} that were measured before"
        if ran
        else ""
    )
    yield from desk.say(
        f"By what you say: {told[0]} a step, where {words.step(row)} was predicted; that is {where}{gain}."
    )


def accuracy(desk: Desk, asked: Asked) -> Answer:
    """How far the predictions of this run may be trusted, from its own ranges."""
    yield from desk.say(
        "Every prediction here carries its own error: a range that should hold the measured value in four "
        "of five cases, and a confidence that was fitted on measured pairs of runs."
    )
    board = yield from common.board(desk)
    if board.error:
        yield from desk.say(board.error)
        return
    rows = [row for row in board.rows if row.get("speedup_low80")]
    if rows:
        yield from desk.table(
            ["Proposal", "Per token, predicted", "Range",
             f"Confidence to gain {'per token and chip' if any(map(words.fewer_chips, rows)) else 'at all'}"],
            [
                [str(n), words.ratio(r["speedup_per_token"]), words.span(r), words.percent(r["confidence_share"])]
                for n, r in ((row["number"], row) for row in rows)
            ],
        )  # fmt: skip
        worst = max(rows, key=lambda r: r["speedup_high80"] / r["speedup_low80"])
        yield from desk.say(f"The least certain is proposal {worst['number']}.")
    unknown = board.data.get("not_known", ())
    if unknown:
        yield from desk.say(
            f"The ranges are wide because {facts.not_known(unknown)}; those terms were scaled from the profile."
        )
    else:
        yield from desk.say(
            "Model, batch and sequence length are known, so every term was computed and then calibrated on "
            "this profile."
        )
    one = yield from common.whole(desk, board.first["number"])
    if not isinstance(one, str) and one.get("lowers_confidence"):
        yield from desk.say("For the first proposal these lower it:")
        yield from desk.bullets([str(item) for item in one["lowers_confidence"]])
    yield from desk.say(
        "How far predicted lay from measured, by chip, model and kind of run, is published with the "
        "product (accuracy of the performance model, and of the confidence). Once you measure a proposal "
        "here, its result is entered beside the prediction, and your team's confidence moves by it."
    )
