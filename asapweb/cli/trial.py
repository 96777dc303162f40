"""`asap trial`: run the reference step of a configuration on this machine, time it, and record a profile."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from statistics import median
from typing import Any

from asapweb.user_error import UserError
from formatting import counted, plain, span
from perfmodel.config_file import read_config

#: A launch reads the result out of its log.
JSON_ON_ONE_LINE = True


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "trial",
        help="run the reference step of a configuration on this machine",
        description="Runs the reference step (docs/compile-check.md) as configured on the available devices, times "
        "its steps after warm-up and records a profile.",
    )
    parser.add_argument("config", metavar="CONFIG", help="configuration file, JSON or YAML")
    parser.add_argument("--steps", type=int, default=20, help="steps to time (default 20)")
    parser.add_argument("--warm-up", type=int, default=2, help="warm-up steps before them, also timed (default 2)")
    parser.add_argument(
        "--platform", choices=("cpu", "gpu", "tpu"), default="cpu",
        help="cpu (default) emulates as many devices as the mesh needs; gpu and tpu use the devices present",
    )  # fmt: skip
    parser.add_argument("--profile", type=Path, metavar="FOLDER", help="record a profile into this new folder")
    parser.add_argument(
        "--upload", action="store_true",
        help="upload the profile with its configuration to $ASAP_URL, with the API token in $ASAP_TOKEN",
    )  # fmt: skip


def run(args: argparse.Namespace) -> dict[str, Any]:
    """`Trial.to_json`, and `uploaded`: the address of the experiment.  Raises ConfigError, RecordError or UserError."""
    from experiments.trial import runner

    if not (1 <= args.steps <= 10_000 and 0 <= args.warm_up <= 1000):
        raise UserError("--steps must be from 1 to 10000 and --warm-up from 0 to 1000.")
    if args.upload and args.profile is None:
        raise UserError("--upload needs a profile: name a new folder with --profile.")
    config, _ = read_config(Path(args.config))
    done = runner.run(config, steps=args.steps, warm_up=args.warm_up, platform=args.platform, folder=args.profile)
    uploaded = _upload(done.profile) if args.upload and done.profile is not None else None
    return done.to_json() | ({"uploaded": uploaded} if args.upload else {})


def _upload(folder: Path) -> str:
    """Address of the experiment that was made of the profile."""
    import httpx

    address, token = os.environ.get("ASAP_URL", "").rstrip("/"), os.environ.get("ASAP_TOKEN", "")
    if not address or not token:
        raise UserError("--upload needs ASAP_URL, the address of ASAP Web, and ASAP_TOKEN, an API token.")
    files = [("files", (path.name, path.read_bytes())) for path in sorted(folder.glob("plugins/profile/*/*.xplane.pb"))]
    config = (folder / "config.json").read_text()
    try:
        answer = httpx.post(
            f"{address}/api/experiments/", files=files, data={"config": config},
            headers={"Authorization": f"Token {token}"}, timeout=300,
        )  # fmt: skip
    except httpx.HTTPError as error:
        raise UserError(f"{address} cannot be reached ({error}); the profile is in {folder}.") from error
    if answer.status_code != 201:
        said = answer.json().get("detail", "") if "json" in answer.headers.get("content-type", "") else ""
        raise UserError(f"{address} rejected the profile ({answer.status_code}): {said}")
    return f"{address}/experiments/{answer.json()['id']}/"


def as_text(result: dict[str, Any]) -> str:
    """The devices, the median step time, and the peak memory."""
    lines = [f"Reference step on {result['devices']}"]
    lines += [f"  {note}" for note in result["notes"]]
    if result["failure"]:
        return "\n".join([*lines, f"Failed: {result['failure']}"])
    kept = result["step_times_s"][result["warm_up"] :]
    within = span(min(kept), max(kept), "s")
    lines.append(f"Step time: median {plain(median(kept), 's')} of {counted(len(kept), 'step')} ({within})")
    if result["peak_memory_bytes"]:
        lines.append(f"Peak memory: {plain(result['peak_memory_bytes'], 'bytes')}, {result['peak_memory_source']}")
    if result["profile"]:
        lines.append(f"Profile: {result['profile']}")
    if result.get("uploaded"):
        lines.append(f"Uploaded: {result['uploaded']}")
    return "\n".join(lines)
