"""`asap compile`: compile the training step of a configuration for its topology, without the hardware."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from asapweb.user_error import UserError
from perfmodel.config_file import parse_mesh_argument, read_config, with_mesh
from proposals.compiling import engine, predicted
from proposals.compiling.cache import Cache


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "compile",
        help="compile the training step for the real topology: does it fit, and which collectives does it run",
        description="Compiles the reference step (or yours) for the chips, mesh, batch, remat and weight sharding of a "
        "configuration. For TPUs it needs the libtpu compiler (`bin/bootstrap tpu` shows its terms), but no TPU.",
    )
    parser.add_argument("config", metavar="CONFIG", help="configuration file, JSON or YAML")
    parser.add_argument("--mesh", help="replaces its mesh, e.g. data=8,seq=16,model=2 (across slices: dcn.data=2)")
    parser.add_argument(
        "--step", metavar="MODULE:FUNCTION",
        help="your own step: a function (config, mesh) that returns the jitted step and its abstract arguments",
    )  # fmt: skip
    parser.add_argument(
        "--effort", choices=engine.EFFORTS, default="quick",
        help="compiler effort tried first; quick overestimates the peak memory, default takes four times as long",
    )  # fmt: skip
    parser.add_argument("--top", type=int, default=10, metavar="N", help="collectives to list (default 10)")
    parser.add_argument("--hlo", type=Path, metavar="FILE", help="write the compiled program (scheduled HLO) as text")
    parser.add_argument("--no-cache", action="store_true", help="compile even if the result is cached")


def run(args: argparse.Namespace) -> dict[str, Any]:
    if args.step is not None and not all(args.step.partition(":")):
        raise UserError(f"--step: {args.step!r} is not of the form MODULE:FUNCTION, such as train:make_step.")
    if args.hlo is not None and not args.hlo.absolute().parent.is_dir():
        raise UserError(f"--hlo: no such folder: {args.hlo.absolute().parent}.")
    config, _ = read_config(Path(args.config))
    if args.mesh:
        config = with_mesh(config, parse_mesh_argument(args.mesh, config.mesh.axis_roles))
    # A step of the user's changes without its name changing.
    cache = None if args.no_cache or args.step else Cache.of_user()
    check = engine.check(config, step=args.step, effort=args.effort, cache=cache, hlo=args.hlo, any_flags=True)
    if check.outcome == "not_installed":
        raise UserError(check.message)
    return predicted.to_json(config, check, args.top)
