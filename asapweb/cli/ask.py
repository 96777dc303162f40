"""`asap ask`: a question about a configuration alone, or a profile: to the language model where one is set up, else the
computations that its words lead to; a computation that is named is answered."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from agent.events import Final, Stopped
from agent.tools import ToolError
from asapweb.user_error import UserError
from dialogue import computations
from dialogue.computations.matching import Match, matches
from experiments.ingest import read_profile
from perfmodel.config_file import read_config
from proposals.agents import chat
from proposals.agents.conversation import Ask
from proposals.agents.workbench import Workbench
from proposals.proposer.observed import start

NO_MODEL = "Free text needs a language model (docs/agents.md). These computations match; name one to run it."


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("ask", help="ask about a configuration or a profile")
    parser.add_argument("question", nargs="+", help="words, settings such as 'fsdp=16 tp=4', or a computation: price")
    parser.add_argument("--config", required=True, help="the run's configuration, JSON or YAML")
    parser.add_argument(
        "--profile",
        action="extend",
        nargs="+",
        default=[],
        metavar="PROFILE",
        help="one or several files in a format of `asap diagnose`. Without a profile, answers are based on the "
        "configuration's measured step time, or on the performance model alone",
    )
    parser.add_argument("--mesh", help="argument of a computation: fsdp=16,tp=4")
    parser.add_argument("--changes", help="argument of a computation: remat=none,global_batch=128")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="another argument of it")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """answer: Markdown; computation, title, values: of a computation that was named; would_run: what else the words
    lead to, each with its command.  Raises ConfigError, IngestError or UserError."""
    config, warnings = read_config(Path(args.config))
    profile = read_profile(args.profile) if args.profile else start(config)
    bench = Workbench.of_values(profile, config)
    text = " ".join(args.question)
    given = dict(item.partition("=")[::2] for item in args.set)
    given |= {key: value for key in ("mesh", "changes") if (value := getattr(args, key))}
    result: dict[str, Any] = {"question": text, "answer": "", "warnings": list(warnings)}
    if text in computations.registry():
        return {**result, **_computed(bench, text, given)}
    if given:
        known = ", ".join(computations.registry())
        raise UserError(f"Arguments belong to a computation, and {text[:40]!r} is none of {known}"[:298])
    if chat.provider_name():
        return {**result, **_of_model(bench, text)}
    return {
        **result,
        "needs": NO_MODEL,
        "would_run": [_listed(match) for match in matches(bench, text) or _of_the_run()],
    }


def _of_the_run() -> list[Match]:
    """The questions that are asked most of a run."""
    return [Match(computations.registry()[key], {}) for key in computations.OF_RUN]


def _computed(bench: Workbench, key: str, given: dict[str, Any]) -> dict[str, Any]:
    try:
        answered = computations.run(bench, key, given)
    except ToolError as error:
        raise UserError(str(error)) from None
    return {
        "computation": key, "title": answered.title, "arguments": answered.arguments,
        "answer": answered.rendered.plain, "values": answered.values, "would_run": answered.further(),
    }  # fmt: skip


def _of_model(bench: Workbench, text: str) -> dict[str, Any]:
    events = list(chat.answer(bench, Ask(text)))
    final = next((event for event in reversed(events) if isinstance(event, Final)), None)
    if final is None:
        stopped = next((event for event in events if isinstance(event, Stopped)), None)
        raise UserError(stopped.sentence if stopped else "The model gave no answer.")
    return {"answer": str(final.answer), "model": chat.provider_name()}


def _listed(match: Match) -> dict[str, Any]:
    more = "".join(
        f" --{key} {_pairs(value)}" if key in ("mesh", "changes") else f" --set {key}={value}"
        for key, value in match.arguments.items()
    )
    row = {"key": match.computation.key, "title": match.computation.title, "arguments": match.arguments}
    return (
        {**row, "problem": match.problem}
        if match.problem
        else {**row, "command": f"asap ask {match.computation.key}{more}"}
    )


def _pairs(sizes: dict[str, Any]) -> str:
    return ",".join(f"{key}={value}" for key, value in sizes.items())


def as_text(result: dict[str, Any]) -> str:
    """The answer, then what can be run instead."""
    lines = [result["answer"].strip()] if result["answer"] else [result.get("needs", "")]
    for row in result.get("would_run", ()):
        lines.append(
            f"  {row['title']}: {row['problem']}"
            if "problem" in row
            else f"  {row.get('command', row['key'])}   {row['title']}"
        )
    return "\n".join(lines)
