"""New proposals under user constraints; earlier plans and decisions are kept."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from django.core.exceptions import PermissionDenied
from django.http import Http404, QueryDict
from django.utils import timezone

from evaluation.quality.evidence import bench
from experiments.models import Event
from proposals import constraint_form
from proposals.constraints import Constraints
from proposals.models import PlanRecord, PlanRequest
from proposals.services import plans, regenerating, reviews
from tests.backend.factories import make_experiment
from tests.backend.services import dead_process

KEPT = {"keep_batch": True, "keep_axes": ["seq"]}


def asked(people, experiment, constraints):
    """A request as the worker leaves it."""
    made = regenerating.request(experiment, people.engineer, constraints)
    regenerating.make(made.pk)
    made.refresh_from_db()
    return made


def test_a_new_plan_keeps_to_the_constraints_and_the_old_one_stays(people, ready):
    first = ready.plan.proposals.get(rank=1)
    reviews.decide(first, people.reviewer, "rejected", "not now")
    made = asked(people, ready.experiment, KEPT)
    assert made.status == PlanRequest.Status.DONE, made.reason
    assert made.plan.constraints == KEPT and made.plan.created_by == people.engineer
    for proposal in made.plan.proposals.all():
        assert proposal.data["mesh"]["ici"]["seq"] == 4
        assert "global_batch" not in proposal.data["changes"]
    assert list(regenerating.of_experiment(ready.experiment)) == [ready.plan, made.plan]
    assert plans.newest(ready.experiment) == made.plan
    first.refresh_from_db()
    assert (first.status, first.review.comment) == ("rejected", "not now")
    asking = Event.objects.get(kind="constraints")
    assert asking.data["text"] == ["Keep the global batch.", "Keep the size of the seq axis."]


def test_all_plans_that_were_asked_for_stay_reviewed_or_not(people, ready):
    asked(people, ready.experiment, KEPT)
    asked(people, ready.experiment, {"fixed": {"model": 1}})
    assert PlanRecord.objects.filter(run=ready.run).count() == 3


def test_a_plan_says_which_records_it_knew(people, ready):
    from history.services import store
    from history.services.store import seed

    seed()
    made = asked(people, ready.experiment, {})
    assert made.plan.precedents
    assert store.HistoryRecord.objects.filter(key__in=made.plan.precedents).count() == len(made.plan.precedents)


def test_a_constraint_that_cannot_be_kept_is_named_at_once(people, ready):
    for constraints, words in (
        ({"keep_axes": ["depth"]}, "'depth' is neither an axis of the mesh"),
        ({"memory_margin": "much"}, "memory_margin: must be a number"),
        ({"fixed": {"seq": "four"}}, "fixed.seq: must be a whole number"),
        ({"wish": 1}, "wish: is unknown"),
        ({"at_least": {"seq": 8}, "at_most": {"seq": 2}}, "asks for seq of at least 8 and at most 2"),
    ):
        with pytest.raises(regenerating.RequestError, match=words):
            regenerating.request(ready.experiment, people.engineer, constraints)
    assert not PlanRequest.objects.exists()


def test_what_the_proposer_cannot_do_ends_in_a_sentence_and_changes_nothing(people, ready):
    made = asked(people, ready.experiment, {"fixed": {"model": 3}})
    assert made.status == PlanRequest.Status.FAILED
    assert "satisfies them" in made.reason and "not divisible" in made.reason
    assert PlanRecord.objects.filter(run=ready.run).count() == 1
    assert Event.objects.filter(kind="error").exists()


def test_one_at_a_time_and_only_of_a_ready_run(people, ready):
    regenerating.request(ready.experiment, people.engineer, {})
    with pytest.raises(regenerating.RequestError, match="already being generated"):
        regenerating.request(ready.experiment, people.engineer, {})
    fresh = make_experiment(people, "just uploaded")
    with pytest.raises(regenerating.RequestError, match="not ready"):
        regenerating.request(fresh, people.engineer, {})


def test_done_twice_it_is_done_once(people, ready):
    made = asked(people, ready.experiment, KEPT)
    regenerating.make(made.pk)
    assert PlanRecord.objects.filter(run=ready.run).count() == 2


def begun(people, ready, worker):
    """A request that the named worker has just begun."""
    made = regenerating.request(ready.experiment, people.engineer, KEPT)
    now = timezone.now()
    PlanRequest.objects.filter(pk=made.pk).update(status="working", worker=worker, heartbeat_at=now, attempts=1)
    return made


def test_what_a_dead_worker_had_is_done_by_another_at_once(people, ready):
    made = begun(people, ready, dead_process())
    assert regenerating.REQUESTS.sweep() == [made.pk]
    regenerating.make(made.pk)
    made.refresh_from_db()
    assert (made.status, made.attempts) == (PlanRequest.Status.DONE, 2)
    assert PlanRecord.objects.filter(run=ready.run).count() == 2


def test_a_worker_on_another_machine_is_dead_once_it_says_nothing(people, ready):
    made = begun(people, ready, "elsewhere/1/2/3")
    assert regenerating.REQUESTS.sweep() == []
    regenerating.make(made.pk)
    made.refresh_from_db()
    assert (made.status, made.worker) == (PlanRequest.Status.WORKING, "elsewhere/1/2/3")
    PlanRequest.objects.filter(pk=made.pk).update(heartbeat_at=timezone.now() - timedelta(seconds=31))
    assert regenerating.REQUESTS.sweep() == [made.pk]
    regenerating.make(made.pk)
    made.refresh_from_db()
    assert made.status == PlanRequest.Status.DONE


def test_a_request_that_kills_its_workers_fails_with_a_sentence(people, ready):
    made = begun(people, ready, dead_process())
    PlanRequest.objects.filter(pk=made.pk).update(attempts=regenerating.REQUESTS.most_attempts)
    regenerating.make(made.pk)
    made.refresh_from_db()
    assert made.status == PlanRequest.Status.FAILED and "died" in made.reason


def test_a_request_whose_message_was_lost_is_queued_again_once(people, ready):
    made = regenerating.request(ready.experiment, people.engineer, KEPT)
    assert regenerating.REQUESTS.sweep() == []
    PlanRequest.objects.filter(pk=made.pk).update(created_at=timezone.now() - timedelta(minutes=1))
    assert regenerating.REQUESTS.sweep() == [made.pk]
    assert regenerating.REQUESTS.sweep() == []


@pytest.mark.parametrize(("name", "error"), [("viewer", PermissionDenied), ("outsider", Http404)])
def test_who_may_not_change_the_team_cannot_ask(people, ready, name, error):
    with pytest.raises(error):
        regenerating.request(ready.experiment, getattr(people, name), {})


def test_one_constraint_can_be_taken_away():
    all_of_them = {
        "keep_batch": True, "keep_axes": ["seq", "data"], "fixed": {"model": 1}, "excluded": [{"ici": {"data": 16}}],
    }  # fmt: skip
    for name, left in (
        ("keep_batch", {k: v for k, v in all_of_them.items() if k != "keep_batch"}),
        ("keep_axes.seq", {**all_of_them, "keep_axes": ["data"]}),
        ("fixed.model", {k: v for k, v in all_of_them.items() if k != "fixed"}),
        ("excluded.0", {k: v for k, v in all_of_them.items() if k != "excluded"}),
        ("nothing", all_of_them),
    ):
        assert Constraints.from_json(all_of_them).without(name) == Constraints.from_json(left)
    assert [chip.text for chip in constraint_form.chips(Constraints.from_json(all_of_them))] == [
        "Keep the global batch", "Keep the size of the seq axis", "Keep the size of the data axis",
        "Pin the model axis to 1", "Exclude the mesh data 16",
    ]  # fmt: skip


def test_the_form_says_what_the_json_says():
    form = QueryDict(
        "keep_batch=1&axis=data&rule=&size=&axis=seq&rule=keep&size=&axis=model&rule=at_most&size=8&memory_margin=12.5"
    )
    assert constraint_form.from_form(form) == {
        "keep_batch": True, "keep_axes": ["seq"], "at_most": {"model": 8}, "memory_margin": 0.125,
    }  # fmt: skip
    assert constraint_form.from_form(QueryDict("axis=seq&rule=fixed&size=four")) == {"fixed": {"seq": "four"}}


def test_the_page_asks_shows_both_plans_and_drops_a_constraint(people, ready):
    client = people.client("engineer")
    place = f"/experiments/{ready.experiment.pk}/proposals/"
    answer = client.post(place + "again/", {"keep_batch": "1", "axis": "seq", "rule": "keep", "size": ""}, follow=True)
    assert "Proposing again" in answer.content.decode()
    regenerating.make(PlanRequest.objects.get().pk)
    waiting = client.get(place + "asked/", headers={"HX-Request": "true"})
    assert waiting["HX-Redirect"] == place
    page = client.get(place).content.decode()
    assert "Plan 2 of 2" in page and "Keep the size of the seq axis" in page
    assert "Plan 1 of 2" in client.get(f"{place}?plan={ready.plan.pk}").content.decode()
    newest = plans.newest(ready.experiment)
    client.post(place + "again/", {"plan": newest.pk, "without": "keep_axes.seq"})
    assert PlanRequest.objects.first().constraints == {"keep_batch": True}


def test_a_mesh_can_be_left_out(people, ready):
    proposal = ready.plan.proposals.get(rank=1)
    place = f"/experiments/{ready.experiment.pk}/proposals/again/"
    people.client("engineer").post(place, {"plan": ready.plan.pk, "exclude": proposal.pk})
    made = PlanRequest.objects.get()
    regenerating.make(made.pk)
    made.refresh_from_db()
    assert made.status == "done", made.reason
    meshes = [item.data["mesh"]["ici"] for item in made.plan.proposals.all()]
    assert all(mesh.get("data") != 16 for mesh in meshes)


def test_an_unknown_model_is_noted_once_with_what_it_was_priced_as(people, ready):
    value = bench("asap-experiment-3").plan
    plans.store(ready.run, replace(value, notes=(*value.notes, "The profile has no backward pass.")))
    page = people.client("engineer").get(f"/experiments/{ready.experiment.pk}/proposals/").content.decode()
    callout = next(part for part in page.split('id="notes"')[1:] if "LLaMA-3-like" in part)
    assert page.count("The model is unknown") == 1 and "Unknown:" not in page
    assert "state it in the dialogue" in callout
    assert "The profile has no backward pass." in page
