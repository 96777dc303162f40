"""Each endpoint for everyone who may knock, and with the wrong method."""

from __future__ import annotations

import gzip
import json

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from knox.models import AuthToken
from rest_framework.test import APIClient

from experiments.models import Event, Experiment, ProfileFile, Run
from experiments.services import runs
from proposals.models import Proposal, Review
from tests.backend.factories import CONFIG, make_experiment, make_ready

INSIDERS = ("viewer", "engineer", "reviewer", "administrator")
OUTSIDERS = ("outsider", "teamless")


@pytest.fixture
def addresses(ready):
    proposal = ready.plan.proposals.get(rank=1)
    return {
        "experiment": f"/api/experiments/{ready.experiment.pk}/",
        "configuration": f"/api/experiments/{ready.experiment.pk}/configuration/",
        "events": f"/api/experiments/{ready.experiment.pk}/events/",
        "events.jsonl": f"/api/experiments/{ready.experiment.pk}/events.jsonl/",
        "profile": f"/api/profiles/{ready.run.profile_id}/",
        "profile data": f"/api/profiles/{ready.run.profile_id}/data/",
        "run": f"/api/runs/{ready.run.pk}/",
        "diagnosis": f"/api/diagnoses/{ready.run.diagnosis.pk}/",
        "ops": f"/api/diagnoses/{ready.run.diagnosis.pk}/ops/",
        "plan": f"/api/plans/{ready.plan.pk}/",
        "proposal": f"/api/proposals/{proposal.pk}/",
    }


LISTS = ("experiments", "profiles", "runs", "diagnoses", "plans", "proposals", "reviews")


@pytest.mark.parametrize("what", LISTS)
def test_lists_hold_the_callers_own_objects_only(people, ready, what):
    Proposal.objects.filter(rank=1).update(status="approved")
    Review.objects.create(proposal=Proposal.objects.get(rank=1), decision="approved", author=people.reviewer)
    address = f"/api/{what}/"
    assert all(people.api(name).get(address).json()["count"] >= 1 for name in INSIDERS)
    assert all(people.api(name).get(address).json()["count"] == 0 for name in OUTSIDERS)
    assert people.api("anonymous").get(address).status_code == 401
    assert people.api("administrator").patch(address).status_code == 405
    other = f"{address}?experiment=999999999"
    if what != "experiments":
        assert people.api("viewer").get(other).json()["count"] == 0
        assert people.api("viewer").get(f"{address}?experiment=x").status_code == 400


def test_the_diagnosis_is_the_object_of_the_command_line(people, ready, addresses):
    data = people.api("viewer").get(addresses["diagnosis"]).json()
    assert data["bottleneck"]["primary"] == "communication"
    assert data["kpis"]["mfu"] is None
    assert data["top_ops"][1]["mesh_axis"] == "model"
    assert data["experiment"] == ready.experiment.pk
    assert len(people.api("viewer").get(addresses["diagnosis"] + "?top=1").json()["top_ops"]) == 1


def test_the_plan_is_the_object_of_the_command_line(people, ready, addresses):
    data = people.api("viewer").get(addresses["plan"]).json()
    assert [p["rank"] for p in data["proposals"]] == [1, 2, 3]
    assert data["proposals"][0]["reasoning"].startswith("All-gathers take 41.6 % of the step. A smaller")
    assert data["rejected"][0]["rule"] == "divisibility"
    assert data["diagnosis"]["bottleneck"]["primary"] == "communication"
    one = people.api("viewer").get(addresses["proposal"]).json()
    assert one["mesh"] == data["proposals"][0]["mesh"]
    assert (one["status"], one["review"]) == ("proposed", None)


def test_ops_come_in_pages(people, addresses):
    page = people.api("viewer").get(addresses["ops"], {"size": 2, "page": 2, "sort": "-name"}).json()
    assert (page["count"], page["pages"]) == (3, 2)
    assert [op["name"] for op in page["results"]] == ["fusion.0"]
    assert page["results"][0]["hlo"] == "%fusion.0 = bf16[8,128] fusion()"


def test_the_profile_data_is_what_was_read(people, addresses):
    plain = people.api("viewer").get(addresses["profile data"])
    assert plain.json()["step_time_s"] == 1.25
    response = people.api("viewer").get(addresses["profile data"], headers={"Accept-Encoding": "gzip, br"})
    raw = b"".join(response.streaming_content)
    assert json.loads(gzip.decompress(raw))["step_time_s"] == 1.25


def test_events_are_the_trace_and_can_be_exported(people, ready, addresses):
    found = people.api("viewer").get(addresses["events"]).json()
    assert [e["data"]["to"] for e in found if e["kind"] == "status"][-1] == "ready"
    later = people.api("viewer").get(addresses["events"], {"after": found[2]["id"], "limit": 1}).json()
    assert [e["id"] for e in later] == [found[3]["id"]]
    lines = people.api("viewer").get(addresses["events.jsonl"]).content.decode().splitlines()
    assert [json.loads(line) for line in lines] == found


# Uploading


def post_upload(client, **fields):
    fields.setdefault("files", [SimpleUploadedFile("host0.xplane.pb", b"\x0a\x00")])
    return client.post("/api/experiments/", fields, format="multipart")


def test_an_engineer_uploads_with_a_configuration(people):
    response = post_upload(people.api("engineer"), config=json.dumps(CONFIG), name="<b>mine</b>")
    assert response.status_code == 201
    data = response.json()
    assert (data["name"], data["state"], data["chips"]) == ("<b>mine</b>", "uploaded", 16)
    assert data["profiles"][0]["files"][0]["name"] == "host0.xplane.pb"
    assert response.headers["Content-Type"] == "application/json"
    assert response.headers["X-Content-Type-Options"] == "nosniff"


def test_several_hosts_and_a_configuration_file_in_one_upload(people):
    files = [SimpleUploadedFile(f"host{n}.xplane.pb", b"\x0a\x00") for n in range(3)]
    config = SimpleUploadedFile("config.yaml", b"hardware: {chip: v5e, topology: [2, 2]}\nmesh: {ici: {data: 4}}\n")
    response = post_upload(people.api("engineer"), files=files, config=config)
    assert response.status_code == 201
    assert ProfileFile.objects.count() == 3
    assert Experiment.objects.get().chip == "v5e"


def test_what_is_wrong_with_an_upload_is_one_sentence(people, settings):
    client = people.api("engineer")
    wrong = post_upload(client, config=json.dumps({**CONFIG, "mesh": {"ici": {"data": 5}}}))
    assert wrong.status_code == 400
    assert wrong.json()["detail"].startswith("mesh.ici: the product is 5, but the topology has 16 chips")
    assert "mesh.ici" in wrong.json()["errors"]
    assert client.post("/api/experiments/", {"name": "x"}, format="multipart").json()["detail"].startswith("Choose at")
    assert client.post("/api/experiments/", {"name": "x"}, format="json").status_code == 415
    settings.UPLOAD_LIMIT_BYTES = 3
    large = post_upload(client, files=[SimpleUploadedFile("a.xplane.pb", b"12345")])
    assert (large.status_code, Experiment.objects.count()) == (413, 0)
    assert "limited to" in large.json()["detail"]


# Configuring, retrying, deleting


def test_the_configuration_is_prefilled_checked_and_saved(people):
    experiment = make_experiment(people, config=False)
    address = f"/api/experiments/{experiment.pk}/configuration/"
    engineer = people.api("engineer")
    assert engineer.get(address).json()["saved"] is False
    wrong = engineer.put(address, {**CONFIG, "hardware": {"chip": "v99", "topology": [4, 4]}}, format="json")
    assert (wrong.status_code, list(wrong.json()["errors"])) == (400, ["hardware.chip"])
    assert people.api("viewer").put(address, CONFIG, format="json").status_code == 403
    assert people.api("outsider").put(address, CONFIG, format="json").status_code == 404
    assert engineer.put(address, {**CONFIG, "colour": "blue"}, format="json").json()["warnings"]
    saved = engineer.get(address).json()
    assert saved["saved"]
    assert saved["config"]["hardware"] == CONFIG["hardware"]
    assert engineer.put(address, [1], format="json").status_code == 400
    assert engineer.put(address, "{", content_type="application/json").status_code == 400


def test_a_failed_run_is_retried_by_an_engineer(people):
    experiment = make_experiment(people)
    run = runs.newest(experiment)
    address = f"/api/runs/{run.pk}/retry/"
    assert people.api("engineer").post(address).status_code == 409
    runs.fail(run, "The file is cut off; upload it again.")
    assert people.api("viewer").post(address).status_code == 403
    assert people.api("outsider").post(address).status_code == 404
    assert people.api("anonymous").post(address).status_code == 401
    assert people.api("engineer").get(address).status_code == 405
    response = people.api("engineer").post(address)
    assert (response.status_code, response.json()["status"]) == (201, "uploaded")
    assert people.api("engineer").post(address).status_code == 409


def test_deleting_needs_an_engineer_and_an_administrator_after_a_review(people):
    ready = make_ready(people)
    address = f"/api/experiments/{ready.experiment.pk}/"
    assert people.api("anonymous").delete(address).status_code == 401
    assert people.api("viewer").delete(address).status_code == 403
    assert people.api("outsider").delete(address).status_code == 404
    review = {"proposal": ready.plan.proposals.first().pk, "decision": "approved"}
    assert people.api("reviewer").post("/api/reviews/", review).status_code == 201
    assert people.api("engineer").delete(address).status_code == 403
    assert people.api("administrator").delete(address).status_code == 204
    assert Experiment.objects.count() == Run.objects.count() == Event.objects.count() == Review.objects.count() == 0


# Reviews


def test_a_review_over_the_api(people, ready):
    pk = ready.plan.proposals.get(rank=1).pk
    given = {"proposal": pk, "decision": "approved", "comment": "Go."}
    for name, status in (("anonymous", 401), ("viewer", 403), ("engineer", 403), ("outsider", 404), ("teamless", 404)):
        assert people.api(name).post("/api/reviews/", given).status_code == status
    assert people.api("reviewer").post("/api/reviews/", {**given, "decision": "maybe"}).status_code == 400
    assert people.api("reviewer").post("/api/reviews/", {**given, "proposal": 10**9}).status_code == 404
    assert people.api("reviewer").post("/api/reviews/", {**given, "proposal": 10**30}).status_code == 404
    done = people.api("reviewer").post("/api/reviews/", given)
    assert (done.status_code, done.json()["author"]) == (201, "reviewer")
    second = people.api("second_reviewer").post("/api/reviews/", {**given, "decision": "rejected"})
    assert second.status_code == 409
    assert "reviewer already approved" in second.json()["detail"]
    approved = people.api("viewer").get("/api/proposals/", {"status": "approved"}).json()["results"]
    assert [(p["id"], p["review"]["comment"]) for p in approved] == [(pk, "Go.")]


# Lists


def test_experiments_are_searched_filtered_and_ordered(people):
    for name in ("alpha", "beta", "100%_sure"):
        make_experiment(people, name)
    Experiment.objects.filter(name="alpha").update(state="ready", step_time_s=2.0)
    client = people.api("viewer")

    def names(**params):
        return [e["name"] for e in client.get("/api/experiments/", params).json()["results"]]

    assert names() == ["100%_sure", "beta", "alpha"]
    assert names(q="ALPH") == ["alpha"]
    assert names(q="llama3") == names()
    assert names(q="%_s") == ["100%_sure"]
    assert names(q="\x00") == []
    assert names(state="ready") == ["alpha"]
    assert names(ordering="name") == ["100%_sure", "alpha", "beta"]
    assert names(ordering="-step_time_s")[0] == "alpha"
    assert names(q="alp LLAMA3") == ["alpha"]
    for unknown in ({"ordering": "password"}, {"state": "away"}, {"team": "-1"}, {"team": "9" * 30}):
        answer = client.get("/api/experiments/", unknown)
        assert answer.status_code == 400 and answer.json()["detail"].startswith(f"{next(iter(unknown))}: ")
    assert names(team=people.team.pk + 10**6) == []
    assert names(limit=1, offset=1) == ["beta"]


def test_a_page_of_a_thousand_experiments_takes_few_queries(people, django_assert_max_num_queries):
    Experiment.objects.bulk_create(
        Experiment(team=people.team, name=f"run {n}", created_by=people.engineer) for n in range(1000)
    )
    client = people.api("viewer")
    with django_assert_max_num_queries(6):
        page = client.get("/api/experiments/", {"limit": 200, "q": "run"}).json()
    assert (page["count"], len(page["results"])) == (1000, 200)


# Tokens


def test_a_token_stands_for_its_user_until_it_is_revoked(people, ready):
    client = people.api("viewer")
    made = client.post("/api/tokens/").json()
    assert made["token"] not in str(AuthToken.objects.values().get())
    with_token = APIClient(HTTP_AUTHORIZATION=f"Token {made['token']}")
    me = with_token.get("/api/me/").json()
    assert (me["username"], me["memberships"][0]["role"]) == ("viewer", "viewer")
    assert with_token.get(f"/api/experiments/{ready.experiment.pk}/").status_code == 200
    listed = client.get("/api/tokens/").json()
    assert [t["key"] for t in listed] == [made["key"]]
    assert made["token"] not in json.dumps(listed)
    assert people.api("engineer").delete(f"/api/tokens/{made['key']}/").status_code == 404
    assert client.delete(f"/api/tokens/{made['key']}/").status_code == 204
    assert with_token.get("/api/me/").status_code == 401


def test_a_browser_session_needs_the_csrf_token_to_write(people, ready):
    client = APIClient(enforce_csrf_checks=True)
    client.force_login(people.reviewer)
    given = {"proposal": ready.plan.proposals.first().pk, "decision": "approved"}
    assert client.post("/api/reviews/", given).status_code == 403
    assert Review.objects.count() == 0


# The performance model


def test_predict_over_the_api_is_what_the_command_prints(people):
    client = people.api("viewer")
    one = client.post("/api/predict/", {"config": CONFIG}).json()
    assert one["step_time_s"]["lower"] <= one["step_time_s"]["estimate"] <= one["step_time_s"]["upper"]
    assert one["fits"] is True
    other = client.post("/api/predict/", {"config": CONFIG, "mesh": "data=16"}).json()
    assert other["step_time_s"] != one["step_time_s"]
    assert client.post("/api/predict/", {"config": [CONFIG, CONFIG]}).json() == [one, one]
    for wrong in (
        {"config": {**CONFIG, "mesh": {"ici": {"data": 3}}}},
        {"config": CONFIG, "mesh": "data=3"},
        {},
        {"config": 1},
    ):
        response = client.post("/api/predict/", wrong)
        assert response.status_code == 400, wrong
    assert people.api("anonymous").post("/api/predict/", {"config": CONFIG}).status_code == 401
    assert client.get("/api/predict/").status_code == 405


def test_search_over_the_api_lists_legal_meshes_fastest_first(people):
    client = people.api("viewer")
    found = client.post("/api/search/", {"config": CONFIG, "top": 5}).json()
    times = [c["step_time_s"]["estimate"] for c in found["candidates"]]
    assert len(times) == 5
    assert times == sorted(times)
    assert all(c["violations"] == [] and c["fits"] for c in found["candidates"])
    assert all({"mesh", "rule"} <= set(r) for r in found["rejected"])
    without_model = {key: value for key, value in CONFIG.items() if key != "model"}
    refused = client.post("/api/search/", {"config": without_model})
    assert (refused.status_code, "model" in refused.json()["detail"]) == (400, True)
    assert client.post("/api/search/", {"config": CONFIG, "top": 0}).status_code == 400
    assert people.api("anonymous").post("/api/search/", {"config": CONFIG}).status_code == 401


def test_a_search_of_too_many_meshes_is_refused_before_it_is_priced(people):
    roles = {f"a{n}": "data" for n in range(8)}
    mesh = {"ici": {"data": 4096, **dict.fromkeys(roles, 1)}, "axis_roles": roles}
    many = {**CONFIG, "hardware": {"chip": "v5p", "topology": [16, 16, 16]}, "mesh": mesh}
    answer = people.api("engineer").post("/api/search/", {"config": many})
    assert answer.status_code == 400
    assert "name fewer axes" in answer.json()["detail"]
