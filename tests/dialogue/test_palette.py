"""The palette: every capability through its form on the page, the message that a form becomes, and the same as REST."""

from __future__ import annotations

import pytest

from dialogue import palette
from dialogue.models import Message, Thread
from dialogue.services.respond import respond
from proposals.agents.capabilities import registry
from proposals.agents.reasoner.understand import commanded

pytestmark = pytest.mark.django_db(transaction=True)


def of(experiment, rest=""):
    return f"/experiments/{experiment.pk}/dialogue/palette/{rest}"


@pytest.mark.parametrize("key", registry())
def test_a_form_becomes_a_message_that_is_read_as_that_very_form(key: str) -> None:
    form = palette.CapabilityForm(registry()[key], {})
    assert form.is_valid(), form.errors
    asked = commanded(form.message)
    assert asked is not None and asked.of.key == key and asked.values == {}


def test_values_of_a_form_come_back_as_they_were_given() -> None:
    form = palette.CapabilityForm(
        registry()["compare"], {"proposals": "1, 3", "meshes": "data=8, seq=4 | data=4; seq=8"}
    )
    assert form.is_valid(), form.errors
    asked = commanded(form.message)
    assert asked is not None
    assert asked.values == {"proposals": ["1", "3"], "meshes": ["data=8, seq=4", "data=4, seq=8"]}


def test_what_a_form_cannot_take_is_said_where_it_is(people, ready) -> None:
    client = people.client("engineer")
    page = client.post(of(ready.experiment, "change_batch/"), {"batch": "many", "thread": "new"})
    assert page.status_code == 422 and "Batch" in page.content.decode()
    assert not Message.objects.exists()


def test_the_list_is_searched_and_leads_to_forms(people, ready) -> None:
    client = people.client("viewer")
    every = client.get(of(ready.experiment)).content.decode()
    assert "Prediction for a configuration" in every and "Cost" in every
    few = client.get(of(ready.experiment), {"q": "chip-hour"}).content.decode()
    assert "Cost" in few and "Stragglers" not in few
    assert "No match" in client.get(of(ready.experiment), {"q": "zzz"}).content.decode()
    form = client.get(of(ready.experiment, "cost/")).content.decode()
    assert "read access" in form and '<button class="btn btn--s btn--primary">Compute' not in form


def test_a_posted_form_is_answered_by_its_capability(people, ready) -> None:
    client = people.client("engineer")
    asked = client.post(of(ready.experiment, "price_mesh/"), {"mesh": "data=8, model=2", "thread": "new"})
    assert asked.status_code == 302
    answer = Thread.objects.get().messages.last()
    respond(answer.pk)
    answer.refresh_from_db()
    assert answer.status == "done" and answer.text.startswith("**Prediction for a configuration:**"), answer.note
    page = client.get(asked["Location"]).content.decode()
    assert "Prediction for a configuration: mesh = data=8, model=2" in page


def test_who_may_read_and_post(people, ready) -> None:
    for address in (of(ready.experiment), of(ready.experiment, "cost/")):
        assert people.client("outsider").get(address).status_code == 404
        assert people.client("anonymous").get(address)["Location"].startswith("/sign-in/")
    assert people.client("viewer").post(of(ready.experiment, "cost/"), {}).status_code == 403
    assert people.client("engineer").get(of(ready.experiment, "nothing/")).status_code == 404
    assert people.client("engineer").post(of(ready.experiment), {}).status_code == 405


def test_rest_lists_and_computes_and_changes_nothing(people, ready) -> None:
    client = people.client("viewer")
    listed = client.get("/api/capabilities/").json()
    assert {item["key"] for item in listed} == set(registry())
    assert all(item["schema"]["type"] == "object" for item in listed)
    body = {"experiment": ready.experiment.pk, "arguments": {"mesh": "data=8, model=2"}}
    found = client.post("/api/capabilities/price_mesh/", body, content_type="application/json")
    assert found.status_code == 200, found.content
    assert found.json()["answers"] == "Prediction for a configuration"
    assert found.json()["results"][0]["tool"] == "predict"
    wrong = client.post(
        "/api/capabilities/price_mesh/", {**body, "arguments": {"batch": "x"}}, content_type="application/json"
    )
    assert wrong.status_code == 400 and "batch" in wrong.content.decode()
    assert client.post("/api/capabilities/nothing/", body, content_type="application/json").status_code == 404
    outside = people.client("outsider").post("/api/capabilities/price_mesh/", body, content_type="application/json")
    assert outside.status_code == 404
    assert client.get("/api/capabilities/cost/").json()["title"] == "Cost"
    assert not Message.objects.exists()
