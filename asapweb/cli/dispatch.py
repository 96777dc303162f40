"""Chooses the subcommand, runs it, prints its result and turns errors into exit statuses."""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NoReturn
from unicodedata import category

from asapweb.user_error import PartialResult, UserError

COMMANDS = {
    "run": "start the web application with its database, broker and worker",
    "backup": "write database and files to a new folder, while the application runs",
    "restore": "restore a backup into an empty data folder and database",
    "predict": "predict step time and memory of a configuration",
    "search": "search the best meshes for a configuration",
    "diagnose": "diagnose a profile",
    "compare": "compare two profiles",
    "propose": "propose three ranked sharding configurations",
    "ask": "ask about a configuration or a profile",
    "campaign": "tune a configuration trial by trial, each chosen by expected improvement",
    "compile": "compile the training step for the real topology: does it fit, and which collectives does it run",
    "failure": "find the cause in the log of a failed run",
    "mcp": "serve runs, tools, history and knowledge to other agents (Model Context Protocol)",
    "trial": "run the reference step of a configuration on this machine, time it and record a profile",
    "report": "report step times, log, failure and profile of a launch (the one-file asap_report.py)",
    "record": "record a profile of a small sharded training step on this machine",
}

#: Categories of signs: control, format, half of a pair, ends of lines and paragraphs.
_UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
#: Errors of the packages below whose text is a sentence for the user.
USER_ERRORS = (
    ("asapweb.user_error", "UserError"),
    ("perfmodel.config", "ConfigError"),
    ("experiments.ingest.errors", "IngestError"),
    ("experiments.trial.process", "RecordError"),
)


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaints are one line."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} (see: {self.prog} --help)")


def dispatch(arguments: list[str]) -> int:
    try:
        return _run(arguments)
    except UserError as error:
        return _complain(str(error))
    except BrokenPipeError:
        # Whoever reads us has enough; keep Python from complaining once more when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130


def _run(arguments: list[str]) -> int:
    name = next((argument for argument in arguments if not argument.startswith("-")), None)
    parser = Parser(prog="asap", description="Diagnose LLM training profiles and propose sharding configurations.")
    subparsers = parser.add_subparsers(dest="command", metavar="command", required=True, parser_class=Parser)
    module = None
    if name in COMMANDS and find_spec(f"asapweb.cli.{name}") is not None:
        module = import_module(f"asapweb.cli.{name}")
        module.add_parser(subparsers)
        chosen = subparsers.choices[name]
        if not any(action.dest == "json" for action in chosen._actions):
            chosen.add_argument("--json", action="store_true", help="print the result as JSON")
    else:
        for command, purpose in COMMANDS.items():
            if find_spec(f"asapweb.cli.{command}") is not None:
                subparsers.add_parser(command, help=purpose)
    parsed = parser.parse_args(arguments)
    assert module is not None  # argparse refused every other name
    try:
        result = module.run(parsed)
    except Exception as error:
        if _is_user_error(error):
            return _complain(str(error))
        raise
    complaints: tuple[str, ...] = ()
    if isinstance(result, PartialResult):
        result, complaints = result.result, result.complaints
    if result is not None:
        _print(module, result, as_json=parsed.json)
    for sentence in complaints:
        _complain(sentence)
    return 2 if complaints else 0


def _print(module: Any, result: Any, *, as_json: bool) -> None:
    if as_json:
        indent = None if getattr(module, "JSON_ON_ONE_LINE", False) else 2
        text = json.dumps(_finite(result), indent=indent, ensure_ascii=False, allow_nan=False)
    elif hasattr(module, "as_text"):
        text = module.as_text(result)
    else:
        text = _as_yaml(result)
    if not as_json:
        text = _seen(text)
    sys.stdout.write(text.rstrip("\n") + "\n")
    sys.stdout.flush()


def _as_yaml(result: Any) -> str:
    """Return any JSON-able value as text for a terminal; a command with better words brings `as_text` itself."""
    import yaml

    width = shutil.get_terminal_size((120, 24)).columns
    return yaml.safe_dump(_brief(result), sort_keys=False, allow_unicode=True, width=width, default_flow_style=None)


def _brief(value: Any, row: bool = False) -> Any:
    """Numbers to four digits; in the rows of a list, lists as words, so that each row fits one line."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: _brief(item, row) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) if row else [_brief(item, row=True) for item in value]
    return value


def _finite(value: Any) -> Any:
    """JSON knows no NaN and no infinity: what has no finite value is null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def _seen(text: str) -> str:
    """Without control sequences and bidirectional marks: names come from files of others."""
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "".join(sign if sign in "\n\t" or category(sign) not in _UNSEEN else "\ufffd" for sign in text)


def _is_user_error(error: Exception) -> bool:
    """Whether the user can mend it.  A class that was never imported cannot be the one that was raised."""
    known = (getattr(sys.modules.get(module), name, None) for module, name in USER_ERRORS)
    return isinstance(error, tuple(kind for kind in known if kind is not None))


def _complain(message: str) -> int:
    line = " ".join(_seen(message).split())
    sys.stderr.write((line if len(line) <= 300 else line[:299] + "…") + "\n")
    return 2
