from __future__ import annotations

import io
import json

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from history.models import HistoryRecord, RecordImport
from history.services import formats, imports, search, store
from history.services.imports import ImportRefused
from tests.history.records import record


def file(records, kind: str = "jsonl", extra: bytes = b"") -> SimpleUploadedFile:
    return SimpleUploadedFile(f"records.{kind}", b"".join(formats.write(records, kind)) + extra)


BAD = b'{"id": "bad", "title": "t", "changes": ["mash"], "source": "s", "speedup": 1.5}\n'


def test_good_rows_are_imported_and_bad_ones_are_named(people):
    store.add(record("known", title="As it was"), people.team)
    given = [record("a"), record("known", title="As it would be"), record("b", provenance="measured"), record("a")]
    made = imports.receive(people.team, people.engineer, file(given, extra=BAD))
    report = made.report
    assert [report[name] for name in ("rows", "good", "added", "duplicates", "bad")] == [5, 4, 2, 2, 1]
    assert report["errors"] == [
        {
            "row": 5,
            "column": "changes",
            "message": "has 'mash'; did you mean 'mesh'?; use mesh, batch, remat, weight_sharding, xla_flags, "
            "precision, kernel, model, software, other",
        }
    ]
    rows = {row.key: row for row in HistoryRecord.objects.all()}
    assert set(rows) == {"a", "b", "known"} and rows["known"].title == "As it was"
    assert rows["b"].provenance == "imported"  # it was measured, but not here
    assert rows["a"].added_by == people.engineer and rows["a"].imported == made and rows["a"].team == people.team


def test_a_second_import_of_a_file_adds_nothing(people):
    made = imports.receive(people.team, people.engineer, file([record("a")], "csv"))
    again = imports.receive(people.team, people.engineer, file([record("a")], "csv"))
    assert made.report["added"] == 1
    assert again.report["duplicates"] == 1 and again.report["added"] == 0
    assert HistoryRecord.objects.count() == 1


def test_two_teams_may_have_records_of_one_name(people):
    other = people.outsider.memberships.get().team
    for team in (people.team, other):
        imports.receive(team, people.outsider, file([record("a")]))
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
    made = imports.receive(other, people.outsider, SimpleUploadedFile(f"r.{kind}", content))
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
