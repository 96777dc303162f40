"""Input that means harm, through every entrance it has: page, REST API and command line.

Each row ends in the one sentence that is expected, the same at each entrance; nothing stays on the disk or in the
database that the row does not name, and no page shows it as anything but text.
"""

# ruff: noqa: E501, UP031  a row of a table is a line; JSON is full of braces
from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from rest_framework.test import APIClient

from asapweb.cli.dispatch import dispatch
from experiments.models import Experiment, Profile, ProfileFile, RunStatus
from experiments.services import runs, uploads
from history.models import HistoryRecord, RecordImport
from history.services import formats
from knowledge.models import Document, Passage
from knowledge.services import documents
from proposals.services import coordinator
from tests.backend.conftest import data_folder
from tests.backend.factories import CONFIG, make_people, upload
from tests.history.records import record
from tests.hostile.files import ARCHIVES, left_in, zipped
from tests.hostile.house import active
from tests.knowledge.files import pdf

__all__ = ["data_folder"]

LONGEST_SENTENCE = 300


@pytest.fixture
def people(db: None) -> Any:
    return make_people()


@pytest.fixture
def api(people: Any) -> APIClient:
    client = APIClient(raise_request_exception=False)
    client.force_login(people.engineer)
    return client


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the processes that read files work; empty before and after."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("ASAP_INGEST_FOLDER", str(folder))
    return folder


def is_sentence(text: str) -> bool:
    return 5 < len(text) <= LONGEST_SENTENCE and not re.search(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)


def typed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line that the command line says of what the user can mend."""
    status = dispatch(list(arguments))
    said = capsys.readouterr()
    assert status == 2 and said.out == "" and said.err.count("\n") == 1, (status, said)
    assert is_sentence(said.err.rstrip("\n")), said.err
    return said.err


def counts() -> dict[str, int]:
    return {model._meta.label: model.objects.count() for model in apps.get_models()}


# Archives.


@pytest.fixture
def committed(transactional_db: None) -> Any:
    """Who reads a profile says that it lives, over a connection of its own."""
    return make_people()


@pytest.mark.nightly(of=4)
@pytest.mark.parametrize(("name", "build", "says"), [row[1:] for row in ARCHIVES], ids=[row[0] for row in ARCHIVES])
def test_an_archive_is_refused_alike_at_each_entrance(
    committed, data_folder, temporary, tmp_path, capsys, name, build, says
) -> None:
    """On a page or by REST, which take every other archive, and on the command line."""
    content = build()
    client, files = committed.api("engineer"), {"files": [upload(name, content)]}
    if [row[2] for row in ARCHIVES].index(build) % 2:
        assert committed.client("engineer").post("/experiments/new/", files).status_code == 302
    else:
        assert client.post("/api/experiments/", files, format="multipart").status_code == 201
    sentences = []
    for experiment in Experiment.objects.order_by("pk"):
        run = runs.newest(experiment)
        coordinator.advance(run.pk)
        run.refresh_from_db()
        assert run.status == RunStatus.FAILED
        assert client.get(f"/api/runs/{run.pk}/").json()["reason"] == run.reason
        page = committed.client("engineer").get(f"/experiments/{experiment.pk}/").content.decode()
        assert not active(page) and "passwd:" not in page
        assert is_sentence(run.reason.split(". ")[0])
        sentences.append(run.reason)
    path = tmp_path / name
    path.write_bytes(content)
    sentences.append(typed(capsys, "diagnose", str(path)))
    assert all(re.search(says, sentence) for sentence in sentences), sentences

    # Kept is what was uploaded, and nothing that was unpacked.
    assert [Path(file).stat().st_size for file in left_in(data_folder / "uploads")] == [len(content)]
    assert not left_in(temporary, data_folder / "profiles", data_folder / "uploading")
    assert not Profile.objects.filter(summary__has_key="provenance").exists()
    for experiment in Experiment.objects.all():
        uploads.delete(experiment, committed.engineer)
    assert not left_in(data_folder / "uploads") and not ProfileFile.objects.exists()


# Names.

NAMES = {
    "control characters": "run\x00\x1b[2J\r\n\x07\x9b1",
    "direction turned": "run\u202egnp.exe\u2066\u061c",
    "10,000 characters": "n" * 10_000,
    "a path": "../../../../etc/passwd",
    "a Windows path": "..\\..\\C:\\boot.ini",
    "markup": "<script>alert(1)</script><img src=x onerror=alert(1)>\"'",
    "a template": "{{ settings.SECRET_KEY }}{% debug %}",
    "a formula": "=cmd|' /C calc'!A1",
    "lines within": "one\u2028two\u2029three\u0085four",
    "invisible": "\u200b\ufeff\U000e0041",
    "a thousand accents": "e" + "\u0301" * 1000,
    "a lone surrogate": "run\ud800",
    "nothing": " ",
}


def is_plain(name: str, longest: int = 255) -> bool:
    odd = r"[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
    return 0 < len(name) <= longest and not re.search(odd, name)


@pytest.mark.nightly(of=4)
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_a_name_stays_text(people, api, data_folder, name) -> None:
    sent = name.encode("utf-8", "replace").decode()
    called = re.sub(r"[\r\n\x00]", " ", sent)  # a browser sends no header that is broken
    page = people.client("engineer")
    made = page.post("/experiments/new/", {"files": [upload(f"{called}.xplane.pb")], "name": sent})
    assert made.status_code in (302, 422)
    given = api.post("/api/experiments/", {"files": [upload(f"{called}.xplane.pb")], "name": sent}, format="multipart")
    assert given.status_code in (201, 400), given.content
    added = page.post("/knowledge/documents/", {"file": upload(f"{called}.md", b"# Notes\n"), "title": sent})
    assert added.status_code in (302, 422)
    row = {"id": sent, "title": sent, "changes": ["mesh"], "source": sent, "speedup": 1.2}
    api.post("/api/history/imports/", {"file": upload("r.jsonl", json.dumps(row).encode())}, format="multipart")
    assert Experiment.objects.exists()
    for experiment in Experiment.objects.all():
        assert is_plain(experiment.name, 200)
        for path in (f"/experiments/{experiment.pk}/", "/experiments/", f"/experiments/{experiment.pk}/memory/"):
            assert not active(page.get(path).content.decode())
    assert all(is_plain(file.name) for file in ProfileFile.objects.all())
    assert all(is_plain(each.name) and is_plain(each.title, 300) for each in Document.objects.all())
    for path in ("/history/", "/knowledge/documents/", "/"):
        assert not active(page.get(path).content.decode())
    root = str(data_folder)
    assert all(path.startswith(root) and re.fullmatch(r"[\w./-]+", path[len(root) :]) for path in left_in(data_folder))


@pytest.mark.nightly(of=4)
@pytest.mark.parametrize(
    "name", [name for kind, name in NAMES.items() if kind not in ("a lone surrogate", "10,000 characters")]
)
def test_a_name_does_nothing_to_a_terminal(tmp_path, capsys, name) -> None:
    odd = tmp_path / (re.sub(r"[\x00/]", "", name)[:60] + ".json")
    odd.write_text("{")
    typed(capsys, "predict", str(odd))
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG | {"name": name, name: 1}))
    status = dispatch(["predict", str(path)])
    said = capsys.readouterr()
    assert status == 0 or (status == 2 and is_sentence(said.err.rstrip("\n")))
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", said.out + said.err)


# JSON numbers and depth, in a configuration.

HARDWARE = '"hardware": {"chip": "v6e", "topology": [4, 4]}, "mesh": {"ici": {"data": 16}}'
CONFIGURATIONS = {
    "1e400": '{%s, "training": {"global_batch": 1e400}}' % HARDWARE,
    "10**400": '{%s, "training": {"global_batch": 1%s}}' % (HARDWARE, "0" * 400),
    "a digit 10,000 times": '{%s, "training": {"global_batch": %s}}' % (HARDWARE, "9" * 10_000),
    "NaN": '{%s, "training": {"global_batch": NaN}}' % HARDWARE,
    "-Infinity": '{%s, "training": {"seq_len": -Infinity}}' % HARDWARE,
    "a topology of 10**400": '{"hardware": {"chip": "v6e", "topology": [1%s]}, "mesh": {"ici": {"data": 1}}}' % ("0" * 400),
    "a mesh of 10**400": '{"hardware": {"chip": "v6e", "topology": [1]}, "mesh": {"ici": {"data": 1%s}}}' % ("0" * 400),
    "lists 100,000 deep": "[" * 100_000,
    "objects 100,000 deep": '{"notes": ' + '{"a":' * 100_000 + "1" + "}" * 100_001,
    "YAML that grows": "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [" + ", ".join([f"*{chr(97 + n)}"] * 9) + "]\n" for n in range(9)),
    "YAML that makes objects": "!!python/object/apply:os.system ['true']",
    "10,000 axes": json.dumps({"hardware": {"chip": "v6e", "topology": [1]}, "mesh": {"ici": {f"a{n}": 1 for n in range(10_000)}}}),
    "the same key twice": '{"hardware": {"chip": "v6e"}, %s}' % HARDWARE,
    "NUL": '{"name": "a\\u0000", %s, "training": {"precision": "b\\u0000"}}' % HARDWARE,
    "a list": "[1, 2]",
}  # fmt: skip
#: Of these the command line and the page read YAML, which JSON is; the API's body is JSON before it is a configuration.


@pytest.mark.nightly(of=4)
@pytest.mark.parametrize("text", CONFIGURATIONS.values(), ids=CONFIGURATIONS)
def test_a_configuration_is_refused_alike_at_each_entrance(people, api, data_folder, tmp_path, capsys, text) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    before = counts()
    typed(capsys, "predict", str(path))
    typed(capsys, "search", str(path))
    for address in ("/api/predict/", "/api/search/"):
        said = api.generic("POST", address, f'{{"config": {text}}}', content_type="application/json")
        assert said.status_code == 400, said.content[:300]
        assert is_sentence(said.json().get("detail") or str(next(iter(said.json()["errors"].values()))))
    given = api.post("/api/experiments/", {"files": [upload()], "config": text}, format="multipart")
    assert given.status_code == 400
    assert counts() == before and not left_in(data_folder / "uploads")
    form = {"files": [upload()], "config_way": "file", "config_text": text}
    assert people.client("engineer").post("/experiments/new/", form).status_code == 302
    made = Experiment.objects.get()  # the profile is kept, and the configuration waits to be corrected
    assert made.config is None and all(is_sentence(each) for each in made.config_errors.values())


# Documents.

SCRIPT = "<script>alert(1)</script>"
DOCUMENTS = {
    "a web page": ("page.html", f"<!doctype html><html>{SCRIPT}</html>".encode(), "web page"),
    "a Word file that is a bomb": ("report.docx", zipped(("word/document.xml", b"\0" * 5_000_000)), "Office file"),
    "a gzip bomb": ("report.md", b"\x1f\x8b\x08" + bytes(99), "gzip archive"),
    "signs of a terminal": ("log.txt", b"ok\n\x1b[2J\x07", "not a text character"),
    "NUL": ("log.txt", b"ok\0", "not a text character"),
    "UTF-16": ("log.txt", "text".encode("utf-16"), "UTF-16"),
    "invalid UTF-8": ("log.md", b"# Notes\n\xff\xfe", "not UTF-8"),
    "6 MB": ("long.md", b"x" * 6_000_000, "larger than 5 MB"),
    "nothing": ("empty.md", b"\n \n", "is empty"),
}  # fmt: skip


@pytest.mark.nightly(of=4)
@pytest.mark.parametrize(("name", "content", "says"), DOCUMENTS.values(), ids=DOCUMENTS)
def test_a_document_is_refused_alike_at_each_entrance(people, api, data_folder, name, content, says) -> None:
    before = counts()
    client = people.client("engineer")
    before |= {"sessions.Session": counts()["sessions.Session"]}
    page = client.post("/knowledge/documents/", {"file": upload(name, content)})
    assert page.status_code == 422 and re.search(says, page.content.decode())
    said = api.post("/api/knowledge/documents/", {"file": upload(name, content)}, format="multipart")
    assert said.status_code in (400, 413) and re.search(says, said.json()["detail"])
    assert is_sentence(said.json()["detail"])
    assert counts() == before
    assert not left_in(data_folder / documents.FOLDER)


READ = {
    "scripts": ("notes.md", f"# {SCRIPT}\n\n{SCRIPT}\n\n[x](javascript:alert(1)) ![y](http://evil.example/y.png)\n".encode()),
    "one line of 500 kB": ("line.txt", b"sharding " * 55_000),
    "one word of 500 kB": ("word.txt", b"x" * 500_000),
    "30,000 headings": ("heads.md", b"# a\n\n" * 30_000),
    "headings 100 deep": ("deep.md", b"".join(b"#" * n + b" h\n\ntext\n\n" for n in range(1, 100))),
    "lists 10,000 deep": ("lists.md", b"".join(b" " * n + b"- x\n" for n in range(2_000))),
    "quotes 100,000 deep": ("quotes.md", b">" * 100_000 + b" x\n"),
    "brackets": ("brackets.md", b"[" * 50_000),
    "a PDF with a script": ("run.pdf", pdf([[SCRIPT, "=cmd|' /C calc'!A1"]])),
}  # fmt: skip


@pytest.mark.nightly(of=4)
@pytest.mark.slow
@pytest.mark.parametrize(("name", "content"), READ.values(), ids=READ)
def test_a_document_that_can_be_read_stays_text(people, data_folder, temporary, name, content) -> None:
    document = documents.receive(people.team, people.engineer, upload(name, content)).document
    documents.read(document.pk)
    document.refresh_from_db()
    assert document.state in ("ready", "failed")
    assert document.state == "ready" or is_sentence(document.error)
    found = Passage.objects.filter(document=document)
    assert found.count() <= 8000 and all(len(passage.text) <= 20_000 for passage in found[:50])
    client = people.client("viewer")
    pages = [f"/knowledge/documents/{document.pk}/", *(f"/knowledge/passages/{each.key}/" for each in found[:2])]
    for path in pages:
        shown = client.get(path)
        assert shown.status_code == 200 and not active(shown.content.decode()) and len(shown.content) < 2_000_000
    original = client.get(f"/knowledge/documents/{document.pk}/file/")
    assert original["Content-Disposition"].startswith("attachment") and "html" not in original["Content-Type"]
    assert not left_in(temporary)


# Records: tables in, tables out.

FORMULAS = (
    "=cmd|' /C calc'!A1",
    "+1+1",
    "-1+1",
    "@SUM(A1)",
    "\t=1+1",
    "\r=1+1",
    " =1+1",
    "'=1+1",
    "＝1+1",
    "\ufeff=1",
    "\n=1",
)


@pytest.mark.nightly(of=4)
@pytest.mark.parametrize("formula", FORMULAS, ids=map(ascii, FORMULAS))
def test_no_export_runs_in_a_spreadsheet(people, api, formula) -> None:
    given = record("r1", title=f"t {formula}", change=formula, source=formula, effect=formula, model_name=formula,
                   caveats=(formula,))  # fmt: skip
    content = b"".join(formats.write([given], "jsonl"))
    made = api.post("/api/history/imports/", {"file": upload("r.jsonl", content)}, format="multipart")
    assert made.status_code == 201 and RecordImport.objects.get().report["added"] == 1, made.json()
    for address in ("/history/export.csv", "/api/history/records/export/?type=csv"):
        answer = people.client("viewer").get(address)
        assert answer.status_code == 200, address
        table = list(csv.reader(io.StringIO(b"".join(answer.streaming_content).decode("utf-8-sig"))))
        assert len(table) == 2
        for cell in table[1]:
            assert not re.match(r"[\s\ufeff\u200b]*[=+@＝＋－＠\t\r]", cell), cell
            assert not re.match(r"\s*-", cell) or re.fullmatch(r"-[\d.e+-]+", cell), cell
        again = list(formats.read(io.BytesIO(b"".join(people.client("viewer").get(address).streaming_content)), "csv"))
        assert again[0].record is not None and again[0].record.source == HistoryRecord.objects.get().source


TABLES = {
    "a number of 1e400": ("r.jsonl", b'{"id": "a", "title": "t", "changes": ["mesh"], "source": "s", "speedup": 1e400}'),
    "a number of 10**400": ("r.json", b'[{"id": "a", "title": "t", "changes": ["mesh"], "source": "s", "chips": 1' + b"0" * 400 + b"}]"),
    "NaN": ("r.jsonl", b'{"id": "a", "title": "t", "changes": ["mesh"], "source": "s", "speedup": NaN}'),
    "lists 100,000 deep": ("r.json", b"[" * 100_000),
    "objects 100,000 deep": ("r.jsonl", b'{"a":' * 100_000),
    "a cell of 20 MB": ("r.csv", b"id,title\n" + b"x" * 20_000_000),
    "50,000 columns": ("r.csv", b",".join(b"c%d" % n for n in range(50_000)) + b"\n" + b"," * 50_000),
    "open quotes": ("r.csv", b'id,title\n"' + b"x,\n" * 50_000),
    "NUL": ("r.csv", b"id,title\n\0,\0\n"),
    "a formula for an id": ("r.csv", b"id,title,changes,source\n=1+1,@x,-y,+z\n"),
    "another encoding": ("r.csv", "id,title\né,é".encode("utf-16")),
    "a zip": ("r.csv", zipped(("r.csv", b"\0" * 1_000_000))),
    "no records": ("r.exe", b"MZ"),
}  # fmt: skip


@pytest.mark.nightly(of=4)
@pytest.mark.parametrize(("name", "content"), TABLES.values(), ids=TABLES)
def test_a_table_of_records_is_refused_alike_at_each_entrance(people, api, data_folder, name, content) -> None:
    page = people.client("engineer").post("/history/import/", {"file": upload(name, content)})
    assert page.status_code in (302, 422)
    said = api.post("/api/history/imports/", {"file": upload(name, content)}, format="multipart")
    assert said.status_code in (201, 400, 413), said.content[:200]
    if said.status_code != 201:
        assert is_sentence(said.json()["detail"])
    for made in RecordImport.objects.all():
        assert made.report["good"] == 0
        assert all(is_sentence(each["message"]) for each in made.report.get("errors", ()))
        shown = people.client("engineer").get(f"/history/import/{made.pk}/").content.decode()
        assert not active(shown) and len(shown) < 400_000
    assert not HistoryRecord.objects.exists()
