"""`asap compare`: two profiles set side by side."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from asapweb.cli.arguments import PROFILE_FILES, positive
from diagnosis.analyzer import diagnose
from diagnosis.compare import compare
from diagnosis.compare.words import term_words
from experiments.ingest import read_profile
from formatting import plain, with_sign
from perfmodel.config_file import read_config


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("compare", help="compare two profiles: what got faster or slower, and why")
    parser.add_argument("profiles", nargs="+", metavar="PROFILE", help=f"the first profile: {PROFILE_FILES}")
    parser.add_argument("--config", help="configuration of the first run, JSON or YAML")
    parser.add_argument("--with", dest="other", nargs="+", required=True, metavar="PROFILE", help="the second profile")
    parser.add_argument("--config-b", help="configuration of the second run (default: that of --config)")
    parser.add_argument(
        "--top", type=positive, default=20, metavar="N", help="ops to list by change, largest first (default 20)"
    )


def run(args: argparse.Namespace) -> dict[str, Any]:
    """`Comparison.to_json`, with warnings.  Raises ConfigError or IngestError with the sentence to print."""
    sides, warnings = [], []
    paths = args.config, args.config_b or args.config
    configs = [read_config(Path(path)) if path else (None, []) for path in paths]
    for files, (config, said) in zip((args.profiles, args.other), configs, strict=True):
        profile = read_profile(files)
        sides.append((config, diagnose(profile, config)))
        warnings += said
    answer = compare(sides[0], sides[1]).to_json(top=args.top)
    answer["warnings"] = list(dict.fromkeys(warnings))
    return answer


def as_text(result: dict[str, Any]) -> str:
    """Comparability, statement, what differs in the configuration, KPIs, breakdown, ops."""
    fit = result["comparability"]
    words = {True: "The runs are comparable.", False: "The runs have different workloads.", None: "Unknown."}
    lines = [" ".join(filter(None, (words[fit["comparable"]], *fit["reasons"], fit["allowed"]))), ""]
    lines += [*result["statement"], ""]
    unit = "share" if fit["basis"] == "share" else "s"
    if result["configuration"]:
        lines.append("Configuration")
        lines += [f"  {row['field']}: {row['before']} → {row['after']}" for row in result["configuration"]]
        lines.append("")
    lines.append("KPIs")
    for row in result["kpis"]:
        kind = {"s_per_token": "s", "tokens_per_s": "count"}.get(row["unit"], row["unit"])
        lines.append(f"  {row['key']}: {_cell(row['before'], kind)} → {_cell(row['after'], kind)}")
    lines += ["", "Breakdown"]
    for row in result["breakdown"]:
        lines.append(f"  {term_words(row['term'])}: {_pair(row, unit)}")
    lines += ["", "Ops by change in time"]
    for row in result["ops"]:
        lines.append(f"  {row['label']} ({row['category']}): {_pair(row, unit)}")
    if result["ops_total"] > len(result["ops"]):
        lines.append(f"  … and {result['ops_total'] - len(result['ops'])} more (--top)")
    lines += [f"Note: {text}" for text in result["warnings"]]
    return "\n".join(lines)


def _cell(value: float | None, unit: str) -> str:
    return "not measured" if value is None else plain(value, unit)


def _pair(row: dict[str, Any], unit: str) -> str:
    was, now = ("none" if row[key] is None else plain(row[key], unit) for key in ("before", "after"))
    return f"{was} → {now} ({with_sign(row['change'], plain(row['change'], unit))})"
