"""The reference step in a process of its own, where JAX finds the platform and as many devices as are asked for."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from jobs import child
from jobs.child_environment import DEVICES, JAX, PYTHON, SYSTEM, environment

_ROOT = Path(__file__).resolve().parents[2]
WORKER = ("-m", "experiments.trial.worker")
CONFIG_NAME = "config.json"


class RecordError(ValueError):
    """What the user asked for cannot be run or recorded here; one sentence that says why and what to do."""

    is_user_error = True


def empty_folder(folder: Path) -> None:
    """Make the folder of a recording.  Raises RecordError where it cannot be made, or holds files."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecordError(f"{folder} cannot be written ({error.strerror}); choose another folder.") from error
    if any(folder.iterdir()):
        raise RecordError(f"{folder} is not empty; name a new folder, so that no older profile is mixed in.")


def python(arguments: list[str], platform: str, devices: int, timeout_s: float, too_long: str) -> child.Done[str]:
    """Run Python with JAX on a platform; of the CPU it gets so many devices.

    Raises RecordError with the sentence `too_long` where the time is up.
    """
    variables = environment(
        SYSTEM, PYTHON, DEVICES, JAX, values={"JAX_PLATFORMS": {"gpu": "cuda,rocm"}.get(platform, platform)}
    )
    if platform == "cpu":
        flags = [f for f in variables.get("XLA_FLAGS", "").split() if "xla_force_host_platform_device_count" not in f]
        variables["XLA_FLAGS"] = " ".join([*flags, f"--xla_force_host_platform_device_count={devices}"])
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, [str(_ROOT), variables.get("PYTHONPATH", "")]))
    try:
        return child.run_text([sys.executable, *arguments], variables, timeout_s=timeout_s)
    except child.TimeoutExpired as error:
        raise RecordError(too_long) from error


def said(done: child.Done[str]) -> dict[str, Any] | None:
    """The object that it printed last; None where it failed or printed none."""
    lines = done.stdout.strip().splitlines()
    try:
        parsed = json.loads(lines[-1]) if lines and not done.returncode else None
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) else None


def keep_profile(folder: Path, config: dict[str, Any]) -> None:
    """Leave the profiles of a recording with its configuration, ready to upload."""
    for trace in folder.glob("plugins/profile/*/*.trace.json.gz"):
        trace.unlink()  # a second copy of the same events, for the trace viewer only
    (folder / CONFIG_NAME).write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n")
