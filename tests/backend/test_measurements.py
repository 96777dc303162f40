"""An approved proposal runs, its profile is uploaded, and the prediction is compared with the measurement."""

from __future__ import annotations

import dataclasses
from math import log

import pytest
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import Http404

from diagnosis import services as diagnosis_services
from diagnosis.models import DiagnosisRecord
from experiments.models import Event, Experiment, RunStatus
from experiments.services import configuration, profiles, runs, uploads
from history.models import HistoryRecord
from history.services import store
from perfmodel.confidence import shipped
from perfmodel.config import placement_of
from proposals import measured
from proposals.candidate import Candidate
from proposals.models import Measurement, PlanRecord, Proposal
from proposals.services import confidence, coordinator, custom_mesh, measuring, plans, reviews, unmeasured
from proposals.tasks import measure
from tests.backend.factories import diagnosis
from tests.backend.measured_runs import analyse, config_of, make_run, step_of
from tests.backend.threads import in_threads
from tests.history import records


def test_the_run_of_an_approved_proposal_is_measured_once_its_analysis_is_ready(people, approved):
    experiment = make_run(people, config_of(approved), ready=False)
    made = measuring.link(approved, experiment, people.engineer)
    assert made.status == Measurement.Status.LINKED
    assert list(unmeasured.waiting(people.team)) == [approved]
    analyse(experiment, step_of(1.0))
    made.refresh_from_db()
    assert made.status == Measurement.Status.MEASURED
    assert (made.before_step_time_s, made.after_step_time_s) == (1.25, 1.0)
    assert made.speedup == pytest.approx(1.25)  # 1.25 s → 1.0 s with the same tokens
    assert made.predicted_log_gain == pytest.approx(log(1.25))
    assert made.predicted_sigma == 0.05
    assert (made.predicted_confidence, made.within_range, made.outcome) == (0.7, True, "faster")
    assert made.error == pytest.approx(0.0)
    assert list(unmeasured.waiting(people.team)) == []
    assert list(measuring.results(people.team)) == [made]
    for place in (approved.experiment, experiment):
        said = [event.data for event in place.events.filter(kind="measurement")]
        assert said[0]["linked"] and said[-1]["speedup"] == pytest.approx(1.25)


def test_the_result_is_a_record_of_the_history_with_both_sides(people, approved):
    experiment = make_run(people, config_of(approved), 1.0)
    made = measuring.link(approved, experiment, people.engineer)
    record = HistoryRecord.objects.get(team=people.team, key=made.record)
    assert (record.provenance, record.outcome, record.bottleneck) == ("measured", "faster", "communication")
    assert record.speedup == pytest.approx(1.25)
    assert record.before["mesh"]["ici"]["seq"] == 4 and record.after["mesh"]["ici"]["data"] == 16
    assert (record.before["kpis"]["step_time_s"], record.after["kpis"]["step_time_s"]) == (1.25, 1.0)
    assert record.changes == ["mesh"]
    assert "data 4 → 16, seq 4 → 1" in record.change
    assert "1.25× was predicted" in record.effect
    assert (record.experiment_before, record.experiment_after) == (approved.experiment, experiment)


def test_a_result_is_kept_beside_an_import_that_has_its_id(people, approved):
    """Another installation numbers its proposals too, and what it exported was imported here."""
    theirs = store.add(records.record(f"proposal-{approved.pk}", title="Measured elsewhere"), people.team)
    made = measuring.link(approved, make_run(people, config_of(approved), 1.0), people.engineer)
    kept = HistoryRecord.objects.get(team=people.team, key=made.record)
    assert kept.pk != theirs.pk and (kept.provenance, kept.experiment_before) == ("measured", approved.experiment)


def test_own_results_move_the_confidence_of_the_next_proposals(people, approved):
    """A prediction that came true leaves the fit all but where it was; one far off makes it humbler."""
    before = confidence.of_team(people.team.pk)
    assert before == shipped()
    measuring.link(approved, make_run(people, config_of(approved), 1.6), people.engineer)  # 0.78×, 1.25× was predicted
    after = confidence.of_team(people.team.pk)
    assert after.shift < 0 and after.stretch > before.stretch
    assert after.probability(0.1, 0.05) < before.probability(0.1, 0.05)
    assert confidence.of_team(people.team.pk + 1) == before


def test_doing_it_again_changes_nothing(people, approved):
    experiment = make_run(people, config_of(approved), 1.0)
    made = measuring.link(approved, experiment, people.engineer)
    before = Event.objects.count()
    assert measuring.complete(made.pk) is False
    measuring.on_ready(runs.newest(experiment))
    assert measuring.sweep() == []
    assert Event.objects.count() == before
    assert HistoryRecord.objects.filter(team=people.team).count() == 1


def test_what_a_dead_worker_left_the_sweep_measures(people, approved):
    experiment = make_run(people, config_of(approved), ready=False)
    made = measuring.link(approved, experiment, people.engineer)
    run = runs.newest(experiment)
    value = step_of(1.0)
    runs.move(run, RunStatus.UPLOADED, RunStatus.INGESTING, actor="coordinator")
    with transaction.atomic():
        profiles.store(run.profile, value, profiles.write(run, value))
    runs.move(run, RunStatus.INGESTING, RunStatus.DIAGNOSING, actor="coordinator")
    diagnosis_services.store(run, diagnosis(value))
    for old, new in ((RunStatus.DIAGNOSING, RunStatus.PROPOSING), (RunStatus.PROPOSING, RunStatus.CHECKING)):
        runs.move(run, old, new, actor="coordinator")
    runs.move(run, RunStatus.CHECKING, RunStatus.READY, actor="coordinator")  # and here the worker dies
    measure()
    made.refresh_from_db()
    assert made.status == Measurement.Status.MEASURED


@pytest.mark.parametrize(("seconds", "outcome", "within"), [(1.5, "slower", False), (1.2501, "no_change", False)])
def test_what_was_not_faster_is_kept_as_such(people, approved, seconds, outcome, within):
    made = measuring.link(approved, make_run(people, config_of(approved), seconds), people.engineer)
    assert (made.outcome, made.within_range) == (outcome, within)
    assert HistoryRecord.objects.get(key=made.record).outcome == outcome


def test_another_batch_is_compared_per_token(people, ready):
    """Twice the sequences in 1.5 times the time: 4/3 of the tokens per second."""
    proposal = ready.plan.proposals.get(rank=1)
    proposal.data["changes"] = {"global_batch": 64}
    proposal.save()
    reviews.decide(proposal, people.reviewer, "approved")
    made = measuring.link(proposal, make_run(people, config_of(proposal), 1.25 * 1.5), people.engineer)
    assert made.speedup == pytest.approx(4 / 3)
    assert HistoryRecord.objects.get(key=made.record).changes == ["mesh", "batch"]


def test_fewer_chips_are_compared_per_token_and_chip(people, ready):
    """Half the chips in 1.6 times the time: each of them does 1.25 times as much, so it is no slowdown."""
    proposal = ready.plan.proposals.get(rank=1)
    proposal.data["mesh"] = {"ici": {"replica": 1, "data": 4, "seq": 2, "model": 1}, "dcn": {}}
    proposal.data["changes"] = {"topology": [2, 4], "slices": 1}
    proposal.data["predicted"] |= {"speedup": 0.6, "speedup_low80": 0.5, "speedup_high80": 0.7, "sigma": 0.05}
    proposal.save()
    reviews.decide(proposal, people.reviewer, "approved")
    made = measuring.link(proposal, make_run(people, config_of(proposal), 1.25 * 1.6), people.engineer)
    assert (made.speedup, made.predicted_speedup) == (pytest.approx(1.25), pytest.approx(1.2))
    assert (made.outcome, made.within_range) == ("faster", True)
    assert "8 chips instead of 16: the speed-up is per token and chip." in made.caveats
    assert HistoryRecord.objects.get(key=made.record).measure == "step time per token and chip"


def test_a_run_of_something_else_is_refused_in_a_sentence(people, approved):
    other_mesh = make_run(people, {**config_of(approved), "mesh": {"ici": {"data": 8, "seq": 2}}})
    with pytest.raises(measuring.MeasureError, match=r"It ran with mesh data 8 · seq 2; the proposal has .*data 16"):
        measuring.link(approved, other_mesh, people.engineer)
    other_chip = make_run(people, {**config_of(approved), "hardware": {"chip": "v5e", "topology": [4, 4], "slices": 1}})
    with pytest.raises(measuring.MeasureError, match="It ran on v5e; the proposal is for v6e"):
        measuring.link(approved, other_chip, people.engineer)
    other_model = make_run(people, {**config_of(approved), "model": {"name": "llama2-7b"}})
    with pytest.raises(measuring.MeasureError, match="The model differs"):
        measuring.link(approved, other_model, people.engineer)
    with pytest.raises(measuring.MeasureError, match="baseline run of this proposal"):
        measuring.link(approved, approved.experiment, people.engineer)
    assert not Measurement.objects.exists()


def test_a_reconstructed_profile_measures_nothing(people, approved):
    made_up = dataclasses.replace(step_of(1.0), provenance="reconstructed", label="made from a table")
    experiment = make_run(people, config_of(approved), profile=made_up)
    with pytest.raises(measuring.MeasureError, match="reconstructed, so it does not count"):
        measuring.link(approved, experiment, people.engineer)
    assert not HistoryRecord.objects.filter(team=people.team).exists()


def test_a_configuration_corrected_after_the_link_may_turn_out_another_run(people, approved):
    experiment = make_run(people, config_of(approved), ready=False)
    made = measuring.link(approved, experiment, people.engineer)
    configuration.save(experiment, people.engineer, {**config_of(approved), "mesh": {"ici": {"data": 8, "seq": 2}}})
    analyse(experiment, step_of(1.0))
    made.refresh_from_db()
    assert made.status == Measurement.Status.REFUSED
    assert "It ran with mesh data 8 · seq 2" in made.reason
    assert list(unmeasured.waiting(people.team)) == [approved]
    right = make_run(people, config_of(approved), 1.0, name="the right one")
    assert measuring.link(approved, right, people.engineer).status == Measurement.Status.MEASURED


def test_what_else_differed_is_a_caveat(people, approved):
    config = config_of(approved, xla_flags=["--xla_tpu_enable_async_collective_fusion=true"], remat="minimal")
    made = measuring.link(approved, make_run(people, config, 1.0), people.engineer)
    assert any("Remat was minimal, not full" in line for line in made.caveats)
    assert any("Xla flags" in line for line in made.caveats)
    assert HistoryRecord.objects.get(key=made.record).remarks


def test_steps_that_say_nothing_of_the_difference_say_so(people, approved):
    """1.25 s and 1.2 s, each of two steps that vary by 30 %: chance explains as much."""
    experiment = make_run(people, config_of(approved), 1.2)
    for record in DiagnosisRecord.objects.all():
        record.data["kpis"]["step_time_spread"] = 0.3
        record.save()
    made = measuring.link(approved, experiment, people.engineer)
    assert "The difference is within the variation of step times." in made.caveats


def test_a_matching_upload_is_offered_and_counted_only_when_a_person_says_so(people, approved):
    experiment = make_run(people, config_of(approved))
    assert unmeasured.candidates(approved) == [experiment]
    assert not Measurement.objects.exists()
    measuring.link(approved, experiment, people.engineer)
    assert unmeasured.candidates(approved) == []


def test_only_approved_proposals_that_change_something_can_be_measured(people, ready):
    undecided = ready.plan.proposals.get(rank=2)
    experiment = make_run(people, config_of(undecided))
    with pytest.raises(measuring.MeasureError, match="Only an approved proposal"):
        measuring.link(undecided, experiment, people.engineer)
    Proposal.objects.filter(pk=undecided.pk).update(kind="keep", status="approved")
    undecided.refresh_from_db()
    with pytest.raises(measuring.MeasureError, match="nothing to measure"):
        measuring.report_failure(undecided, people.engineer, "hang")


def test_a_failure_is_kept_with_its_reason_and_teaches(people, approved):
    made = measuring.report_failure(approved, people.engineer, "out_of_memory", "  RESOURCE_EXHAUSTED at step 0\n")
    assert (made.status, made.outcome, made.comment) == ("failed", "failed", "RESOURCE_EXHAUSTED at step 0")
    record = HistoryRecord.objects.get(key=made.record)
    assert (record.outcome, record.failure, record.speedup) == ("failed", "out_of_memory", None)
    assert "RESOURCE_EXHAUSTED" in record.effect
    assert measured.results(measuring.results(people.team)).brier == pytest.approx(
        0.7**2
    )  # 70 % was stated, and it did not come
    with pytest.raises(measuring.MeasureError, match="already has a result"):
        measuring.report_failure(approved, people.engineer, "hang")
    with pytest.raises(measuring.MeasureError, match="already has a result"):
        measuring.link(approved, make_run(people, config_of(approved)), people.engineer)


def test_a_failure_has_to_be_one_of_the_known_ones(people, approved):
    with pytest.raises(measuring.MeasureError, match="out of memory, does not compile"):
        measuring.report_failure(approved, people.engineer, "gremlins")


def test_a_link_can_be_taken_back_until_it_has_its_result(people, approved):
    measuring.link(approved, make_run(people, config_of(approved), ready=False), people.engineer)
    measuring.unlink(approved, people.engineer)
    assert not Measurement.objects.exists()
    measuring.link(approved, make_run(people, config_of(approved)), people.engineer)
    with pytest.raises(measuring.MeasureError, match="has a result"):
        measuring.unlink(approved, people.engineer)


@pytest.mark.parametrize(("name", "error"), [("viewer", PermissionDenied), ("outsider", Http404)])
def test_who_may_not_change_the_team_cannot_measure(people, approved, name, error):
    experiment = make_run(people, config_of(approved))
    user = getattr(people, name)
    for act in (
        lambda: measuring.link(approved, experiment, user),
        lambda: measuring.unlink(approved, user),
        lambda: measuring.report_failure(approved, user, "hang"),
    ):
        with pytest.raises(error):
            act()
    assert not Measurement.objects.exists()


def test_a_deleted_run_leaves_its_numbers(people, approved):
    experiment = make_run(people, config_of(approved))
    made = measuring.link(approved, experiment, people.engineer)
    uploads.delete(experiment, people.engineer)
    made.refresh_from_db()
    assert (made.experiment, made.speedup) == (None, pytest.approx(1.25))


@pytest.mark.django_db(transaction=True)
def test_two_workers_measure_it_once(transactional_db):
    from tests.backend.factories import make_people, make_ready

    people = make_people()
    proposal = make_ready(people).plan.proposals.get(rank=1)
    reviews.decide(proposal, people.reviewer, "approved")
    experiment = make_run(people, config_of(proposal), ready=False)
    made = measuring.link(proposal, experiment, people.engineer)
    Experiment.objects.filter(pk=experiment.pk).update(config=config_of(proposal))
    run = runs.newest(experiment)
    value = step_of(1.0)
    runs.move(run, RunStatus.UPLOADED, RunStatus.INGESTING, actor="coordinator")
    with transaction.atomic():
        profiles.store(run.profile, value, profiles.write(run, value))
    for old, new in (
        (RunStatus.INGESTING, RunStatus.DIAGNOSING), (RunStatus.DIAGNOSING, RunStatus.PROPOSING),
        (RunStatus.PROPOSING, RunStatus.CHECKING), (RunStatus.CHECKING, RunStatus.READY),
    ):  # fmt: skip
        if new == RunStatus.PROPOSING:
            diagnosis_services.store(run, diagnosis(value))
        runs.move(run, old, new, actor="coordinator")
    done = in_threads(4, lambda _: measuring.complete(made.pk))
    assert sorted(done) == [False, False, False, True]
    assert HistoryRecord.objects.filter(team=people.team).count() == 1


@pytest.mark.django_db(transaction=True)
def test_the_coordinator_measures_by_itself(transactional_db):
    """The real engines on the changed run: nobody has to press anything after the upload."""
    from tests.backend.factories import make_people, make_ready

    people = make_people()
    proposal = make_ready(people).plan.proposals.get(rank=1)
    reviews.decide(proposal, people.reviewer, "approved")
    experiment = make_run(people, config_of(proposal), ready=False)
    made = measuring.link(proposal, experiment, people.engineer)
    run = runs.newest(experiment)
    value = step_of(1.1)
    runs.move(run, RunStatus.UPLOADED, RunStatus.INGESTING, actor="coordinator")
    with transaction.atomic():
        profiles.store(run.profile, value, profiles.write(run, value))
    runs.move(run, RunStatus.INGESTING, RunStatus.DIAGNOSING, actor="coordinator")
    coordinator.advance(run.pk)
    made.refresh_from_db()
    assert (made.status, made.speedup) == ("measured", pytest.approx(1.25 / 1.1))
    assert PlanRecord.objects.get(run=run).config == configuration_of(experiment)


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_two_recordings_of_real_steps_close_the_loop(transactional_db):
    """The shipped CPU recordings, one as the baseline and one as the proposal: both read, diagnosed and compared."""
    from experiments.samples.samples import SAMPLES
    from tests.backend.factories import make_people
    from tests.backend.test_coordinator import upload_sample

    people = make_people()
    samples = {sample.key: sample for sample in SAMPLES}
    before = upload_sample(people, samples["cpu-data2-seq2-model2"])
    coordinator.advance(runs.newest(before).pk)
    record = plans.newest(before)
    mesh = {"ici": {"data": 8, "seq": 1, "model": 1}}
    offered = [
        item
        for item in record.proposals.all()
        if placement_of(item.data["mesh"]) == placement_of(mesh) and not item.data.get("changes")
    ]
    own = offered[0] if offered else custom_mesh.add(record, people.engineer, Candidate(mesh))
    reviews.decide(own, people.reviewer, "approved")
    after = upload_sample(people, samples["cpu-data8"])
    assert unmeasured.candidates(own) == [after]  # its configuration says so before it is analysed
    made = measuring.link(own, after, people.engineer)
    coordinator.advance(runs.newest(after).pk)
    made.refresh_from_db()
    assert made.status == Measurement.Status.MEASURED, made.reason
    steps = [runs.newest(item).profile.step_time_s for item in (before, after)]
    assert made.speedup == pytest.approx(steps[0] / steps[1])  # the same batch
    assert any("CPU" in line for line in made.caveats)
    kept = HistoryRecord.objects.get(key=made.record)
    assert kept.before["kpis"]["step_time_s"] == pytest.approx(steps[0]) and kept.bottleneck
    assert (kept.chip, kept.hardware, kept.topology) == ("", "", [])  # the configured chip did not run


def configuration_of(experiment):
    return Experiment.objects.get(pk=experiment.pk).config
