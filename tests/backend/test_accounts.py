from __future__ import annotations

import threading
from datetime import timedelta
from io import StringIO

import pytest
from django.contrib.sessions.backends.db import SessionStore
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import RequestFactory
from django.utils import timezone

from accounts import services
from accounts.models import Membership, Role, SignInLink, Team, User
from accounts.permissions import membership_in, team_ids
from experiments.models import Experiment, RunStatus


def test_a_sign_in_link_works_once_and_only_its_hash_is_stored(people):
    token = services.create_sign_in_link(people.viewer, timedelta(hours=1))
    assert token not in str(SignInLink.objects.values().get())
    assert services.open_sign_in_link(token).user == people.viewer  # looking uses nothing up
    assert services.redeem_sign_in_link(token).user == people.viewer
    assert services.redeem_sign_in_link(token) is None
    assert services.open_sign_in_link(token) is None


@pytest.mark.parametrize("token", ["", "nonsense", "\udcff", "a" * 10_000])
def test_a_token_that_was_never_given_out_signs_nobody_in(people, token):
    assert services.redeem_sign_in_link(token) is None


def test_an_expired_link_and_one_of_a_deactivated_user_sign_nobody_in(people):
    expired = services.create_sign_in_link(people.viewer, timedelta(seconds=-1))
    assert services.redeem_sign_in_link(expired) is None
    token = services.create_sign_in_link(people.viewer, timedelta(hours=1))
    User.objects.filter(pk=people.viewer.pk).update(is_active=False)
    assert services.redeem_sign_in_link(token) is None


@pytest.mark.django_db(transaction=True)
def test_of_many_who_redeem_one_link_at_once_one_is_signed_in():
    user = User.objects.create_user(username="somebody")
    token = services.create_sign_in_link(user, timedelta(hours=1))
    start = threading.Barrier(8)
    found = []

    def redeem():
        start.wait()
        found.append(services.redeem_sign_in_link(token))
        connection.close()

    threads = [threading.Thread(target=redeem) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(u is not None for u in found) == [False] * 7 + [True]


def test_the_first_start_makes_one_administrator_and_later_starts_keep_them(db):
    first = services.first_administrator()
    assert Membership.objects.get(user=first).role == Role.ADMINISTRATOR
    assert not first.has_usable_password()
    assert services.first_administrator() == first
    assert User.objects.count() == 1


def test_a_deactivated_administrator_is_replaced_by_the_local_one(people):
    User.objects.filter(pk__in=[people.administrator.pk, people.outsider.pk]).update(is_active=False)
    assert services.first_administrator().username == services.LOCAL_ADMINISTRATOR


def test_the_chosen_team_counts_and_a_foreign_one_cannot_be_chosen(people):
    second = Team.objects.create(name="Second")
    Membership.objects.create(user=people.viewer, team=second, role=Role.REVIEWER)
    request = RequestFactory().get("/")
    request.user, request.session = people.viewer, SessionStore()
    assert services.current_membership(request).team == people.team
    assert services.choose_team(request, second.pk)
    assert services.current_membership(request).role == Role.REVIEWER
    foreign = Membership.objects.get(user=people.outsider).team
    assert not services.choose_team(request, foreign.pk)
    assert services.current_membership(request).team == second


def test_each_role_includes_those_below_it(people):
    levels = [membership_in(getattr(people, r.value), people.team) for r in Role]
    assert [[m.may(role) for role in Role] for m in levels] == [
        [True, False, False, False],
        [True, True, False, False],
        [True, True, True, False],
        [True, True, True, True],
    ]
    assert membership_in(people.outsider, people.team) is None
    assert team_ids(people.teamless) == []


def test_the_command_prints_a_link_that_signs_the_named_user_in(people, capsys):
    call_command("sign_in_link", "engineer", address="http://localhost:8000/")
    printed = capsys.readouterr().out.strip()
    assert printed.startswith("http://localhost:8000/sign-in/")
    assert services.redeem_sign_in_link(printed.rstrip("/").rsplit("/", 1)[1]).user == people.engineer
    with pytest.raises(CommandError, match="no active user named nobody"):
        call_command("sign_in_link", "nobody")


def test_create_user_gives_a_role_in_a_team_and_refuses_a_taken_name(people, capsys):
    call_command("create_user", "ada", team="Pretraining", role="reviewer")
    assert membership_in(User.objects.get(username="ada"), people.team).role == Role.REVIEWER
    link = SignInLink.objects.get(user__username="ada")
    assert link.expires_at > timezone.now() + timedelta(days=6)
    with pytest.raises(CommandError, match="already a user named ada"):
        call_command("create_user", "ada")


def test_a_link_made_at_the_command_line_says_where_the_application_runs(people, settings, tmp_path):
    settings.ASAP_HOME = tmp_path
    printed = StringIO()
    call_command("sign_in_link", people.viewer.username, stdout=printed)
    assert printed.getvalue().startswith("/sign-in/")  # nothing runs here
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "launcher.json").write_text('{"pid": 1, "address": "http://127.0.0.1:8123"}')
    for name, arguments in (("sign_in_link", [people.viewer.username]), ("create_user", ["new-colleague"])):
        printed = StringIO()
        call_command(name, *arguments, stdout=printed)
        assert printed.getvalue().startswith("http://127.0.0.1:8123/sign-in/")


def test_home_counts_all_that_waits_though_it_shows_the_oldest(people, client):
    Experiment.objects.bulk_create(
        Experiment(team=people.team, name=f"failed {n}", state=RunStatus.FAILED) for n in range(23)
    )
    client.force_login(people.engineer)
    page = client.get("/").content.decode()
    assert "23 items need action" in page and "All 23" in page
