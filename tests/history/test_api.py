"""Each endpoint for everyone who may knock, and with the wrong method."""

from __future__ import annotations

import io
import json

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from history.models import HistoryRecord
from history.services import formats, store
from tests.history.records import record, side

pytestmark = pytest.mark.slow

INSIDERS = ("viewer", "engineer", "reviewer", "administrator")
OUTSIDERS = ("outsider", "teamless")
TRAINING = {"global_batch": 512, "seq_len": 4096}
KNOWN = {"parameters": 8e9, "before": side(training=TRAINING), "after": side(data=16, seq=4, training=TRAINING)}
RECORDS, IMPORTS = "/api/history/records/", "/api/history/imports/"


@pytest.fixture
def own(people):
    store.to_row(record("shipped", provenance="published", **KNOWN), None).save()
    return store.add(record("own", **KNOWN), people.team, people.engineer)


def upload(records, name: str = "r.jsonl", **more):
    content = b"".join(formats.write(records, name.rsplit(".", 1)[-1]))
    return {"file": SimpleUploadedFile(name, content), **more}


def test_records_are_there_for_their_team_and_shipped_ones_for_all(people, own):
    for name in INSIDERS:
        assert people.api(name).get(RECORDS).json()["count"] == 2
        assert people.api(name).get(f"{RECORDS}{own.pk}/").status_code == 200
    shipped = HistoryRecord.objects.get(team=None)
    for name in OUTSIDERS:
        assert people.api(name).get(RECORDS).json()["count"] == 1
        assert people.api(name).get(f"{RECORDS}{own.pk}/").status_code == 404
        assert people.api(name).get(f"{RECORDS}{own.pk}/similar/").status_code == 404
        assert people.api(name).get(f"{RECORDS}{shipped.pk}/").status_code == 200
    for address in (RECORDS, f"{RECORDS}{own.pk}/", f"{RECORDS}{own.pk}/similar/", f"{RECORDS}export/", IMPORTS):
        assert people.api("anonymous").get(address).status_code == 401
        assert people.api("administrator").patch(address).status_code == 405


def test_a_record_is_what_an_import_takes(people, own):
    given = people.api("viewer").get(f"{RECORDS}{own.pk}/").json()
    assert given["key"] == "own" and given["record"]["before"]["mesh"]["ici"] == {"model": 8, "data": 8, "seq": 8}
    (row,) = formats.read(io.BytesIO(json.dumps([given["record"]]).encode()), "json")
    assert row.record == record("own", **KNOWN)


def test_the_list_is_narrowed_counted_and_paged(people, own):
    store.add(record("gpu", chip="h100", topology=(8, 64)), people.team)
    api = people.api("viewer")
    found = api.get(f"{RECORDS}?chip=h100&chip=v5p&size=2&sort=effect").json()
    assert found["count"] == 3 and [item["record"]["key"] for item in found["results"]] == ["gpu", "own"]
    assert {v["value"]: v["count"] for f in found["facets"] if f["name"] == "chip" for v in f["values"]} == {
        "v5p": 2, "h100": 1,
    }  # fmt: skip
    rest = api.get(found["next"]).json()
    assert [item["record"]["key"] for item in rest["results"]] == ["shipped"] and rest["next"] is None
    assert api.get(rest["previous"]).json()["results"] == found["results"]
    words = api.get(f"{RECORDS}?q=h100").json()
    assert words["results"][0]["why"]["words_rank"] == 1


def test_nonsense_in_the_address_is_a_sentence(people, own):
    api = people.api("viewer")
    for nonsense in ("chips_min=many", "sort=size", "page=x"):
        assert nonsense.split("=")[0] in api.get(f"{RECORDS}?{nonsense}").json()["detail"]
    assert api.get(f"{RECORDS}?team=999999").status_code == 404
    assert api.get(f"{RECORDS}999999999999/").status_code == 404
    assert api.get(f"{RECORDS}export/?type=xlsx").status_code == 400


def test_similar_records_say_what_is_alike(people, own):
    (found,) = people.api("viewer").get(f"{RECORDS}{own.pk}/similar/?k=3").json()
    assert found["record"]["key"] == "shipped"
    assert 0.5 <= found["score"] <= 1 and found["expected"]["low80"] < found["expected"]["high80"]
    assert found["reason"]


def test_an_engineer_imports_and_a_viewer_does_not(people):
    refused = people.api("viewer").post(IMPORTS, upload([record("a")]), format="multipart")
    assert refused.status_code == 403 and "engineer" in refused.json()["detail"]
    assert people.api("teamless").post(IMPORTS, upload([record("a")]), format="multipart").status_code == 403
    assert people.api("anonymous").post(IMPORTS, upload([record("a")]), format="multipart").status_code == 401
    made = people.api("engineer").post(IMPORTS, upload([record("a")]), format="multipart")
    assert made.status_code == 201 and made.json()["report"]["added"] == 1
    assert people.api("outsider").get(f"{IMPORTS}{made.json()['id']}/").status_code == 404
    foreign = people.outsider.memberships.get().team_id
    into = upload([record("a")], team=foreign)
    assert people.api("engineer").post(IMPORTS, into, format="multipart").status_code == 403


def test_a_wrong_file_is_a_sentence(people):
    api = people.api("engineer")
    wrong = {"file": SimpleUploadedFile("r.xlsx", b"PK")}
    assert ".csv, .json and .jsonl" in api.post(IMPORTS, wrong, format="multipart").json()["detail"]
    assert api.post(IMPORTS, {}, format="multipart").status_code == 400


@pytest.mark.parametrize("kind", formats.FORMATS)
def test_an_export_is_a_download_of_what_one_may_see(people, own, kind):
    answer = people.client("viewer").get(f"{RECORDS}export/?type={kind}")
    content = b"".join(answer.streaming_content)
    assert answer["Content-Disposition"].endswith(f'.{kind}"')
    assert {row.record.id for row in formats.read(io.BytesIO(content), kind)} == {"own", "shipped"}
    foreign = b"".join(people.client("outsider").get(f"{RECORDS}export/?type={kind}").streaming_content)
    assert {row.record.id for row in formats.read(io.BytesIO(foreign), kind)} == {"shipped"}
