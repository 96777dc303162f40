"""Trials on the devices of this machine: a subprocess that runs `asap trial`, its log read and its result taken."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import IO, Any

from campaigns.backends.backend import Outcome, Stop, Stopped
from jobs import child
from jobs.child_environment import DEVICES, JAX, PYTHON, SYSTEM, environment
from perfmodel.config import ExperimentConfig
from perfmodel.config_file import config_to_json

#: How often a running trial looks whether it is to end, and how long it may take to do so.
LOOKS_EVERY_S, GRACE_S = 1.0, 10.0
#: Bytes of the log that are kept: the last ones, after the beginning, where the first error may be.
KEPT_HEAD, KEPT_TAIL = 48_000, 16_000
#: Wall time of one trial.
MOST_S = 3_600.0


@dataclass(frozen=True)
class Local:
    """command: runs a trial of the configuration file that is appended to it."""

    command: tuple[str, ...] = (
        sys.executable,
        "-c",
        "from asapweb.cli import main; raise SystemExit(main())",
        "trial",
        "--json",
    )
    most_s: float = MOST_S

    def measure(self, config: ExperimentConfig, stop: Stop) -> Outcome:
        with tempfile.TemporaryDirectory(prefix="asap-trial-") as folder, (Path(folder) / "log").open("w+b") as log:
            file = Path(folder) / "config.json"
            file.write_text(json.dumps(config_to_json(config)), encoding="utf-8")
            with (Path(folder) / "result").open("w+b") as result:
                process = child.launch(
                    [*self.command, str(file)], environment(SYSTEM, PYTHON, DEVICES, JAX),
                    folder=Path(folder), stdout=result, stderr=log, own_session=False,
                )  # fmt: skip
                timed_out = self._wait(process, stop)
                result.seek(0)
                said = _last_object(result.read())
            text = _ends(log)
        if timed_out:
            return Outcome(log=f"{text}\nTimed out: the trial did not end within {self.most_s:g} seconds.")
        if said is None:
            return Outcome(log=text or f"The trial ended with status {process.returncode} and wrote nothing.")
        return _outcome(said, text)

    def _wait(self, process: child.Process, stop: Stop) -> bool:
        """True where it took too long."""
        end = time.monotonic() + self.most_s
        try:
            while process.poll() is None:
                if stop():
                    raise Stopped
                if time.monotonic() > end:
                    return True
                try:
                    process.wait(LOOKS_EVERY_S)
                except child.TimeoutExpired:
                    continue
            return False
        finally:
            _end(process)


def _end(process: child.Process) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(GRACE_S)
        except child.TimeoutExpired:
            process.kill()
            process.wait()


def _last_object(raw: bytes) -> dict[str, Any] | None:
    for line in reversed(raw.decode("utf-8", "replace").splitlines()):
        try:
            parsed = json.loads(line)
        except ValueError:
            continue
        if isinstance(parsed, dict):
            return parsed
    try:
        whole = json.loads(raw)
    except ValueError:
        return None
    return whole if isinstance(whole, dict) else None


def _outcome(said: dict[str, Any], log: str) -> Outcome:
    times = said.get("step_times_s") or []
    good = isinstance(times, list) and all(isinstance(t, int | float) and isfinite(t) and t > 0 for t in times)
    peak = said.get("peak_memory_bytes")
    failure = said.get("failure")
    # The first of them warm up.
    warm_up = said.get("warm_up", 0)
    times = times[warm_up:] if good and isinstance(warm_up, int) else times
    if failure or not good or not times:
        text = failure if isinstance(failure, str) else json.dumps(failure) if failure else ""
        return Outcome(log="\n".join(part for part in (log, text) if part) or "The trial reported no step times.")
    return Outcome(tuple(map(float, times)), float(peak) if isinstance(peak, int | float) else None, log)


def _ends(log: IO[bytes]) -> str:
    size = log.seek(0, 2)
    log.seek(0)
    if size <= KEPT_HEAD + KEPT_TAIL:
        return log.read().decode("utf-8", "replace")
    head = log.read(KEPT_HEAD)
    log.seek(size - KEPT_TAIL)
    return f"{head.decode('utf-8', 'replace')}\n…\n{log.read().decode('utf-8', 'replace')}"
