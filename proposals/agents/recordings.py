"""Recorded answers, read step by step: those of an experiment's Events, or of an exported file."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from agent.events import ModelRequest, RunEvent, ToolReturned, event_to_json, requested
from agent.messages import Message
from proposals.agents.recorded import STEP_KINDS, last_attempt, run_event


class NoRecording(ValueError):
    """What was given is no recording; the text is a sentence for the user."""


@dataclass(frozen=True)
class Recording:
    """The steps of one answer.  question: as far as it is known; message: the answer's number."""

    events: tuple[RunEvent, ...]
    question: str = ""
    message: int | None = None
    thread: int | None = None


def recordings(lines: Iterable[str]) -> list[Recording]:
    """The answers in an exported JSON Lines text, oldest first.

    What was asked is read from the same lines.  Raises NoRecording for a line that is no event, or where there is no
    answer.
    """
    answers: dict[int, list[RunEvent]] = {}
    questions: dict[int, str] = {}
    open_question: dict[int, str] = {}
    thread_of: dict[int, int] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        kind, data = _row(line, number)
        thread, message = data.get("thread"), data.get("message")
        if not isinstance(thread, int) or not isinstance(message, int):
            continue
        if kind == "message":
            if isinstance(data.get("text"), str):
                open_question[thread] = data["text"]
            continue
        if kind not in STEP_KINDS:
            continue
        try:
            event = run_event(kind, data)
        except ValueError:
            what = f"Line {number} is not a step of an agent"
            raise NoRecording(f"{what}, or its payload was removed by the team's retention.") from None
        answers.setdefault(message, []).append(event)
        thread_of[message] = thread
        questions.setdefault(message, open_question.get(thread, ""))
    if not answers:
        raise NoRecording("There is no answer in this file: export the events of a conversation as JSON Lines.")
    return [
        Recording(tuple(last_attempt(events)), questions[message], message, thread_of[message])
        for message, events in answers.items()
    ]


def _row(line: str, number: int) -> tuple[str, dict[str, Any]]:
    try:
        row = json.loads(line)
        kind, data = row["kind"], row["data"]
    except (ValueError, KeyError, TypeError):
        raise NoRecording(f"Line {number} is not an event of an exported Sharding Memory.") from None
    if not isinstance(kind, str) or not isinstance(data, dict):
        raise NoRecording(f"Line {number} is not an event of an exported Sharding Memory.")
    return kind, data


@dataclass(frozen=True)
class Step:
    """One step for a reader.  messages: all that a request sent, the new ones from `since` on."""

    number: int
    event: RunEvent
    messages: tuple[Message, ...] = ()

    @property
    def pretty(self) -> str:
        """Of a tool's result, the result; of any other step, the step."""
        shown = self.event.result if isinstance(self.event, ToolReturned) else event_to_json(self.event)
        return json.dumps(shown, indent=2, ensure_ascii=False)


def steps(recording: Recording) -> list[Step]:
    """The steps of a recording in order."""
    sent = iter(requested(recording.events))
    return [
        Step(number, event, next(sent)[1] if isinstance(event, ModelRequest) else ())
        for number, event in enumerate(recording.events, 1)
    ]
