"""Passwords are not guessed, links do not pile up or leak, tokens end, and a team keeps its administrator."""

from __future__ import annotations

import io
import logging
import threading
import time
from datetime import timedelta

import pytest
from django.contrib.auth.hashers import make_password
from django.core.management import call_command
from django.db import connection, transaction
from django.test import Client
from django.utils import timezone
from knox.models import AuthToken
from rest_framework.test import APIClient

from accounts import attempts, members, services
from accounts.models import Membership, Role, SignInAttempt, Team, User
from asapweb import environment

pytestmark = pytest.mark.django_db
RIGHT = "correct horse battery"


@pytest.fixture
def ana(db, settings):
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    return User.objects.create_user(username="ana", password=RIGHT)


def sign_in(username="ana", password="wrong", **more):
    return Client().post("/sign-in/", {"username": username, "password": password}, **more)


def test_a_password_is_not_guessed_for_long(ana):
    tried = [sign_in(name).status_code for name in ["ana", " ana", "ANA", "\uff41na", "ana"] * 3]
    assert tried == [422] * attempts.OF_PAIR + [429] * 5
    refused = sign_in(password=RIGHT)
    assert refused.status_code == 429 and int(refused["Retry-After"]) == 900
    assert "Wait 15 minutes" in refused.content.decode()
    assert sign_in("bob").status_code == 422  # another person is not kept out
    # Nor is the same person elsewhere, which does not free the address of the guesses.
    assert sign_in(password=RIGHT, REMOTE_ADDR="192.0.2.8").status_code == 302
    assert sign_in(password=RIGHT).status_code == 429


def test_a_name_is_not_guessed_from_many_addresses_for_long(ana, monkeypatch):
    monkeypatch.setattr(attempts, "OF_NAME", 20)
    codes = [sign_in(REMOTE_ADDR=f"198.51.100.{n}").status_code for n in range(22)]
    assert codes == [422] * 20 + [429] * 2


def test_after_a_while_the_right_password_signs_in_again(ana):
    for _ in range(12):
        sign_in()
    SignInAttempt.objects.update(at=timezone.now() - attempts.WINDOW - timedelta(seconds=1))
    assert sign_in(password=RIGHT).status_code == 302
    assert not SignInAttempt.objects.filter(about__startswith="pair").exists()


def test_the_right_password_forgets_the_wrong_ones(ana):
    for _ in range(3):
        assert [sign_in().status_code for _ in range(6)] == [422] * 6
        assert sign_in(password=RIGHT).status_code == 302


def test_names_are_not_tried_in_turn_from_one_address(ana):
    codes = [sign_in(f"user{n}", REMOTE_ADDR="192.0.2.7").status_code for n in range(attempts.OF_ADDRESS + 3)]
    assert codes == [422] * attempts.OF_ADDRESS + [429] * 3
    assert sign_in(password=RIGHT, REMOTE_ADDR="192.0.2.8").status_code == 302


def test_a_client_chooses_its_address_only_where_no_proxy_says_it(ana, settings):
    for settings.HTTPS, expected in ((False, {"address 127.0.0.1"}), (True, {"address 192.0.2.9"})):
        SignInAttempt.objects.all().delete()
        sign_in(HTTP_X_FORWARDED_FOR="203.0.113.1, 192.0.2.9")
        assert (
            set(SignInAttempt.objects.filter(about__startswith="address").values_list("about", flat=True)) == expected
        )


def link(*arguments):
    printed = io.StringIO()
    call_command("sign_in_link", *arguments, stdout=printed)
    return printed.getvalue().strip()


@pytest.mark.parametrize(("origins", "hosts", "https", "address"), [
    ("https://*.example.org,https://asap.example.org", "inner", "", "https://asap.example.org"),
    ("", ".example.org,asap.example.org", "", "https://asap.example.org"),
    ("", "asap.example.org", "0", ""),
    ("", "*", "", ""),
])  # fmt: skip
def test_a_link_of_a_deployment_has_its_address(people, settings, monkeypatch, origins, hosts, https, address):
    for name, value in (("CSRF_TRUSTED_ORIGINS", origins), ("ALLOWED_HOSTS", hosts), ("ASAP_HTTPS", https)):
        monkeypatch.setenv(name, value)
    settings.PUBLIC_ADDRESS = environment.public_address(https=environment.flag("ASAP_HTTPS", default=True))
    assert settings.PUBLIC_ADDRESS == address
    assert link("viewer").startswith(f"{address}/sign-in/")


def test_who_has_no_password_is_told_of_the_way_back_before_signing_out(people):
    client = people.client("administrator")
    page = client.post("/sign-out/").content.decode()
    assert f"manage.py sign_in_link {people.administrator.username}" in page
    assert client.get("/settings/").status_code == 200
    assert client.post("/sign-out/", {"anyway": "1"}).status_code == 302
    assert client.get("/settings/").status_code == 302
    printed = link(people.administrator.username)
    assert client.post(printed).status_code == 302 and client.get("/settings/").status_code == 200


def test_who_has_a_password_signs_out_at_once(ana):
    client = Client()
    client.force_login(ana)
    assert client.post("/sign-out/").headers["Location"] == "/sign-in/"


def test_a_start_ends_the_link_of_the_start_before(people):
    first, second = link(), link()
    assert Client().get(first).status_code == 410
    assert Client().get(second).status_code == 200


def test_the_log_shows_no_link_whatever_is_asked_of_it(people):
    handler = next(each for each in logging.getLogger().handlers if each.name == "stderr")
    asked = link("viewer")
    written = io.StringIO()
    before = handler.setStream(written)
    try:
        assert Client().head(asked).status_code == 200
        assert Client().put(asked).status_code == 405
        assert Client(enforce_csrf_checks=True).post(asked).status_code == 403
        assert Client().get(asked + "more/").status_code == 404
        assert Client().get(asked).status_code == 200  # still unused
    finally:
        handler.setStream(before)
    assert "/sign-in/[hidden]" in written.getvalue()
    assert asked.strip("/").rsplit("/", 1)[1] not in written.getvalue()


def test_a_token_makes_no_tokens_that_would_outlive_it(people):
    client = people.client("viewer")
    made = client.post("/api/tokens/").json()
    answer = APIClient(HTTP_AUTHORIZATION=f"Token {made['token']}").post("/api/tokens/")
    assert answer.status_code == 403 and "Settings" in answer.json()["detail"]
    assert AuthToken.objects.count() == 1


def test_a_person_has_fifty_tokens(people):
    for _ in range(49):
        AuthToken.objects.create(user=people.viewer)
    AuthToken.objects.create(user=people.viewer, expiry=timedelta(seconds=-1))  # has ended, so does not count
    client = people.client("viewer")
    assert client.post("/api/tokens/").status_code == 201
    refused = client.post("/api/tokens/")
    assert refused.status_code == 409 and "50 tokens" in refused.json()["detail"]
    page = client.post("/settings/tokens/")
    assert page.status_code == 422 and "50 tokens" in page.content.decode()
    key = client.get("/api/tokens/").json()[0]["key"]
    client.delete(f"/api/tokens/{key}/")
    assert client.post("/api/tokens/").status_code == 201


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "act", [lambda m: members.change_role(m, Role.VIEWER, by=m.user), lambda m: members.remove(m, by=m.user)]
)
def test_of_two_administrators_who_demote_each_other_one_stays(act):
    team = Team.objects.create(name="Two")
    users = [User.objects.create_user(username=name) for name in ("ana", "bo")]
    both = [Membership.objects.create(user=user, team=team, role=Role.ADMINISTRATOR) for user in users]
    came = []

    def demote(membership):
        try:
            act(membership)
            came.append("done")
        except members.MemberError:
            came.append("refused")
        finally:
            connection.close()

    threads = [threading.Thread(target=demote, args=[membership]) for membership in both]
    with transaction.atomic():  # until both are under way
        list(Membership.objects.select_for_update().filter(team=team))
        for thread in threads:
            thread.start()
        _wait_for_waiting(2)
    for thread in threads:
        thread.join()
    assert sorted(came) == ["done", "refused"]
    assert Membership.objects.filter(team=team, role=Role.ADMINISTRATOR).count() == 1


def _wait_for_waiting(connections):
    for _ in range(500):
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
            if cursor.fetchone()[0] >= connections:
                return
        time.sleep(0.02)
    raise AssertionError("nobody waits for a lock")


NEW = {"new_password1": "staple battery horse", "new_password2": "staple battery horse"}


def test_who_knows_the_password_changes_it_and_other_sessions_end(ana, team_of):
    team_of(ana)
    here, elsewhere = Client(), Client()
    for client in (here, elsewhere):
        client.force_login(ana)
    wrong = here.post("/settings/password/", {"old_password": "wrong", **NEW})
    assert wrong.status_code == 422 and "old password was entered incorrectly" in wrong.content.decode()
    assert here.post("/settings/password/", {"old_password": RIGHT, **NEW}).status_code == 302
    assert here.get("/settings/").status_code == 200
    assert elsewhere.get("/settings/").status_code == 302
    assert sign_in(password=NEW["new_password1"]).status_code == 302


def test_an_old_password_is_not_guessed_in_an_open_session(ana, team_of):
    team_of(ana)
    client = Client()
    client.force_login(ana)
    codes = [client.post("/settings/password/", {"old_password": str(n), **NEW}).status_code for n in range(12)]
    assert codes == [422] * attempts.OF_PAIR + [429] * 2
    ana.refresh_from_db()
    assert ana.check_password(RIGHT)


@pytest.mark.parametrize(("new", "sentence"), [("short", "too short"), ("password1234", "too common")])
def test_a_weak_password_is_refused_with_the_reason(ana, team_of, new, sentence):
    team_of(ana)
    client = Client()
    client.force_login(ana)
    answer = client.post("/settings/password/", {"old_password": RIGHT, "new_password1": new, "new_password2": new})
    assert answer.status_code == 422 and sentence in answer.content.decode()


def test_a_link_of_the_operator_leads_to_a_first_password_and_a_link_of_a_team_does_not(ana, team_of):
    membership = team_of(ana)
    ana.set_unusable_password()
    ana.save()
    client = Client()
    address = services.create_sign_in_link(ana, timedelta(hours=1), membership)
    assert client.post(f"/sign-in/{address}/").status_code == 302
    assert client.get("/settings/password/").status_code == 403
    assert client.post("/settings/password/", NEW).status_code == 403
    ana.refresh_from_db()
    assert not ana.has_usable_password()
    address = services.create_sign_in_link(ana, timedelta(hours=1))
    assert client.post(f"/sign-in/{address}/").status_code == 302
    assert client.post("/settings/password/", NEW).status_code == 302
    assert sign_in(password=NEW["new_password1"]).status_code == 302


@pytest.fixture
def team_of(db):
    def join(user, role=Role.VIEWER, name="Training"):
        return Membership.objects.create(user=user, team=Team.objects.get_or_create(name=name)[0], role=role)

    return join


def test_an_administrator_sees_invitations_and_withdraws_them(ana, team_of):
    head = team_of(User.objects.create_user(username="head"), Role.ADMINISTRATOR)
    other = team_of(User.objects.create_user(username="rival"), Role.ADMINISTRATOR, "Rivals")
    viewer = team_of(User.objects.create_user(username="viewer"))
    token = members.invite(head.team, "ana", Role.ENGINEER, by=head.user)
    invited = members.open_invitation(token)
    clients = {}
    for name, member in (("head", head), ("rival", other), ("viewer", viewer)):
        clients[name] = Client()
        clients[name].force_login(member.user)
    address = f"/settings/invitations/{invited.pk}/withdraw/"
    assert "Withdraw" in clients["head"].get("/settings/").content.decode()
    assert all("Withdraw" not in clients[name].get("/settings/").content.decode() for name in ("rival", "viewer"))
    assert clients["viewer"].post(address).status_code == 403
    clients["rival"].post(address)
    assert clients["head"].get(address).status_code == 405
    assert members.open_invitation(token) == invited
    assert clients["head"].post(address).status_code == 302
    assert members.open_invitation(token) is None
    guest = Client()
    guest.force_login(ana)
    assert guest.post(f"/join/{token}/").status_code == 410


def test_a_password_kept_the_old_way_still_opens_and_is_kept_the_new_way(db):
    eve = User.objects.create(username="eve", password=make_password(RIGHT, hasher="pbkdf2_sha256"))
    assert sign_in("eve", RIGHT).status_code == 302
    eve.refresh_from_db()
    assert eve.password.startswith("argon2$argon2id$") and eve.check_password(RIGHT)
