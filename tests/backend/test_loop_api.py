"""REST of the measured loop, of constraints and of own meshes: for everyone who knocks, and with the wrong method."""

from __future__ import annotations

import pytest

from proposals.models import Measurement, Proposal
from proposals.services import regenerating
from tests.backend.measured_runs import config_of, make_run

OWN = {"mesh": {"ici": {"replica": 1, "data": 4, "seq": 2, "model": 2}}, "changes": {"global_batch": 16}}


def test_a_run_is_counted_listed_and_summed_up(people, approved):
    experiment = make_run(people, config_of(approved), 1.0)
    api = people.api("engineer")
    answer = api.post("/api/measurements/", {"proposal": approved.pk, "experiment": experiment.pk}, format="json")
    assert answer.status_code == 201
    made = answer.json()
    assert (made["status"], made["outcome"], made["created_by"]) == ("measured", "faster", "engineer")
    assert made["speedup"] == pytest.approx(1.25) and made["error"] == pytest.approx(0.0)
    assert api.get(f"/api/measurements/{made['id']}/").json() == made
    listed = people.api("viewer").get("/api/measurements/?status=measured").json()
    assert listed["count"] == 1 and people.api("viewer").get("/api/measurements/?status=failed").json()["count"] == 0
    summary = people.api("viewer").get("/api/measurements/summary/").json()
    assert (summary["results"], summary["measured"], summary["waiting"]) == (1, 1, 0)
    assert summary["brier"] == pytest.approx(0.3**2)  # 70 % was stated, and it came
    assert people.api("outsider").get("/api/measurements/summary/").json()["results"] == 0
    again = api.post("/api/measurements/", {"proposal": approved.pk, "failure": "hang"}, format="json")
    assert again.status_code == 409 and "already has a result" in again.json()["detail"]
    assert api.delete(f"/api/measurements/{made['id']}/").status_code == 409


def test_a_failure_is_kept(people, approved):
    body = {"proposal": approved.pk, "failure": "does_not_compile", "comment": "HLO verifier"}
    answer = people.api("engineer").post("/api/measurements/", body, format="json")
    assert answer.status_code == 201
    assert (answer.json()["outcome"], answer.json()["failure"]) == ("failed", "does_not_compile")


def test_a_link_can_be_taken_back(people, approved):
    experiment = make_run(people, config_of(approved), ready=False)
    api = people.api("engineer")
    body = {"proposal": approved.pk, "experiment": experiment.pk}
    made = api.post("/api/measurements/", body, format="json").json()
    assert made["status"] == "linked"
    assert people.api("viewer").delete(f"/api/measurements/{made['id']}/").status_code == 403
    assert people.api("outsider").delete(f"/api/measurements/{made['id']}/").status_code == 404
    assert api.delete(f"/api/measurements/{made['id']}/").status_code == 204
    assert not Measurement.objects.exists()


def test_either_a_run_or_a_failure(people, approved):
    api = people.api("engineer")
    for body in ({}, {"experiment": 1, "failure": "hang"}):
        answer = api.post("/api/measurements/", {"proposal": approved.pk, **body}, format="json")
        assert answer.status_code == 400 and "either" in answer.json()["detail"]
    other = make_run(people, {**config_of(approved), "mesh": {"ici": {"data": 8, "seq": 2}}})
    answer = api.post("/api/measurements/", {"proposal": approved.pk, "experiment": other.pk}, format="json")
    assert answer.status_code == 409 and "is not a run of this proposal" in answer.json()["detail"]


def test_proposals_are_asked_for_again_and_followed(people, ready):
    api = people.api("engineer")
    body = {"experiment": ready.experiment.pk, "constraints": {"keep_axes": ["seq"]}}
    answer = api.post("/api/plan-requests/", body, format="json")
    assert answer.status_code == 202 and answer.json()["status"] == "queued"
    assert api.post("/api/plan-requests/", body, format="json").status_code == 409
    regenerating.make(answer.json()["id"])
    done = people.api("viewer").get(f"/api/plan-requests/{answer.json()['id']}/").json()
    assert done["status"] == "done"
    plan = people.api("viewer").get(f"/api/plans/{done['plan']}/").json()
    assert plan["constraints"] == {"keep_axes": ["seq"]} and plan["created_by"] == "engineer"
    assert all(item["mesh"]["ici"]["seq"] == 4 for item in plan["proposals"])


def test_a_constraint_that_is_none_is_named(people, ready):
    body = {"experiment": ready.experiment.pk, "constraints": {"keep_axes": ["depth"]}}
    answer = people.api("engineer").post("/api/plan-requests/", body, format="json")
    assert answer.status_code == 409 and "depth" in answer.json()["detail"]


def test_an_own_mesh_is_priced_by_a_viewer_and_added_by_an_engineer(people, ready):
    place = f"/api/plans/{ready.plan.pk}/"
    priced = people.api("viewer").post(place + "evaluate/", OWN, format="json")
    assert priced.status_code == 200
    assert priced.json()["violations"] == [] and priced.json()["predicted"]["step_time_s"]["estimate"] > 0
    assert Proposal.objects.count() == 3
    assert people.api("viewer").post(place + "proposals/", OWN, format="json").status_code == 403
    added = people.api("engineer").post(place + "proposals/", OWN, format="json")
    assert added.status_code == 201
    assert (added.json()["rank"], added.json()["kind"], added.json()["status"]) == (4, "own", "proposed")
    assert people.api("engineer").post(place + "proposals/", OWN, format="json").status_code == 400


def test_an_illegal_one_shows_its_rule_and_what_is_no_mesh_a_sentence(people, ready):
    place, api = f"/api/plans/{ready.plan.pk}/", people.api("engineer")
    illegal = {"mesh": {"ici": {"data": 4}}}
    assert api.post(place + "evaluate/", illegal, format="json").json()["violations"][0]["rule"] == "chips"
    assert "16" in api.post(place + "proposals/", illegal, format="json").json()["detail"]
    for body in ({"mesh": {"ici": {"depth": 4}}}, {"mesh": {}}, {"mesh": 3}, {**OWN, "changes": {"speed": 1}}):
        assert api.post(place + "evaluate/", body, format="json").status_code == 400
    assert api.get(place + "evaluate/").status_code == 405
    assert people.api("outsider").post(place + "evaluate/", OWN, format="json").status_code == 404
    assert people.api("anonymous").post(place + "evaluate/", OWN, format="json").status_code == 401
