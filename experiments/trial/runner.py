"""Starts the process that runs the step, and reads what became of it: times, or the cause of its failure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from experiments.trial.process import WORKER, RecordError, empty_folder, keep_profile, python, said
from formatting import limit
from jobs import child
from perfmodel.config import ExperimentConfig
from perfmodel.config_file import config_to_json
from reference_step.step import UnsupportedStep

MOST_CPU_DEVICES = 256
WARM_UP, PROFILED = 2, 3
_TOO_LONG = "The step took longer than {}; give it fewer layers, or a smaller batch."


@dataclass(frozen=True)
class Trial:
    """step_times_s: every step that was timed, warm_up of them to be left out; without the profiler.
    peak_memory_bytes: per device, with how it is known; None where it is not.  failure: the last line of what the
    process said, None where it ran.  profile: a log directory, None where none was recorded.  profiled_times_s: of
    the steps in the profile; losses: of all steps.
    """

    config: ExperimentConfig
    step_times_s: tuple[float, ...]
    warm_up: int
    peak_memory_bytes: int | None
    peak_memory_source: str
    failure: str | None
    log: str
    profile: Path | None
    devices: str
    notes: tuple[str, ...] = ()
    profiled_times_s: tuple[float, ...] = ()
    losses: tuple[float, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "step_times_s": list(self.step_times_s),
            "warm_up": self.warm_up,
            "peak_memory_bytes": self.peak_memory_bytes,
            "peak_memory_source": self.peak_memory_source,
            "failure": self.failure,
            "profile": str(self.profile) if self.profile else None,
            "devices": self.devices,
            "notes": list(self.notes),
            "config": config_to_json(self.config),
        }


def run(
    config: ExperimentConfig,
    *,
    steps: int = 20,
    warm_up: int = WARM_UP,
    platform: str = "cpu",
    folder: Path | None = None,
    profiled: int = PROFILED,
    timeout_s: float = 3600.0,
) -> Trial:
    """Run the step of a configuration on the devices of this machine.

    platform: `cpu` makes as many CPU devices as the mesh needs.  folder: for the profile, new
    or empty; None: none is recorded.  Raises RecordError where it cannot be run here as asked.
    """
    here, needed = at_hand(platform)["devices"], _devices(config)
    if needed > here:
        kind = "forced CPU devices at most" if platform == "cpu" else f"{platform.upper()} devices here"
        raise RecordError(f"The mesh needs {needed} devices and there are {here} {kind}; choose a smaller mesh.")
    if folder is not None:
        empty_folder(folder)
    ran = config_to_json(config)
    request = {"config": ran, "warm_up": warm_up, "steps": steps,
               "profiled": profiled if folder else 0, "folder": str(folder or "")}  # fmt: skip
    command = [*WORKER, json.dumps(request)]
    done = python(command, platform, needed, timeout_s, _TOO_LONG.format(limit(timeout_s, "s")))
    seen = said(done)
    if seen is None or "error" in seen:
        failure = seen["error"] if seen else failure_of(done)
        return Trial(
            config, (), warm_up, None, "it did not finish", failure, done.stderr, None, f"{needed} {platform} devices",
        )  # fmt: skip
    if folder is not None:
        keep_profile(folder, ran)
    return Trial(
        config, tuple(seen["step_times_s"]), warm_up, seen["peak_memory_bytes"], seen["peak_memory_source"],
        None, done.stderr, folder, f"{seen['devices']} {seen['device_kind']} devices",
        tuple(seen["notes"]), tuple(seen["profiled_times_s"]), tuple(seen["losses"]),
    )  # fmt: skip


def at_hand(platform: str) -> dict[str, Any]:
    """Return the devices of a platform.  Raises RecordError.

    devices: how many; kind: of the first; coords: of each on its torus, where it has one.
    """
    if platform == "cpu":
        return {"devices": MOST_CPU_DEVICES, "kind": "cpu", "coords": []}
    code = (
        "import jax, json; d = jax.devices(); print(json.dumps({'devices': len(d), 'kind': d[0].device_kind, "
        "'coords': [list(x.coords) for x in d if hasattr(x, 'coords')]}))"
    )
    done = python(["-c", code], platform, 0, 300, _TOO_LONG.format("300 s"))
    seen = said(done)
    if seen is None:
        raise RecordError(f"There is no {platform.upper()} that JAX can use here: {failure_of(done)}"[:300])
    return seen


def _devices(config: ExperimentConfig) -> int:
    return prod(size for _, size in (*config.mesh.ici, *config.mesh.dcn))


def failure_of(done: child.Done[str]) -> str:
    """The exception, as its first line says; of a step that cannot be built its sentence alone."""
    if done.returncode < 0:
        return f"The process was ended by signal {-done.returncode}."
    lines = [line for line in done.stderr.strip().splitlines() if line.strip()]
    errors = [line for line in lines if not line.startswith(" ") and ": " in line and "Error" in line.split(":")[0]]
    named = f"{UnsupportedStep.__module__}.{UnsupportedStep.__qualname__}: "
    said = next((line for line in reversed(lines) if line.startswith(named)), "")
    if said:
        return said.removeprefix(named)
    return (errors or lines or [f"exit status {done.returncode}"])[-1][:500]
