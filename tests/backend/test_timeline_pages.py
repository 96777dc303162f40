"""The timeline and HBM pages: who may see them, what their parts say, what is there without events."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import zipfile

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from diagnosis import services, timelines
from diagnosis.analyzer import diagnose
from experiments.ingest import read_profile
from experiments.models import Profile, Run, RunStatus
from experiments.samples.samples import SAMPLES
from experiments.services import profiles, runs, storage, traces, uploads
from experiments.trace import Trace, tiles
from perfmodel.config_file import read_config

pytestmark = pytest.mark.slow

PARTS = (
    "timeline/", "timeline/sums/?t0=0&t1=1", "timeline/event/?track=0&t=0.01&slack=1", "timeline/spans/?q=fusion",
    "timeline/perfetto.json.gz", "timeline/tiles/x/44/0/", "hbm/", "xprof/", "profile.zip",
)  # fmt: skip


SAMPLE = next(each for each in SAMPLES if each.key == "asap-experiment-3")


@pytest.fixture(scope="module")
def read(tmp_path_factory):
    """A shipped profile with its diagnosis and its events."""
    events = tmp_path_factory.mktemp("events") / "events.trace"
    profile = read_profile(list(SAMPLE.files), trace_to=events)
    return profile, diagnose(profile, read_config(SAMPLE.config)[0]), events


@pytest.fixture
def experiment(people, read):
    """The same as the Coordinator stores it."""
    profile, found, events = read
    files = [SimpleUploadedFile(path.name, path.read_bytes()) for path in SAMPLE.files]
    made = uploads.receive(people.team, people.engineer, files, config_text=SAMPLE.config.read_text())
    run = runs.newest(made)
    profiles.store(run.profile, profile, profiles.write(run, profile))
    shutil.copy(events, storage.absolute(traces.path_of(run)))
    traces.store(run.profile, traces.path_of(run))
    Run.objects.filter(pk=run.pk).update(status=RunStatus.READY)
    services.store(run, found)
    return made


def client_of(user) -> Client:
    client = Client()
    client.force_login(user)
    return client


def body(response) -> bytes:
    if not response.streaming:
        return response.content
    return b"".join(response)


def test_who_sees_it(people, experiment) -> None:
    base = f"/experiments/{experiment.pk}/"
    for part in PARTS:
        assert client_of(people.viewer).get(base + part).status_code == 200, part
        assert client_of(people.outsider).get(base + part).status_code == 404, part
        assert Client().get(base + part).status_code == 302, part
        if part != "xprof/":
            assert client_of(people.viewer).post(base + part).status_code == 405, part
    assert client_of(people.outsider).post(base + "xprof/").status_code == 404


def test_sums_of_a_step_are_the_diagnosis(people, experiment) -> None:
    page = client_of(people.viewer).get(f"/experiments/{experiment.pk}/timeline/")
    record = page.context["shown"].record
    step = record.data["kpis"]["step_time_s"]
    total = sum(row["time_s"] for row in page.context["sum_classes"]) + page.context["idle"]["time_s"]
    assert total == pytest.approx(step, rel=0.02)
    by_axis = {row["label"]: row["time_s"] for row in page.context["sum_classes"]}
    collectives = sum(time for label, time in by_axis.items() if label.startswith("Collectives"))
    ops = record.ops.exclude(mesh_axis="")
    assert collectives == pytest.approx(sum(op.time_s for op in ops), rel=0.05)
    assert "Collectives on model" in by_axis
    first = page.context["sum_ops"][0]
    assert record.ops.get(rank=first["rank"]).key == first["op"]


def test_a_selection_is_counted_alone(people, experiment) -> None:
    profile = Profile.objects.get(experiment=experiment)
    trace = Trace(storage.absolute(profile.trace))
    steps = [trace.steps(core) for core in range(len(trace.cores))]
    t0 = min(int(starts[numbers == 2][0]) for numbers, starts, _ in steps)
    t1 = max(int(ends[numbers == 2][0]) for numbers, _, ends in steps)
    middle = (t0 + t1) // 2
    answer = client_of(people.viewer).get(
        f"/experiments/{experiment.pk}/timeline/sums/", {"t0": t0 / 1e12, "t1": middle / 1e12, "selected": "1"}
    )
    assert "Selected range" in answer.content.decode()
    expected = 0
    for track in trace.tracks_of(["ops"]):
        starts, durations = trace.starts(track), trace.durations(track)
        begin, end = starts.clip(t0, middle), (starts + durations).clip(t0, middle)
        expected += int((end - begin).sum())
    cores = len(answer.context["result"].cores)
    assert sum(row["time_s"] for row in answer.context["sum_classes"]) == pytest.approx(expected / 1e12 / cores)


def test_tiles_are_cached_by_their_version(people, experiment) -> None:
    client = client_of(people.viewer)
    page = client.get(f"/experiments/{experiment.pk}/timeline/")
    address = page.context["data"]["tiles"].replace("{level}", "44").replace("{index}", "0")
    first = client.get(address)
    assert first["Cache-Control"] == "private, max-age=86400, immutable" and first["ETag"]
    assert client.get(address, headers={"If-None-Match": first["ETag"]}).status_code == 304
    packed = client.get(address, headers={"Accept-Encoding": "gzip"})
    assert gzip.decompress(packed.content) == first.content
    rows = int.from_bytes(first.content[:4], "little")
    assert rows == len(
        timelines.of_profile(Profile.objects.get(experiment=experiment), experiment).trace.tracks_of(["ops"])
    )
    for wrong in ("?lane=none", "?block=7", "?block=-1"):
        assert client.get(address + wrong).status_code == 404
    assert client.get(address.replace("/44/0/", "/3/0/")).status_code == 404
    assert tiles.BINS == 512


def test_an_op_leads_to_its_spans_and_back(people, experiment) -> None:
    client = client_of(people.viewer)
    record = client.get(f"/experiments/{experiment.pk}/timeline/").context["shown"].record
    op = record.ops.exclude(mesh_axis="").order_by("rank").first()
    found = client.get(f"/experiments/{experiment.pk}/timeline/spans/", {"op": op.key}).json()
    assert found["names"] == 1 and found["spans"]
    track, start, duration = found["spans"][0]
    event = client.get(
        f"/experiments/{experiment.pk}/timeline/event/", {"track": track, "t": (start + duration / 2) / 1e12}
    )
    assert f"/experiments/{experiment.pk}/ops/{op.rank}/" in event.content.decode()
    marked = client.get(f"/experiments/{experiment.pk}/timeline/", {"op": op.key})
    assert marked.context["matches"][0]["op"] == op.key


def test_perfetto_export_sums_to_the_profile(people, experiment) -> None:
    data = body(client_of(people.viewer).get(f"/experiments/{experiment.pk}/timeline/perfetto.json.gz"))
    events = json.loads(gzip.decompress(data))["traceEvents"]
    trace = traces.load(Profile.objects.get(experiment=experiment))
    spans = [event for event in events if event["ph"] == "X" and event["cat"] != "step"]
    assert len(spans) == trace.event_count
    total = sum(int(trace.durations(track).sum()) for track in range(len(trace.tracks)))
    assert sum(event["dur"] for event in spans) == pytest.approx(total / 1e6)


def test_log_directory_is_laid_out_for_xprof(people, experiment) -> None:
    data = body(client_of(people.viewer).get(f"/experiments/{experiment.pk}/profile.zip"))
    names = zipfile.ZipFile(io.BytesIO(data)).namelist()
    assert len(names) == 1 and names[0].startswith("plugins/profile/") and ".xplane.pb" in names[0]


def test_events_that_are_gone_are_asked_for(people, experiment) -> None:
    storage.remove([Profile.objects.get(experiment=experiment).trace])
    page = client_of(people.engineer).get(f"/experiments/{experiment.pk}/timeline/").content.decode()
    assert "Upload it again" in page


def test_deleting_takes_the_events_with_it(people, experiment, django_capture_on_commit_callbacks) -> None:
    path = storage.absolute(Profile.objects.get(experiment=experiment).trace)
    assert path.exists()
    with django_capture_on_commit_callbacks(execute=True):
        uploads.delete(experiment, people.engineer)
    assert not path.exists()


def test_without_events_the_page_says_what_to_upload(people, ready) -> None:
    Profile.objects.filter(experiment=ready.experiment).update(trace="")
    page = client_of(people.viewer).get(f"/experiments/{ready.experiment.pk}/timeline/")
    assert "Upload the profile itself" in page.content.decode()
    assert client_of(people.viewer).get(f"/experiments/{ready.experiment.pk}/timeline/sums/").status_code == 404
