from __future__ import annotations

import io
import json

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from history.models import HistoryRecord, RecordImport
from history.services import formats, imports, search, store
from history.services.imports import ImportRefused, State
from tests.history.records import record


def file(records, kind: str = "jsonl", extra: bytes = b"") -> SimpleUploadedFile:
    return SimpleUploadedFile(f"records.{kind}", b"".join(formats.write(records, kind)) + extra)


BAD = b'{"id": "bad", "title": "t", "changes": ["mash"], "source": "s", "speedup": 1.5}\n'


def test_a_file_is_checked_first_and_nothing_is_stored(people):
    store.add(record("known"), people.team)
    made = imports.receive(
        people.team, people.engineer, file([record("new"), record("known"), record("new")], extra=BAD)
    )
    assert made.state == State.CHECKED
    report = made.report
    assert [report[name] for name in ("rows", "good", "new", "duplicates", "bad")] == [4, 3, 1, 2, 1]
    assert report["errors"] == [
        {
            "row": 4,
            "column": "changes",
            "message": "has 'mash'; did you mean 'mesh'?; use mesh, batch, remat, weight_sharding, xla_flags, "
            "precision, kernel, model, software, other",
        }
    ]
    assert [(row["id"], row["duplicate"]) for row in report["preview"]] == [
        ("new", False), ("known", True), ("new", True),
    ]  # fmt: skip
    assert HistoryRecord.objects.count() == 1


def test_good_rows_are_imported_and_bad_ones_stay_out(people):
    store.add(record("known", title="As it was"), people.team)
    given = [record("a"), record("known", title="As it would be"), record("b", provenance="measured")]
    made = imports.receive(people.team, people.engineer, file(given, extra=BAD))
    imports.confirm(made)
    assert made.state == State.IMPORTED and made.report["added"] == 2 and made.checked == []
    rows = {row.key: row for row in HistoryRecord.objects.all()}
    assert set(rows) == {"a", "b", "known"} and rows["known"].title == "As it was"
    assert rows["b"].provenance == "imported"  # it was measured, but not here
    assert rows["a"].added_by == people.engineer and rows["a"].imported == made and rows["a"].team == people.team
    with pytest.raises(ImportRefused, match="imported"):
        imports.confirm(made)


def test_a_straight_import_does_both(people):
    made = imports.receive(people.team, people.engineer, file([record("a")], "csv"), straight=True)
    assert made.state == State.IMPORTED and made.report["added"] == 1
    again = imports.receive(people.team, people.engineer, file([record("a")], "csv"), straight=True)
    assert again.state == State.IMPORTED and again.report["duplicates"] == 1 and again.report["new"] == 0
    assert HistoryRecord.objects.count() == 1


def test_two_teams_may_have_records_of_one_name(people):
    other = people.outsider.memberships.get().team
    for team in (people.team, other):
        imports.receive(team, people.outsider, file([record("a")]), straight=True)
    assert HistoryRecord.objects.filter(key="a").count() == 2


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("records.xlsx", b"PK", "formats are .csv, .json and .jsonl"),
        ("records.csv", b"", "is empty"),
        ("r.csv", "id,title\n\xe9".encode("latin-1"), "not UTF-8"),
    ],
)
def test_what_is_no_file_of_records_is_refused(people, name, content, sentence):
    with pytest.raises(ImportRefused, match=sentence):
        imports.receive(people.team, people.engineer, SimpleUploadedFile(name, content))
    assert not RecordImport.objects.exists()


def test_too_large_a_file_is_refused(people, monkeypatch):
    monkeypatch.setattr(imports, "LIMIT_BYTES", 1000)
    with pytest.raises(ImportRefused, match="limited to") as refused:
        imports.receive(people.team, people.engineer, file([record(f"r{n}") for n in range(5)]))
    assert refused.value.status == 413


def test_a_report_of_many_bad_rows_is_bounded(people):
    made = imports.receive(people.team, people.engineer, SimpleUploadedFile("r.jsonl", BAD * 400))
    assert made.report["bad"] == 400
    assert len(made.report["errors"]) == imports.KEPT_ERRORS and made.report["errors_left_out"] == 200


@pytest.mark.parametrize("kind", formats.FORMATS)
def test_an_export_of_one_team_is_an_import_of_another(people, kind):
    given = [record(f"r{n}", caveats=("=one", "two, and; three"), effect='with "quotes"\nand lines') for n in range(8)]
    store.add_many(given, people.team, None)
    content = b"".join(formats.download(search.records(search.filtered(people.team, {})), kind))
    assert [row.record for row in formats.read(io.BytesIO(content), kind)] == given[::-1]
    other = people.outsider.memberships.get().team
    made = imports.receive(other, people.outsider, SimpleUploadedFile(f"r.{kind}", content), straight=True)
    assert made.report["added"] == 8, json.dumps(made.report)
    stored = [store.to_record(row) for row in HistoryRecord.objects.filter(team=other).order_by("-key")]
    assert stored == given[::-1]


def test_an_export_holds_what_the_filters_leave(people):
    store.add_many([record("a"), record("b", chip="h100", topology=(8, 64))], people.team, None)
    store.add(record("foreign"), people.outsider.memberships.get().team)
    for teams, asked, expected in (
        (people.team, {"chip": "h100"}, ["b"]), (people.team, {"q": "h100"}, ["b"]), ([], {}, []),
    ):  # fmt: skip
        assert [row.key for row in search.records(search.filtered(teams, asked))] == expected
