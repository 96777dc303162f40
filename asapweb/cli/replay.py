"""`asap replay`: the recorded answers of an exported Sharding Memory, step by step."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from agent.events import ModelRequest, event_to_json
from asapweb.user_error import UserError
from experiments.event_text import brief, cut
from proposals.agents.recorded import NoRecording, Recording, answers_in


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("replay", help="read recorded answers step by step")
    parser.add_argument("events", metavar="EVENTS.jsonl", help="Sharding Memory of an experiment, as exported")
    parser.add_argument("--answer", type=int, metavar="N", help="only the answer with this number")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """The answers with their steps.  Raises UserError."""
    try:
        text = Path(args.events).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"{args.events} cannot be read: {getattr(error, 'strerror', None) or 'it is not text'}"
        ) from None
    try:
        recorded = [item for item in answers_in(text.splitlines()) if args.answer in (None, item.message)]
    except NoRecording as error:
        raise UserError(f"{args.events}: {error}") from None
    if not recorded:
        raise UserError(f"{args.events} has no answer {args.answer}.")
    return {"answers": [_answer(item) for item in recorded]}


def _answer(recording: Recording) -> dict[str, Any]:
    models = sorted({event.model for event in recording.events if isinstance(event, ModelRequest)})
    return {
        "answer": recording.message,
        "conversation": recording.thread,
        "question": recording.question or None,
        "models": models,
        "steps": [event_to_json(event) for event in recording.events],
    }


def as_text(result: dict[str, Any]) -> str:
    """Each answer with its steps in a line each."""
    lines = []
    for answer in result["answers"]:
        who = ", ".join(answer["models"]) or "no model"
        lines.append(
            f"Answer {answer['answer']} by {who}: {cut(answer['question'] or 'question not in the file', 100)}"
        )
        lines += [f"  {number:>3}  {_line(step)}" for number, step in enumerate(answer["steps"], 1)]
        lines.append("")
    return "\n".join(lines)


def _line(step: dict[str, Any]) -> str:
    kind = step["kind"]
    facts = brief(kind, {**step, "said": step.get("message")}) or {}
    shown = {
        "model_request": lambda: f"{facts['model']}, turn {step['turn']}, {facts['messages']} new messages",
        "model_response": lambda: ", ".join(call["name"] or "" for call in facts["calls"]) or facts["text"],
        "tool_call": lambda: f"{facts['name']} {facts['arguments']}",
        "tool_result": lambda: f"{facts['name']}: {facts['error'] or facts['result']}",
        "complaint": lambda: " ".join(facts["complaints"]),
        "retry": lambda: facts["sentence"],
        "stopped": lambda: facts["sentence"],
        "final": lambda: f"{facts['source']}: {facts['answer']}",
    }
    return f"{kind.replace('_', ' '):15} {cut(shown[kind](), 120)}"
