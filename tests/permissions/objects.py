"""One object of each kind in a team, so that every address of the site leads somewhere."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.urls import URLPattern, URLResolver, get_resolver
from knox.models import AuthToken

from accounts import members, services
from accounts.models import Invitation, Membership, Role, User
from dialogue.models import Held
from dialogue.services import asking
from experiments.models import Event
from history.services import imports, store
from knowledge.models import Passage
from knowledge.services import documents
from proposals.services import measuring, regenerating, reviews
from tests.backend.factories import People, make_ready, upload
from tests.history.records import record

ROLES = ("viewer", "engineer", "reviewer", "administrator")
#: Nobody; somebody of another team, with all rights there; somebody of no team.
STRANGERS = ("anonymous", "outsider", "teamless")


def make_objects(people: People) -> dict[str, Any]:
    """What stands in the addresses of the table, by its name there."""
    ready = make_ready(people)
    approved, proposal = ready.plan.proposals.get(rank=3), ready.plan.proposals.get(rank=1)
    reviews.decide(approved, people.reviewer, "approved")
    measurement = measuring.report_failure(approved, people.engineer, "hang")
    thread = asking.open_thread(ready.experiment, people.engineer)
    answer = asking.ask(thread, people.engineer, "Which do you recommend first?")
    held = Held.objects.create(thread=thread, kind=Held.Kind.CONSTRAINT, key="keep_batch", value=True, message=answer)
    document = documents.receive(people.team, people.engineer, upload("notes.md", b"# Notes\n\nAll-gather.\n")).document
    documents.read(document)
    guest = User.objects.create_user(username="guest", password="a right old password")
    members.invite(people.team, "guest", Role.VIEWER)
    # Of a page nobody may end by accident what the others need.
    token, _ = AuthToken.objects.create(people.second_reviewer)
    event = Event.objects.filter(experiment=ready.experiment).earliest("pk")
    return {
        "experiment": ready.experiment.pk,
        "file": ready.run.profile.files.get().pk,
        "event": event.pk,
        "profile": ready.run.profile_id,
        "run": ready.run.pk,
        "diagnosis": ready.run.diagnosis.pk,
        "plan": ready.plan.pk,
        "proposal": proposal.pk,
        "approved": approved.pk,
        "measurement": measurement.pk,
        "request": regenerating.request(ready.experiment, people.engineer, {}).pk,
        "thread": thread.pk,
        "answer": answer.pk,
        "held": held.pk,
        "document": document.pk,
        "passage": Passage.objects.filter(document=document).earliest("pk").key,
        "record": store.add(record("permitted"), people.team).pk,
        "import": imports.receive(people.team, people.engineer, upload("records.csv", b"id\nx\n")).pk,
        "member": Membership.objects.get(user=people.viewer).pk,
        "invitation": Invitation.objects.get(user=guest).pk,
        "token": token.token_key,
        "link": services.create_sign_in_link(guest, timedelta(hours=1)),
    }


def routes() -> dict[str, Any]:
    """Every pattern of the resolver with its view."""
    return dict(_walk(get_resolver(), ""))


def _walk(resolver: URLResolver, before: str) -> Any:
    for pattern in resolver.url_patterns:
        path = before + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from _walk(pattern, path)
        elif isinstance(pattern, URLPattern):
            yield path, pattern.callback
