"""What every backend does with one job: submit it once, say how it is, end it, and give what it wrote."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol


class BackendError(Exception):
    """The backend refused, or cannot be reached.  The text is a sentence for the user.

    passing: worth another attempt.
    """

    def __init__(self, message: str, *, passing: bool = False) -> None:
        super().__init__(message)
        self.passing = passing


class JobState(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    GONE = "gone"  # the backend no longer knows it


@dataclass(frozen=True)
class JobStatus:
    """state, and in words what the backend says of it: why it waits, or why it failed.

    silent: the backend cannot tell; only a report will.
    """

    state: JobState
    reason: str = ""
    silent: bool = False

    @property
    def ended(self) -> bool:
        return self.state in (JobState.SUCCEEDED, JobState.FAILED, JobState.GONE)


@dataclass(frozen=True)
class JobSpec:
    """One run of one arm.

    name: unique, letters, digits and hyphens.  files: of the bundle, text by name, `run.sh` among them.  environment:
    variables of every process; secret: those that nobody else may read.  hosts: processes, one on each host; chips: of
    each host.  time_limit_min: after which a run is ended.  values: what the team set for this backend.
    """

    name: str
    files: Mapping[str, str]
    environment: Mapping[str, str] = field(default_factory=dict)
    secret: Mapping[str, str] = field(default_factory=dict)
    hosts: int = 1
    chips_per_host: int = 1
    time_limit_min: int = 60
    values: Mapping[str, Any] = field(default_factory=dict)


class Backend(Protocol):
    @property
    def can_cancel(self) -> bool:
        """Whether `cancel` ends a job; where not, it runs until somebody ends it there."""

    def submit(self, spec: JobSpec) -> str:
        """Its name at the backend; submitting the same name again finds the job that is there.  Raises BackendError."""

    def status(self, job: str) -> JobStatus:
        """Raises BackendError where it cannot be asked."""

    def cancel(self, job: str) -> None:
        """End it and remove what it left; a job that is gone is no error.  Raises BackendError."""

    def log(self, job: str, most_bytes: int = 10_000_000) -> bytes:
        """The end of what its processes wrote, as far as the backend has it."""


def environment_text(spec: JobSpec) -> str:
    """Return what `run.sh` sources from `secret.env`: the variables of the run, its token among them."""
    lines = [f"export {key}={shlex.quote(value)}" for key, value in {**spec.environment, **spec.secret}.items()]
    return "\n".join(lines) + "\n"
