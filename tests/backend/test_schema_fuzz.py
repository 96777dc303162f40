"""Requests generated from the OpenAPI schema: none may end in a server error, and answers keep to the schema."""

from __future__ import annotations

from collections import Counter

import pytest
import schemathesis
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections, transaction
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance

from campaigns.services import campaigns
from dialogue.models import Held
from dialogue.services import asking
from history.services import imports, store
from knowledge.services import documents
from launches.services import launching
from proposals.services import measuring, regenerating, reviews
from tests.backend.factories import make_people, make_ready, upload
from tests.dialogue.answerers import model_set_up
from tests.history.records import record


def _failed(people, ready):
    proposal = ready.plan.proposals.get(rank=3)
    reviews.decide(proposal, people.reviewer, "approved")
    return measuring.report_failure(proposal, people.engineer, "hang")


@pytest.fixture
def api(db):
    people = make_people()
    ready = make_ready(people)
    token = people.api("reviewer").post("/api/tokens/").json()["token"]
    for signal in (request_started, request_finished):  # requests share the test's transaction
        signal.disconnect(close_old_connections)
    schema = schemathesis.openapi.from_wsgi(
        "/api/schema/", get_wsgi_application(), headers={"Authorization": f"Token {token}", "Host": "localhost"}
    )
    schema.token = token
    schema.ids = {
        "experiments": ready.experiment.pk,
        "profiles": ready.run.profile_id,
        "runs": ready.run.pk,
        "diagnoses": ready.run.diagnosis.pk,
        "plans": ready.plan.pk,
        "proposals": ready.plan.proposals.first().pk,
        "plan-requests": regenerating.request(ready.experiment, people.engineer, {}).pk,
        "measurements": _failed(people, ready).pk,
        "history/records": store.add(record("fuzzed"), people.team).pk,
        "history/imports": imports.receive(people.team, people.engineer, upload("records.csv", b"id\nx\n")).pk,
    }
    schema.ids["campaigns"] = campaigns.begin(ready.experiment, people.engineer, campaigns.Campaign()).pk
    approved = ready.plan.proposals.get(rank=2)
    reviews.decide(approved, people.reviewer, "approved", "Fuzzed.")
    schema.ids["launches"] = launching.launch(
        approved, people.engineer, tool="maxtext", repeats=2, steps=10, server="http://asap"
    ).pk
    added = documents.receive(people.team, people.engineer, upload("notes.md", b"# Notes"))
    schema.ids["knowledge/documents"] = added.document.pk
    thread = asking.open_thread(ready.experiment, people.engineer)
    with model_set_up():
        answer = asking.ask(thread, people.engineer, "Which do you recommend first?")
    held = Held.objects.create(thread=thread, kind=Held.Kind.CONSTRAINT, key="keep_batch", value=True, message=answer)
    schema.ids |= {"threads": thread.pk, "answers": answer.pk, "held": held.pk}
    yield schema
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


CHECKS = [not_a_server_error, response_schema_conformance]


def headers_of(api):
    return {"Authorization": f"Token {api.token}", "Host": "localhost", "Accept-Encoding": "identity"}


@pytest.mark.slow
def test_no_request_ends_in_a_server_error(api, fuzz):
    headers = headers_of(api)
    tried = set()
    for result in api.get_all_operations():
        operation = result.ok()
        if operation.method == "delete":  # what it deletes is asked for by the others
            continue
        tried.add(operation.path)

        @settings(max_examples=4 * fuzz, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
        @given(case=operation.as_strategy())
        def call(case):
            if "id" in (case.path_parameters or {}):  # a guessed id would only ever find 404
                kind = case.operation.path.split("/{id}")[0].removeprefix("/api/")
                case.path_parameters["id"] = api.ids[kind]
            case.call_and_validate(headers=headers, checks=CHECKS)

        call()
    assert {"/api/experiments/", "/api/reviews/", "/api/predict/"} <= tried


@pytest.mark.slow
def test_no_sequence_of_requests_ends_in_a_server_error(api, fuzz):
    """What one answer names, the next request asks for, changes or deletes; each sequence is taken back."""
    answered = Counter()

    class Sequence(api.as_state_machine()):
        def setup(self):
            self.point = transaction.savepoint()

        def teardown(self):
            transaction.savepoint_rollback(self.point)

        def get_call_kwargs(self, case):
            return {"headers": headers_of(api)}

        def validate_response(self, response, case, **kwargs):
            answered[case.method, case.operation.path, response.status_code < 300] += 1
            case.validate_response(response, checks=CHECKS)

    Sequence.run(
        settings=settings(
            max_examples=70 * fuzz, stateful_step_count=10, deadline=None, suppress_health_check=list(HealthCheck),
            derandomize=True, phases=[Phase.generate],
        )
    )  # fmt: skip
    named = {(method, path) for method, path, well in answered if "{" in path and well}
    assert len(named) > 5  # of objects that were found by an earlier answer
