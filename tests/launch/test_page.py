"""The page, the downloads and the endpoint of launch files: for whom, of which proposal, and what they say of it."""

from __future__ import annotations

import io
import zipfile
from typing import TYPE_CHECKING, Any

import pytest

from perfmodel.config_file import read_config

if TYPE_CHECKING:
    from tests.backend.factories import People, Stored

pytestmark = pytest.mark.slow

INSIDERS = ("viewer", "engineer", "reviewer", "administrator")


@pytest.fixture
def proposal(ready: Stored) -> Any:
    return ready.plan.proposals.get(rank=1)


@pytest.fixture
def pages(ready: Stored, proposal: Any) -> list[str]:
    base = f"/proposals/{proposal.pk}/launch/"
    return [f"/experiments/{ready.experiment.pk}/launch/", base, f"{base}maxtext.sh", f"{base}launch.zip"]


def test_the_page_says_which_proposal_and_if_approved(people: People, pages: list[str], proposal: Any) -> None:
    from proposals.services import reviews

    before = people.client("viewer").get(pages[0]).content.decode()
    assert proposal.title in before and "This proposal is not approved." in before
    second = proposal.plan.proposals.get(rank=2)
    reviews.decide(second, people.reviewer, "approved")
    after = people.client("viewer").get(pages[0]).content.decode()
    assert f'id="h-which">Proposal 2: {second.title}</h2>' in after and "not approved" not in after
    assert "This proposal is not approved." in people.client("viewer").get(pages[1]).content.decode()


def test_all_tools_are_on_the_page_with_text_or_a_reason(people: People, pages: list[str]) -> None:
    html = people.client("viewer").get(pages[0]).content.decode()
    for word in ("ici_fsdp_parallelism=", "def make_mesh", "mesh_shape_from_axes("):
        assert word in html
    assert "Megatron-LM runs on GPUs, but these chips are TPU v6e" in html
    assert html.count("data-copy=") == 4


def test_proposals_and_experiment_lead_to_it(people: People, ready: Stored, proposal: Any) -> None:
    for item in ready.plan.proposals.all():  # the page shows the range that this plan leaves out
        time = item.data["predicted"]["step_time_s"]
        time |= {"low80": time["estimate"], "high80": time["estimate"]}
        item.save()
    html = people.client("viewer").get(f"/experiments/{ready.experiment.pk}/proposals/").content.decode()
    assert f'href="/proposals/{proposal.pk}/launch/"' in html
    assert f'href="/experiments/{ready.experiment.pk}/launch/"' in html


def test_the_downloads_are_the_files(people: People, pages: list[str], proposal: Any) -> None:
    client = people.client("viewer")
    answer = client.get(f"{pages[1]}config.yaml")
    assert answer.headers["Content-Disposition"] == 'attachment; filename="config.yaml"'
    mesh = read_config(answer.content)[0].mesh.to_json()
    assert mesh == proposal.data["mesh"]
    packed = zipfile.ZipFile(io.BytesIO(client.get(pages[3]).content))
    assert packed.namelist() == ["maxtext.sh", "plain_jax.py", "axlearn_mesh.py", "config.yaml"]
    assert packed.read("config.yaml") == answer.content
    assert packed.getinfo("maxtext.sh").external_attr >> 16 & 0o111
    assert client.get(f"{pages[1]}megatron.sh").status_code == 404


def test_a_name_is_shown_and_not_run(people: People, ready: Stored, pages: list[str]) -> None:
    hostile = '</pre><script>alert("x")</script>'
    ready.plan.config = {**ready.plan.config, "name": hostile}
    ready.plan.save()
    html = people.client("viewer").get(pages[0]).content.decode()
    assert "<script>alert" not in html and "&lt;script&gt;alert" in html


def test_an_approved_proposal_keeps_the_files_of_what_was_priced(
    people: People, ready: Stored, pages: list[str], proposal: Any
) -> None:
    """The experiment is configured anew, with another batch and on other chips; what was approved stays what it was."""
    from proposals.services import reviews

    reviews.decide(proposal, people.reviewer, "approved")
    client, api = people.client("engineer"), people.api("engineer")
    before = [client.get(page).content for page in pages[2:]]
    approved = api.get(f"/api{pages[1]}").json()["files"]
    ready.experiment.config = {
        **ready.experiment.config,
        "hardware": {"chip": "v6e", "topology": [2, 4], "slices": 1},
        "mesh": {"ici": {"data": 8}, "dcn": {"data": 1}},
        "training": {"global_batch": 256, "seq_len": 1024},
    }
    ready.experiment.save()
    assert [client.get(page).content for page in pages[2:]] == before
    assert api.get(f"/api{pages[1]}").json()["files"] == approved
    priced, _ = read_config(client.get(f"{pages[1]}config.yaml").content)
    assert (priced.hardware.topology, priced.training.global_batch, priced.training.seq_len) == ((4, 4), 32, 8192)
    upload = client.get(f"/proposals/{proposal.pk}/upload/")
    assert upload.status_code == 200


def test_a_proposal_that_no_longer_passes_its_checks_is_said(people: People, ready: Stored, pages: list[str]) -> None:
    ready.plan.config = {
        **ready.plan.config,
        "hardware": {"chip": "v6e", "topology": [2, 4], "slices": 1},
    }  # 16 ways on 8 chips
    ready.plan.save()
    html = people.client("viewer").get(pages[0]).content.decode()
    assert "is no longer valid" in html
    assert people.client("viewer").get(pages[2]).status_code == 404
    answer = people.api("viewer").get(f"/api{pages[1]}")
    assert answer.status_code == 409 and "is no longer valid" in answer.json()["detail"]


def test_without_proposals_the_page_says_why(people: People) -> None:
    from tests.backend.factories import make_experiment

    experiment = make_experiment(people)
    html = people.client("viewer").get(f"/experiments/{experiment.pk}/launch/").content.decode()
    assert "Nothing to launch yet" in html


def test_the_endpoint_gives_the_same_files(people: People, proposal: Any) -> None:
    address = f"/api/proposals/{proposal.pk}/launch/"
    data = people.api("viewer").get(address).json()
    assert (data["proposal"], data["rank"], data["approved"]) == (proposal.pk, 1, False)
    files = {item["kind"]: item for item in data["files"]}
    assert files["maxtext"]["produced"] and "ici_fsdp_parallelism" in files["maxtext"]["text"]
    assert not files["megatron"]["produced"] and files["megatron"]["notes"]
    assert people.api("outsider").get(address).status_code == 404
    assert people.api("anonymous").get(address).status_code in (401, 403)
    assert people.api("administrator").post(address).status_code == 405
