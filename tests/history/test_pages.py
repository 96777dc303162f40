"""The optimization database's pages: what owner, teammate, outsider and a wrong method get, and what they show."""

from __future__ import annotations

import csv
import io
import json

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from accounts.models import Membership, Role, Team
from history.models import HistoryRecord, RecordImport
from history.record import Side
from history.services import store
from tests.history.records import record, side

MESH_CHANGE = {
    "before": side(kpis={"step_time_s": 12.0, "mfu": 0.4, "mfu_convention": "six per parameter"}, label="as it ran"),
    "after": side(data=16, seq=4, kpis={"step_time_s": 10.0, "mfu": 0.48, "mfu_convention": "six per parameter"}),
}


@pytest.fixture
def own(people) -> HistoryRecord:
    """A record of the team."""
    value = record("own-1", title="Own sweep", licence="ours", caveats=("One run of 200 steps.",), **MESH_CHANGE)
    return store.add(value, people.team, people.engineer)


@pytest.fixture
def seeded(people) -> None:
    store.seed()


def text(answer) -> str:
    return answer.content.decode()


def test_both_sides_stand_beside_each_other(people, own):
    client = people.client("viewer")
    page = text(client.get(f"/history/{own.pk}/"))
    for words in ("seq", "×2", "÷2", "12.0", "10.0", "−16.7", "+8.0", "One run of 200 steps.", "our sweep of May"):
        assert words in page, words
    assert "six per parameter" in page


def test_htmx_gets_the_part_and_a_browser_without_scripts_the_page(people, own):
    client = people.client("viewer")
    whole, piece = client.get("/history/"), client.get("/history/", headers={"HX-Request": "true"})
    assert "<html" in text(whole) and "<html" not in text(piece)
    assert "Own sweep" in text(whole) and "Own sweep" in text(piece)
    assert "HX-Request" in whole["Vary"]


def test_a_failure_is_shown_as_one(people):
    failed = record(
        "oom", title="Micro-batch doubled", outcome="failed", failure="out_of_memory", speedup=None, after=Side()
    )
    row = store.add(failed, people.team)
    client = people.client("viewer")
    assert "Out of memory" in text(client.get("/history/"))
    page = text(client.get(f"/history/{row.pk}/"))
    assert "did not run" in page and "did not finish" in page


def test_facets_narrow_and_count(people, seeded, own):
    client = people.client("viewer")
    page = text(client.get("/history/?outcome=failed"))
    failed = HistoryRecord.objects.filter(outcome="failed").count()
    assert f"{failed} of {HistoryRecord.objects.count()} records" in page
    assert "Own sweep" not in page
    own_only = text(client.get("/history/?provenance=imported"))
    assert "Own sweep" in own_only and f"1 of {HistoryRecord.objects.count()} records" in own_only
    none = text(client.get("/history/?provenance=imported&outcome=failed"))
    assert "No record matches" in none and "Remove a filter" in none


@pytest.mark.parametrize("kind", ["csv", "json", "jsonl"])
def test_the_export_holds_what_the_filters_leave(people, seeded, own, kind):
    answer = people.client("viewer").get(f"/history/export.{kind}?outcome=failed")
    body = b"".join(answer.streaming_content).decode()
    assert f'.{kind}"' in answer["Content-Disposition"]
    if kind == "csv":
        ids = [line["id"] for line in csv.DictReader(io.StringIO(body))]
    else:
        ids = [item["id"] for item in (json.loads(body) if kind == "json" else map(json.loads, body.splitlines()))]
    assert set(ids) == set(HistoryRecord.objects.filter(outcome="failed").values_list("key", flat=True))


def test_only_an_administrator_of_its_team_deletes_a_record(people, own):
    address = f"/history/{own.pk}/delete/"
    for name, status in (("viewer", 403), ("engineer", 403), ("reviewer", 403), ("outsider", 404)):
        assert people.client(name).post(address).status_code == status
        assert people.client(name).get(address).status_code == status
    assert people.client("administrator").put(address).status_code == 405
    asked = text(people.client("administrator").get(address))
    assert "cannot be undone" in asked and HistoryRecord.objects.filter(pk=own.pk).exists()
    assert people.client("administrator").post(address).status_code == 302
    assert not HistoryRecord.objects.filter(pk=own.pk).exists()


def test_a_shipped_record_cannot_be_deleted(people, seeded):
    shipped = HistoryRecord.objects.get(key="asap-1")
    answer = people.client("administrator").post(f"/history/{shipped.pk}/delete/")
    assert answer.status_code == 403
    assert HistoryRecord.objects.filter(pk=shipped.pk).exists()


def test_a_member_of_two_teams_reads_the_record_of_the_other(people, own):
    other = Team.objects.get(name="Another team")
    Membership.objects.create(user=people.viewer, team=other, role=Role.VIEWER)
    theirs = store.add(record("theirs", title="Their sweep"), other)
    assert people.client("viewer").get(f"/history/{theirs.pk}/").status_code == 200


def test_similar_records_say_what_is_alike(people, seeded, own):
    assert "No record is similar enough" in text(people.client("viewer").get(f"/history/{own.pk}/"))
    training = {"global_batch": 256, "seq_len": 8192}
    like = record("like", before=side(training=training), after=side(data=16, seq=4, training=training))
    page = people.client("viewer").get(f"/history/{store.add(like, people.team).pk}/")
    first = page.context["alike"][0]
    assert first.record.key == "asap-1"
    assert "The same run and change" in text(page)


def test_measured_records_lead_to_their_runs_and_profiles(people, ready):
    row = store.add(
        record("measured-1", provenance="measured"), people.team,
        experiment_before=ready.experiment, experiment_after=ready.experiment, profile_after=ready.run.profile,
    )  # fmt: skip
    page = text(people.client("viewer").get(f"/history/{row.pk}/"))
    assert f"/experiments/{ready.experiment.pk}/" in page
    assert f"/compare/?a={ready.run.profile_id}&amp;b={ready.run.profile_id}" in page
    assert "Measured here" in page


def upload(name: str, content: str) -> SimpleUploadedFile:
    return SimpleUploadedFile(name, content.encode())


GOOD = "id,title,changes,source,speedup,measure\nsweep-1,Twice the data axis,mesh,our sweep,1.2,step time\n"
BAD = "id,title,changes,source,speedup\n,no id,mesh,s,1.1\nsweep-2,wrong change,sharding,s,1.1\n"


def test_an_import_shows_what_was_added_and_what_is_wrong(people):
    client = people.client("engineer")
    answer = client.post("/history/import/", {"file": upload("sweep.csv", GOOD + BAD.split("\n", 1)[1])})
    made = RecordImport.objects.get()
    assert answer.status_code == 302 and answer["Location"] == f"/history/import/{made.pk}/"
    page = text(client.get(answer["Location"]))
    assert "1 record added" in page
    assert "is missing; every record needs it" in page and "sharding" in page
    row = HistoryRecord.objects.get()
    assert (row.key, row.team, row.provenance, row.added_by) == ("sweep-1", people.team, "imported", people.engineer)


def test_a_citation_opens_its_record_in_place_or_as_a_page(people, seeded, own):
    client = people.client("viewer")
    shipped = HistoryRecord.objects.get(key="asap-1")
    assert client.get("/history/cited/asap-1/")["Location"] == f"/history/{shipped.pk}/"
    part = text(client.get("/history/cited/asap-1/", headers={"HX-Request": "true"}))
    assert "1.39×" in part and "<html" not in part and "redacted" in part
    assert client.get("/history/cited/nothing/").status_code == 404
    assert people.client("outsider").get("/history/cited/own-1/").status_code == 404


def test_of_two_teams_records_with_one_id_the_citing_teams_opens(people, own):
    """Both teams imported one file: who is in both reads the record of the team whose proposal cites it."""
    other = people.outsider.memberships.get().team
    theirs = store.add(record("own-1", title="The other team's", **MESH_CHANGE), other)
    Membership.objects.create(user=people.viewer, team=other, role=Role.VIEWER)
    client = people.client("viewer")
    for team, row in ((people.team, own), (other, theirs)):
        assert client.get(f"/history/cited/own-1/?team={team.pk}")["Location"] == f"/history/{row.pk}/"
    assert client.get("/history/cited/own-1/")["Location"] == f"/history/{own.pk}/"
    for address in (f"?team={people.team.pk}", "?team=0", "?team=x"):
        assert people.client("outsider").get(f"/history/cited/own-1/{address}").status_code == 404


def test_a_record_of_the_team_is_meant_before_a_shipped_one_with_its_id(people, own):
    shipped = store.to_row(record("own-1", title="Shipped later"), None)
    shipped.save()
    assert people.client("viewer").get("/history/cited/own-1/")["Location"] == f"/history/{own.pk}/"
    assert people.client("outsider").get("/history/cited/own-1/")["Location"] == f"/history/{shipped.pk}/"


@pytest.mark.parametrize("flags", ["--xla_a --xla_b=1", {"xla_a": True}, 7, [None, {"a": [1]}], "no flags at all"])
def test_flags_in_any_form_are_imported_and_shown(people, own, flags):
    value = json.dumps([{
        "id": "flagged", "title": "Flags", "changes": ["xla_flags"], "source": "us", "speedup": 1.1, "chip": "v5p",
        "chips": 512, "before": {"training": {"xla_flags": flags}}, "after": {"training": {"xla_flags": flags}},
    }])  # fmt: skip
    client = people.client("engineer")
    client.post("/history/import/", {"file": upload("flags.json", value)})
    made = HistoryRecord.objects.get(key="flagged")
    assert "Flags" in text(client.get(f"/history/{made.pk}/"))
