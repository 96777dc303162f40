"""Each page for owner, teammate, outsider and wrong method: what the page offers and what the server refuses."""

from __future__ import annotations

from typing import Any

from django.test import Client
from playwright.sync_api import Page, expect


def client_of(user: Any) -> Client:
    client = Client()
    client.force_login(user)
    return client


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
