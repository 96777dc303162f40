"""Trials on the team's cluster: launched, reported, stored; what vanishes, is refused, paused, cancelled, restarted."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone
from knox.models import AuthToken

from campaigns import presentation
from campaigns.models import Campaign, CampaignStatus, TrialStatus
from campaigns.services import campaigns, launched, planning, running
from campaigns.services.campaigns import CampaignError
from launches.models import ArmRun, Launch
from launches.services import launching, queue, reporting
from tests.backend.threads import in_threads
from tests.campaigns.cluster import enable, settle, turn
from tests.launches.reports import client, place, report, send_file, work

pytestmark = [pytest.mark.slow, pytest.mark.django_db]

#: A training program: slower by 10 % per chip of tensor parallelism; the second run is out of memory.
PROGRAM = """
import os, sys, yaml
config = yaml.safe_load(open("config.yaml"))
runs = len(os.listdir(sys.argv[1]))
open(os.path.join(sys.argv[1], os.environ["ASAP_LAUNCH"]), "w").close()
if runs == 1:
    sys.exit("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1234567890 bytes.")
step = 1.0 + 0.1 * config["mesh"]["ici"].get("model", 1)
for n in range(int(os.environ["STEPS"])):
    print(f"asap_step_time_s={step * (10 if n == 0 else 1 + 0.001 * (n % 3))}", "max allocated: 2048.0", flush=True)
"""
STEPS = [5.0, *[1.0] * 19]


@pytest.fixture(autouse=True)
def sent(monkeypatch):
    """Nobody takes messages: tests do what workers would."""
    found: list[tuple[str, int]] = []
    monkeypatch.setattr(
        "celery.app.base.Celery.send_task", lambda self, name, args, **more: found.append((name, args[0]))
    )
    return found


@pytest.fixture
def silent(people, settings, tmp_path):
    """A cluster that takes every job, says nothing of it and lists what it cancelled."""
    section = f'submit = "echo {{name}}"\ncancel = "bash -c \'echo {{name}} >> {tmp_path}/cancelled\'"'
    enable(people, settings, tmp_path, section)
    return tmp_path / "cancelled"


def begin(people, ready, **more):
    asked = Campaign(**{"backend": "cluster", "most_trials": 3, "server": "http://testserver"} | more)
    return campaigns.begin(ready.experiment, people.engineer, asked)


def first(campaign):
    return campaign.trials.select_related("launch", "campaign").get(number=0)


def reported(people, launch, **body):
    run = launch.runs.get()
    assert report(people.api("engineer"), place(launch, "trial"), **body).status_code == 200
    work(launch)
    run.refresh_from_db()
    return run


@pytest.mark.django_db(transaction=True)
@pytest.mark.timeout(300)
def test_a_campaign_through_a_command_and_asap_report_to_its_end(people, ready, live_server, settings, tmp_path):
    (tmp_path / "seen").mkdir()
    (tmp_path / "train.py").write_text(PROGRAM)
    command = f"{sys.executable} {tmp_path}/train.py {tmp_path}/seen"
    values = {"command": command, "setup": f"export ASAP_SPOOL={tmp_path}/spool"}
    enable(people, settings, tmp_path, 'submit = "bash {script}"\nbackground = true', **values)
    campaign = settle(begin(people, ready, tool="own", steps=12, server=live_server.url))
    assert campaign.status == CampaignStatus.DONE and "3 trials" in campaign.reason
    trials = list(campaign.trials.all())
    assert [trial.number for trial in trials] == [0, 1, 2, 3]
    for trial in trials:
        if trial.number != 1:
            assert trial.status == TrialStatus.DONE, trial.failure
            model = trial.mesh["ici"].get("model", 1)
            assert trial.step_time_s == pytest.approx(1.0 + 0.1 * model, rel=0.01)  # the first step, ten times as long
            assert len(trial.step_times_s) == 11 and trial.peak_bytes == 2**31 and 0 < trial.mfu
            assert not trial.modelled and trial.started_at <= trial.finished_at
    assert trials[1].status == TrialStatus.FAILED
    assert trials[1].failure["cause"] == "out_of_memory" and trials[1].failure["forbidden"]["rule"] == "memory"
    assert len(list((tmp_path / "seen").iterdir())) == 4  # each ran once
    assert not AuthToken.objects.filter(scoped__isnull=False).exists()
    assert not Launch.objects.filter(closed_at=None).exists()
    page = people.client("viewer").get(f"/campaigns/{campaign.pk}/").content.decode()
    assert "The team's cluster, 12 steps per trial" in page.replace("&#x27;", "'")
    assert page.count(">Bundle<span") == 4


def test_no_worker_waits_for_the_cluster_and_a_restart_launches_nothing_twice(
    people, ready, silent, sent, django_capture_on_commit_callbacks
):
    campaign = begin(people, ready)
    turn(campaign)
    trial = first(campaign)
    assert (trial.status, trial.worker) == (TrialStatus.LAUNCHED, "")
    assert trial.launch.runs.get().status == "submitted"
    later = timezone.now() - timedelta(hours=2)
    campaign.trials.update(heartbeat_at=later, created_at=later)
    assert planning.TRIALS.sweep() == []
    running.run(trial.pk)  # a message that was delivered twice
    turn(campaign)
    assert Launch.objects.count() == 1
    reported(people, trial.launch, step_times_s=STEPS, peak_memory_bytes=10**9)
    with django_capture_on_commit_callbacks(execute=True):
        launched.follow()
        launched.follow()
    trial.refresh_from_db()
    assert (trial.status, trial.step_time_s, trial.runs) == (TrialStatus.DONE, 1.0, 1)
    assert ("work.campaigns.campaign", campaign.pk) in sent


def test_a_worker_that_died_while_it_launched_is_replaced(people, ready, silent):
    campaign = begin(people, ready)
    trial = first(campaign)
    assert planning.TRIALS.claim(trial.pk, "elsewhere/1/1/1")  # and never came back
    campaign.trials.update(heartbeat_at=timezone.now() - timedelta(minutes=2))
    assert planning.TRIALS.sweep() == [trial.pk]
    running.run(trial.pk)
    trial.refresh_from_db()
    assert trial.status == TrialStatus.LAUNCHED and Launch.objects.count() == 1


def test_its_token_reports_to_this_trial_only(people, ready, silent):
    campaign = begin(people, ready, parallel=2)
    turn(campaign)
    turn(campaign)
    one, other = (trial.launch for trial in campaign.trials.select_related("launch").order_by("number")[:2])
    token = launching.new_token(one, people.engineer)
    assert report(client(token), place(other, "trial"), step_times_s=STEPS).status_code == 403
    assert report(client(token), place(one, "control"), step_times_s=STEPS).status_code == 404
    assert client(token).get(f"/api/campaigns/{campaign.pk}/").status_code == 401
    assert report(client(token), place(one, "trial"), step_times_s=STEPS).status_code == 200


def test_a_failure_is_read_from_the_log_that_was_sent(people, ready, silent):
    campaign = begin(people, ready)
    turn(campaign)
    launch = first(campaign).launch
    log = send_file(people.api("engineer"), place(launch, "trial"), b"RESOURCE_EXHAUSTED: Out of memory allocating 1 b")
    reported(people, launch, failure="Exit status 1.", files=[log])
    launched.follow()
    trial = first(campaign)
    assert trial.status == TrialStatus.FAILED and trial.failure["cause"] == "out_of_memory"
    turn(campaign)
    assert campaign.trials.filter(number=1, status=TrialStatus.LAUNCHED).exists()  # and the next is on its way


def test_a_preempted_trial_is_launched_once_more(people, ready, silent):
    campaign = begin(people, ready)
    turn(campaign)
    launch = first(campaign).launch
    words = b"slurmstepd: error: *** JOB 4242 ON node1 CANCELLED AT 2026-01-01T00:00:00 DUE TO PREEMPTION ***"
    log = send_file(people.api("engineer"), place(launch, "trial"), words)
    reported(people, launch, failure="Exit status 143.", files=[log])
    turn(campaign)
    turn(campaign)
    trial = first(campaign)
    assert (trial.status, trial.runs) == (TrialStatus.LAUNCHED, 1) and trial.launch != launch
    reported(people, trial.launch, step_times_s=STEPS)
    launched.follow()
    assert first(campaign).status == TrialStatus.DONE


@pytest.mark.django_db(transaction=True)
def test_cancelling_ends_the_jobs_on_the_cluster(people, ready, settings, tmp_path):
    section = f"submit = \"bash -c 'touch {tmp_path}/begun; exec sleep 600'\"\nbackground = true"
    enable(people, settings, tmp_path, section)
    campaign = begin(people, ready)
    turn(campaign)
    turn(campaign)
    run = first(campaign).launch.runs.get()
    pid = int(run.job.split()[1].partition("/")[0])
    assert run.status == "running" and Path(f"/proc/{pid}").exists()
    campaigns.change(campaign, people.engineer, "cancel")
    assert first(campaign).status == TrialStatus.CANCELLED
    launched.follow()
    launching.follow()
    run.refresh_from_db()
    assert run.status == "cancelled" and run.released
    end = time.monotonic() + 20
    while Path(f"/proc/{pid}/stat").exists() and " Z " not in Path(f"/proc/{pid}/stat").read_text():
        assert time.monotonic() < end, "the job still runs"
        time.sleep(0.1)
    assert not Launch.objects.filter(closed_at=None).exists()


def test_pausing_withdraws_what_waits_and_lets_what_runs_go_on(people, ready, silent):
    campaign = begin(people, ready, parallel=2)
    turn(campaign)
    turn(campaign)
    waits, runs = campaign.trials.select_related("launch").order_by("number")[:2]
    ArmRun.objects.filter(launch=runs.launch).update(status=ArmRun.Status.RUNNING)
    campaigns.change(campaign, people.engineer, "pause")
    launched.follow()
    launching.follow()
    waits.refresh_from_db()
    assert waits.status == TrialStatus.PAUSED and waits.launch.closed_at
    assert silent.read_text().split() == [waits.launch.runs.get().name]
    reported(people, runs.launch, step_times_s=STEPS)
    launched.follow()
    runs.refresh_from_db()
    assert runs.status == TrialStatus.DONE
    campaigns.change(campaign, people.engineer, "resume")
    turn(campaign)
    again = campaign.trials.get(number=waits.number)
    assert again.status == TrialStatus.LAUNCHED and again.launch != waits.launch


def test_a_job_that_vanishes_fails_with_a_sentence(people, ready, settings, tmp_path):
    enable(people, settings, tmp_path, 'submit = "echo 7"\nstatus = "echo gone The reservation {job} has ended."')
    campaign = begin(people, ready)
    turn(campaign)
    turn(campaign)
    assert first(campaign).status == TrialStatus.LAUNCHED  # its report may still come
    ArmRun.objects.update(ended_at=timezone.now() - timedelta(minutes=2))
    turn(campaign)
    failed = first(campaign)
    assert failed.status == TrialStatus.FAILED
    assert failed.failure["sentence"] == "The reservation 7 has ended."


def given_up(people, campaign):
    """A trial of which nobody heard for as long as its token was valid; the page of its campaign."""
    turn(campaign)
    launching.follow()
    run = first(campaign).launch.runs.get()
    assert run.status == "submitted" and "No status command is set" in run.reason
    ArmRun.objects.filter(pk=run.pk).update(submitted_at=timezone.now() - timedelta(days=6, hours=23))
    turn(campaign)
    assert first(campaign).status == TrialStatus.LAUNCHED  # it may still report
    ArmRun.objects.filter(pk=run.pk).update(submitted_at=timezone.now() - timedelta(days=7, minutes=1))
    launching.follow()
    launched.follow()
    launching.follow()
    failed = first(campaign)
    assert failed.status == TrialStatus.FAILED and failed.launch.closed_at
    assert "No report arrived while its token was valid (7 days)" in failed.failure["sentence"]
    return run, people.client("viewer").get(f"/campaigns/{campaign.pk}/").content.decode()


def test_a_trial_that_stays_silent_is_given_up_and_its_job_cancelled(people, ready, silent):
    campaign = begin(people, ready, parallel=1)
    run, page = given_up(people, campaign)
    assert silent.read_text().split() == [run.name]
    assert f"Its job {run.name} is being cancelled." in page and "no cancel command" not in page
    turn(campaign)
    assert campaign.status == CampaignStatus.RUNNING and campaign.trials.count() == 2  # it continues with another


def test_a_job_that_nobody_here_can_end_is_named(people, ready, settings, tmp_path):
    enable(people, settings, tmp_path, 'submit = "echo 77"')
    campaign = begin(people, ready, parallel=1)
    _, page = given_up(people, campaign)
    assert "command.here has no cancel command: end job 77 there if it still runs." in page


def test_cancelling_says_where_a_job_runs_on(people, ready, settings, tmp_path):
    enable(people, settings, tmp_path, 'submit = "echo 77"')
    campaign = begin(people, ready)
    turn(campaign)
    campaigns.change(campaign, people.engineer, "cancel")
    launched.follow()
    page = people.client("viewer").get(f"/campaigns/{campaign.pk}/").content.decode()
    assert "command.here has no cancel command: end job 77 there if it still runs." in page


def test_a_cluster_that_takes_no_job_pauses_the_campaign_until_it_does(people, ready, settings, tmp_path):
    enable(people, settings, tmp_path, 'submit = "false"')
    campaign = begin(people, ready, parallel=2)
    for _ in range(3):
        turn(campaign)
    assert campaign.status == CampaignStatus.PAUSED and "false ended with status 1" in campaign.reason
    assert not campaign.trials.exclude(status=TrialStatus.PAUSED).exists()  # nothing counts as a failure
    enable(people, settings, tmp_path, 'submit = "echo {name}"')
    campaigns.change(campaign, people.engineer, "resume")
    turn(campaign)
    assert campaign.status == CampaignStatus.RUNNING and not campaign.reason
    assert first(campaign).status == TrialStatus.LAUNCHED


def test_waiting_in_the_queue_of_the_cluster_is_not_spent(people, ready, silent):
    campaign = begin(people, ready, most_dollars=100.0, dollars_per_chip_hour=2.0)
    turn(campaign)
    launch = first(campaign).launch
    now = timezone.now()
    run = reported(people, launch, step_times_s=STEPS)
    ArmRun.objects.filter(pk=run.pk).update(
        submitted_at=now - timedelta(hours=9), began_at=now - timedelta(minutes=6), reported_at=now
    )
    launched.follow()
    trial = first(campaign)
    assert trial.finished_at - trial.started_at == timedelta(minutes=6)


def lasted(run, hours: float) -> None:
    now = timezone.now()
    ArmRun.objects.filter(pk=run.pk).update(began_at=now - timedelta(hours=hours), reported_at=now)


def test_every_run_of_a_trial_is_spent(people, ready, silent):
    campaign = begin(people, ready, most_s=10_000.0)
    turn(campaign)
    launch = first(campaign).launch
    words = b"slurmstepd: error: *** JOB 4242 ON node1 CANCELLED AT 2026-01-01T00:00:00 DUE TO PREEMPTION ***"
    log = send_file(people.api("engineer"), place(launch, "trial"), words)
    lasted(reported(people, launch, failure="Exit status 143.", files=[log]), hours=2.0)
    turn(campaign)
    turn(campaign)
    again = first(campaign)
    assert again.status == TrialStatus.LAUNCHED and campaign.status == CampaignStatus.RUNNING
    lasted(reported(people, again.launch, step_times_s=STEPS), hours=1.0)
    turn(campaign)
    turn(campaign)
    assert first(campaign).ran_s == pytest.approx(3 * 3600.0, rel=0.01)
    assert campaign.status == CampaignStatus.DONE and "The budget of" in campaign.reason
    assert presentation.overview(campaign, list(campaign.trials.all()))["busy_s"] == first(campaign).ran_s


def test_what_runs_now_is_spent_until_now_and_when_it_is_cancelled(people, ready, silent):
    campaign = begin(people, ready, parallel=2, most_s=3600.0)
    turn(campaign)
    turn(campaign)
    ended, runs = campaign.trials.select_related("launch").order_by("number")[:2]
    begun = timezone.now() - timedelta(hours=2)
    ArmRun.objects.filter(launch=runs.launch).update(status=ArmRun.Status.RUNNING, began_at=begun)
    reported(people, ended.launch, step_times_s=STEPS)
    turn(campaign)
    turn(campaign)
    assert campaign.status == CampaignStatus.RUNNING and campaign.trials.count() == 2  # nothing new
    campaigns.change(campaign, people.engineer, "cancel")
    runs.refresh_from_db()
    assert runs.status == TrialStatus.CANCELLED and runs.ran_s == pytest.approx(7200.0, rel=0.05)


def test_a_trial_that_is_about_to_be_launched_while_somebody_pauses_stays_back(people, ready, silent, monkeypatch):
    campaign = begin(people, ready)
    drafted = launched.drafted

    def meanwhile(*given):
        campaigns.change(campaign, people.engineer, "pause")
        return drafted(*given)

    monkeypatch.setattr(launched, "drafted", meanwhile)
    turn(campaign)
    assert first(campaign).status == TrialStatus.PAUSED and not Launch.objects.exists()


def test_a_long_campaign_has_no_more_jobs_than_asked_for(people, ready, silent):
    campaign = campaigns.begin(ready.experiment, people.engineer, Campaign(most_trials=41, to_budget=True))
    settle(campaign)  # of the model's trials three are planned at a time after 40
    on_cluster = {"backend": "cluster", "tool": "maxtext", "steps": 20, "server": "http://testserver"}
    again = {"status": CampaignStatus.RUNNING, "most_trials": 60, "reason": "", "finished_at": None}
    type(campaign).objects.filter(pk=campaign.pk).update(**on_cluster, **again)
    turn(campaign)
    turn(campaign)
    assert campaign.trials.filter(status=TrialStatus.LAUNCHED).count() == Launch.objects.count() == 1


def test_a_deleted_campaign_leaves_nothing_on_the_cluster(people, ready, silent):
    campaign = begin(people, ready)
    turn(campaign)
    name = first(campaign).launch.runs.get().name
    campaign.delete()
    launched.follow()
    launching.follow()
    assert silent.read_text().split() == [name]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"tool": "megatron"}, "Megatron-LM runs on GPUs"),
        ({"tool": "own"}, "No custom command is set"),
        ({"tool": "bash"}, "Choose the training program"),
    ],
)
def test_what_cannot_be_launched_is_said_before_it_begins(people, ready, silent, given, sentence):
    with pytest.raises(CampaignError, match=sentence):
        begin(people, ready, **given)


def test_a_team_without_a_cluster_is_told_where_to_name_one(people, ready):
    answer = people.client("engineer").post(
        f"/experiments/{ready.experiment.pk}/campaigns/", {"backend": "cluster", "most_trials": 2, "parallel": 1}
    )
    assert answer.status_code == 400 and "choose a cluster under Settings, Launching" in answer.content.decode()
    body = {"experiment": ready.experiment.pk, "backend": "cluster"}
    told = people.api("engineer").post("/api/campaigns/", body, format="json")
    assert told.status_code == 400 and "Settings, Launching" in str(told.json())


def test_page_and_rest_show_where_a_trial_is(people, ready, silent):
    answer = people.client("engineer").post(
        f"/experiments/{ready.experiment.pk}/campaigns/",
        {"backend": "cluster", "most_trials": 2, "parallel": 1, "tool": "maxtext", "steps": 20},
    )
    campaign = ready.experiment.campaigns.get()
    assert answer.headers["location"] == f"/campaigns/{campaign.pk}/"
    turn(campaign)
    launch = first(campaign).launch
    page = people.client("viewer").get(f"/campaigns/{campaign.pk}/").content.decode()
    assert "On the cluster" in page and f"job asap-{launch.pk}-trial-1" in page
    told = people.api("viewer").get(f"/api/campaigns/{campaign.pk}/trials/").json()["results"][0]
    assert (told["status"], told["launch"]) == ("launched", launch.pk)
    about = people.api("viewer").get(f"/api/launches/{launch.pk}/").json()
    assert about["proposal"] is None and about["experiment"] == ready.experiment.pk
    assert people.api("viewer").get("/api/launches/").status_code == 200
    bundle = people.client("viewer").get(f"/launches/{launch.pk}/bundle/trial.zip")
    assert bundle.status_code == 200 and bundle.headers["content-type"] == "application/zip"
    assert people.client("outsider").get(f"/launches/{launch.pk}/bundle/trial.zip").status_code == 404
    for arm in ("proposal", "control"):
        assert people.client("viewer").get(f"/launches/{launch.pk}/bundle/{arm}.zip").status_code == 404
    assert people.client("viewer").get(f"/launches/{launch.pk}/").status_code == 404  # its page is the campaign's


@pytest.mark.django_db(transaction=True)
def test_four_workers_with_kills_launch_and_store_every_trial_once(people, ready, silent):
    """Each worker dies at every third trial and every third run that it takes; two clocks follow at the same time."""
    campaign = begin(people, ready, most_trials=12, parallel=4, to_budget=True)

    def dies_with(jobs, pk: int, number: str) -> None:
        jobs.claim(pk, f"elsewhere/{number}/1/1")
        stale = {"heartbeat_at": timezone.now() - timedelta(minutes=2), "attempts": 0}
        jobs.model.objects.filter(pk=pk, worker=f"elsewhere/{number}/1/1").update(**stale)
        jobs.sweep()

    def one_of(rows) -> int | None:
        return rows.order_by("?").values_list("pk", flat=True).first()

    def worker(index: int) -> None:
        end = time.monotonic() + 120
        for turn_ in range(10_000):
            assert time.monotonic() < end
            campaigns.plan(campaign.pk)
            for jobs, act, waits in (
                (planning.TRIALS, running.run, campaign.trials.filter(status__in=("waiting", "running"))),
                (queue.RUNS, launching.advance, ArmRun.objects.filter(status__in=("queued", "collecting"))),
            ):
                if (pk := one_of(waits)) is not None and turn_ % 3 == 2:
                    dies_with(jobs, pk, f"{index}-{turn_}")
                elif pk is not None:
                    act(pk)
            if (pk := one_of(ArmRun.objects.filter(status="submitted"))) is not None:
                with suppress(reporting.ReportError):  # another has reported it
                    reporting.report(ArmRun.objects.get(pk=pk), reporting.RankReport.read({"step_times_s": STEPS}))
            if index < 2:
                launched.follow()
            if not type(campaign).objects.filter(pk=campaign.pk, status="running").exists():
                return

    assert in_threads(4, worker) == [None] * 4
    campaign.refresh_from_db()
    assert campaign.status == CampaignStatus.DONE, campaign.reason
    trials = list(campaign.trials.select_related("launch"))
    assert [trial.number for trial in trials] == list(range(13))
    assert {(trial.status, trial.runs, trial.step_time_s) for trial in trials} == {("done", 1, 1.0)}
    assert Launch.objects.count() == 13 and not Launch.objects.filter(closed_at=None).exists()
    assert len({trial.launch_id for trial in trials}) == 13
    launching.follow()
    assert not ArmRun.objects.filter(released=False).exclude(job="").exists()
