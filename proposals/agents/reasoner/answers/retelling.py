"""Facts and constraints that the user told or took back: kept, and the proposals made anew under them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfmodel.config import ConfigError
from proposals.agents.conversation import ConstraintTold, FactTold, Question
from proposals.agents.reasoner import words
from proposals.agents.reasoner.answers import common
from proposals.agents.reasoner.answers.common import Board
from proposals.agents.reasoner.desk import Answer, Desk
from proposals.agents.reasoner.told import Told, describe, fact_sentence
from proposals.constraints import Constraints, mesh_text, same_mesh
from proposals.facts import in_words

Row = Mapping[str, Any]


def retell(desk: Desk, told: Told) -> Answer:
    """Keeps what was told, and says what it changes."""
    config = desk.bench.config
    if told.exclude:
        told = yield from _with_excluded(desk, told)
    if not (told.constraints or told.facts or told.dropped):
        yield from _which_model(desk, told)
        return
    sentences = list(describe(told, config))
    start = []
    if told.dropped:
        start.append(f"I no longer hold {words.listed([_held(key) for key in told.dropped])}.")
    if sentences:
        start.append("Noted: " + " ".join(sentences).replace("10 % of usable memory", "a tenth of usable memory"))
    if told.constraints.get("memory_margin") == 0.1 and "%" not in told.sentences.get("memory_margin", ""):
        start.append("You named no share, so I keep that one; say another if you mean more.")
    yield from desk.say(*start)
    held = _kept(desk.ask.constraints, told)
    facts = {path: value for path, value in desk.ask.facts.items() if path not in told.dropped} | dict(told.facts)
    before = yield from common.board(desk)
    try:
        base = desk.bench
        desk.over((base.origin or base).under(facts, held))
    except ConfigError as error:
        yield from desk.say(f"That can not be held: {error}.")
        return
    after = yield from common.board(desk)
    if after.error:
        desk.over(base)
        yield from desk.say(f"Under that nothing can be proposed, so I do not keep it: {words.brief(after.error)}.")
        return
    yield from _effects(told)
    yield from changed(desk, before, after, "now")
    if (
        "at_most_chips" in told.constraints
        and (limit := told.constraints["at_most_chips"]) < base.config.hardware.chips
    ):
        yield from desk.say(_on_fewer_chips(after, limit, base.config.hardware.chips))
    yield from _which_model(desk, told)
    unknown = after.data.get("not_known", ())
    if unknown and told.facts:
        yield from common.ask_back(desk, common.decisive(unknown, desk), f"Still not known: {in_words(unknown)}.")


def _on_fewer_chips(after: Board, limit: int, ran: int) -> str:
    """What the confidence is of, where a token may take less time than on all chips, or more."""
    faster = [row for row in after.rows if (row.get("speedup_per_token") or 0.0) > 1]
    if not faster:
        return (
            f"With at most {limit:,} chips a step takes longer than on the {ran:,} that ran; the confidence is that "
            f"each chip gets more done, which frees the others."
        )
    which = "a token" if len(faster) == len(after.rows) else f"with proposal {faster[0]['number']} a token"
    return (
        f"Even with at most {limit:,} chips {which} is predicted to take less time than on the {ran:,} that ran; the "
        f"confidence is that each chip gets more done."
    )


def _effects(told: Told) -> Answer:
    rest = tuple(told.dropped)
    for key, value in told.constraints.items():
        sentence = " ".join(Constraints.from_json({key: value}).describe())
        yield ConstraintTold({key: value}, sentence, rest)
        rest = ()
    if rest:
        yield ConstraintTold({}, "Taken back: " + words.listed([_held(key) for key in rest]) + ".", rest)
    for path, value in told.facts.items():
        yield FactTold(path, value, told.sentences.get(path, "").strip() or str(value))


def _kept(constraints: Constraints, told: Told) -> Constraints:
    data = {key: value for key, value in constraints.to_json().items() if key not in told.dropped}
    return Constraints.from_json(data).joined(Constraints.from_json(dict(told.constraints)))


def _with_excluded(desk: Desk, told: Told) -> Any:
    board = yield from common.board(desk)
    meshes = [dict(row["mesh"]) for number in told.exclude if (row := board.number(number)) is not None]
    if not meshes:
        return told
    constraints = {**told.constraints, "excluded": [*told.constraints.get("excluded", []), *meshes]}
    return Told(constraints, told.facts, told.dropped, (), told.ambiguous, told.sentences)


def _which_model(desk: Desk, told: Told) -> Answer:
    for said, names in told.ambiguous:
        if "model.name" in told.facts:
            question = Question(
                (
                    f"Models of that size with the same layers and widths are {words.listed(list(names))}; I "
                    f"took the last. Is it another?"
                ),
                tuple(f"The model is {name}" for name in names[:-1]),
            )
        elif names:
            question = Question(
                f"Several models that I know have {said}, and their shapes differ. Which one is it?",
                tuple(f"The model is {name}" for name in names[:6]),
            )
        else:
            question = Question(
                (
                    f"I know no model of {said.strip()} by its size alone. Which one is it, by name, or "
                    f"layers, width and heads?"
                ),
                (),
            )
        yield from desk.say(question.text)
        yield question


_HELD = {
    "keep_batch": "the batch as it is",
    "keep_axes": "the axes as they are",
    "fixed": "the sizes of axes",
    "at_most": "the upper bounds of axes",
    "at_least": "the lower bounds of axes",
    "memory_margin": "the memory margin",
    "keep_remat": "the remat policy as it is",
    "keep_weight_sharding": "the weight sharding as it is",
    "keep_micro_batches": "the micro-batches as they are",
    "no_flags": "XLA flags as they are",
    "excluded": "the excluded meshes",
    "at_most_chips": "the number of chips",
    "model.name": "which model it is",
    "training.global_batch": "the global batch that you told",
    "training.seq_len": "the sequence length that you told",
    "hardware.overrides.hbm_bytes": "the memory that you told",
}


def _held(key: str) -> str:
    return _HELD.get(key, key)


def changed(desk: Desk, before: Board, after: Board, when: str) -> Answer:
    """What became of the proposals, and why."""
    old, new = (before.rows[0] if before.rows else None), after.rows[0]
    same = old is not None and same_mesh(old["mesh"], new["mesh"]) and old.get("changes", {}) == new.get("changes", {})
    if old is None:
        yield from desk.say(f"{when.capitalize()} there are proposals; the first is {words.title(new)}.")
    elif same:
        yield from desk.say(f"**The first stays**: {words.title(new)}.", _moved_numbers(old, new))
    else:
        yield from desk.say(
            f"**The recommendation changes**: {when} the first is {words.title(new)}, predicted at "
            f"{words.speed(new)}, confidence {words.sure(new)}."
        )
        yield from _why_gone(desk, old)
    lines = []
    for row in after.rows:
        was = next(
            (
                each["number"]
                for each in before.rows
                if same_mesh(each["mesh"], row["mesh"]) and each.get("changes", {}) == row.get("changes", {})
            ),
            None,
        )
        place = "new" if was is None else "as before" if was == row["number"] else f"was {was}"
        speed = words.ratio(row["speedup_per_token"]) if row.get("speedup_per_token") else "–"
        lines.append(
            [
                f"{row['number']} ({place})",
                words.configuration(row),
                speed,
                words.percent(row["confidence_share"]),
                words.memory(row),
            ]
        )
    header = [
        "Proposal", "Configuration", "Per token, predicted", words.confidence_head(after.rows), "Memory per chip",
    ]  # fmt: skip
    yield from desk.table(header, lines)
    notes = after.data.get("notes") or ()
    yield from desk.say(*[str(note) for note in notes[:2]])


def _moved_numbers(old: Row, new: Row) -> str:
    before, after = old.get("speedup_per_token"), new.get("speedup_per_token")
    if not before or not after:
        return ""
    sure, was = words.sure(new), words.sure(old)
    if words.ratio(before) == words.ratio(after) and sure == was:
        return f"Its numbers stay too: {words.speed(new)}, confidence {sure}."
    return (
        f"What moves are its numbers: predicted {words.speed(new)}, confidence {sure}; before that it was "
        f"{words.ratio(before)} at {was}."
    )


def _why_gone(desk: Desk, old: Row) -> Answer:
    """Why what stood first does not any more."""
    found = yield from desk.look("predict", **common.as_arguments(old))
    if not found:
        return
    row = found.data
    name = f"`{mesh_text(old['mesh'])}`" + (f" with {words.changes(old)}" if old.get("changes") else "")
    if row.get("violations"):
        yield from desk.say(f"What stood first, {name}, is out: {words.lower_first(words.violations(row)[0])}")
    elif row.get("stands_as_proposal"):
        yield from desk.say(
            f"What stood first, {name}, is proposal {row['stands_as_proposal']} now, predicted at {words.speed(row)}."
        )
    elif row.get("speedup_per_token"):
        yield from desk.say(
            f"What stood first, {name}, is predicted at {words.speed(row)} under this, confidence {words.sure(row)}."
        )


def held(desk: Desk, asked: Any) -> Answer:
    """What this conversation holds fast and was told."""
    yield from desk.say("What this conversation holds:")
    found = yield from desk.look("run")
    bench = desk.bench
    items = [f"constraint: {sentence}" for sentence in bench.constraints.describe()]
    items += [f"fact: {fact_sentence(path, value, bench.config)}" for path, value in bench.facts.items()]
    if items:
        yield from desk.bullets(items)
        yield from desk.say("Say that I should forget one, and the proposals are made without it.")
    else:
        yield from desk.say("No constraint, and no fact beyond the configuration.")
    if found and found.data.get("not_known"):
        unknown = found.data["not_known"]
        yield from desk.say(
            f"Not known: {in_words(unknown)}; terms that need {'it' if len(unknown) == 1 else 'them'} were scaled from "
            f"the profile or assumed."
        )
    elif found:
        yield from desk.say(
            "Model, batch and sequence length are known, so no term had to be assumed for want of them."
        )
