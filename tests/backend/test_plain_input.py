"""Plain odd input at every address: a sentence comes back or an empty list, never a server error."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from urllib.parse import quote

import pytest
from rest_framework.test import APIClient

from accounts.models import Team
from asapweb.body_limit import BodyLimit
from tests.backend.factories import CONFIG, upload

pytestmark = pytest.mark.slow

ODD = ["\0", "a\0b", "²", "①", "-1", "9" * 30, "1e999", "[" * 3000, "\udcff".encode("utf-8", "surrogatepass")]
DEEP = [b"[" * 3_000, b"[" * 3_000 + b"]" * 3_000, b'{"config":' * 3_000 + b"1" + b"}" * 3_000, b"[" * 200_000,
        b'{"config": {"training": {"step_time_s": Infinity}}}', b'{"a": 1e999}', b"\xff\xfe\x00"]  # fmt: skip


@pytest.fixture
def client(people):
    client = APIClient(raise_request_exception=False)
    client.force_login(people.reviewer)
    return client


@pytest.fixture
def schema(client):
    return client.get("/api/schema/?format=json").json()


def operations(schema, ready, *methods):
    ids = {"experiments": ready.experiment.pk, "profiles": ready.run.profile_id, "runs": ready.run.pk,
           "diagnoses": ready.run.diagnosis.pk, "plans": ready.plan.pk,
           "proposals": ready.plan.proposals.first().pk}  # fmt: skip
    for path, found in schema["paths"].items():
        address = path.replace("{id}", str(ids.get(path.split("/")[2], 1)))
        for method, operation in found.items():
            if method in methods and "{" not in address:
                yield method, address, operation


def wrong(answer):
    """Why an answer of the API is none; empty where it is one."""
    if answer.status_code >= 500:
        return f"status {answer.status_code}"
    kind = answer.headers.get("Content-Type", "")
    if answer.status_code >= 400 and (not kind.startswith("application/json") or "detail" not in answer.json()):
        return f"status {answer.status_code} with {kind}"
    return ""


def test_filters_of_the_api_take_anything(client, schema, ready):
    """A filter is asked everything where its name is met first, and at other addresses three values in turn."""
    failed, tried, met = [], 0, Counter()
    for _, address, operation in operations(schema, ready, "get"):
        names = {each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"} | {"limit"}
        for name in sorted(names - {"format"}):  # which is of the schema
            for value in ODD[met[name] % 3 :: 3] if met[name] else ODD:
                tried += 1
                asked = f"{address}?{name}={quote(value)}"
                if why := wrong(client.get(asked)):
                    failed.append((asked[:80], why))
            met[name] += 1
    assert not failed and tried > 250 and len(met) > 20


def test_deep_and_odd_json_is_refused_in_a_sentence(client, schema, ready):
    failed, tried = [], 0
    for method, address, operation in operations(schema, ready, "post", "put", "patch"):
        if "application/json" not in operation.get("requestBody", {}).get("content", {}):
            continue
        for body in DEEP:
            tried += 1
            answer = client.generic(method.upper(), address, body, content_type="application/json")
            if (why := wrong(answer)) or answer.status_code < 400:
                failed.append((method, address, body[:20], why or answer.status_code))
    assert not failed and tried > 50


def test_names_with_nul_are_kept_without_it(client, people):
    name = "run\0of\0May"
    made = client.post("/api/experiments/", {"files": [upload()], "name": name}, format="multipart")
    assert made.status_code == 201 and "\0" not in made.json()["name"]
    given = client.post("/api/experiments/step-time/", {"config": CONFIG | {"step_time_s": 1.0}, "name": name})
    assert wrong(given) == "" and given.status_code == 400
    assert wrong(client.post("/api/experiments/", {"files": [upload()], "team": "²"}, format="multipart")) == ""


@pytest.mark.parametrize(
    "text", ["[" * 3_000, "[" * 3_000 + "]" * 3_000, "{a: " * 3_000, "a\0b", '{"name": "\\u0000"}']
)
def test_configurations_as_text_are_refused_in_a_sentence(client, ready, text):
    answer = client.post("/api/experiments/", {"files": [upload()], "config": text}, format="multipart")
    assert wrong(answer) == "" and answer.status_code == 400
    for name in ("config_text", "config"):
        form = {"way": "file", "name": "x", name: text}
        assert client.post(f"/experiments/{ready.experiment.pk}/configuration/", form).status_code < 500


@pytest.mark.parametrize("kind", ["json", "jsonl", "csv"])
@pytest.mark.parametrize("content", [b"[" * 3_000, b"[" * 3_000 + b"]" * 3_000, b"id\nx\0y\n", b'[{"id": "\\u0000"}]'])
def test_imports_are_refused_in_a_sentence(client, kind, content):
    answer = client.post("/api/history/imports/", {"file": upload(f"r.{kind}", content)},
                         format="multipart")  # fmt: skip
    assert wrong(answer) == ""


@pytest.mark.parametrize(("address", "form"), [
    ("/settings/team/", {"team": "²"}),
    ("/experiments/configuration/check/", {"experiment": "²", "way": "form"}),
    ("/settings/members/", {"username": "new", "role": "viewer", "full_name": "A\0na Bo\0"}),
    ("/settings/members/", {"username": "a\0b", "role": "vie\0wer"}),
    ("/settings/tokens/a%00b/revoke/", {}),
])  # fmt: skip
def test_forms_take_anything(people, address, form):
    client = people.client("administrator")
    client.raise_request_exception = False
    assert client.post(address, form).status_code < 500


def test_a_team_is_not_chosen_by_what_only_looks_like_a_number(people):
    Team.objects.create(name="Second")
    answer = people.client("viewer").post("/settings/team/", {"team": "²"}, follow=True)
    assert "You are not in that team" in answer.content.decode()


# JSON where JSON was asked.


@pytest.mark.parametrize(("address", "accept"), [
    ("/api/experiments/", "*/*"), ("/experiments/new/", "application/json"), ("/experiments/new/", "text/html"),
])  # fmt: skip
def test_too_many_files_are_refused_in_the_form_asked_for(client, address, accept):
    files = [upload(f"host{n}.xplane.pb") for n in range(600)]
    answer = client.post(address, {"files": files}, format="multipart", headers={"accept": accept})
    assert answer.status_code == 400 and "512 files" in answer.content.decode()
    assert answer["Content-Type"].startswith("text/html" if accept == "text/html" else "application/json")


def test_a_large_json_body_is_refused_as_json(client, settings):
    body = json.dumps({"config": "x" * settings.DATA_UPLOAD_MAX_MEMORY_SIZE})
    answer = client.generic("POST", "/api/experiments/step-time/", body, content_type="application/json")
    assert answer.status_code == 413 and "MB" in answer.json()["detail"]


def test_an_unknown_address_of_the_api_answers_json(client):
    assert client.get("/api/nothing/").json()["detail"]
    assert client.get("/nothing/", headers={"accept": "application/json"}).json()["detail"]
    assert client.get("/nothing/", headers={"accept": "text/html"})["Content-Type"].startswith("text/html")


@pytest.mark.parametrize(("path", "accept", "kind"), [
    ("/api/experiments/", b"*/*", "application/json"),
    ("/experiments/new/", b"application/json", "application/json"),
    ("/experiments/new/", b"text/html", "text/plain"),
])  # fmt: skip
def test_a_body_above_the_limit_is_refused_in_the_form_asked_for(path, accept, kind):
    sent = []

    async def receive():
        return {"type": "http.request", "body": b"x" * 10, "more_body": False}

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "path": path, "headers": [(b"content-length", b"10"), (b"accept", accept)]}
    asyncio.run(BodyLimit(None, 5, Path("/"), None)(scope, receive, send))  # type: ignore[arg-type]
    assert sent[0]["status"] == 413 and dict(sent[0]["headers"])[b"content-type"].decode().startswith(kind)
    if kind == "application/json":
        assert "ASAP_MAX_UPLOAD_MB" in json.loads(sent[1]["body"])["detail"]
