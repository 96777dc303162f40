"""Any other engine by its command line: XPK, a site's own submit script, or bash on this machine.

The operator writes the commands; a team chooses among them.  They are run without a shell, with placeholders filled in.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from string import Formatter

from formatting.numbers import whole_number
from jobs.child_environment import DEVICES, SYSTEM
from launches.backends.account import Account, last_line
from launches.backends.base import BackendError, JobSpec, JobState, JobStatus

#: What a command may name.
PLACEHOLDERS = ("name", "folder", "script", "hosts", "chips_per_host", "minutes", "job")
_SUBMIT_S, _ASK_S = 300, 60
_STATES = {item.value: item for item in JobState}


class Command:
    """folder: for bundles.  submit: prints what the engine calls the job as its last word, or nothing (then the job is
    called by our name); with background it is the job itself, run on this machine.  status: prints one of waiting,
    running, succeeded, failed or gone as its first word; empty: only a report says how the job is doing.  cancel: empty
    where the engine cannot."""

    def __init__(
        self, folder: Path, submit: str, status: str = "", cancel: str = "", background: bool = False,
        account: Account | None = None,
    ) -> None:  # fmt: skip
        self.folder = folder
        self.account = account or Account(SYSTEM + DEVICES)
        self.templates = {"submit": submit, "status": status, "cancel": cancel}
        self.background = background
        for key, text in self.templates.items():
            check_template(key, text)

    @property
    def can_cancel(self) -> bool:
        return self.background or bool(self.templates["cancel"])

    def submit(self, spec: JobSpec) -> str:
        place = self.folder / spec.name
        if known := self._read(spec.name, "job"):
            return known
        limit = {"ASAP_TIME_LIMIT_MIN": str(spec.time_limit_min)}  # no scheduler ends it: its asap_report.py does
        self.account.write_bundle(place, replace(spec, environment={**spec.environment, **limit}))
        values = {
            "name": spec.name, "folder": place, "script": place / "run.sh", "hosts": spec.hosts,
            "chips_per_host": spec.chips_per_host, "minutes": spec.time_limit_min, "job": spec.name,
        }  # fmt: skip
        command = _filled(self.templates["submit"], values)
        job = self._start(place, command) if self.background else self._ask(command, _SUBMIT_S, place)
        job = (job.split() or [spec.name])[-1][:200]
        self.account.write(place, {"job": f"{spec.name} {job}"})
        return f"{spec.name} {job}"

    def status(self, job: str) -> JobStatus:
        name, _, theirs = job.partition(" ")
        if code := self._read(name, "ended"):
            return JobStatus(JobState.SUCCEEDED) if code == "0" else JobStatus(JobState.FAILED, f"Exit status {code}.")
        if self.background:
            return JobStatus(JobState.RUNNING if _lives(theirs) else JobState.GONE)
        if not self.templates["status"]:
            words = "No status command is set; the state is known once the job reports."
            return JobStatus(JobState.WAITING, words, silent=True)
        said = self._ask(_filled(self.templates["status"], self._named(job)), _ASK_S).split(None, 1)
        if not said or said[0].lower() not in _STATES:
            shown = (said or ["nothing"])[0][:60]
            raise BackendError(f"The status command printed {shown}; its first word must be {', '.join(_STATES)}.")
        return JobStatus(_STATES[said[0].lower()], said[1].strip()[:200] if len(said) > 1 else "")

    def cancel(self, job: str) -> None:
        name, _, theirs = job.partition(" ")
        self.account.remove(self.folder / name / "secret.env")
        if self.background:
            if _lives(theirs):
                self.account.run(["kill", "-TERM", "--", f"-{theirs.partition('/')[0]}"])
        elif self.templates["cancel"]:
            self._ask(_filled(self.templates["cancel"], self._named(job)), _ASK_S)

    def log(self, job: str, most_bytes: int = 10_000_000) -> bytes:
        return self.account.read(self.folder / job.partition(" ")[0] / "output.log", most_bytes)

    def _read(self, name: str, file: str) -> str:
        return self.account.read(self.folder / name / file, 300).decode("utf-8", "replace").strip()

    def _named(self, job: str) -> dict[str, object]:
        name, _, theirs = job.partition(" ")
        place = self.folder / name
        return {"name": name, "folder": place, "script": place / "run.sh", "hosts": "", "chips_per_host": "",
                "minutes": "", "job": theirs}  # fmt: skip

    def _start(self, place: Path, command: list[str]) -> str:
        """Run it in a session of its own, beyond the life of the worker; the process by number and start time."""
        process = self.account.start(command, place)
        return f"{process.pid}/{_began(process.pid)}"

    def _ask(self, command: list[str], timeout_s: float, folder: Path | None = None) -> str:
        done = self.account.run(command, folder=folder, timeout_s=timeout_s)
        if done.returncode:
            said = last_line(done.stderr if done.stderr.strip() else done.stdout)
            raise BackendError(f"{command[0]} ended with status {done.returncode}: {said}")
        return done.stdout.decode("utf-8", "replace")


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
