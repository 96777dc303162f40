"""`asap predict`: step time, memory and legality of configurations."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from perfmodel.config_file import parse_mesh_argument, read_config, with_mesh
from perfmodel.step_time import predict


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("predict", help="step time, memory and legality of a configuration")
    parser.add_argument("configs", nargs="+", metavar="CONFIG", help="configuration file, JSON or YAML")
    parser.add_argument("--mesh", help="another mesh for it, e.g. data=8,seq=16,model=2 (across slices: dcn.data=2)")


def run(args: argparse.Namespace) -> dict[str, Any] | list[dict[str, Any]]:
    """The contract's object, or a list of them for several files.  Raises ConfigError."""
    results = [_one(path, args.mesh) for path in args.configs]
    return results[0] if len(results) == 1 else results


def _one(path: str, mesh: str | None) -> dict[str, Any]:
    config, warnings = read_config(Path(path))
    if mesh:
        config = with_mesh(config, parse_mesh_argument(mesh, config.mesh.axis_roles))
    prediction = predict(config)
    prediction = replace(prediction, warnings=(*warnings, *prediction.warnings))
    return {"name": config.name, "mesh": config.mesh.to_json(), **prediction.to_json()}
