"""The audit trail: what is recorded, that it stays, and who reads it."""

from __future__ import annotations

import csv
import io
import json
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.db import IntegrityError, connection, transaction
from knox.models import AuthToken

from accounts import services, tokens
from accounts.models import Membership, Role, Team, User
from audit import trail
from audit.models import Action, Entry
from experiments.models import Event
from history.services import store
from knowledge.services import documents
from proposals.services import reviews
from tests.backend.factories import upload
from tests.history.records import record

pytestmark = pytest.mark.django_db


def recorded(action: Action) -> Entry:
    return Entry.objects.get(action=action)


def test_members_and_their_rights_are_recorded(people) -> None:
    client = people.client("administrator")
    client.post("/settings/members/", {"username": "newcomer", "role": "viewer"})
    added = recorded(Action.MEMBER_ADDED)
    newcomer = Membership.objects.get(user__username="newcomer")
    assert (added.actor_name, added.about_id, added.about_name) == ("administrator", str(newcomer.user_id), "newcomer")
    assert (added.team_name, added.data) == ("Pretraining", {"role": "viewer"})
    assert recorded(Action.LINK_CREATED).about_name == "newcomer"

    client.post(f"/settings/members/{newcomer.pk}/", {"role": "administrator"})
    client.post(f"/settings/members/{newcomer.pk}/", {"role": "administrator"})  # changes nothing
    assert recorded(Action.ROLE_CHANGED).data == {"before": "viewer", "role": "administrator"}

    client.post(f"/settings/members/{newcomer.pk}/", {"remove": "1"})
    assert recorded(Action.MEMBER_REMOVED).data == {"role": "administrator"}
    User.objects.get(username="newcomer").delete()
    assert Entry.objects.filter(about_name="newcomer").count() == 4

    client.post("/settings/members/", {"username": "teamless", "role": "viewer"})
    client.post(f"/settings/invitations/{people.team.invitations.get().pk}/withdraw/")
    assert recorded(Action.MEMBER_INVITED).about_name == recorded(Action.INVITATION_WITHDRAWN).about_name == "teamless"


def test_refused_change_leaves_no_entry(people) -> None:
    only = Membership.objects.get(user=people.administrator)
    people.client("administrator").post(f"/settings/members/{only.pk}/", {"remove": "1"})
    people.client("administrator").post("/settings/members/", {"username": "not a name", "role": "viewer"})
    assert not Entry.objects.exists()


def test_links_and_tokens_are_recorded_in_every_team_that_they_open(people) -> None:
    other = Team.objects.get(name="Another team")
    Membership.objects.create(user=people.engineer, team=other, role=Role.VIEWER)
    services.create_sign_in_link(people.engineer, timedelta(hours=1))
    token, text = tokens.create(people.engineer)
    assert tokens.revoke(people.engineer, token.token_key) and not AuthToken.objects.exists()
    for action, actor in (
        (Action.LINK_CREATED, trail.OPERATOR),
        (Action.TOKEN_CREATED, "engineer"),
        (Action.TOKEN_REVOKED, "engineer"),
    ):
        entries = Entry.objects.filter(action=action)
        assert {entry.team_id for entry in entries} == {people.team.pk, other.pk}
        assert {entry.actor_name for entry in entries} == {actor}
    assert text not in str(list(Entry.objects.values()))


def test_operator_and_first_start_are_recorded(db, capsys) -> None:
    call_command("sign_in_link")
    call_command("create_user", "ana", role="administrator", team="Research")
    made = {entry.about_name: entry for entry in Entry.objects.filter(action=Action.MEMBER_ADDED)}
    assert (made["admin"].actor_name, made["admin"].data["role"]) == (trail.APPLICATION, "administrator")
    assert (made["ana"].actor_name, made["ana"].team_name) == (trail.OPERATOR, "Research")


def test_settings_are_recorded_without_secrets(people, monkeypatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-0123456789")
    client = people.client("administrator")
    client.post("/settings/retention/", {"days": "30"})
    assert recorded(Action.MODEL_SETTINGS_SAVED).data == {"keep_payloads_days": 30, "before": None}
    setup = "module load cuda\nexport KEY=sk-canary-0123456789"
    assert client.post("/settings/launching/", {"backend": "manual", "setup": setup}).status_code == 302
    entry = recorded(Action.LAUNCH_SETTINGS_SAVED)
    assert "module load cuda" in entry.data["values"]["setup"] and "canary" not in str(entry.data)


def test_deleted_experiment_leaves_its_facts_and_decisions(people, ready) -> None:
    proposal = ready.plan.proposals.get(rank=1)
    reviews.decide(proposal, people.reviewer, "approved", "worth a try")
    approved = recorded(Action.PROPOSAL_APPROVED)
    assert (approved.about_id, approved.data["experiment"]) == (str(proposal.pk), ready.experiment.pk)
    key, name = ready.experiment.pk, ready.experiment.name
    events = Event.objects.filter(experiment=key).count()
    files = list(ready.run.profile.files.values_list("name", "sha256"))
    assert people.api("administrator").delete(f"/api/experiments/{key}/").status_code == 204
    assert not Event.objects.filter(experiment=key).exists()
    entry = recorded(Action.EXPERIMENT_DELETED)
    assert (entry.about_id, entry.about_name, entry.actor_name) == (str(key), name, "administrator")
    assert entry.data["events"] == events
    assert [(file["name"], file["sha256"]) for file in entry.data["files"]] == files
    (review,) = entry.data["reviews"]
    assert (review["by"], review["decision"], review["comment"]) == ("reviewer", "approved", "worth a try")


def test_deleted_record_and_document_are_recorded(people) -> None:
    own = store.add(record("own-1", title="Ours"), people.team)
    assert people.api("administrator").delete(f"/api/history/records/{own.pk}/").status_code == 204
    assert recorded(Action.RECORD_DELETED).data == {"key": "own-1"}
    document = documents.receive(people.team, people.engineer, upload("notes.md", b"# Notes\n")).document
    assert people.api("engineer").delete(f"/api/knowledge/documents/{document.pk}/").status_code == 204
    assert recorded(Action.DOCUMENT_DELETED).data["sha256"] == document.sha256


@pytest.mark.parametrize(
    "statement",
    ["UPDATE audit_entry SET actor_name = 'nobody'", "DELETE FROM audit_entry", "TRUNCATE audit_entry"],
)
def test_database_refuses_to_change_or_delete_entries(people, statement) -> None:
    entry = trail.record(Action.PASSWORD_SET, people.team, people.engineer)
    refused = pytest.raises(IntegrityError, match="never changed or deleted")
    with refused, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)
    with pytest.raises(TypeError):
        entry.save()
    people.team.delete()
    assert Entry.objects.get().actor_name == "engineer"


@pytest.fixture
def entries(people) -> Any:
    trail.record(Action.ROLE_CHANGED, people.team, people.administrator, name="=ana", before="viewer", role="engineer")
    trail.record(Action.PASSWORD_SET, people.team, people.engineer, name="engineer")
    trail.record(Action.PASSWORD_SET, Team.objects.get(name="Another team"), people.outsider, name="outsider")
    return people


def test_page_and_exports_show_what_the_filters_leave(entries) -> None:
    client = entries.client("administrator")
    page = client.get("/settings/audit/").content.decode()
    assert "=ana" in page and "Password set" in page and "outsider" not in page
    found = client.get("/settings/audit/", {"action": "role.changed"}).content.decode()
    assert "=ana" in found and ">engineer<" not in found
    assert "=ana" not in client.get("/settings/audit/", {"until": "2001-01-01"}).content.decode()
    assert "=ana" in client.get("/settings/audit/", {"since": "nonsense", "q": "VIEWER"}).content.decode()
    lines = b"".join(client.get("/settings/audit/jsonl/", {"q": "ana"})).decode().splitlines()
    assert [json.loads(line)["data"] for line in lines] == [{"before": "viewer", "role": "engineer"}]
    rows = list(csv.DictReader(io.StringIO(b"".join(client.get("/settings/audit/csv/")).decode())))
    assert [row["about_name"] for row in rows] == ["engineer", "'=ana"]
    assert client.get("/settings/audit/xml/").status_code == 404


def test_rest_lists_the_teams_that_the_caller_administers(entries) -> None:
    found = entries.api("administrator").get("/api/audit/").json()
    assert [item["action"] for item in found["results"]] == ["password.set", "role.changed"]
    assert entries.api("administrator").get("/api/audit/?since=nonsense").status_code == 400
    assert entries.api("outsider").get("/api/audit/").json()["count"] == 1
    assert entries.api("reviewer").get("/api/audit/").status_code == 403
    assert entries.api("anonymous").get("/api/audit/").status_code == 401
