from __future__ import annotations

import hashlib
import json

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import OperationalError

from experiments.models import Event, Experiment, ProfileFile, Run, RunStatus
from experiments.services import runs, storage, uploads
from tests.backend.factories import CONFIG, make_people, make_ready


def file(name="host0.xplane.pb", content=b"\x0a\x00"):
    return SimpleUploadedFile(name, content)


def stored_files(folder):
    return sorted(p for p in (folder / "uploads").rglob("*") if p.is_file()) if (folder / "uploads").exists() else []


def test_an_upload_is_kept_under_a_generated_name_with_its_hash(people, data_folder):
    content = bytes(range(256)) * 9000
    experiment = uploads.receive(people.team, people.engineer, [file("../../etc/passwd.xplane.pb", content)])
    row = ProfileFile.objects.get()
    assert row.name == "passwd.xplane.pb"
    assert row.sha256 == hashlib.sha256(content).hexdigest()
    assert row.size_bytes == len(content)
    kept = storage.absolute(row.path)
    assert kept.read_bytes() == content
    assert "passwd" not in row.path
    assert data_folder in kept.parents
    assert experiment.name == "passwd"
    assert [e.kind for e in experiment.events.all()] == ["upload", "status"]


def test_the_configuration_fills_the_columns_of_the_list(people):
    experiment = uploads.receive(people.team, people.engineer, [file()], json.dumps(CONFIG))
    assert (experiment.name, experiment.chip, experiment.chips) == (CONFIG["name"], "v6e", 16)
    assert experiment.model_name == "llama3.1-8b"
    assert experiment.mesh["ici"] == CONFIG["mesh"]["ici"]


def test_tool_exports_are_named_after_what_ran_and_not_after_the_tool(people):
    tables = [file("framework_op_stats.json", b"{}"), file("hlo_stats (1).json", b"{}")]
    config = {key: value for key, value in CONFIG.items() if key != "name"}
    assert uploads.receive(people.team, people.engineer, tables, json.dumps(config)).name == "llama3.1-8b on 16 v6e"
    unknown = uploads.receive(people.team, people.engineer, [file("op_profile.json", b"{}")])
    assert unknown.name.startswith("XProf tables of ")
    mine = uploads.receive(people.team, people.engineer, [file("attention-sweep-3.json", b"{}")])
    assert mine.name == "attention-sweep-3"


def test_home_lists_what_waits_for_a_person_apart_from_what_is_new(people):
    make_ready(people, "Waits for a review")
    uploads.receive(people.team, people.engineer, [file()], json.dumps(CONFIG | {"name": "Just uploaded"}))
    page = people.client("reviewer").get("/").content.decode()
    due, recent = page.split('id="h-recent"')
    assert "Waits for a review" in due and "Just uploaded" in recent and "Waits for a review" not in recent


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("run.yaml", b"hardware: {chip: v5e, topology: [2, 2]}\nmesh: {ici: {data: 4}}\n"),
        ("config.json", b'{"hardware": {"chip": "v5e", "topology": [2, 2]}, "mesh": {"ici": {"data": 4}}}'),
    ],
)
def test_a_configuration_among_the_files_is_used(people, name, text):
    experiment = uploads.receive(people.team, people.engineer, [file(), file(name, text)])
    assert experiment.config["hardware"]["chip"] == "v5e"
    assert [f.name for f in ProfileFile.objects.all()] == ["host0.xplane.pb"]


def test_tables_of_xprof_beside_a_profile_are_no_configuration(people):
    uploads.receive(people.team, people.engineer, [file(), file("kpis.json", b'{"step_time_ms": 3}')])
    assert len(ProfileFile.objects.all()) == 2


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ('{"hardware": {"chip": "v99", "topology": [4]}, "mesh": {"ici": {"data": 4}}}', "hardware.chip"),
        ('{"hardware": {"chip": "v5e", "topology": [4]}, "mesh": {"ici": {"data": 3}}}', "mesh.ici"),
        ('{"hardware": NaN}', "hardware"),
        ("][", ""),
        ('{"name": "\\u0000"}', ""),
    ],
)
def test_a_wrong_configuration_does_not_lose_the_upload(people, text, field):
    experiment = uploads.receive(people.team, people.engineer, [file()], text)
    assert experiment.config is None
    assert field in experiment.config_errors
    assert ProfileFile.objects.count() == 1
    assert Run.objects.get().status == RunStatus.UPLOADED


def test_too_much_is_refused_with_one_sentence_and_leaves_nothing(people, settings, data_folder):
    settings.UPLOAD_LIMIT_BYTES = 1_000_000
    two = [file("a.xplane.pb", bytes(600_000)), file("b.xplane.pb", bytes(600_000))]
    with pytest.raises(uploads.UploadError, match="limited to 1 MB") as refused:
        uploads.receive(people.team, people.engineer, two)
    assert refused.value.status == 413
    assert stored_files(data_folder) == []
    assert Experiment.objects.count() == 0


class Lying(SimpleUploadedFile):
    """A file that announces fewer bytes than it has, as a chunked body may."""

    @property
    def size(self):
        return 10

    @size.setter
    def size(self, value):
        pass

    def chunks(self, chunk_size=None):
        yield from (bytes(400_000) for _ in range(5))


def test_the_limit_holds_for_what_arrives_not_for_what_was_announced(people, settings, data_folder):
    settings.UPLOAD_LIMIT_BYTES = 1_000_000
    with pytest.raises(uploads.UploadError, match="limited to"):
        uploads.receive(people.team, people.engineer, [Lying("a.xplane.pb", b"")])
    assert stored_files(data_folder) == []


def test_no_file_and_too_many_files_are_refused(people):
    with pytest.raises(uploads.UploadError, match="Choose at least one"):
        uploads.receive(people.team, people.engineer, [])
    with pytest.raises(uploads.UploadError, match="into one zip"):
        uploads.receive(people.team, people.engineer, [file()] * (uploads.MAX_FILES + 1))


def test_a_fault_of_the_database_leaves_no_file_behind(people, data_folder, monkeypatch):
    written = []

    def fail(*arguments, **options):
        written.extend(stored_files(data_folder))
        raise OperationalError("the server closed the connection")

    monkeypatch.setattr(Experiment, "save", fail)
    with pytest.raises(OperationalError, match="closed"):
        uploads.receive(people.team, people.engineer, [file()])
    assert len(written) == 1 and stored_files(data_folder) == []


@pytest.mark.parametrize(
    "name", ["<img src=x onerror=alert(1)>.xplane.pb", "a\x00b.xplane.pb", "\u202efdp.xplane.pb", ""]
)
def test_strange_file_names_are_kept_as_text(people, name):
    upload = file("x.xplane.pb")
    upload._name = name
    experiment = uploads.receive(people.team, people.engineer, [upload], name=name)
    kept = ProfileFile.objects.get().name
    assert not any(ord(c) < 32 or c == "\u202e" for c in kept + experiment.name)
    assert kept


def fail(experiment, reason="The file is cut off; upload it again."):
    run = runs.newest(experiment)
    runs.move(run, RunStatus.UPLOADED, RunStatus.INGESTING, actor="coordinator")
    assert runs.fail(run, reason)
    return run


def test_a_broken_host_can_be_left_out_but_not_the_last(people):
    experiment = uploads.receive(people.team, people.engineer, [file("a.xplane.pb"), file("b.xplane.pb")])
    run = fail(experiment)
    first, second = run.profile.files.all()
    again = uploads.exclude(run, first.name, people.engineer)
    assert again.status == RunStatus.UPLOADED
    assert [f.name for f in again.profile.files.filter(included=True)] == ["b.xplane.pb"]
    fail(experiment)
    again.refresh_from_db()
    with pytest.raises(uploads.UploadError, match="only file"):
        uploads.exclude(again, second.name, people.engineer)


def test_added_files_join_the_profile_and_a_repaired_one_takes_the_place_of_the_broken(people):
    experiment = uploads.receive(people.team, people.engineer, [file("a.xplane.pb"), file("b.xplane.pb")])
    run = fail(experiment)
    again = uploads.add_files(run, people.engineer, [file("b.xplane.pb", b"repaired"), file("c.xplane.pb")])
    included = again.profile.files.filter(included=True)
    assert sorted(f.name for f in included) == ["a.xplane.pb", "b.xplane.pb", "c.xplane.pb"]
    assert included.get(name="b.xplane.pb").size_bytes == len(b"repaired")
    experiment.refresh_from_db()
    assert experiment.state == RunStatus.UPLOADED


def test_files_cannot_change_under_a_worker(people, data_folder):
    experiment = uploads.receive(people.team, people.engineer, [file("a.xplane.pb"), file("b.xplane.pb")])
    run = runs.newest(experiment)
    before = stored_files(data_folder)
    with pytest.raises(runs.RunError, match="wait until it is done"):
        uploads.add_files(run, people.engineer, [file("c.xplane.pb")])
    with pytest.raises(runs.RunError, match="wait until it is done"):
        uploads.exclude(run, "a.xplane.pb", people.engineer)
    assert stored_files(data_folder) == before


@pytest.mark.django_db(transaction=True)
def test_deleting_an_experiment_takes_its_files_and_rows(data_folder):
    people = make_people()
    ready = make_ready(people)
    assert stored_files(data_folder)
    uploads.delete(ready.experiment, people.engineer)
    assert stored_files(data_folder) == []
    assert list((data_folder / "profiles").iterdir()) == []
    assert Event.objects.count() == Run.objects.count() == 0
