"""Sentences about figures: what a number is, how it came about, and how it stands to what somebody states."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any

from experiments.step_profile import MODEL, PROFILE
from proposals.agents import words
from proposals.agents.capabilities.common import Row, get
from proposals.agents.capabilities.desk import Answer, Desk
from proposals.agents.conversation import Said

#: Figures with one number that are named beside the likeliest.
ALSO = 2


def whole_message(desk: Desk, text: str) -> str:
    """The message that a form's text was read in, so that no number of its other sentences is lost; else the text."""
    return desk.message if text and " ".join(text.split()) in " ".join(desk.message.split()) else text


def traced(desk: Desk, text: str) -> Generator[Said, None, Row]:
    """Which figures a text means; empty where it says nothing."""
    if not text.strip():
        return {}
    return (yield from get(desk, "figures", text=text[:600]))


def explain(row: Row) -> str:
    """A figure in a sentence or two."""
    origin = {"sourced": "stated, not measured"}.get(row["origin"], row["origin"])
    said = f"**{row['text']}**: {words.lower_first(str(row['figure']))} ({row['place']}), {origin}"
    if row.get("counted"):
        said += f", {words.lower_first(str(row['counted']).rstrip('.'))}"
    if row.get("formula"):
        said += f". Computed as {words.lower_first(_first_line(row['formula']))}"
    if row.get("inputs"):
        said += f", with {words.listed([_input(item) for item in row['inputs']])}"
    return f"{said}."


def _input(item: Mapping[str, Any]) -> str:
    return f"{words.lower_first(str(item['name']))} {item['value']}"


def _first_line(text: Any) -> str:
    return str(text).strip().splitlines()[0].rstrip(".")


def numbers(desk: Desk, found: Row) -> Answer:
    """The numbers of a message, each as the figure that it is, or as one that this run does not have."""
    rows: Sequence[Row] = found.get("numbers") or ()
    items, told = [], set()
    for row in rows:
        if row["found"]:
            first, *others = row["found"]
            if (first["figure"], first["text"]) in told:
                continue
            told.add((first["figure"], first["text"]))
            also = [words.lower_first(str(item["figure"])) for item in others[:ALSO]]
            tail = f" The same number: {words.listed(also)}." if also else ""
            items.append(explain(first) + tail)
        else:
            items.append(_absent(row))
    yield from desk.bullets(items)
    if found.get("relations"):
        yield from desk.say(*(words.capital(str(text)) for text in found["relations"]))


def _absent(row: Row) -> str:
    near = row.get("nearest")
    if row.get("follows"):
        return f"{row['said']}: it follows from the other figures, {row['follows']}."
    if near is None:
        return f"{row['said']}: no figure of this run has this value, so it is your own; nothing here confirms it."
    times = row.get("times_the_nearest")
    beside = f", {times:.3g} times ours" if times and (times >= 1.02 or times <= 0.98) else ""
    return (
        f"{row['said']}: no figure of this run has this value{beside}. Ours of the same kind: "
        f"{words.lower_first(str(near['figure']))} **{near['text']}** ({near['origin']}, {near['place']})."
    )


def basis(desk: Desk) -> str:
    """What stands behind the numbers of this run where that is not a whole profile of all its chips."""
    profile = desk.bench.profile
    if profile.basis == MODEL:
        return "Nothing was measured: all of this is predicted by the performance model; a profile would decide it."
    if profile.basis != PROFILE:
        return (
            "Only the step time was measured; its parts are predicted by the performance model and scaled to it. A "
            "profile of this configuration would decide it."
        )
    return ""


def recorded(desk: Desk) -> Generator[Said, None, str]:
    """That only a part of the chips was recorded, in a sentence; empty where all were."""
    run = yield from get(desk, "run")
    cores, chips = (run.get("profile") or {}).get("recorded_cores"), run.get("chips")
    if desk.bench.profile.basis != PROFILE or not cores or not chips or cores >= chips:
        return ""
    return (
        f"Only {cores:,} of {chips:,} chips were recorded: what is said of cores, stragglers and waiting holds for "
        "these alone, and time inside collectives contains waiting for the others."
    )
