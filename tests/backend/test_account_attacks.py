"""Attempts on accounts: links kept by who lost the right to make them, requests at the same moment, names alike."""

from __future__ import annotations

import io
import logging
from datetime import timedelta

import pytest
from django.test import Client
from knox.models import AuthToken

from accounts import attempts, members, services, tokens
from accounts.models import Membership, Role, SignInAttempt, SignInLink, Team, User
from tests.backend.threads import in_threads

pytestmark = pytest.mark.slow


@pytest.fixture
def head(people):
    """Another administrator of the team."""
    user = User.objects.create_user(username="head")
    return Membership.objects.create(user=user, team=people.team, role=Role.ADMINISTRATOR)


def link(client, member):
    page = client.post(f"/settings/members/{member.pk}/link/").content.decode()
    return page.partition("http://testserver")[2].partition('"')[0].partition("<")[0].strip()


@pytest.mark.parametrize("change", [{"role": "engineer"}, {"remove": "1"}])
def test_who_is_no_administrator_any_more_has_kept_no_link_of_another(people, head, change):
    """Also a link to sign in as somebody whose role stays."""
    kept = link(people.client("administrator"), head)
    assert Client().get(kept).status_code == 200
    client = Client()
    client.force_login(head.user)
    demoted = Membership.objects.get(user=people.administrator)
    assert client.post(f"/settings/members/{demoted.pk}/", change).status_code == 302
    assert Client().post(kept).status_code == 410


def test_a_link_stays_where_somebody_else_changes(people, head):
    made = link(people.client("administrator"), head)
    viewer = Membership.objects.get(user=people.viewer)
    people.client("administrator").post(f"/settings/members/{viewer.pk}/", {"role": "engineer"})
    assert Client().get(made).status_code == 200


def test_an_invitation_or_member_link_is_of_the_own_team_alone(people):
    """The administrator of one team neither makes links for members of another nor ends their invitations."""
    guest = User.objects.create_user(username="guest")
    token = members.invite(people.team, guest.username, Role.VIEWER, by=people.administrator)
    client, pk = people.client("outsider"), members.open_invitation(token).pk
    viewer = Membership.objects.get(user=people.viewer)
    assert client.post(f"/settings/members/{viewer.pk}/link/").status_code == 404
    client.post(f"/settings/invitations/{pk}/withdraw/")
    assert members.open_invitation(token) is not None and not SignInLink.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_of_links_made_at_the_same_moment_one_works():
    user = User.objects.create_user(username="ana")
    made = in_threads(8, lambda _: services.create_sign_in_link(user, timedelta(hours=1)))
    assert sum(services.open_sign_in_link(token) is not None for token in made) == 1


@pytest.mark.django_db(transaction=True)
def test_of_many_tries_at_the_same_moment_no_more_are_let_through_than_in_turn(settings):
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    User.objects.create_user(username="ana", password="correct horse battery")
    sent = {"username": "ana", "password": "wrong"}
    codes = in_threads(attempts.OF_PAIR + 6, lambda _: Client().post("/sign-in/", sent).status_code)
    assert set(codes) <= {422, 429} and codes.count(422) <= attempts.OF_PAIR


@pytest.mark.django_db(transaction=True)
def test_of_many_tokens_made_at_the_same_moment_the_fiftieth_is_the_last():
    user = User.objects.create_user(username="ana")
    Membership.objects.create(user=user, team=Team.objects.create(name="Training"), role=Role.VIEWER)
    for _ in range(48):
        AuthToken.objects.create(user=user)
    made = in_threads(6, lambda _: tokens.create(User.objects.get(pk=user.pk)))
    assert sum(isinstance(each, tokens.TokenError) for each in made) == 4
    assert AuthToken.objects.filter(user=user).count() == 50


@pytest.mark.django_db
def test_one_host_of_ipv6_is_one_address_however_many_it_takes():
    for number in range(4):
        Client().post("/sign-in/", {"username": f"u{number}", "password": "x"}, REMOTE_ADDR=f"2001:db8:1:2::{number}")
    Client().post("/sign-in/", {"username": "v", "password": "x"}, REMOTE_ADDR="::ffff:192.0.2.7")
    counted = SignInAttempt.objects.filter(about__startswith="address").values_list("about", flat=True)
    assert sorted(counted) == ["address 192.0.2.7"] + ["address 2001:db8:1:2::/64"] * 4


def test_a_name_written_in_other_characters_is_the_same_name(people):
    """The sign-in form reads full-width letters as plain ones: such an account would pass for another's."""
    client = people.client("administrator")
    assert (
        "/join/"
        in client.post("/settings/members/", {"username": "ｏｕｔｓｉｄｅｒ", "role": "viewer"}).content.decode()
    )
    client.post("/settings/members/", {"username": "ａｎａ", "role": "viewer"})
    assert User.objects.filter(username="ana").exists()
    assert not User.objects.exclude(username__regex=r"^[a-z_]+$").exists()


def test_the_log_shows_no_link_to_the_pages_of_xprof(people):
    handler = next(each for each in logging.getLogger().handlers if each.name == "stderr")
    written, token = io.StringIO(), "T" * 43
    before = handler.setStream(written)
    try:
        assert Client().post(f"/experiments/1/xprof/pages/{token}/data/plugin/profile/").status_code == 405
    finally:
        handler.setStream(before)
    assert "/xprof/pages/[hidden]/" in written.getvalue() and token not in written.getvalue()
