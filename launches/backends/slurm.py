"""Slurm: one job per run by `sbatch`, written by submitit; the compute nodes need bash and Python 3.8, nothing of ours.

The operator names a folder that the compute nodes share with this machine.  A cluster without an accounting database
forgets a job minutes after it ended; the exit status that `run.sh` leaves in the folder says how it ended.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from submitit.core.utils import FailedJobError, FailedSubmissionError
from submitit.slurm.slurm import SlurmExecutor, SlurmJob

from launches.backends.base import BackendError, JobSpec, JobState, JobStatus, tail, write_bundle

#: What a team may set, by its name in sbatch.
PARAMETERS = ("partition", "account", "qos", "constraint", "gres", "mem", "cpus_per_task", "gpus_per_node")
ENDED_FILE = "ended"
_COMMAND_S = 60
_WAITING = ("PENDING", "CONFIGURING", "REQUEUED", "SUSPENDED", "RESV_DEL_HOLD", "REQUEUE_HOLD")
_RUNNING = ("RUNNING", "COMPLETING", "STAGE_OUT", "SIGNALING", "RESIZING", "STOPPED")
_REASONS = {
    "TIMEOUT": "It reached its time limit.",
    "OUT_OF_MEMORY": "A process used more host memory than the job is allowed.",
    "NODE_FAIL": "A node failed.",
    "PREEMPTED": "It was preempted.",
    "CANCELLED": "It was cancelled in Slurm.",
    "DEADLINE": "It could not start before its deadline.",
    "BOOT_FAIL": "A node did not boot.",
}


class _Scripts(SlurmExecutor):
    """submitit's sbatch files around a shell command instead of a pickled function."""

    def submit_command(self, command: str) -> SlurmJob[Any]:
        return self._submit_command(command)


class Slurm:
    """folder: shared by this machine and the compute nodes, the same path on both."""

    can_cancel = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def submit(self, spec: JobSpec) -> str:
        if shutil.which("sbatch") is None:
            raise BackendError("sbatch is not installed here: this machine must be able to submit to the cluster.")
        if (queued := self._queued(spec.name)) is not None:
            return queued
        place = write_bundle(self.folder / spec.name, spec)
        (place / ENDED_FILE).unlink(missing_ok=True)
        executor = _Scripts(place)
        given = {key: spec.values[key] for key in PARAMETERS if spec.values.get(key)}
        executor.update_parameters(
            job_name=spec.name, time=spec.time_limit_min, nodes=spec.hosts, ntasks_per_node=1, wckey="asap",
            stderr_to_stdout=True, **given,
        )  # fmt: skip
        try:
            job = executor.submit_command(f"bash {place}/run.sh")
        except (FailedJobError, FailedSubmissionError, subprocess.SubprocessError, OSError) as error:
            raise BackendError(f"Slurm rejected the job: {_last_line(error)}") from error
        return str(job.job_id)

    def status(self, job: str) -> JobStatus:
        done = _run("scontrol", "show", "job", "-o", job)
        if done.returncode == 0:
            state = re.search(r"\bJobState=(\w+)", done.stdout)
            return _status(state[1] if state else "", _reason(done.stdout), _exit(done.stdout))
        if "Invalid job id" not in done.stderr:
            raise BackendError(f"Slurm cannot be queried: {_last_line(done.stderr)}", passing=True)
        done = _run("sacct", "-X", "-n", "-P", "-o", "State,ExitCode", "-j", job)
        if done.returncode == 0 and done.stdout.strip():
            words, _, code = done.stdout.splitlines()[0].partition("|")
            return _status(words.split()[0], "", code.partition(":")[0])
        return self._left_behind(job)

    def cancel(self, job: str) -> None:
        done = _run("scancel", job)
        if done.returncode and "Invalid job id" not in done.stderr:
            raise BackendError(f"Slurm did not cancel the job: {_last_line(done.stderr)}", passing=True)
        for place in self._places(job):
            (place / "secret.env").unlink(missing_ok=True)

    def log(self, job: str, most_bytes: int = 10_000_000) -> bytes:
        logs = [path for place in self._places(job) for path in sorted(place.glob(f"{job}_*_log.out"))]
        return b"\n".join(tail(path, most_bytes // len(logs)) for path in logs)

    def _places(self, job: str) -> list[Path]:
        return [path.parent for path in self.folder.glob(f"asap-*/{job}_submission.sh")]

    def _left_behind(self, job: str) -> JobStatus:
        codes = [path.read_text().strip() for place in self._places(job) for path in place.glob(f"{ENDED_FILE}*")]
        if not codes:
            return JobStatus(JobState.GONE, "The job is no longer in Slurm's records and left no exit status.")
        bad = next((code for code in codes if code != "0"), None)
        return JobStatus(JobState.FAILED, f"Exit status {bad}.") if bad else JobStatus(JobState.SUCCEEDED)

    def _queued(self, name: str) -> str | None:
        done = _run("squeue", "--noheader", "--name", name, "--states", "all", "--format", "%A")
        if done.returncode:
            raise BackendError(f"Slurm cannot be queried: {_last_line(done.stderr)}", passing=True)
        ids = done.stdout.split()
        if ids:
            return ids[0]
        kept = sorted((self.folder / name).glob("*_submission.sh"))
        return kept[-1].name.partition("_")[0] if kept else None


def _status(state: str, reason: str, code: str) -> JobStatus:
    if state in _WAITING:
        return JobStatus(JobState.WAITING, f"Slurm: {reason}." if reason else "")
    if state in _RUNNING:
        return JobStatus(JobState.RUNNING)
    if state == "COMPLETED":
        return JobStatus(JobState.SUCCEEDED)
    return JobStatus(JobState.FAILED, _REASONS.get(state, f"Exit status {code}." if code else f"Slurm: {state}."))


def _reason(shown: str) -> str:
    match = re.search(r"\bReason=(\S+)", shown)
    return "" if match is None or match[1] == "None" else match[1]


def _exit(shown: str) -> str:
    match = re.search(r"\bExitCode=(\d+)", shown)
    return match[1] if match else ""


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BackendError(f"Slurm cannot be queried: {command[0]} did not answer ({error}).", passing=True) from error


def _last_line(error: object) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = next((line for line in reversed(lines) if "error" in line.lower()), lines[-1] if lines else "no message")
    return said[:200]
