"""`asap propose`: three ranked configurations for the run of a profile."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from diagnosis.analyzer import diagnose
from experiments.ingest import read_profile
from perfmodel.config_file import read_config
from proposals.proposer import propose


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("propose", help="three ranked configurations: mesh, predicted step, reasons")
    parser.add_argument(
        "profiles",
        nargs="+",
        metavar="PROFILE",
        help="*.xplane.pb[.gz] (one per host), a zip or tar.gz of a log directory, or XProf's JSON exports",
    )
    parser.add_argument("--config", required=True, help="the run's configuration, JSON or YAML")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """The contract's object.  Raises ConfigError or IngestError with the sentence to print."""
    config, warnings = read_config(Path(args.config))
    profile = read_profile(args.profiles)
    diagnosis = diagnose(profile, config)
    answer = propose(profile, config, diagnosis).to_json(diagnosis)
    answer["warnings"] = list(warnings)
    return answer


def as_text(result: dict[str, Any]) -> str:
    """The verdict, then each proposal with its numbers and reasons."""
    verdict = result["diagnosis"]["bottleneck"]
    lines = [f"Bound by {verdict['primary']}: {verdict['statement']}"]
    for item in result["proposals"]:
        mesh = " ".join(f"{axis}={size}" for axis, size in item["mesh"]["ici"].items())
        lines += ["", f"{item['rank']}. {item['title']} ({item['kind']})", f"   mesh {mesh}"]
        if item["changes"]:
            lines.append("   changes " + ", ".join(f"{key}={value}" for key, value in item["changes"].items()))
        lines.append(f"   confidence {item['confidence']:.0%} that the step gets faster")
        lines += [f"   {text}" for text in (item["reasoning"], *item["expected_impact"])]
        lines += [f"   - {text}" for text in item["trade_offs"]]
        lines += [f"   [{c['source']} {c['section']}] {c['title']}" for c in item["citations"]]
    listed = len(result["rejected"])
    lines += ["", f"{result['considered']} meshes considered, {listed} rejected ones listed with --json."]
    lines += [f"Note: {text}" for text in result["warnings"]]
    return "\n".join(lines)
