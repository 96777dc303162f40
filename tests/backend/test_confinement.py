"""A sign-in link, the session it begins and the tokens made there open what the link was made for, and no more."""

from __future__ import annotations

import re

import pytest
from django.test import Client
from rest_framework.test import APIClient

from accounts.models import Membership, Role, SignInLink, User


@pytest.fixture
def theirs(people):
    """The other team: of `outsider`, its administrator."""
    return Membership.objects.get(user=people.outsider).team


def add(client, username, role="reviewer"):
    return client.post("/settings/members/", {"username": username, "role": role})


def address(page, folder):
    return re.search(rf"http://testserver(/{folder}/[\w-]+/)", page.content.decode()).group(1)


def signed_in(link):
    client = Client()
    assert client.post(link).status_code == 302
    return client


def own_session(username):
    client = Client()
    client.force_login(User.objects.get(username=username))
    return client


def teams(client):
    return [row["team_name"] for row in client.get("/api/me/").json()["memberships"]]


def api(token):
    return APIClient(HTTP_AUTHORIZATION=f"Token {token}")


def test_a_link_made_by_one_team_never_opens_another_that_added_the_same_name(people, ready, theirs):
    link = address(add(people.client("outsider"), "ana"), "sign-in")
    asked = add(people.client("administrator"), "ana")
    assert "/sign-in/" not in asked.content.decode()
    assert not Membership.objects.filter(user__username="ana", team=people.team).exists()
    holder = signed_in(link)
    assert holder.get(f"/experiments/{ready.experiment.pk}/").status_code == 404
    # Even once the person herself has joined.
    assert own_session("ana").post(address(asked, "join")).status_code == 302
    assert teams(own_session("ana")) == ["Another team", "Pretraining"]
    assert teams(holder) == ["Another team"]
    assert holder.get(f"/experiments/{ready.experiment.pk}/").status_code == 404
    assert holder.get(f"/api/experiments/{ready.experiment.pk}/").status_code == 404
    holder.post("/settings/team/", {"team": people.team.pk})
    assert teams(holder) == ["Another team"] and "Pretraining" not in holder.get("/settings/").content.decode()


def test_a_link_used_after_the_person_joined_another_team_opens_only_its_own(people, ready):
    link = address(add(people.client("outsider"), "ana"), "sign-in")
    Membership.objects.create(user=User.objects.get(username="ana"), team=people.team, role=Role.REVIEWER)
    assert teams(signed_in(link)) == ["Another team"]


def test_an_invitation_is_accepted_by_the_person_alone(people, theirs):
    asked = address(add(people.client("administrator"), "outsider", "engineer"), "join")
    assert Client().get(asked)["Location"].startswith("/sign-in/")
    assert people.client("viewer").post(asked).status_code == 403
    page = people.client("outsider").get(asked)
    assert "Pretraining" in page.content.decode()
    assert not Membership.objects.filter(user=people.outsider, team=people.team).exists()  # looking joins nothing
    assert people.client("outsider").post(asked).status_code == 302
    assert Membership.objects.get(user=people.outsider, team=people.team).role == Role.ENGINEER
    assert people.client("outsider").post(asked).status_code == 410


def test_who_signed_in_by_a_link_of_one_team_accepts_no_other(people):
    holder = signed_in(address(add(people.client("outsider"), "ana"), "sign-in"))
    asked = address(add(people.client("administrator"), "ana"), "join")
    answer = holder.post(asked)
    assert answer.status_code == 403 and "is limited to that team" in answer.content.decode()
    assert Membership.objects.filter(user__username="ana").count() == 1


def test_a_newer_invitation_replaces_the_earlier(people):
    first = address(add(people.client("administrator"), "outsider", "administrator"), "join")
    second = address(add(people.client("administrator"), "outsider", "viewer"), "join")
    assert people.client("outsider").post(first).status_code == 410
    assert people.client("outsider").post(second).status_code == 302
    assert Membership.objects.get(user=people.outsider, team=people.team).role == Role.VIEWER


def test_tokens_made_in_a_session_of_one_team_open_no_other(people, ready):
    holder = signed_in(address(add(people.client("outsider"), "ana"), "sign-in"))
    ana = User.objects.get(username="ana")
    token = holder.post("/api/tokens/").json()["token"]
    second = holder.post("/api/tokens/").json()["token"]
    Membership.objects.create(user=ana, team=people.team, role=Role.REVIEWER)
    hers = own_session("ana").post("/api/tokens/").json()
    for confined in (token, second):
        assert teams(api(confined)) == ["Another team"]
        assert api(confined).get(f"/api/experiments/{ready.experiment.pk}/").status_code == 404
        assert len(api(confined).get("/api/tokens/").json()) == 2  # hers is neither listed nor revoked
        assert api(confined).delete(f"/api/tokens/{hers['key']}/").status_code == 404
    assert teams(api(hers["token"])) == ["Another team", "Pretraining"]


def test_a_person_who_was_removed_and_added_again_needs_a_new_link(people):
    administrator = people.client("outsider")
    unused = address(add(administrator, "ana"), "sign-in")
    membership = Membership.objects.get(user__username="ana")
    used = administrator.post(f"/settings/members/{membership.pk}/link/")
    holder = signed_in(address(used, "sign-in"))
    token = holder.post("/api/tokens/").json()["token"]
    administrator.post(f"/settings/members/{membership.pk}/", {"remove": "1"})
    Membership.objects.create(user=membership.user, team=membership.team, role=Role.ADMINISTRATOR)
    assert Client().post(unused).status_code == 410
    assert teams(holder) == teams(api(token)) == []


def test_a_link_made_for_a_viewer_ends_when_the_viewer_becomes_more(people):
    administrator = people.client("outsider")
    link = address(add(administrator, "ana", "viewer"), "sign-in")
    membership = Membership.objects.get(user__username="ana")
    administrator.post(f"/settings/members/{membership.pk}/", {"role": "administrator"})
    assert Client().post(link).status_code == 410


def test_a_person_in_several_teams_signs_in_by_themselves(people, theirs):
    Membership.objects.create(user=people.viewer, team=theirs)
    membership = Membership.objects.get(user=people.viewer, team=people.team)
    answer = people.client("administrator").post(f"/settings/members/{membership.pk}/link/")
    assert answer.status_code == 422 and not SignInLink.objects.exists()


def test_a_link_of_the_operator_opens_all_teams_also_after_one_of_a_team(people, theirs):
    from datetime import timedelta

    from accounts.services import create_sign_in_link

    membership = Membership.objects.get(user=people.viewer)
    client = signed_in(f"/sign-in/{create_sign_in_link(people.viewer, timedelta(hours=1), membership)}/")
    Membership.objects.create(user=people.viewer, team=theirs)
    assert teams(client) == ["Pretraining"]
    client.post(f"/sign-in/{create_sign_in_link(people.viewer, timedelta(hours=1))}/")
    assert teams(client) == ["Pretraining", "Another team"]
