"""Each page for owner, teammate, outsider and wrong method: what the page offers and what the server refuses."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from playwright.sync_api import Page, expect

READ = [
    "/experiments/{pk}/", "/experiments/{pk}/ops/", "/experiments/{pk}/ops/1/", "/experiments/{pk}/evidence/kpi-mfu/",
    "/experiments/{pk}/modules/", "/experiments/{pk}/report/", "/experiments/{pk}/report.md",
    "/experiments/{pk}/report.json",
    "/experiments/{pk}/configuration/", "/experiments/{pk}/proposals/", "/experiments/{pk}/proposals/rejected/",
    "/experiments/{pk}/memory/", "/experiments/{pk}/memory.jsonl",
]  # fmt: skip
#: Addresses that change something, with the lowest role that may.
WRITE = {
    "/experiments/new/": "engineer",
    "/experiments/{pk}/configuration/": "engineer",
    "/experiments/{pk}/retry/": "engineer",
    "/experiments/{pk}/files/": "engineer",
    "/experiments/{pk}/delete/": "engineer",
    "/proposals/{proposal}/decision/": "reviewer",
    "/settings/members/": "administrator",
}


def client_of(user: Any) -> Client:
    client = Client()
    client.force_login(user)
    return client


@pytest.mark.parametrize("path", READ)
def test_the_team_reads_and_others_find_nothing(path: str, ready: Any, people: Any) -> None:
    address = path.format(pk=ready.pk)
    for user in (people.viewer, people.engineer, people.reviewer, people.administrator):
        assert client_of(user).get(address).status_code == 200
    assert client_of(people.outsider).get(address).status_code == 404
    answer = Client().get(address)
    assert answer.status_code == 302 and answer["Location"].startswith("/sign-in/")


@pytest.mark.parametrize("path", [path for path in READ if "configuration" not in path])
def test_reading_pages_take_no_writes(path: str, ready: Any, people: Any) -> None:
    assert client_of(people.administrator).post(path.format(pk=ready.pk)).status_code == 405


@pytest.mark.parametrize(("path", "lowest"), WRITE.items())
def test_too_low_a_role_is_refused_and_nothing_happens(path: str, lowest: str, ready: Any, people: Any) -> None:
    from experiments.models import Event, Experiment

    proposal = ready.proposals.get(rank=1)
    address = path.format(pk=ready.pk, proposal=proposal.pk)
    roles = ["viewer", "engineer", "reviewer", "administrator"]
    before = (Event.objects.count(), Experiment.objects.count())
    for role in roles[: roles.index(lowest)]:
        answer = client_of(getattr(people, role)).post(address, {"decision": "approved"})
        assert answer.status_code == 403
        assert lowest in answer.content.decode()
    if "{" in path:
        assert client_of(people.outsider).post(address, {"decision": "approved"}).status_code == 404
    assert Client().post(address).status_code == 302
    proposal.refresh_from_db()
    assert proposal.status == "proposed"
    assert (Event.objects.count(), Experiment.objects.count()) == before


@pytest.mark.parametrize("path", ["/experiments/{pk}/retry/", "/experiments/{pk}/files/", "/proposals/{p}/decision/"])
def test_writes_take_no_reads(path: str, ready: Any, people: Any) -> None:
    address = path.format(pk=ready.pk, p=ready.proposals.get(rank=1).pk)
    assert client_of(people.administrator).get(address).status_code == 405


def test_forged_posts_are_refused(ready: Any, people: Any) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(people.reviewer)
    address = f"/proposals/{ready.proposals.get(rank=1).pk}/decision/"
    assert client.post(address, {"decision": "approved"}).status_code == 403


def test_signing_in_leads_only_to_this_site(people: Any) -> None:
    from datetime import timedelta

    from accounts.services import create_sign_in_link

    token = create_sign_in_link(people.viewer, timedelta(hours=1))
    answer = Client().post(f"/sign-in/{token}/?next=https://elsewhere.example/")
    assert answer.status_code == 302 and answer["Location"] == "/"


def test_looking_at_a_link_does_not_use_it_up(people: Any) -> None:
    from datetime import timedelta

    from accounts.services import create_sign_in_link

    address = f"/sign-in/{create_sign_in_link(people.viewer, timedelta(hours=1))}/"
    assert Client().get(address).status_code == 200
    assert Client().post(address).status_code == 302
    assert Client().get(address).status_code == 410
    assert Client().post(address).status_code == 410


def test_a_team_keeps_an_administrator(people: Any) -> None:
    from accounts.models import Membership, Role

    only = Membership.objects.get(user=people.outsider)
    answer = client_of(people.outsider).post(f"/settings/members/{only.pk}/", {"role": "viewer"}, follow=True)
    assert "only administrator" in answer.content.decode()
    only.refresh_from_db()
    assert only.role == Role.ADMINISTRATOR


def test_members_of_other_teams_are_out_of_reach(people: Any) -> None:
    from accounts.models import Membership

    theirs = Membership.objects.get(user=people.outsider)
    client = client_of(people.administrator)
    assert client.post(f"/settings/members/{theirs.pk}/", {"role": "viewer"}).status_code == 404
    assert client.post(f"/settings/members/{theirs.pk}/link/").status_code == 404


def test_a_viewer_is_told_why_the_buttons_are_off(
    server: str, ready: Any, people: Any, sign_in: Any, page: Page
) -> None:
    sign_in(people.viewer)
    page.goto(f"{server}/experiments/{ready.pk}/proposals/")
    card = page.locator("#proposal-1")
    expect(card.get_by_role("button", name="Approve")).to_be_disabled()
    expect(card).to_contain_text("needs the reviewer role; yours is viewer")
    expect(page.get_by_role("navigation", name="Main").get_by_role("link", name="Upload")).to_have_count(0)
    page.goto(server + "/experiments/new/")
    expect(page.get_by_role("heading", name="Not allowed")).to_be_visible()
    expect(page.locator("main")).to_contain_text("engineer")
