"""A wave from launch to verdict and measurement, with what a cluster reports standing in for the cluster."""

from __future__ import annotations

import io
import zipfile

import pytest

from experiments.models import Event
from jobs.jobs import Jobs
from launches.models import Launch
from launches.services import launching
from proposals.agents.references import resolve
from proposals.agents.tools.look import Look, look
from proposals.models import Measurement
from proposals.services import stored
from tests.backend.measured_runs import analyse, step_of
from tests.launches.reports import client, place, report, report_all, send_file, times, work


def test_both_arms_are_bundled_with_profiling_and_reporting(people, launch):
    engineer = people.client("engineer")
    for arm, flag in (("proposal", "ici_fsdp_parallelism=16"), ("control", "ici_context_parallelism=4")):
        packed = engineer.get(f"/launches/{launch.pk}/bundle/{arm}.zip")
        files = zipfile.ZipFile(io.BytesIO(packed.content))
        assert set(files.namelist()) == {"run.sh", "maxtext.sh", "config.yaml", "asap_report.py", "README.txt"}
        script = files.read("maxtext.sh").decode()
        assert flag in script and "profiler=" in script
        assert f"ASAP_ARM={arm}" in files.read("run.sh").decode()
        assert people.client("outsider").get(f"/launches/{launch.pk}/bundle/{arm}.zip").status_code == 404


def test_a_faster_proposal_is_adopted_and_measured_against_its_control_arm(people, launch, token):
    """Control 1.25 s, proposal 1.0 s: 1.25×, although the profile that the proposal was made from said otherwise."""
    api = client(token)
    profile = send_file(api, place(launch), b"\x0a\x00", kind="profile", name="host0.xplane.pb")
    first = times(1.003, seed=10)
    assert report(api, place(launch), step_times_s=first, files=[profile]).status_code == 200
    work(launch)
    run = launch.runs.get(arm="proposal", repeat=1)
    assert run.status == "reported" and run.experiment.label == f"launch {launch.pk}, proposal arm"
    for arm, repeat, median_s in (("control", 1, 1.253), ("proposal", 2, 1.006), ("control", 2, 1.257)):
        given = times(median_s, seed=repeat * 10 + (arm == "control"))
        assert report(api, place(launch, arm, repeat), step_times_s=given).status_code == 200
    work(launch)
    verdict = launch.judged
    assert verdict.outcome == "adopt" and verdict.low < 1.25 < verdict.high
    made = Measurement.objects.get(proposal=launch.proposal)
    assert made.status == "linked" and made.experiment == run.experiment
    analyse(run.experiment, step_of(1.7))  # profiled steps are slower; the times of the wave count
    made.refresh_from_db()
    assert made.status == "measured" and made.outcome == "faster"
    assert made.speedup == pytest.approx(verdict.speedup) and made.before_step_time_s == pytest.approx(1.25, rel=0.01)
    kinds = list(Event.objects.filter(kind="launch").values_list("data__outcome", flat=True))
    assert kinds == [None, "adopt"]
    page = people.client("viewer").get(f"/proposals/{launch.proposal_id}/launches/").content.decode()
    assert "Adopt" in page and "faster than its control arm" in page and "within the predicted 80 %" in page


def test_agents_look_at_a_launch_while_it_runs_and_at_its_verdict(people, ready, launch, token):
    bench = stored.workbench(ready.experiment, people.engineer)
    (running,) = look(bench, Look(part="launches")).launches
    assert (running.launch, running.proposal, running.state, running.verdict) == (launch.pk, 1, "running", "")
    assert [dict(arm.runs) for arm in running.arms] == [{"submitted": 2}, {"submitted": 2}]
    report_all(client(token), launch, 1.0, 1.25)
    found = look(bench, Look(part="launches"))
    (ended,) = found.launches
    verdict = launch.judged
    assert (ended.state, ended.verdict, ended.says) == ("ended", "Adopt", verdict.sentence)
    assert (ended.speedup_per_token, ended.speedup_low95) == (verdict.speedup, verdict.low)
    printed = resolve("{r.launches[0].arms[0].step_time_s} {r.launches[0].speedup_per_token}", {"r": found})
    assert [(value.value, value.origin) for value in printed.values] == [
        (verdict.proposal.median_s, "measured"), (verdict.speedup, "measured"),
    ]  # fmt: skip
    assert printed.values[1].href == launch.get_absolute_url()


def test_no_difference_is_said_and_is_no_change_in_the_history(people, launch, token):
    report_all(client(token), launch, 1.25, 1.25)
    assert launch.judged.outcome == "no_difference"
    made = Measurement.objects.get(proposal=launch.proposal)
    analyse(made.experiment, step_of(1.25))
    made.refresh_from_db()
    assert made.outcome == "no_change"
    assert any("No difference from the control arm" in line for line in made.caveats)


def test_a_proposal_that_runs_out_of_memory_is_rejected_and_remembered(people, launch, token):
    api = client(token)
    for repeat in (1, 2):
        where = place(launch, "proposal", repeat)
        log = send_file(
            api, where, f"repeat {repeat}\nRESOURCE_EXHAUSTED: Out of memory allocating 1 bytes.\n".encode()
        )
        assert report(api, where, failure="Exit status 1.", files=[log]).status_code == 200
        given = times(1.25, seed=repeat)
        assert report(api, place(launch, "control", repeat), step_times_s=given).status_code == 200
    work(launch)
    assert launch.judged.outcome == "reject"
    made = Measurement.objects.get(proposal=launch.proposal)
    assert made.status == "failed" and made.failure == "out_of_memory" and made.record


def test_where_the_baseline_fails_too_nothing_is_learnt(launch, token):
    api = client(token)
    for repeat in (1, 2):
        for arm in ("proposal", "control"):
            assert report(api, place(launch, arm, repeat), failure="Exit status 1.").status_code == 200
    work(launch)
    assert launch.judged.outcome == "undecided" and not Measurement.objects.exists()


def test_one_repeat_of_each_arm_gives_no_verdict(people, approved):
    launch = launching.launch(approved, people.engineer, tool="maxtext", repeats=1, steps=30, server="http://x")
    report_all(client(launching.new_token(launch, people.engineer)), launch, 1.0, 1.25)
    assert launch.judged.outcome == "undecided" and "2 are needed" in launch.judged.sentence
    assert not Measurement.objects.exists()


def test_it_can_be_cancelled_and_launched_again(people, launch, approved, token):
    with pytest.raises(launching.LaunchError, match="already running"):
        launching.launch(approved, people.engineer, tool="maxtext", repeats=1, steps=5, server="http://x")
    assert people.client("viewer").post(f"/launches/{launch.pk}/cancel/").status_code == 403
    people.client("engineer").post(f"/launches/{launch.pk}/cancel/")
    launch.refresh_from_db()
    assert launch.closed_at and launch.judged.outcome == "undecided"
    assert {run.status for run in launch.runs.all()} == {"cancelled"}
    assert report(client(token), place(launch)).status_code == 401
    launching.launch(approved, people.engineer, tool="maxtext", repeats=1, steps=5, server="http://x")


def test_only_what_is_approved_and_expressible_is_launched(people, ready, approved):
    def post(proposal, **more):
        body = {"proposal": proposal.pk, "tool": "maxtext", "repeats": 2, "steps": 10, **more}
        return people.api("engineer").post("/api/launches/", body, format="json")

    waiting = post(ready.plan.proposals.get(rank=2))
    assert waiting.status_code == 409 and "Only an approved proposal" in waiting.json()["detail"]
    megatron = post(approved, tool="megatron")
    assert megatron.status_code == 409 and "Megatron-LM runs on GPUs" in megatron.json()["detail"]
    own = post(approved, tool="own")
    assert own.status_code == 409 and "No custom command is set" in own.json()["detail"]
    assert post(approved, repeats=11).status_code == 400 and post(approved, tool="bash").status_code == 400
    assert not Launch.objects.exists()
    made = post(approved)
    assert made.status_code == 201 and len(made.json()["runs"]) == 4 and made.json()["verdict"] is None
    assert people.api("viewer").get(f"/api/launches/{made.json()['id']}/").status_code == 200
    assert people.api("outsider").get(f"/api/launches/{made.json()['id']}/").status_code == 404
    assert people.api("engineer").post(f"/api/launches/{made.json()['id']}/cancel/").status_code == 200
    assert people.api("engineer").post(f"/api/launches/{made.json()['id']}/cancel/").status_code == 409


def test_a_late_rank_holds_a_run_up_for_a_quarter_of_an_hour_only(launch, token):
    from datetime import timedelta

    from django.utils import timezone

    api = client(token)
    assert report(api, place(launch), rank=0, ranks=2, step_times_s=times(1.0, 1)).status_code == 200
    launching.follow()
    run = launch.runs.get(arm="proposal", repeat=1)
    assert run.status == "submitted"
    launch.runs.filter(pk=run.pk).update(reported_at=timezone.now() - timedelta(minutes=16))
    launching.follow()
    work(launch)
    run.refresh_from_db()
    assert run.status == "reported"


def test_a_run_that_another_worker_took_over_and_submitted_is_not_read_before_it_reports(launch, monkeypatch):
    """Between claim and read the worker looked dead, and another did its work."""
    run = launch.runs.first()
    type(run).objects.filter(pk=run.pk).update(status="queued", worker="")
    claim = Jobs.claim

    def taken_over(jobs, pk, worker, **values):
        claimed = claim(jobs, pk, worker, **values)
        jobs.model.objects.filter(pk=pk).update(status="submitted", worker="")
        return claimed

    monkeypatch.setattr(Jobs, "claim", taken_over)
    launching.advance(run.pk)
    run.refresh_from_db()
    assert (run.status, run.reason) == ("submitted", "")
