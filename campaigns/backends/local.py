"""Trials on the devices of this machine: a subprocess that runs `asap trial`, its log read and its result taken."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from campaigns.backends.backend import Outcome, Stop, Stopped
from jobs import child
from jobs.child_environment import DEVICES, JAX, PYTHON, SYSTEM, environment
from perfmodel.config import ExperimentConfig
from perfmodel.config_file import config_to_json

#: How often a running trial looks whether it is to end.
LOOKS_EVERY_S = 1.0
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
        with tempfile.TemporaryDirectory(prefix="asap-trial-") as name:
            folder = Path(name)
            (folder / "config.json").write_text(json.dumps(config_to_json(config)), encoding="utf-8")
            with (folder / "log").open("wb") as log, (folder / "result").open("wb") as result:
                # In a session of its own a trial would outlive a campaign that is killed.
                dies_with_us = ["setpriv", "--pdeathsig", "KILL", "--"] if shutil.which("setpriv") else []
                command = [*dies_with_us, *self.command, str(folder / "config.json")]
                process = child.launch(
                    command, environment(SYSTEM, PYTHON, DEVICES, JAX), folder=folder, stdout=result, stderr=log
                )
                timed_out = self._wait(process, stop)
            text, said = _ends((folder / "log").read_bytes()), {}
            with suppress(ValueError):
                said = json.loads((folder / "result").read_bytes())
        if timed_out:
            return Outcome(log=f"{text}\nTimed out: the trial did not end within {self.most_s:g} seconds.")
        if not said:
            return Outcome(log=text or f"The trial ended with status {process.returncode} and wrote nothing.")
        times = tuple(said.get("step_times_s", ())[said.get("warm_up", 0) :])
        if said.get("failure") or not times:
            parts = (text, said.get("failure"))
            return Outcome(log="\n".join(filter(None, parts)) or "The trial reported no step times.")
        return Outcome(times, said.get("peak_memory_bytes"), text)

    def _wait(self, process: child.Process, stop: Stop) -> bool:
        """True where it took too long."""
        end = time.monotonic() + self.most_s
        try:
            while process.poll() is None and time.monotonic() < end:
                if stop():
                    raise Stopped
                with suppress(child.TimeoutExpired):
                    process.wait(LOOKS_EVERY_S)
            return process.poll() is None
        finally:
            child.end(process)


def _ends(raw: bytes) -> str:
    parts = [raw] if len(raw) <= KEPT_HEAD + KEPT_TAIL else [raw[:KEPT_HEAD], raw[-KEPT_TAIL:]]
    return "\n…\n".join(part.decode("utf-8", "replace") for part in parts)
