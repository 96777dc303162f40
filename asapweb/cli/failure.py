"""`asap failure`: the cause of a failed run, from its log."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import formatting
from asapweb.user_error import UserError
from perfmodel.config_file import read_config
from proposals.failures import CAUSES, read_failure


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("failure", help="find the cause in the log of a failed run")
    parser.add_argument(
        "logs", nargs="+", metavar="LOG", help="log of one or all ranks; may be several files of one run"
    )
    parser.add_argument("--config", help="the run's configuration, JSON or YAML: identifies the responsible parameters")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """`Failure.to_json`.  Raises ConfigError or UserError with the sentence to print."""
    config, _ = read_config(Path(args.config)) if args.config else (None, [])
    with ExitStack() as opened:
        logs = []
        for name in args.logs:
            try:
                logs.append((Path(name).name, opened.enter_context(Path(name).open("rb"))))
            except (OSError, ValueError) as error:
                why = getattr(error, "strerror", None) or "it is not a file"
                raise UserError(f"Cannot read the log {name[:80]}: {why}.") from error
        return read_failure(logs, config).to_json()


def as_text(result: dict[str, Any]) -> str:
    """Cause, sentence, the line, and what to do."""
    confidence = formatting.probability(result["confidence"])
    lines = [f"{CAUSES[result['cause']]} (confidence {confidence}): {result['verdict']}", result["sentence"]]
    if result["line"]:
        place = f"{result['file']}, line {result['line_number']:,}"
        rank = f", rank {result['rank']}" if result["rank"] is not None else ""
        lines += ["", f"{place} of {result['lines']:,}{rank}:", f"  {result['line']}"]
    elif result["last"]:
        lines += ["", "The last lines:", *(f"  {line}" for line in result["last"])]
    if result["parameters"]:
        lines += ["", f"Responsible: {', '.join(result['parameters'])}"]
    if result["forbidden"]:
        lines.append(result["forbidden"]["sentence"])
    return "\n".join([*lines, "", "What to check", *(f"  {line}" for line in result["check"])])
