"""Trials as Kubernetes Jobs, through the official client against an API server that checks every request.

Nothing runs in its pods: each test says what they do, and reports with the token that the Job was given.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from campaigns.models import Campaign, CampaignStatus, TrialStatus
from campaigns.services import campaigns
from launches.models import ArmRun
from launches.services import choices, launching
from tests.campaigns.cluster import turn
from tests.launches.fake_kubernetes import FakeKubernetes
from tests.launches.reports import client, place, report, send_file

pytestmark = [pytest.mark.slow, pytest.mark.django_db]

STEPS = [5.0, *[1.0] * 19]
OOM = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1234567890 bytes.\n"

ANYTHING = '{image = ["*"], service_account = ["*"], queue = ["*"], node_selector = ["*"]}'


@pytest.fixture(autouse=True)
def _no_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody takes messages: tests do what workers would."""
    monkeypatch.setattr("celery.app.base.Celery.send_task", lambda self, name, args, **more: None)


@pytest.fixture
def server(people: Any, settings: Any, tmp_path: Any) -> Iterator[FakeKubernetes]:
    """The team's cluster, v6e hosts in a namespace."""
    found = FakeKubernetes()
    (tmp_path / "kubeconfig").write_text(found.kubeconfig())
    operator = tmp_path / "launch.toml"
    operator.write_text(
        f'[kubernetes]\nshared = true\nallow = {ANYTHING}\nnamespace = "training"\n'
        f'kubeconfig = "{tmp_path}/kubeconfig"\n'
    )
    settings.LAUNCH_CONFIG = str(operator)
    values = {"image": "registry.example.org/maxtext:1", "resource": "google.com/tpu"}
    choices.save(people.team, people.administrator, "kubernetes", values)
    yield found
    found.stop()


def begin(people: Any, ready: Any, **more: Any) -> Any:
    asked = Campaign(**{"backend": "cluster", "most_trials": 2, "server": "http://testserver"} | more)
    campaign = campaigns.begin(ready.experiment, people.engineer, asked)
    turn(campaign)
    return campaign


def trial_of(campaign: Any, number: int = 0) -> Any:
    return campaign.trials.select_related("launch", "campaign").get(number=number)


def name_of(campaign: Any, number: int = 0) -> str:
    return str(trial_of(campaign, number).launch.runs.get().name)


def jobs(server: FakeKubernetes) -> list[str]:
    return sorted(name for kind, name in server.objects if kind == "jobs")


def runs(server: FakeKubernetes, name: str) -> None:
    for host in range(server.objects["jobs", name]["spec"]["completions"]):
        server.pod(name, host, phase="Running")


def reports(server: FakeKubernetes, launch: Any, log: bytes = b"", **body: Any) -> None:
    """What `asap_report.py` in the pod of the first host sends, with the token of its Secret."""
    name = launch.runs.get().name
    words = re.search(r"ASAP_TOKEN='?(\w+)", server.objects["secrets", name]["stringData"]["secret.env"])
    assert words is not None
    api = client(words[1])
    if log:
        body["files"] = [send_file(api, place(launch, "trial"), log)]
    assert report(api, place(launch, "trial"), **body).status_code == 200


def dies(server: FakeKubernetes, name: str, code: int = 1, reason: str = "Error", **status: Any) -> None:
    ended = {"name": "train", "image": "x", "imageID": "x", "ready": False, "restartCount": 0,
             "state": {"terminated": {"exitCode": code, "reason": reason}}}  # fmt: skip
    server.pod(name, 0, phase="Failed", containerStatuses=[ended], **status)


def ends(
    server: FakeKubernetes, campaign: Any, name: str, message: str = "Job has reached the specified backoff limit"
) -> None:
    """The Job has failed; nothing was reported, and nothing comes any more."""
    server.finish(name, "Failed", message)
    turn(campaign)
    ArmRun.objects.filter(launch__trial__campaign=campaign, ended_at__isnull=False).update(
        ended_at=timezone.now() - timedelta(minutes=2)
    )
    turn(campaign)


def test_trials_are_jobs_whose_reports_end_them(people, ready, server):
    campaign = begin(people, ready)
    made = []
    for number, step_s in enumerate((1.0, 0.9, 0.8)):
        turn(campaign)
        trial = trial_of(campaign, number)
        name = name_of(campaign, number)
        assert trial.status == TrialStatus.LAUNCHED and jobs(server) == [name]
        spec = server.objects["jobs", name]["spec"]
        pod = spec["template"]["spec"]
        assert spec["completions"] == spec["parallelism"] and spec["backoffLimit"] == 0
        assert pod["containers"][0]["resources"]["limits"]["google.com/tpu"]
        assert f"launch {trial.launch_id}" in server.objects["configmaps", name]["data"]["run.sh"].lower()
        runs(server, name)
        turn(campaign)
        assert trial_of(campaign, number).cluster_run.status == ArmRun.Status.RUNNING
        times = [5.0, *[step_s] * 19]
        reports(server, trial.launch, step_times_s=times, warm_up=1, peak_memory_bytes=10**9)
        made.append(name)
        for _ in range(3):
            turn(campaign)
    assert campaign.status == CampaignStatus.DONE, campaign.reason
    trials = list(campaign.trials.all())
    assert [(trial.status, trial.runs, trial.step_time_s, trial.peak_bytes) for trial in trials] == [
        ("done", 1, 1.0, 1e9), ("done", 1, 0.9, 1e9), ("done", 1, 0.8, 1e9)
    ]  # fmt: skip
    posted = [path for command, path in server.requests if command == "POST" and path.endswith("/jobs")]
    assert len(posted) == len(set(made)) == 3
    launching.follow()
    assert not [key for key in server.objects if key[0] != "pods"]  # with a Job go its files, its token, its Service


def test_what_the_log_of_a_failed_job_says_is_its_cause_and_a_constraint(people, ready, server):
    campaign = begin(people, ready)
    turn(campaign)
    name = name_of(campaign)
    runs(server, name)
    dies(server, name)
    server.logs[f"{name}-0-abcde"] = OOM
    ends(server, campaign, name)
    failed = trial_of(campaign)
    assert failed.status == TrialStatus.FAILED and failed.failure["cause"] == "out_of_memory"
    assert failed.failure["forbidden"]["rule"] == "memory" and failed.failure["confidence"] > 0.5
    turn(campaign)
    assert trial_of(campaign, 1).status == TrialStatus.LAUNCHED  # another, and not the same again


def test_a_pod_that_the_kernel_killed_is_run_once_more_and_forbids_nothing(people, ready, server):
    campaign = begin(people, ready)
    turn(campaign)
    first = name_of(campaign)
    dies(server, first, 137, "OOMKilled")
    ends(server, campaign, first)
    turn(campaign)
    again = trial_of(campaign)
    assert (again.status, again.runs) == (TrialStatus.LAUNCHED, 1) and name_of(campaign) != first
    assert jobs(server) == [name_of(campaign)]
    dies(server, name_of(campaign), 137, "OOMKilled")
    ends(server, campaign, name_of(campaign))
    failed = trial_of(campaign)
    assert (failed.status, failed.runs, failed.failure["cause"]) == (TrialStatus.FAILED, 2, "host_memory")
    assert failed.failure["line"] == "Exit status 137 (OOMKilled)." and not failed.failure.get("forbidden")


def test_a_job_over_its_time_limit_says_so(people, ready, server):
    campaign = begin(people, ready)
    turn(campaign)
    name = name_of(campaign)
    ends(server, campaign, name, message="Job was active longer than specified deadline")
    failed = trial_of(campaign)
    assert failed.failure["cause"] == "time_limit" and failed.runs == 1
