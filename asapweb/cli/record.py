"""`asap record`: record a profile of a small sharded training step on this machine."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from asapweb.user_error import UserError

_SIZES = {
    "layers": "transformer layers",
    "d_model": "model width",
    "d_ff": "feed-forward width",
    "heads": "query heads",
    "kv_heads": "key and value heads",
    "head_dim": "width of one head",
    "vocab": "vocabulary",
    "global_batch": "sequences per step",
    "seq_len": "tokens per sequence",
}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "record",
        help="record a profile of a small sharded training step on this machine",
        description="Trains a small transformer on a mesh, records it with jax.profiler and writes a log directory "
        "with config.json, ready to upload.",
    )
    parser.add_argument("--out", type=Path, required=True, help="new folder for the profile and its config.json")
    parser.add_argument("--mesh", default="data=8", help="axes and sizes, major to minor (default data=8)")
    parser.add_argument(
        "--platform", choices=("cpu", "tpu", "gpu"), default="cpu",
        help="cpu emulates as many devices as the mesh needs; tpu and gpu use the devices present",
    )  # fmt: skip
    parser.add_argument("--steps", type=int, default=3, help="steps to record, after two warm-up steps (default 3)")
    for name, purpose in _SIZES.items():
        option = "--batch" if name == "global_batch" else "--" + name.replace("_", "-")
        parser.add_argument(option, type=int, dest=name, default=argparse.SUPPRESS, help=purpose)


def run(args: argparse.Namespace) -> dict[str, Any]:
    from experiments.trial.process import CONFIG_NAME
    from experiments.trial.recording import MAX_STEPS, record

    if not 1 <= args.steps <= MAX_STEPS:
        raise UserError(f"--steps must be from 1 to {MAX_STEPS}.")
    sizes = {name: size for name, size in vars(args).items() if name in _SIZES}
    done = record(args.mesh, args.out, steps=args.steps, platform=args.platform, **sizes)
    return {
        "folder": str(args.out),
        "profiles": sorted(map(str, args.out.glob("plugins/profile/*/*.xplane.pb"))),
        "config": str(args.out / CONFIG_NAME),
        "step_times_s": list(done.profiled_times_s),
        "losses": list(done.losses),
    }
