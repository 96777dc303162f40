"""Slurm: one job per run by `sbatch`; the compute nodes need bash and Python 3.8, nothing of ours.

The operator names a folder that the compute nodes share with this machine.  A cluster without an accounting database
forgets a job minutes after it ended; the exit status that `run.sh` leaves in the folder says how it ended.  A job sees
the environment of its user's login on the node and the variables of its bundle, none of this machine.
"""

from __future__ import annotations

import re
from pathlib import Path

from formatting.numbers import whole_number
from jobs import child
from jobs.child_environment import SLURM, SYSTEM
from launches.backends.account import Account, last_line
from launches.backends.base import BackendError, JobSpec, JobState, JobStatus

#: What a team may set, by its name in sbatch.
PARAMETERS = ("partition", "account", "qos", "constraint", "gres", "mem", "cpus_per_task", "gpus_per_node")
ENDED_FILE, _JOB_FILE = "ended", "job"
_COMMAND_S = 60
#: What the first node runs: `run.sh` once on each host, which sees what the first one does.
_SCRIPT = """#!/bin/bash
exec srun --export=ALL --unbuffered --output=%j_%t_log.out bash ./run.sh
"""
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


class Slurm:
    """folder: shared by this machine and the compute nodes, the same path on both.  A job is called by our name and
    Slurm's number."""

    can_cancel = True

    def __init__(self, folder: Path, account: Account | None = None) -> None:
        self.folder = folder
        self.account = account or Account(SYSTEM + SLURM)

    def submit(self, spec: JobSpec) -> str:
        if (queued := self._queued(spec.name)) is not None:
            return f"{spec.name} {queued}"
        place = self.folder / spec.name
        self.account.remove(place / ENDED_FILE)
        self.account.write_bundle(place, spec, **{"job.sh": _SCRIPT})
        given = [f"--{key.replace('_', '-')}={spec.values[key]}" for key in PARAMETERS if spec.values.get(key)]
        done = self.account.run(
            [
                "sbatch", "--parsable", "--export=NONE", f"--job-name={spec.name}", f"--time={spec.time_limit_min}",
                f"--nodes={spec.hosts}", "--ntasks-per-node=1", "--wckey=asap", "--signal=USR2@90",
                f"--chdir={place}", "--output=%j_0_log.out", "--open-mode=append", *given, "job.sh",
            ],
            folder=place, timeout_s=_COMMAND_S,
        )  # fmt: skip
        if done.returncode == 127:
            raise BackendError("sbatch is not installed here: this machine must be able to submit to the cluster.")
        number = done.stdout.decode("utf-8", "replace").strip().partition(";")[0]
        if done.returncode or whole_number(number) is None:
            raise BackendError(f"Slurm rejected the job: {last_line(done.stderr)}")
        self.account.write(place, {_JOB_FILE: number})
        return f"{spec.name} {number}"

    def status(self, job: str) -> JobStatus:
        number = job.rpartition(" ")[2]
        done = self._ask("scontrol", "show", "job", "-o", number)
        if done.returncode == 0:
            shown = done.stdout.decode("utf-8", "replace")
            state = re.search(r"\bJobState=(\w+)", shown)
            return _status(state[1] if state else "", _reason(shown), _exit(shown))
        if b"Invalid job id" not in done.stderr:
            raise BackendError(f"Slurm cannot be queried: {last_line(done.stderr)}", passing=True)
        done = self._ask("sacct", "-X", "-n", "-P", "-o", "State,ExitCode", "-j", number)
        if done.returncode == 0 and done.stdout.strip():
            words, _, code = done.stdout.decode("utf-8", "replace").splitlines()[0].partition("|")
            return _status(words.split()[0], "", code.partition(":")[0])
        return self._left_behind(job)

    def cancel(self, job: str) -> None:
        done = self._ask("scancel", job.rpartition(" ")[2])
        if done.returncode and b"Invalid job id" not in done.stderr:
            raise BackendError(f"Slurm did not cancel the job: {last_line(done.stderr)}", passing=True)
        self.account.remove(self._place(job) / "secret.env")

    def log(self, job: str, most_bytes: int = 10_000_000) -> bytes:
        place, number = self._place(job), job.rpartition(" ")[2]
        names = [name for name in self.account.names(place) if re.fullmatch(rf"{re.escape(number)}_\d+_log\.out", name)]
        return b"\n".join(self.account.read(place / name, most_bytes // len(names)) for name in names)

    def _place(self, job: str) -> Path:
        return self.folder / job.partition(" ")[0]

    def _left_behind(self, job: str) -> JobStatus:
        place = self._place(job)
        names = [name for name in self.account.names(place) if name.startswith(ENDED_FILE)]
        codes = [self.account.read(place / name).decode("utf-8", "replace").strip()[:20] for name in names]
        if not codes:
            return JobStatus(JobState.GONE, "The job is no longer in Slurm's records and left no exit status.")
        bad = next((code for code in codes if code != "0"), None)
        return JobStatus(JobState.FAILED, f"Exit status {bad}.") if bad else JobStatus(JobState.SUCCEEDED)

    def _queued(self, name: str) -> str | None:
        """Return the number of the job of this name: of ours, since anybody may call a job so."""
        done = self._ask("squeue", "--me", "--noheader", "--name", name, "--states", "all", "--format", "%A")
        if done.returncode:
            raise BackendError(f"Slurm cannot be queried: {last_line(done.stderr)}", passing=True)
        if numbers := done.stdout.decode("utf-8", "replace").split():
            return numbers[0]
        kept = self.account.read(self.folder / name / _JOB_FILE).decode("utf-8", "replace").strip()
        return None if whole_number(kept) is None else kept

    def _ask(self, *command: str) -> child.Done[bytes]:
        return self.account.run(command, timeout_s=_COMMAND_S)


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
