"""`asap ask`: a question of the dialogue over a configuration alone, or a profile, by the built-in reasoner."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from agent.events import Final, ToolCalled
from experiments.ingest import read_profile
from perfmodel.config_file import read_config
from proposals.agents import reasoner
from proposals.agents.conversation import Ask, ConstraintStated, FactStated, MeshOffered, Question
from proposals.agents.workbench import Workbench
from proposals.proposer.from_step_time import start


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("ask", help="ask about a configuration or a profile")
    parser.add_argument("question", help="for example: 'does it fit with remat none?'")
    parser.add_argument("--config", required=True, help="the run's configuration, JSON or YAML")
    parser.add_argument(
        "--profile",
        action="append",
        default=[],
        metavar="PROFILE",
        help="in a format of `asap diagnose`; repeat for several files. Without a profile, answers are based on the "
        "configuration's measured step time, or on the performance model alone",
    )


def run(args: argparse.Namespace) -> dict[str, Any]:
    """answer: Markdown; offered: questions that can be answered instead; stated: facts and constraints that the
    question gives; meshes: configurations that were priced; tools: by name.  Raises ConfigError or IngestError."""
    config, warnings = read_config(Path(args.config))
    profile = read_profile(args.profile) if args.profile else start(config)
    events = list(reasoner.answer(Workbench.of_values(profile, config), Ask(args.question)))
    stated: dict[str, Any] = {}
    for event in events:
        if isinstance(event, ConstraintStated):
            stated |= event.constraint
        elif isinstance(event, FactStated):
            stated[event.path] = event.value
    return {
        "question": args.question,
        "answer": next((str(event.answer) for event in reversed(events) if isinstance(event, Final)), ""),
        "offered": [option for event in events if isinstance(event, Question) for option in event.options],
        "stated": stated,
        "meshes": [
            {"mesh": event.mesh, "changes": event.changes} for event in events if isinstance(event, MeshOffered)
        ],
        "tools": [event.call.name for event in events if isinstance(event, ToolCalled)],
        "warnings": list(warnings),
    }


def as_text(result: dict[str, Any]) -> str:
    """The answer, then what can be asked instead."""
    return "\n".join([result["answer"].strip(), *(f"  asap ask “{text}”" for text in result["offered"])])
