"""`asap search`: search the best meshes for a configuration."""

from __future__ import annotations

import argparse
from itertools import product
from pathlib import Path
from typing import Any

from asapweb.user_error import UserError
from formatting import plain, span
from formatting.numbers import whole_number
from perfmodel.config import ConfigError, mesh_text
from perfmodel.config_file import read_config
from perfmodel.search import search
from perfmodel.space import SearchBounds


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("search", help="search the best meshes for a configuration")
    parser.add_argument("config", metavar="CONFIG", help="configuration file, JSON or YAML")
    parser.add_argument("--top", default="10", metavar="N", help="how many candidates to list (default 10)")
    parser.add_argument(
        "--axes", metavar="A,B,…", help="mesh axes to use, major to minor (default: those of the file and more)"
    )
    parser.add_argument("--remat", metavar="R,…", help="remat policies to try (default: the file's)")
    parser.add_argument("--batch", metavar="N,…", help="global batches to try, in sequences (default: the file's)")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """The contract's object.  Raises ConfigError or UserError."""
    config, warnings = read_config(Path(args.config))
    remats, batches = _remats(args.remat), [_whole("--batch", n) for n in _words(args.batch) or ()]
    tried = {key: values for key, values in (("global_batch", batches), ("remat", remats)) if values}
    changes = tuple(dict(zip(tried, values, strict=True)) for values in product(*tried.values()))
    result = search(config, _whole("--top", args.top), SearchBounds(axes=_words(args.axes), changes=changes))
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


def _words(text: str | None) -> tuple[str, ...] | None:
    return tuple(word.strip() for word in text.split(",") if word.strip()) if text else None


def _remats(text: str | None) -> tuple[str, ...] | None:
    from perfmodel.workload import REMAT

    names = _words(text)
    for name in names or ():
        if name not in REMAT:
            raise ConfigError("--remat", f"{name[:40]!r} is not one of {' '.join(REMAT)}")
    return names


def _whole(option: str, text: str) -> int:
    if not (number := whole_number(text, digits=9)):
        raise UserError(f"{option} must be a whole number of at least 1, not {text[:40]!r}")
    return number
