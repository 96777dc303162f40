"""Campaigns as workers run them: to the end, through deaths, several at a time, within their budget."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.db import connection
from django.utils import timezone

from campaigns.backends import Modelled, Outcome
from campaigns.engine.space import Space, key_of, searched
from campaigns.models import Campaign, CampaignStatus, Trial, TrialStatus
from campaigns.services import campaigns, planning, running, spaces
from campaigns.services.campaigns import CampaignError
from diagnosis.models import DiagnosisRecord
from evaluation.campaigns.landscape import listed
from perfmodel.config_file import parse_config
from tests.backend.factories import CONFIG
from tests.backend.threads import in_threads

pytestmark = [pytest.mark.slow, pytest.mark.django_db]

OUT_OF_MEMORY = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1234567890 bytes."


@pytest.fixture(autouse=True)
def sent(monkeypatch):
    """Nobody takes messages: tests work on what waits themselves."""
    found: list[tuple[str, int]] = []
    monkeypatch.setattr(
        "celery.app.base.Celery.send_task", lambda self, name, args, **more: found.append((name, args[0]))
    )
    return found


def work(campaign, most=200):
    """What one worker would do until nothing waits."""
    campaigns.plan(campaign.pk)
    for _ in range(most):
        waiting = campaign.trials.filter(status__in=("waiting", "running"), worker="").order_by("number").first()
        if waiting is None:
            break
        running.run(waiting.pk)
    campaign.refresh_from_db()
    return campaign


def runs(count=60, failing=()):
    """Configurations and outcomes: the model's own times, the larger of two neighbours failing where asked."""
    space = searched(parse_config(CONFIG)[0])
    others = [row for row in range(len(space.candidates)) if row != space.baseline]
    found = []
    for number, row in enumerate([space.baseline, *others[: count - 1]]):
        time_s = float(space.candidates.time_s[row]) * (1.0 + 0.01 * (number % 7))
        outcome = Outcome(log=OUT_OF_MEMORY) if number in failing else Outcome((time_s,), 1e10)
        found.append((space.candidates.configs[row], outcome))
    return found


def most_promising(count=5):
    """Numbers of the runs of `runs()` that the model says are the fastest: what a campaign tries first."""
    times = [outcome.step_times_s[0] for _, outcome in runs()]
    return sorted(range(1, len(times)), key=times.__getitem__)[:count]


def begin(people, ready, **more):
    return campaigns.begin(ready.experiment, people.engineer, Campaign(**more))


@pytest.fixture
def recorded(people, ready, monkeypatch):
    """Begins a campaign whose candidates are some runs, which are looked up instead of run."""

    def begin_recorded(count=60, failing=(), **more):
        configs = [config for config, _ in runs(count, failing)]
        outcomes = {key_of(config): outcome for config, outcome in runs(count, failing)}
        field = Space(parse_config(CONFIG)[0], listed(configs), 0, len(configs), {})
        lookup = SimpleNamespace(measure=lambda config, stop: outcomes[key_of(config)])
        monkeypatch.setattr(spaces, "space_of", lambda campaign: field)
        monkeypatch.setattr(running, "backend_of", lambda campaign: lookup)
        return begin(people, ready, **more)

    return begin_recorded


def test_a_campaign_measures_the_baseline_and_then_what_promises_most(people, ready):
    campaign = work(begin(people, ready, most_trials=8))
    assert campaign.status == CampaignStatus.DONE
    trials = list(campaign.trials.all())
    assert [trial.number for trial in trials] == list(range(len(trials)))
    baseline = trials[0]
    assert baseline.mesh["ici"] == CONFIG["mesh"]["ici"]
    # A trial of the model has the price of every page.
    assert len(trials) > 1
    assert all(trial.step_time_s == pytest.approx(trial.predicted_step_time_s) for trial in trials[1:])


def test_a_failed_trial_of_a_campaign_that_goes_on_meanwhile_waits_for_a_worker(people, recorded):
    campaign = recorded(most_trials=9)
    trial = campaign.trials.get(number=0)
    Trial.objects.filter(pk=trial.pk).update(status=TrialStatus.FAILED)
    campaigns.change(campaign, people.engineer, "pause")
    seen = Trial.objects.select_related("campaign").get(pk=trial.pk)
    campaigns.change(campaign, people.engineer, "resume")
    campaigns.retry(seen, people.engineer)
    trial.refresh_from_db()
    assert trial.status == TrialStatus.WAITING


def test_it_finds_the_fastest_run(recorded):
    campaign = work(recorded(most_trials=12))
    best = min(outcome.step_times_s[0] for _, outcome in runs())
    found = min(trial.step_time_s for trial in campaign.trials.all() if trial.step_time_s)
    assert found <= 1.02 * best


def test_the_budget_of_trials_holds_and_is_said(recorded):
    campaign = work(recorded(most_trials=3))
    assert campaign.trials.filter(number__gt=0).count() == 3
    assert "3 trials" in campaign.reason


def test_a_failure_is_read_and_forbids_what_needs_more(recorded):
    campaign = work(recorded(failing=most_promising(), most_trials=30))
    failed = campaign.trials.filter(status=TrialStatus.FAILED)
    assert failed.exists()
    for trial in failed:
        assert trial.failure["cause"] == "out_of_memory", str(trial.failure)
        assert trial.failure["verdict"] == "forbid"


def test_a_worker_that_dies_loses_no_trial_and_doubles_none(recorded):
    campaign = recorded(most_trials=6)
    campaigns.plan(campaign.pk)
    first = campaign.trials.get(number=0)
    assert planning.TRIALS.claim(first.pk, "elsewhere/1/1/1")  # and never came back
    assert not planning.TRIALS.sweep()
    Trial.objects.filter(pk=first.pk).update(heartbeat_at=timezone.now() - timedelta(minutes=2))
    assert planning.TRIALS.sweep() == [first.pk]
    work(campaign)
    first.refresh_from_db()
    assert first.status == TrialStatus.DONE
    assert first.attempts == 2
    assert campaign.status == CampaignStatus.DONE


def test_a_worker_that_dies_between_result_and_plan_is_noticed_by_the_sweep(sent, recorded):
    campaign = recorded(most_trials=4)
    first = campaign.trials.get(number=0)
    Trial.objects.filter(pk=first.pk).update(status=TrialStatus.DONE, step_time_s=2.0)
    Campaign.objects.filter(pk=campaign.pk).update(created_at=timezone.now() - timedelta(minutes=2))
    assert planning.CAMPAIGNS.sweep() == [campaign.pk]
    assert sent[-1][1] == campaign.pk
    assert work(campaign).status == CampaignStatus.DONE


def test_who_kills_its_workers_is_given_up(recorded):
    campaign = recorded(most_trials=2)
    first = campaign.trials.get(number=0)
    Trial.objects.filter(pk=first.pk).update(attempts=3)
    running.run(first.pk)
    first.refresh_from_db()
    assert first.status == TrialStatus.FAILED
    assert "died" in first.failure["sentence"]


def test_a_paused_campaign_begins_nothing_and_goes_on_where_it_was(people, recorded):
    campaign = recorded(most_trials=5)
    campaigns.change(campaign, people.engineer, "pause")
    assert not campaign.trials.filter(status=TrialStatus.WAITING).exists()
    work(campaign)
    assert not campaign.trials.filter(status=TrialStatus.DONE).exists()
    campaigns.change(campaign, people.engineer, "resume")
    assert work(campaign).status == CampaignStatus.DONE
    assert campaign.trials.filter(status=TrialStatus.DONE).count() > 1


def test_a_cancelled_campaign_stays_so_until_a_failed_trial_is_tried_again(people, recorded):
    campaign = recorded(failing=most_promising(), most_trials=20)
    work(campaign, most=12)
    if campaign.open:
        campaigns.change(campaign, people.engineer, "cancel")
        campaign.refresh_from_db()
        assert campaign.status == CampaignStatus.CANCELLED
    with pytest.raises(CampaignError, match="nothing to cancel"):
        campaigns.change(campaign, people.engineer, "cancel")
    failed = campaign.trials.filter(status=TrialStatus.FAILED).select_related("campaign").first()
    campaigns.retry(failed, people.engineer)
    campaign.refresh_from_db()
    assert campaign.status == CampaignStatus.RUNNING
    work(campaign)
    failed.refresh_from_db()
    assert failed.runs == 2


def test_a_budget_in_dollars_ends_it(recorded):
    campaign = recorded(most_trials=50, most_dollars=1.0, dollars_per_chip_hour=2.0)
    running.run(campaign.trials.get(number=0).pk)
    campaign.trials.filter(number=0).update(ran_s=3600.0)
    work(campaign)
    assert campaign.status == CampaignStatus.DONE
    assert "$1.00" in campaign.reason


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"most_dollars": 5.0}, "price of a chip"),
        ({"constraints": {"fixed": {"data": 0}}}, "fixed"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(people, ready, given, sentence):
    with pytest.raises(CampaignError, match=sentence) as raised:
        begin(people, ready, **given)
    assert len(str(raised.value)) <= 300


def test_a_program_that_the_model_does_not_describe_begins_no_campaign(people, ready):
    record = DiagnosisRecord.objects.get(run__experiment=ready.experiment)
    record.data["not_modelled"] = "Convolutions take 96 % of the time: a convolutional network."
    record.save()
    with pytest.raises(CampaignError, match="a convolutional network"):
        begin(people, ready)


def test_the_model_as_backend_says_what_does_not_fit():
    config, _ = parse_config({**CONFIG, "model": {"name": "llama3.1-405b"}})
    outcome = Modelled().measure(config, lambda: False)
    assert not outcome.step_times_s
    assert "Out of memory" in outcome.log


@pytest.mark.django_db(transaction=True)
def test_four_workers_with_kills_lose_and_double_nothing(recorded):
    """Each worker dies at every third trial that it takes: between claim and result, or between result and plan."""
    campaign = recorded(count=200, most_trials=60, parallel=4)
    campaigns.plan(campaign.pk)

    def worker(index: int) -> None:
        taken = 0
        for _ in range(400):
            pk = (
                campaign.trials.filter(status__in=("waiting", "running"))
                .order_by("?")
                .values_list("pk", flat=True)
                .first()
            )
            if pk is None:
                if not Campaign.objects.filter(pk=campaign.pk, status="running").exists():
                    return
                campaigns.plan(campaign.pk)
                continue
            taken += 1
            if taken % 3 == 0:
                planning.TRIALS.claim(pk, f"elsewhere/{index}/{taken}/1")
                Trial.objects.filter(pk=pk, worker__startswith="elsewhere").update(
                    heartbeat_at=timezone.now() - timedelta(minutes=2), attempts=0
                )
                planning.TRIALS.sweep()
            else:
                running.run(pk)

    found = in_threads(4, worker)
    assert found == [None] * 4, found
    campaign.refresh_from_db()
    assert campaign.status == CampaignStatus.DONE
    numbers = list(campaign.trials.values_list("number", flat=True))
    assert sorted(numbers) == list(range(len(numbers)))
    keys = Counter(campaign.trials.values_list("key", flat=True))
    assert max(keys.values()) == 1
    assert not campaign.trials.exclude(status__in=("done", "failed")).exists()
    assert set(campaign.trials.values_list("runs", flat=True)) == {1}
    assert connection.vendor == "postgresql"
