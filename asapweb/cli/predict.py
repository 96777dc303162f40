"""`asap predict`: step time, memory and legality of configurations."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from asapweb.user_error import PartialResult
from perfmodel.config import ConfigError
from perfmodel.config_file import parse_mesh_argument, read_config
from perfmodel.price import Evidence, answer, baseline_of


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("predict", help="predict step time, memory and legality of a configuration")
    parser.add_argument("configs", nargs="+", metavar="CONFIG", help="configuration file, JSON or YAML")
    parser.add_argument("--mesh", help="replaces its mesh, e.g. data=8,seq=16,model=2 (across slices: dcn.data=2)")
    parser.add_argument(
        "--from",
        dest="baseline",
        metavar="BASELINE",
        help="a configuration with `measured: {step_time_s: …}`, to calibrate the predictions",
    )


def run(args: argparse.Namespace) -> dict[str, Any] | PartialResult:
    """Return the contract's object, for several files a list of those that can be read, each with its `file`.

    Raises ConfigError where the only file or the baseline is wrong.
    """
    baseline = _baseline(args.baseline) if args.baseline else None
    if len(args.configs) == 1:
        return _one(args.configs[0], args.mesh, baseline)
    results, complaints = [], []
    for path in args.configs:
        try:
            results.append({"file": path, **_one(path, args.mesh, baseline)})
        except ConfigError as error:
            complaints.append(f"{Path(path).name[:80]}: {error}")
    return PartialResult(results or None, tuple(complaints))


def _baseline(path: str) -> Evidence:
    """The baseline, named by its file where it has no name.  Raises ConfigError that names the file."""
    config, _ = read_config(Path(path))
    try:
        return baseline_of(config if config.name else replace(config, name=Path(path).name))
    except ConfigError as error:
        raise ConfigError("", f"--from {Path(path).name[:60]}: {error}") from None


def _one(path: str, mesh: str | None, baseline: Evidence | None) -> dict[str, Any]:
    given, warnings = read_config(Path(path))
    return answer(given, parse_mesh_argument(mesh, given.mesh.axis_roles) if mesh else None, baseline, warnings)
