"""`asap record`: record a profile of a small sharded training step on this machine."""

from __future__ import annotations

import argparse
from dataclasses import fields
from pathlib import Path
from typing import Any

from experiments.record.spec import PLATFORMS, RecordSpec, parse_mesh

_SIZES = {
    "layers": "transformer layers",
    "d_model": "model width",
    "d_ff": "feed-forward width",
    "heads": "query heads",
    "kv_heads": "key and value heads",
    "head_dim": "width of one head",
    "vocab": "vocabulary",
    "batch": "sequences per step",
    "seq_len": "tokens per sequence",
    "steps": "steps to record, after two warm-up steps",
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
        "--platform", choices=PLATFORMS, default="cpu",
        help="cpu emulates as many devices as the mesh needs; tpu and gpu use the devices present",
    )  # fmt: skip
    defaults = {field.name: field.default for field in fields(RecordSpec)}
    for name, purpose in _SIZES.items():
        option = "--" + name.replace("_", "-")
        parser.add_argument(option, type=int, default=defaults[name], help=f"{purpose} (default {defaults[name]})")


def run(args: argparse.Namespace) -> dict[str, Any]:
    from experiments.record.recorder import record

    sizes = {name: getattr(args, name) for name in _SIZES}
    spec = RecordSpec(mesh=parse_mesh(args.mesh), platform=args.platform, **sizes)
    recording = record(spec, args.out)
    return {
        "folder": str(recording.folder),
        "profiles": [str(path) for path in recording.profiles],
        "config": str(recording.config),
        "step_times_s": list(recording.step_times_s),
        "losses": list(recording.losses),
    }
