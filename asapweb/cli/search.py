"""`asap search`: search the best meshes for a configuration."""

from __future__ import annotations

import argparse
from itertools import product
from pathlib import Path
from typing import Any

from asapweb.cli.arguments import positive
from formatting import plain, span
from perfmodel.config import mesh_text
from perfmodel.config_file import read_config
from perfmodel.search import search
from perfmodel.space import SearchBounds


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("search", help="search the best meshes for a configuration")
    parser.add_argument("config", metavar="CONFIG", help="configuration file, JSON or YAML")
    parser.add_argument(
        "--top", type=positive, default=10, metavar="N", help="how many candidates to list (default 10)"
    )
    parser.add_argument(
        "--axes",
        type=_words,
        metavar="A,B,…",
        help="mesh axes to use, major to minor (default: those of the file and more)",
    )
    parser.add_argument("--remat", type=_remats, metavar="R,…", help="remat policies to try (default: the file's)")
    parser.add_argument(
        "--batch", type=_batches, metavar="N,…", help="global batches to try, in sequences (default: the file's)"
    )


def run(args: argparse.Namespace) -> dict[str, Any]:
    """The contract's object.  Raises ConfigError."""
    config, warnings = read_config(Path(args.config))
    tried = {key: values for key, values in (("global_batch", args.batch), ("remat", args.remat)) if values}
    changes = tuple(dict(zip(tried, values, strict=True)) for values in product(*tried.values()))
    result = search(config, args.top, SearchBounds(axes=args.axes or None, changes=changes))
    return {"name": config.name, **result.to_json(), "warnings": warnings}


def as_text(result: dict[str, Any]) -> str:
    """One line per candidate, then how many others each rule rejects."""
    lines = [f"{result['name']}: {result['considered']:,} considered"]
    for row in result["candidates"]:
        step, used = row["step_time_s"], row["hbm_per_chip_bytes"]
        times = f"{plain(step['estimate'], 's')} ({span(step['low80'], step['high80'], 's')})"
        memory = f"{plain(used['total'], 'bytes')} of {plain(used['capacity'], 'bytes')}"
        changes = "".join(f", {key} {value}" for key, value in row["training"].items())
        mfu = "" if row["mfu"] is None else f"  MFU {plain(row['mfu'], 'share')}"
        lines.append(f"  {mesh_text(row['mesh'])}{changes}: {times}  {memory}{mfu}")
    lines += [f"Rejected by {rule}: {count:,}" for rule, count in result["rejected_by_rule"].items()]
    lines += [f"Note: {text}" for text in result["warnings"]]
    return "\n".join(lines)


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _batches(text: str) -> tuple[int, ...]:
    return tuple(map(positive, _words(text)))


def _remats(text: str) -> tuple[str, ...]:
    from perfmodel.workload import REMAT

    names = _words(text)
    if unknown := [name for name in names if name not in REMAT]:
        raise argparse.ArgumentTypeError(f"{unknown[0][:40]!r} is not one of {' '.join(REMAT)}")
    return names
