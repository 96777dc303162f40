"""Any other engine by its command line: XPK, a site's own submit script, or bash on this machine.

The operator writes the commands; a team chooses among them.  They are run without a shell, with placeholders filled in.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from string import Formatter

from formatting.numbers import whole_number
from launches.backends.base import BackendError, JobSpec, JobState, JobStatus, tail, write_bundle

#: What a command may name.
PLACEHOLDERS = ("name", "folder", "script", "hosts", "chips_per_host", "minutes", "job")
_SUBMIT_S, _ASK_S = 300, 60
_STATES = {item.value: item for item in JobState}


class Command:
    """folder: for bundles.  submit: prints what the engine calls the job as its last word, or nothing (then the job is
    called by our name); with background it is the job itself, run on this machine.  status: prints one of waiting,
    running, succeeded, failed or gone as its first word; empty: only a report says how the job is doing.  cancel: empty
    where the engine cannot."""

    def __init__(self, folder: Path, submit: str, status: str = "", cancel: str = "", background: bool = False) -> None:
        self.folder = folder
        self.templates = {"submit": submit, "status": status, "cancel": cancel}
        self.background = background
        for key, text in self.templates.items():
            check_template(key, text)

    @property
    def can_cancel(self) -> bool:
        return self.background or bool(self.templates["cancel"])

    def submit(self, spec: JobSpec) -> str:
        place = self.folder / spec.name
        known = place / "job"
        if known.exists():
            return known.read_text()
        limit = {"ASAP_TIME_LIMIT_MIN": str(spec.time_limit_min)}  # no scheduler ends it: its asap_report.py does
        write_bundle(place, replace(spec, environment={**spec.environment, **limit}))
        values = {
            "name": spec.name, "folder": place, "script": place / "run.sh", "hosts": spec.hosts,
            "chips_per_host": spec.chips_per_host, "minutes": spec.time_limit_min, "job": spec.name,
        }  # fmt: skip
        command = _filled(self.templates["submit"], values)
        job = self._start(place, command) if self.background else _ask(command, _SUBMIT_S, place)
        job = (job.split() or [spec.name])[-1][:200]
        known.write_text(f"{spec.name} {job}")
        return known.read_text()

    def status(self, job: str) -> JobStatus:
        name, _, theirs = job.partition(" ")
        if (ended := self.folder / name / "ended").exists():
            code = ended.read_text().strip()
            return JobStatus(JobState.SUCCEEDED) if code == "0" else JobStatus(JobState.FAILED, f"Exit status {code}.")
        if self.background:
            return JobStatus(JobState.RUNNING if _lives(theirs) else JobState.GONE)
        if not self.templates["status"]:
            words = "No status command is set; the state is known once the job reports."
            return JobStatus(JobState.WAITING, words, silent=True)
        said = _ask(_filled(self.templates["status"], self._named(job)), _ASK_S, self.folder).split(None, 1)
        if not said or said[0].lower() not in _STATES:
            shown = (said or ["nothing"])[0][:60]
            raise BackendError(f"The status command printed {shown}; its first word must be {', '.join(_STATES)}.")
        return JobStatus(_STATES[said[0].lower()], said[1].strip()[:200] if len(said) > 1 else "")

    def cancel(self, job: str) -> None:
        name, _, theirs = job.partition(" ")
        (self.folder / name / "secret.env").unlink(missing_ok=True)
        if self.background:
            if _lives(theirs):
                with suppress(ProcessLookupError):
                    os.killpg(int(theirs.partition("/")[0]), signal.SIGTERM)
        elif self.templates["cancel"]:
            _ask(_filled(self.templates["cancel"], self._named(job)), _ASK_S, self.folder)

    def log(self, job: str, most_bytes: int = 10_000_000) -> bytes:
        return tail(self.folder / job.partition(" ")[0] / "output.log", most_bytes)

    def _named(self, job: str) -> dict[str, object]:
        name, _, theirs = job.partition(" ")
        place = self.folder / name
        return {"name": name, "folder": place, "script": place / "run.sh", "hosts": "", "chips_per_host": "",
                "minutes": "", "job": theirs}  # fmt: skip

    def _start(self, place: Path, command: list[str]) -> str:
        """Run it in a session of its own, beyond the life of the worker; the process by number and start time."""
        with (place / "output.log").open("ab") as output:
            try:
                process = subprocess.Popen(
                    command, cwd=place, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                    start_new_session=True,
                )  # fmt: skip
            except OSError as error:
                raise BackendError(f"The command cannot be started: {error.strerror or error}.") from error
        return f"{process.pid}/{_began(process.pid)}"


def check_template(key: str, text: str) -> None:
    """Raises BackendError where a command is none, or names what is not known."""
    try:
        named = [name for _, name, _, _ in Formatter().parse(text) if name is not None]
        shlex.split(text)
    except ValueError as error:
        raise BackendError(f"The {key} command cannot be read: {error}.") from error
    if unknown := [name for name in named if name not in PLACEHOLDERS]:
        raise BackendError(f"{{{unknown[0]}}} is not a placeholder of a command; use {', '.join(PLACEHOLDERS)}.")
    if key == "submit" and not text.strip():
        raise BackendError("The submit command is empty.")


def _filled(text: str, values: Mapping[str, object]) -> list[str]:
    """Words first, then placeholders: what a value holds is never split, and never a command."""
    return [word.format(**{key: str(value) for key, value in values.items()}) for word in shlex.split(text)]


def _ask(command: list[str], timeout_s: float, folder: Path) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=timeout_s, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BackendError(f"{command[0]} did not answer: {str(error)[:150]}", passing=True) from error
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines() or ["no message"]
        raise BackendError(f"{command[0]} ended with status {done.returncode}: {said[-1][:200]}")
    return done.stdout


def _lives(named: str) -> bool:
    text, _, began = named.partition("/")
    pid = whole_number(text)
    return pid is not None and bool(began) and _began(pid) == began


def _began(pid: int) -> str:
    """Start time of a live process, empty where there is none: a number is used again."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return ""
    return "" if fields[0] in "ZX" else fields[19]
