"""The dialogue over REST, for everyone who knocks."""

from __future__ import annotations

import pytest

from dialogue.models import Held, Message, Thread
from dialogue.services.answering import respond
from proposals.agents.conversation import ConstraintStated, MeshOffered
from tests.dialogue.answerers import Scripted, final, said, tool

pytestmark = pytest.mark.django_db(transaction=True)

OFFER = MeshOffered({"ici": {"replica": 1, "data": 4, "seq": 2, "model": 2}, "dcn": {"data": 1}}, {}, "A third way")


def post(api, address, body=None):
    return api.post(address, body or {}, format="json")


@pytest.fixture
def answered(people, ready):
    """The thread's id and its answer, as a program would make them."""
    api = people.api("engineer")
    thread = post(api, "/api/threads/", {"experiment": ready.experiment.pk}).json()["id"]
    asked = post(api, f"/api/threads/{thread}/messages/", {"text": "Keep the batch. What else?"})
    assert asked.status_code == 202
    told = ConstraintStated({"keep_batch": True}, "Keep the global batch.")
    respond(
        asked.json()["id"],
        Scripted(tool(1, "predict", {}, {"step_time_s": 1.25}), told, OFFER, said("1.25 s it takes.")),
    )
    held = post(api, f"/api/answers/{asked.json()['id']}/cards/", {"effect": 0, "hold": True})
    assert held.status_code == 200 and held.json()["effects"][0]["decided"] == "held"
    return thread, asked.json()["id"]


def test_a_program_asks_and_reads_the_answer(people, ready):
    api = people.api("engineer")
    made = post(api, "/api/threads/", {"experiment": ready.experiment.pk})
    assert made.status_code == 201 and made.json()["created_by"] == "engineer"
    thread = made.json()["id"]
    asked = post(api, f"/api/threads/{thread}/messages/", {"text": "Which do you recommend first?"})
    assert asked.status_code == 202
    answer = asked.json()
    assert (answer["status"], answer["role"], answer["text"]) == ("queued", "assistant", "")
    assert answer["stream"] == f"/answers/{answer['id']}/stream/"
    assert post(api, f"/api/threads/{thread}/messages/", {"text": "And?"}).status_code == 409
    respond(answer["id"], Scripted(final("The first.")))
    read = api.get(f"/api/answers/{answer['id']}/").json()
    assert (read["status"], read["text"], read["provider"]) == ("done", "The first.", "scripted")
    whole = people.api("viewer").get(f"/api/threads/{thread}/messages/").json()
    assert [(item["role"], item["author"]) for item in whole] == [("user", "engineer"), ("assistant", None)]
    listed = people.api("viewer").get(f"/api/threads/?experiment={ready.experiment.pk}").json()
    assert [item["title"] for item in listed["results"]] == ["Which do you recommend first?"]
    assert people.api("viewer").get("/api/threads/?experiment=999999").json()["count"] == 0


def test_an_unused_thread_is_given_again_to_its_own_creator_alone(people, ready):
    body = {"experiment": ready.experiment.pk}
    mine, again = (post(people.api("engineer"), "/api/threads/", body) for _ in range(2))
    theirs = post(people.api("reviewer"), "/api/threads/", body)
    assert [answer.status_code for answer in (mine, again, theirs)] == [201, 201, 201]
    assert mine.json()["id"] == again.json()["id"] != theirs.json()["id"]
    assert theirs.json()["created_by"] == people.reviewer.username


def test_stop_and_retry(people, ready):
    api = people.api("engineer")
    thread = post(api, "/api/threads/", {"experiment": ready.experiment.pk}).json()["id"]
    answer = post(api, f"/api/threads/{thread}/messages/", {"text": "Sure?"}).json()["id"]
    assert post(api, f"/api/answers/{answer}/retry/").status_code == 409
    assert post(api, f"/api/answers/{answer}/stop/").json()["status"] == "stopped"
    again = post(api, f"/api/answers/{answer}/retry/")
    assert again.status_code == 202 and again.json()["id"] != answer


def test_what_is_held_is_listed_and_taken_back(people, answered):
    thread, _ = answered
    api = people.api("engineer")
    (held,) = api.get(f"/api/held/?thread={thread}").json()["results"]
    assert (held["kind"], held["key"], held["value"]) == ("constraint", "keep_batch", True)
    again = post(api, f"/api/threads/{thread}/propose/")
    assert again.status_code == 202 and again.json()["constraints"] == {"keep_batch": True}
    assert post(api, f"/api/threads/{thread}/propose/").status_code == 409
    assert api.delete(f"/api/held/{held['id']}/").status_code == 204
    assert api.get(f"/api/held/?thread={thread}").json()["count"] == 0


def test_a_mesh_of_an_answer_becomes_a_proposal(people, answered):
    _, answer = answered
    api = people.api("engineer")
    assert api.get(f"/api/answers/{answer}/").json()["effects"][1]["kind"] == "mesh"
    made = post(api, f"/api/answers/{answer}/proposals/", {"effect": 1})
    assert made.status_code == 201 and made.json()["rank"] == 4
    assert list(made.json()["mesh"]["ici"]) == ["replica", "data", "seq", "model"]
    assert "already proposal 4" in post(api, f"/api/answers/{answer}/proposals/", {"effect": 1}).json()["detail"]
    assert post(api, f"/api/answers/{answer}/proposals/", {"effect": 0}).status_code == 409
    assert post(api, f"/api/answers/{answer}/proposals/", {"effect": -1}).status_code == 400


def test_threads_are_deleted(people, answered):
    thread, _ = answered
    assert people.api("reviewer").delete(f"/api/threads/{thread}/").status_code == 403
    assert people.api("administrator").delete(f"/api/threads/{thread}/").status_code == 204
    assert not Thread.objects.exists()


def test_what_is_no_question_is_refused(people, ready, answered):
    thread, _ = answered
    for body in ({}, {"text": ""}, {"text": "x" * 8001}, {"text": 3 * [1]}):
        assert post(people.api("engineer"), f"/api/threads/{thread}/messages/", body).status_code == 400
    for body in ({}, {"experiment": 0}, {"experiment": "x"}):
        assert post(people.api("engineer"), "/api/threads/", body).status_code == 400
    assert post(people.api("engineer"), "/api/threads/", {"experiment": 999_999}).status_code == 404
    assert people.api("engineer").get("/api/threads/?experiment=x").status_code == 400


def test_who_may_do_what(people, ready, answered):
    thread, answer = answered
    held = Held.objects.get().pk
    reads = (
        f"/api/threads/{thread}/",
        f"/api/threads/{thread}/messages/",
        f"/api/answers/{answer}/",
        f"/api/held/{held}/",
    )
    writes = (
        ("post", "/api/threads/", {"experiment": ready.experiment.pk}),
        ("post", f"/api/threads/{thread}/messages/", {"text": "x"}),
        ("post", f"/api/threads/{thread}/propose/", {}),
        ("post", f"/api/answers/{answer}/stop/", {}),
        ("post", f"/api/answers/{answer}/retry/", {}),
        ("post", f"/api/answers/{answer}/proposals/", {"effect": 1}),
        ("delete", f"/api/held/{held}/", {}),
        ("delete", f"/api/threads/{thread}/", {}),
    )
    for address in reads:
        assert people.api("viewer").get(address).status_code == 200, address
        assert people.api("outsider").get(address).status_code == 404, address
        assert people.api("anonymous").get(address).status_code == 401, address
    for method, address, body in writes:
        assert getattr(people.api("viewer"), method)(address, body, format="json").status_code == 403, address
        assert getattr(people.api("outsider"), method)(address, body, format="json").status_code == 404, address
        assert getattr(people.api("anonymous"), method)(address, body, format="json").status_code == 401, address
    assert people.api("outsider").get("/api/threads/").json()["count"] == 0
    assert people.api("outsider").get("/api/held/").json()["count"] == 0
    for address in (f"/api/answers/{answer}/", "/api/held/"):
        assert post(people.api("engineer"), address).status_code == 405
    assert Message.objects.count() == 2
