"""`asap diagnose`: why the step of a profile takes the time it takes."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import formatting
from asapweb.cli.arguments import PROFILE_FILES, positive
from diagnosis.recording import KINDS, PROGRAMS
from experiments.ingest import read_profile


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("diagnose", help="diagnose a profile: bottleneck, findings, evidence")
    parser.add_argument("profiles", nargs="+", metavar="PROFILE", help=PROFILE_FILES)
    parser.add_argument("--config", help="the run's configuration, JSON or YAML: gives mesh-axis names and MFU")
    parser.add_argument("--kind", choices=list(KINDS), default="", help="state the kind of recording")
    parser.add_argument("--program", choices=list(PROGRAMS), default="", help="state the kind of program")
    parser.add_argument("--top", type=positive, default=20, metavar="N", help="ops to list, largest first (default 20)")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """The contract's object.  Raises ConfigError or IngestError with the sentence to print."""
    loaded: list[Any] = []
    # What reads the profile is another process: this one loads what diagnoses it as long as that one starts.
    profile = read_profile(args.profiles, meanwhile=lambda: loaded.extend(_load(args.config)))
    diagnose, print_contradictions, config, warnings = loaded
    profile = replace(profile, recorded=replace(profile.recorded, kind=args.kind, program=args.program))
    answer = diagnose(profile, config).to_json(top=args.top)
    answer["warnings"] = [*answer.get("warnings", ()), *warnings]
    against = print_contradictions(profile, config, args.config)
    answer["contradictions"] = [item.to_json() for item in against]
    answer["profile"] = {
        "provenance": profile.provenance,
        "label": profile.label,
        "device": profile.device.kind,
        "cores": profile.device.core_count,
        "hosts": profile.device.host_count,
        "files": [file.name for file in profile.files],
    }
    return answer


def _load(config: str | None) -> tuple[Any, ...]:
    """Return `diagnose`, `print_contradictions`, the configuration and its warnings.  Raises ConfigError."""
    from asapweb.cli.contradictions import print_contradictions
    from diagnosis.analyzer import diagnose
    from perfmodel.config_file import read_config

    return diagnose, print_contradictions, *(read_config(Path(config)) if config else (None, []))


def as_text(result: dict[str, Any]) -> str:
    """The report in its four sections, then the findings with what to do."""
    verdict = result["bottleneck"]
    lines = [
        f"Recorded: {result['recording']['line']}",
        f"Bound by {verdict['primary']} (confidence {formatting.probability(verdict['confidence'])})",
        verdict["statement"],
        "",
    ]
    for heading, sentences in result["report"].items():
        lines += [heading, *(f"  {sentence}" for sentence in sentences), ""]
    lines.append("Findings")
    for number, finding in enumerate(result["findings"], start=1):
        lines += [f"  {number}. {finding['title']}", f"     {finding['action']}"]
        lines.append(f"     {finding['impact']}")
    for warning in result["warnings"]:
        lines.append(f"Note: {warning}")
    return "\n".join(lines)
