"""The Slurm backend against slurmctld and slurmd as Debian ships them, and a whole wave through it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from launches.backends import BackendError, JobSpec, JobState
from launches.backends.slurm import Slurm
from tests.launches.slurm_cluster import Cluster, missing

pytestmark = [pytest.mark.skipif(bool(missing()), reason=missing() or "Slurm is here"), pytest.mark.slow]

RUN = """#!/usr/bin/env bash
bundle="$(cd "$(dirname "$0")" && pwd)"
. "$bundle/secret.env"
echo "token of ${#ASAP_TOKEN} characters, steps $STEPS"
%s
code=$?
echo $code > "$bundle/ended"
exit $code
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    found = Cluster(tmp_path_factory.mktemp("slurm"))
    yield found
    found.stop()


@pytest.fixture
def slurm(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
    return Slurm(tmp_path / "shared")


def spec(name: str, command: str, **values: object) -> JobSpec:
    return JobSpec(
        name=name, files={"run.sh": RUN % command}, environment={"STEPS": "3"}, secret={"ASAP_TOKEN": "a b'c"},
        time_limit_min=5, values=values,
    )  # fmt: skip


def eventually(condition: Callable[[], object], within_s: float = 60.0) -> None:
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.3)


def test_a_job_runs_once_however_often_it_is_submitted(slurm: Slurm) -> None:
    given = spec("asap-1-proposal-1", "sleep 1")
    job = slurm.submit(given)
    assert slurm.submit(given) == job
    eventually(lambda: slurm.status(job).ended)
    assert slurm.status(job).state == JobState.SUCCEEDED and slurm.submit(given) == job
    assert slurm.log(job).count(b"token of 5 characters, steps 3") == 1
    assert (slurm.folder / given.name / "secret.env").stat().st_mode & 0o077 == 0


def test_a_job_sees_its_bundle_and_no_variable_of_the_server(slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SECRET_KEY", "DATABASE_URL", "OPENAI_API_KEY", "CELERY_BROKER_URL", "CANARY"):
        monkeypatch.setenv(name, f"canary-of-{name}")
    job = slurm.submit(spec("asap-6-proposal-1", "env"))
    eventually(lambda: slurm.status(job).ended)
    log = slurm.log(job)
    assert slurm.status(job).state == JobState.SUCCEEDED and b"STEPS=3" in log and b"PATH=" in log
    assert b"canary-of" not in log and b"CANARY" not in log


def test_how_it_ended_is_said(slurm: Slurm) -> None:
    job = slurm.submit(spec("asap-2-proposal-1", "(exit 3)"))
    eventually(lambda: slurm.status(job).ended)
    found = slurm.status(job)
    assert found.state == JobState.FAILED and "3" in found.reason


def test_it_waits_runs_and_is_cancelled(slurm: Slurm) -> None:
    jobs = [slurm.submit(spec(f"asap-3-control-{n}", "sleep 100")) for n in (1, 2, 3)]
    eventually(lambda: slurm.status(jobs[0]).state == JobState.RUNNING)
    waiting = slurm.status(jobs[2])
    assert waiting.state == JobState.WAITING
    assert "Resources" in waiting.reason or "Priority" in waiting.reason
    for job in jobs:
        slurm.cancel(job)
        slurm.cancel(job)  # again is no error
    eventually(lambda: all(slurm.status(job).ended for job in jobs))
    assert slurm.status(jobs[2]).reason == "It was cancelled in Slurm."
    assert not (slurm.folder / "asap-3-control-1" / "secret.env").exists()


def test_a_cluster_that_forgot_a_job_left_its_exit_status_and_one_that_is_away_is_asked_later(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forgetful = Cluster(tmp_path_factory.mktemp("forgetful"), remember_s=2)
    try:
        monkeypatch.setenv("SLURM_CONF", str(forgetful.conf))
        slurm = Slurm(tmp_path / "shared")
        good, bad = (
            slurm.submit(spec(f"asap-4-control-{n}", command)) for n, command in ((1, "true"), (2, "(exit 7)"))
        )
        number = bad.split()[-1]
        eventually(lambda: "Invalid" in forgetful.ask("bash", "-c", f"scontrol show job {number} 2>&1"), within_s=150)
        assert slurm.status(good).state == JobState.SUCCEEDED
        assert slurm.status(bad).reason == "Exit status 7."
        assert slurm.status("999999").state == JobState.GONE
    finally:
        forgetful.stop()
    with pytest.raises(BackendError, match="cannot be queried") as away:
        slurm.status(good)
    assert away.value.passing


def test_what_slurm_refuses_is_one_sentence(slurm: Slurm) -> None:
    with pytest.raises(BackendError, match="Invalid partition") as refused:
        slurm.submit(spec("asap-5-control-1", "true", partition="nowhere"))
    assert len(str(refused.value)) <= 300 and "\n" not in str(refused.value)
    too_many = dataclasses.replace(spec("asap-5-control-2", "true"), hosts=40)
    with pytest.raises(BackendError, match="Slurm rejected the job"):
        slurm.submit(too_many)
