"""A real Slurm of one node for the length of a test session: munged, slurmctld and slurmd on ports of their own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "scontrol")
_CONF = """
ClusterName=asap
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SchedulerType=sched/backfill
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
JobAcctGatherType=jobacct_gather/none
MinJobAge={remember_s}
KillWait=2
SchedulerParameters=sched_min_interval=200000
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=train Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> str:
    """Why there can be no cluster here; empty where there can."""
    absent = [name for name in PROGRAMS if _program(name) is None]
    if absent:
        return f"Slurm is not installed: {', '.join(absent)} (as root: apt-get install slurmctld slurmd munge)"
    return "" if os.geteuid() == 0 else "slurmd starts jobs as root only"


class Cluster:
    """remember_s: how long the controller knows a job after it ended."""

    def __init__(self, folder: Path, remember_s: int = 300) -> None:
        self.folder = folder
        self.conf = folder / "slurm.conf"
        folder.chmod(0o755)  # munge's socket must be within reach of every user
        for name in ("state", "spool"):
            (folder / name).mkdir()
        host = socket.gethostname().split(".")[0]
        ports = [_free_port() for _ in range(2)]
        self.conf.write_text(
            _CONF.format(host=host, ports=ports, folder=folder, user=_user(), remember_s=remember_s).lstrip()
        )
        (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        key = folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        self.environment = {**os.environ, "SLURM_CONF": str(self.conf)}
        self.processes = [
            self._start("munged", "--foreground", "--force", f"--key-file={key}", f"--socket={folder}/munge.socket",
                        f"--pid-file={folder}/munged.pid", f"--log-file={folder}/munged.log",
                        f"--seed-file={folder}/munged.seed"),
        ]  # fmt: skip
        self._until(lambda: (folder / "munge.socket").exists(), "munged")
        self.processes.append(self._start("slurmctld", "-D", "-i", "-f", str(self.conf)))
        # Who asks before it is ready waits for long.
        self._until(lambda: self._said("slurmctld", "Running as primary controller"), "slurmctld")
        self.processes.append(self._start("slurmd", "-D", "-f", str(self.conf), "-N", host))
        self._until(lambda: self._said("slurmd", "slurmd started on"), "slurmd")
        self._until(lambda: "idle" in self.ask("sinfo", "-h", "-o", "%t"), "slurmd")

    def ask(self, *command: str) -> str:
        limited = ["timeout", "5", *command]
        return subprocess.run(limited, env=self.environment, capture_output=True, text=True, check=False).stdout

    def stop(self) -> None:
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _said(self, name: str, words: str) -> bool:
        log = self.folder / f"{name}.log"
        return log.exists() and words in log.read_text(errors="replace")

    def _start(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        log = (self.folder / f"{name}.out").open("wb")
        program = _program(name)
        assert program is not None
        return subprocess.Popen([program, *arguments], env=self.environment, stdout=log, stderr=log)

    def _until(self, condition: object, name: str, within_s: float = 60.0) -> None:
        end = time.monotonic() + within_s
        while time.monotonic() < end:
            if condition():  # type: ignore[operator]
                return
            if any(process.poll() is not None for process in self.processes):
                break
            time.sleep(0.2)
        self.stop()
        logs = [path for path in sorted(self.folder.glob(f"{name}*")) if path.suffix in (".out", ".log")]
        raise RuntimeError("\n".join(path.read_text(errors="replace")[-2000:] for path in logs) or name)


def _program(name: str) -> str | None:
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def _user() -> str:
    return subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
