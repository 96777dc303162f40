"""What several answers need: the proposals as they stand, the configuration that is meant, what stands behind it."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proposals.agents.conversation import MeshOffered, Question, Said
from proposals.agents.reasoner import words
from proposals.agents.reasoner.desk import Answer, Desk
from proposals.agents.reasoner.meshes import solve
from proposals.agents.reasoner.understand import Asked

Row = Mapping[str, Any]
#: Ways to fill up a mesh that are priced side by side.
MOST_WAYS = 4
FACTS = {"model": "the model", "training.global_batch": "the global batch", "training.seq_len": "the sequence length"}


@dataclass(frozen=True)
class Board:
    """The proposals and what ran, as the tool `proposals` lists them."""

    rows: tuple[Row, ...] = ()
    ran: Row = None  # type: ignore[assignment]
    data: Row = None  # type: ignore[assignment]
    error: str = ""

    def number(self, number: int) -> Row | None:
        return next((row for row in self.rows if row["number"] == number), None)

    @property
    def first(self) -> Row:
        return self.rows[0]


def board(desk: Desk) -> Generator[Said, None, Board]:
    """The proposals; where none can be made, the board's error says why."""
    found = yield from desk.look("proposals")
    if not found:
        return Board((), {}, {}, found.error)
    return Board(tuple(found.data["proposals"]), found.data["what_runs"], found.data)


def whole(desk: Desk, number: int) -> Generator[Said, None, Row | str]:
    """One proposal, whole, or the sentence that says why there is none."""
    found = yield from desk.look("proposals", number=number)
    return found.data["proposal"] if found else found.error


def meant(desk: Desk, asked: Asked, default: int = 1) -> int | None:
    """The number of the proposal that a question is about; None where it is about a configuration of its own."""
    if asked.proposals.numbers:
        return asked.proposals.numbers[0]
    if asked.mesh or asked.changes:
        return None
    if asked.points_back or asked.also or asked.intent in ("confidence", "risks", "launch", "explain", "memory"):
        if desk.focus.configured:
            return None
        if desk.focus.number is not None:
            return desk.focus.number
    return default


def by_kind(rows: Sequence[Row], kind: str) -> int | None:
    return next((row["number"] for row in rows if row["kind"] == kind), None)


@dataclass(frozen=True)
class Meant:
    """Configurations that a question may mean, most likely first, as arguments of `predict`.

    filled: axes that were filled up.  problem: a sentence where the words name no mesh.  base: of what they are taken,
    in words.
    """

    configurations: tuple[dict[str, Any], ...] = ()
    filled: tuple[str, ...] = ()
    problem: str = ""
    base: str = ""


def configurations(desk: Desk, asked: Asked) -> Generator[Said, None, Meant]:
    """What a question about a mesh or settings means: against what ran, a named proposal, or what was spoken of."""
    config, focus = desk.bench.config, desk.focus
    base: Mapping[str, Any] = config.mesh.to_json()
    changes: dict[str, Any] = {}
    named = "what runs"
    names = asked.mesh or asked.changes or asked.proposals
    goes_on = asked.also or (asked.points_back and not asked.mesh) or not names
    if asked.proposals.numbers and (asked.mesh.factors or not asked.mesh) and (asked.changes or asked.mesh):
        one = yield from whole(desk, asked.proposals.numbers[0])
        if isinstance(one, str):
            return Meant(problem=one)
        base, changes, named = one["mesh"], dict(one.get("changes", {})), f"proposal {one['number']}"
    elif goes_on and focus.mesh is not None:
        base, changes, named = focus.mesh, dict(focus.changes), words.mesh_of(focus.mesh)
    elif goes_on and focus.number is not None:
        one = yield from whole(desk, focus.number)
        if not isinstance(one, str):
            changes = {**one.get("changes", {}), **focus.changes}
            base, named = one["mesh"], f"proposal {one['number']}"
    elif goes_on and focus.changes:
        changes = dict(focus.changes)
    changes |= asked.changes
    if not asked.mesh:
        return Meant(
            ({"ici": dict(base["ici"]), "dcn": dict(base.get("dcn", {})) or None, "changes": changes},), base=named
        )
    solved = solve(asked.mesh, base, config.hardware.chips_per_slice, config.mesh)
    if solved.problem:
        return Meant(problem=solved.problem)
    made = tuple(
        {"ici": way["ici"], "dcn": way.get("dcn") or None, "changes": changes} for way in solved.meshes[:MOST_WAYS]
    )
    return Meant(made, solved.filled, base=named)


def predicted(desk: Desk, configuration: Mapping[str, Any]) -> Generator[Said, None, Row | str]:
    """A configuration as `predict` has it, or the sentence that says what is wrong with it."""
    found = yield from desk.look("predict", **configuration)
    return found.data if found else found.error


def side_by_side(desk: Desk, configurations: Sequence[Mapping[str, Any]]) -> Generator[Said, None, Row | str]:
    found = yield from desk.look("compare_meshes", configurations=[_plain(item) for item in configurations])
    return found.data if found else found.error


def _plain(item: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in item.items() if value is not None}


def as_arguments(row: Row) -> dict[str, Any]:
    """A row's configuration as arguments."""
    return {"ici": row["mesh"]["ici"], "dcn": row["mesh"].get("dcn") or None, "changes": row.get("changes", {})}


def evidence(desk: Desk, row: Row) -> Generator[Said, None, list[str]]:
    """Whether a measured run stands behind a proposal: proven elsewhere, or without precedent."""
    keys = [item["key"] for item in row.get("citations", ()) if item.get("source") == "history" and item.get("key")]
    for key in keys:
        found = yield from desk.look("record", id=key)
        if found and found.data.get("outcome") == "faster":
            record = found.data
            where = f" on {record['chip']}" if record.get("chip") else ""
            kept = [
                f"**Proven elsewhere**: record `{key}`{where}, {words.lower_first(str(record['effect']).rstrip('.'))}."
            ]
            caveat = next(
                (str(text) for text in record.get("caveats", ()) if not any(c.isdigit() for c in str(text))), ""
            )
            if caveat:
                kept.append(f"Its caveat: {caveat.rstrip('.')}.")
            return kept
    if row.get("kind") == "keep" or is_what_runs(row):
        return ["**Measured**: it is what ran, so there is nothing to prove."]
    if not row.get("changes") and row.get("keeps_the_mesh"):
        return []
    return [
        "**No precedent**: no record of a measured run with a like move is near enough to count as proof; the "
        "confidence is that of the calibrated model alone."
    ]


def decisive(names: Sequence[str], desk: Desk) -> Question | None:
    """What to ask back where a fact is missing that decides much, the most decisive first."""
    config = desk.bench.config
    if "training.global_batch" in names:
        shards = config.mesh.size("replica", "data", "fsdp", "expert")
        return Question(
            "What is the global batch, in sequences per optimizer step?",
            tuple(f"The global batch is {shards * factor}" for factor in (1, 4, 16)),
        )
    if "training.seq_len" in names:
        return Question(
            "How long are the sequences, in tokens?", tuple(f"The sequence length is {n}" for n in (2048, 4096, 8192))
        )
    if "model" in names:
        return Question(
            "Which model is trained?",
            ("The model is llama3.1-8b", "The model is llama3.1-70b", "The model is mixtral-8x7b"),
        )
    return None


def ask_back(desk: Desk, question: Question | None, why: str = "") -> Answer:
    """Ends an answer with the question, once in a conversation."""
    if question is None or any(question.text in turn.text for turn in desk.ask.earlier if turn.role == "assistant"):
        return
    yield from desk.say(why, question.text)
    yield question


def is_what_runs(row: Row) -> bool:
    """Whether a configuration, as `predict` has it, changes nothing."""
    return not row.get("changes") and row.get("mesh_text") == (row.get("what_runs") or {}).get("mesh_text")


def offered(row: Row, title: str = "") -> list[MeshOffered]:
    """The offer to add a priced configuration, where it may run and is none of the proposals yet."""
    if not row.get("may_run") or row.get("stands_as_proposal") or row.get("speedup_per_token") is None:
        return []
    if is_what_runs(row):
        return []
    return [MeshOffered(row["mesh"], row.get("changes", {}), title or words.configuration(row).replace("`", ""))]
