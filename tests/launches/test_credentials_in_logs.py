"""Credentials that a failed run printed: in no table and on no page, however its log came."""

from __future__ import annotations

from typing import Any

import pytest
from django.apps import apps

from campaigns.models import Campaign, TrialStatus
from campaigns.services import campaigns
from proposals.models import Measurement
from tests.backend.factories import upload
from tests.campaigns.cluster import enable, turn
from tests.launches.reports import client, place, report, send_file, times, work

pytestmark = pytest.mark.django_db

SECRETS = ("hf_abcdefghijklmnopqrstuvwxyz", "AKIAIOSFODNN7EXAMPLE", "hunter2", "dXNlcjpwYXNz", "p4ss")
PRINTED = (
    "HTTPError: 401 for https://me:p4ss@hub/x Authorization: Basic dXNlcjpwYXNz HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz "
    "AKIAIOSFODNN7EXAMPLE DB_PASSWORD=hunter2"
)
KNOWN = f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. {PRINTED}"


def stored() -> str:
    return "\n".join(str(row) for model in apps.get_models() for row in model._default_manager.values())


def assert_hidden(*pages: str) -> None:
    everything = stored()
    for secret in SECRETS:
        assert secret not in everything
        assert not any(secret in page for page in pages)
    assert "[hidden]" in everything


@pytest.mark.parametrize("said", [KNOWN, PRINTED], ids=["a known error", "nothing known"])
def test_a_log_and_a_failure_that_a_launch_reports(people: Any, launch: Any, token: str, said: str) -> None:
    api = client(token)
    for repeat in (1, 2):
        where = place(launch, "proposal", repeat)
        log = send_file(api, where, f"repeat {repeat}\n{said}\n".encode())
        assert report(api, where, failure=f"Exit status 1: {said}", files=[log]).status_code == 200
        given = times(1.25, seed=repeat)
        assert report(api, place(launch, "control", repeat), step_times_s=given).status_code == 200
    work(launch)
    assert launch.judged.outcome == "reject" and Measurement.objects.get().status == "failed"
    viewer = people.client("viewer")
    pages = [viewer.get(at).content.decode() for at in (
        f"/proposals/{launch.proposal_id}/launches/", launch.proposal.get_absolute_url(),
        f"/experiments/{launch.experiment_id}/memory/", f"/api/launches/{launch.pk}/",
    )]  # fmt: skip
    assert "[hidden]" in pages[0]
    # Where the log has no known error, what the run itself said of its end is all there is.
    assert ("Exit status 1" in pages[0]) == (said == PRINTED)
    assert_hidden(*pages)


def test_a_log_that_was_uploaded_and_one_that_was_pasted(people: Any, approved: Any) -> None:
    engineer = people.client("engineer")
    at = f"/proposals/{approved.pk}/measurement/failed/"
    shown = engineer.post(f"{at}cause/", {"logs": upload("a.log", KNOWN.encode())}, headers={"HX-Request": "true"})
    engineer.post(at, {"logs": upload("a.log", KNOWN.encode()), "comment": PRINTED})
    made = Measurement.objects.get()
    assert made.failure == "out_of_memory" and "Tried to allocate 2.00 GiB" in made.analysis["line"]
    assert_hidden(shown.content.decode(), engineer.get(approved.get_absolute_url()).content.decode())


def test_what_a_trial_prints_and_what_its_cluster_says(
    people: Any, ready: Any, settings: Any, tmp_path: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr("celery.app.base.Celery.send_task", lambda self, name, args, **more: None)
    (tmp_path / "said").write_text(PRINTED)
    section = f'submit = "echo 7"\nstatus = "bash -c \'echo running; cat {tmp_path}/said >&2; exit 3\'"'
    enable(people, settings, tmp_path, section)
    campaign = campaigns.begin(
        ready.experiment, people.engineer, Campaign(backend="cluster", most_trials=2, server="http://testserver")
    )
    turn(campaign)
    trial = campaign.trials.select_related("launch").get()
    assert "[hidden]" in trial.launch.runs.get().reason
    api = people.api("engineer")
    log = send_file(api, place(trial.launch, "trial"), KNOWN.encode())
    assert report(api, place(trial.launch, "trial"), failure=PRINTED, files=[log]).status_code == 200
    turn(campaign)
    assert campaign.trials.get(number=0).status == TrialStatus.FAILED
    assert_hidden(people.client("viewer").get(f"/campaigns/{campaign.pk}/").content.decode())
