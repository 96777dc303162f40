"""Secrets of the server in the environment of what it starts: every kind of child, by what the kernel says of it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from asapweb.launcher import run as launcher
from asapweb.launcher.folders import open_home
from asapweb.launcher.supervisor import Supervisor
from campaigns.backends.local import Local
from experiments.ingest import sandbox
from experiments.ingest.errors import IngestError
from experiments.ingest.limits import Limits
from experiments.trial import process as trial
from experiments.viewer import process as viewer
from knowledge.documents import reader
from launches.backends import BackendError, JobSpec
from launches.backends.command import Command
from launches.backends.slurm import Slurm
from perfmodel.config_file import parse_config
from proposals.compiling import engine
from tests.launcher.foreign import missing

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("fresh_processes")]

CANARIES = {
    name: f"canary-of-{name.lower()}"
    for name in ("SECRET_KEY", "DATABASE_URL", "OPENAI_API_KEY", "CELERY_BROKER_URL", "CANARY", "SLURM_JWT")
}
PRINTS_ENVIRONMENT = "import json, os; print(json.dumps(dict(os.environ)))"
CONFIG = {
    "hardware": {"chip": "v5e", "topology": [2, 2]},
    "mesh": {"ici": {"data": 4}},
    "model": {"layers": 2, "d_model": 128, "d_ff": 256, "heads": 2, "vocab": 512},
    "training": {"global_batch": 8, "seq_len": 128},
}


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """Environments of all processes that anything here starts, as the kernel shows them just after their start."""
    for name, value in CANARIES.items():
        monkeypatch.setenv(name, value)
    seen: list[dict[str, str]] = []

    class Watched(subprocess.Popen):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            assert options.get("env") is not None, f"{arguments[0]} inherits the whole environment"
            raw = b""
            with suppress(OSError):  # it may be over already
                raw = Path(f"/proc/{self.pid}/environ").read_bytes()
            pairs = [part.decode().partition("=") for part in raw.split(b"\0") if part]
            seen.append({**options["env"], **{name: value for name, _, value in pairs}})

    monkeypatch.setattr(subprocess, "Popen", Watched)
    return seen


def convert(folder: Path) -> None:
    with suppress(IngestError):
        sandbox.run({}, folder, Limits())


def view(folder: Path) -> None:
    (folder / "host.xplane.pb").write_bytes(b"no profile")
    with suppress(viewer.ViewerError):
        viewer.start([(folder / "host.xplane.pb", "host.xplane.pb")]).stop()


def read_document(folder: Path) -> None:
    (folder / "notes.md").write_text("# Mesh\n\nShard the weights over the data axis.\n")
    reader.read(folder / "notes.md", "notes.md", "markdown")


def compile_step(folder: Path) -> None:
    engine.check(parse_config(CONFIG)[0], worker="tests.compiling.scripted")


def try_step(folder: Path) -> None:
    done = trial.python(["-c", PRINTS_ENVIRONMENT], "cpu", 2, 60, "too long")
    assert not set(CANARIES.values()) & set(json.loads(done.stdout).values())


def measure_locally(folder: Path) -> None:
    Local(command=(sys.executable, "-c", PRINTS_ENVIRONMENT)).measure(parse_config(CONFIG)[0], lambda: False)


SPEC = JobSpec(name="asap-1-trial-1", files={"run.sh": "env > seen\n"}, secret={"ASAP_TOKEN": "x"})


def run_command(folder: Path) -> None:
    command = Command(folder, "bash {script}", status="env", cancel="env")
    job = command.submit(SPEC)
    with suppress(BackendError):  # `env` prints no state
        command.status(job)
    command.cancel(job)
    assert "canary-of" not in (folder / SPEC.name / "seen").read_text()


def run_in_background(folder: Path) -> None:
    command = Command(folder, "bash -c 'env; sleep 30'", background=True)
    job = command.submit(SPEC)
    command.cancel(job)
    assert b"canary-of" not in command.log(job)


def submit_to_slurm(folder: Path) -> None:
    if shutil.which("sbatch") is None:
        missing("slurm-client")
    slurm = Slurm(folder)
    with suppress(BackendError):  # there need not be a cluster: its commands are started all the same
        slurm.submit(SPEC)
    with suppress(BackendError):
        slurm.status("asap-1-trial-1 1")
    with suppress(BackendError):
        slurm.cancel("asap-1-trial-1 1")


KINDS: tuple[Callable[[Path], None], ...] = (
    convert, view, read_document, compile_step, try_step, measure_locally, run_command, run_in_background,
    submit_to_slurm,
)  # fmt: skip


@pytest.mark.parametrize("start", KINDS, ids=lambda kind: kind.__name__)
def test_child_gets_no_secret_of_the_server(
    start: Callable[[Path], None], children: list[dict[str, str]], tmp_path: Path
) -> None:
    start(tmp_path)
    assert children
    for environment in children:
        assert environment.get("PATH")
        assert not set(CANARIES) & set(environment) and not set(CANARIES.values()) & set(environment.values())


def test_embedded_services_get_no_secret_of_the_server(
    children: list[dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DATABASE_URL", "CELERY_BROKER_URL"):
        monkeypatch.delenv(name)  # so that they are started
    monkeypatch.setenv("PGPASSWORD", CANARIES["DATABASE_URL"])
    home = open_home(tmp_path)
    supervisor = Supervisor(home.path, lambda line: None)
    try:
        launcher._start_services(home, supervisor)
    finally:
        supervisor.stop()
    assert {piece.name for piece in supervisor.pieces} == {"PostgreSQL", "Redis"}
    for environment in children:
        assert not set(CANARIES.values()) & set(environment.values())
