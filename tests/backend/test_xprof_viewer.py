"""XProf's own server for one profile: a real process, confined, reachable by its link alone, ended when not used."""

from __future__ import annotations

import os
import time
from pathlib import Path

import httpx
import pytest

from experiments.samples.samples import SAMPLES
from experiments.viewer import ViewerError, start

SAMPLE = next(each for each in SAMPLES if each.key == "asap-experiment-3")
FILES = [(path, path.name) for path in SAMPLE.files]
DATA = "/data/plugin/profile"


def ask(socket: Path, path: str) -> httpx.Response:
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(socket)), base_url="http://x", timeout=120) as client:
        return client.get(path)


@pytest.mark.slow
def test_it_serves_the_profile_and_leaves_nothing() -> None:
    viewer = start(FILES)
    try:
        assert ask(viewer.socket, f"{DATA}/runs").json() == ["profile"]
        table = ask(viewer.socket, f"{DATA}/data?run=profile&tag=hlo_stats").json()
        assert len(table["rows"]) > 50
        assert (viewer.socket.parent.stat().st_mode & 0o777) == 0o700
        status = Path(f"/proc/{viewer.process.pid}").joinpath("limits").read_text()
        assert "Max address space         4300000000" in status
        environment = Path(f"/proc/{viewer.process.pid}/environ").read_bytes()
        assert b"DATABASE_URL" not in environment and b"SECRET_KEY" not in environment
    finally:
        viewer.stop()
    assert not viewer.alive and not viewer.socket.parent.exists()


@pytest.mark.slow
def test_it_ends_when_nobody_asks() -> None:
    viewer = start(FILES, idle_s=1.0)
    deadline = time.monotonic() + 30
    while viewer.alive and time.monotonic() < deadline:
        time.sleep(0.2)
    assert viewer.process.poll() == 0
    viewer.stop()


@pytest.mark.slow
def test_it_ends_with_its_parent() -> None:
    viewer = start(FILES)
    assert viewer.process.stdin is not None
    viewer.process.stdin.close()  # what the kernel does when the server dies
    assert viewer.process.wait(timeout=30) == 0
    viewer.stop()


@pytest.mark.slow
def test_damaged_files_are_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    path.write_bytes(b"PK\x03\x04 no archive")
    with pytest.raises(ViewerError) as caught:
        start([(path, "x.zip")])
    assert 10 < len(str(caught.value)) <= 300


@pytest.mark.slow
def test_only_the_link_of_a_living_session_opens_it(people, client, django_capture_on_commit_callbacks) -> None:
    from django.core.files.uploadedfile import SimpleUploadedFile
    from django.test import Client

    from accounts.models import Membership
    from experiments.models import Profile, Run, RunStatus
    from experiments.services import uploads, viewers

    files = [SimpleUploadedFile(path.name, path.read_bytes()) for path, _ in FILES]
    experiment = uploads.receive(people.team, people.engineer, files)
    profile = Profile.objects.get(experiment=experiment)
    Profile.objects.filter(pk=profile.pk).update(summary={"source_kind": "xplane"})
    Run.objects.filter(profile=profile).update(status=RunStatus.READY)
    client.force_login(people.viewer)
    base = f"/experiments/{experiment.pk}/xprof/"
    try:
        assert "<iframe" not in client.get(base).content.decode()
        client.post(base)
        page = client.get(base)
        address = page.context["pages_url"]
        assert address and 'sandbox="allow-scripts' in page.content.decode()
        stranger = Client()  # no cookie at all, as the frame's requests have none
        runs = stranger.get(address + "runs")
        assert runs.status_code == 200
        policy = stranger.get(address)["Content-Security-Policy"]
        assert policy.startswith("sandbox allow-scripts") and "allow-same-origin" not in policy
        assert "connect-src http://testserver" + address.partition("data/plugin")[0] in policy
        assert stranger.get(address)["X-Frame-Options"] == "SAMEORIGIN"
        for wrong in (
            "data?run=profile&tag=hlo_stats&session_path=/etc", "data?run_path=x", "capture_profile?service_addr=x",
            "generate_cache", "data?run=../../x&tag=hlo_stats", "data?run=profile&host=gs://bucket",
        ):  # fmt: skip
            assert stranger.get(address + wrong).status_code == 404, wrong
        assert stranger.post(address + "runs").status_code == 405
        assert stranger.get(address.replace("/pages/", "/pages/x") + "runs").status_code == 404
        membership = Membership.objects.filter(user=people.viewer, team=people.team)
        kept = membership.get()
        membership.delete()
        assert stranger.get(address + "runs").status_code == 404
        kept.save(force_insert=True)
        assert stranger.get(address + "runs").status_code == 200
        client.logout()
        assert stranger.get(address + "runs").status_code == 404
    finally:
        viewers.stop_all()
    assert viewers.socket_of(profile.pk) is None
    assert not any(name.startswith(f"{profile.pk}.") for name in os.listdir(viewers.storage.absolute(viewers.FOLDER)))
