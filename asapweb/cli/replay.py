"""`asap replay`: the recorded answers of an exported Sharding Memory, step by step, or given again by today's code."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from agent.events import ModelRequest, event_to_json
from asapweb.user_error import UserError
from diagnosis.analyzer import diagnose
from experiments.event_text import brief, cut
from experiments.ingest import read_profile
from perfmodel.config_file import read_config
from proposals.agents.replaying import NoRecording, Recording, recordings, rerun
from proposals.agents.workbench import Workbench


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "replay", help="replay recorded answers step by step, or rerun them with the current code"
    )
    parser.add_argument("events", metavar="EVENTS.jsonl", help="Sharding Memory of an experiment, as exported")
    parser.add_argument(
        "--profile", nargs="+", metavar="PROFILE", help="the run's profile, to rerun each answer and compare"
    )
    parser.add_argument("--config", help="the run's configuration, JSON or YAML; needed with --profile")
    parser.add_argument("--answer", type=int, metavar="N", help="only the answer with this number")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """The answers with their steps; with a profile, whether each is the same.  Raises UserError, ConfigError,
    IngestError."""
    if bool(args.profile) != bool(args.config):
        raise UserError("Give both --profile and --config to rerun the answers, or neither to read the recorded steps.")
    try:
        text = Path(args.events).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"{args.events} cannot be read: {getattr(error, 'strerror', None) or 'it is not text'}"
        ) from None
    try:
        recorded = [item for item in recordings(text.splitlines()) if args.answer in (None, item.message)]
    except NoRecording as error:
        raise UserError(f"{args.events}: {error}") from None
    if not recorded:
        raise UserError(f"{args.events} has no answer {args.answer}.")
    bench = None
    if args.profile:
        config, _ = read_config(Path(args.config))
        profile = read_profile(args.profile)
        bench = Workbench.of_values(profile, config, diagnose(profile, config))
    return {"answers": [_answer(item, bench) for item in recorded]}


def _answer(recording: Recording, bench: Workbench | None) -> dict[str, Any]:
    models = sorted({event.model for event in recording.events if isinstance(event, ModelRequest)})
    answer: dict[str, Any] = {
        "answer": recording.message,
        "conversation": recording.thread,
        "question": recording.ask.text if recording.ask is not None else None,
        "models": models,
        "steps": [event_to_json(event) for event in recording.events],
    }
    if bench is not None:
        if recording.ask is None:
            raise UserError(
                f"What answer {recording.message} answers is not in the file; export the whole conversation."
            )
        result = rerun(bench, recording.ask, recording)
        answer["again"] = {"same": result.same, "compared": result.compared, "sentence": result.sentence}
        if result.difference is not None:
            answer["again"]["step"] = result.difference.step
    return answer


def as_text(result: dict[str, Any]) -> str:
    """Each answer with its steps in a line each, and what came of giving it again."""
    lines = []
    for answer in result["answers"]:
        who = ", ".join(answer["models"]) or "built-in reasoner"
        lines.append(
            f"Answer {answer['answer']} by {who}: {cut(answer['question'] or 'question not in the file', 100)}"
        )
        lines += [f"  {number:>3}  {_line(step)}" for number, step in enumerate(answer["steps"], 1)]
        if "again" in answer:
            lines.append(f"  {answer['again']['sentence']}")
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
