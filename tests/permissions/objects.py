"""Two teams with one object of each kind, so that every address of the site leads somewhere."""

from __future__ import annotations

import dataclasses
import json
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

from knox.models import AuthToken

from accounts import members, services
from accounts.models import Invitation, Membership, Role, Team, User
from campaigns.services import campaigns
from dialogue.models import Held
from dialogue.services import asking
from experiments.models import Event, Experiment, SavedView
from experiments.services import runs, storage, traces, uploads
from history.services import imports, store
from knowledge.models import Passage
from knowledge.services import documents
from launches.services import launching, reporting
from proposals.models import Compilation
from proposals.services import measuring, regenerating, reviews
from tests.backend.factories import CONFIG, People, make_experiment, make_people, make_ready, upload
from tests.backend.measured_runs import config_of, make_run
from tests.dialogue.answerers import answered
from tests.history.records import record
from tests.trace.stores import drawn

#: In the names and texts of each team's objects, and nowhere else.
MARK, THEIR_MARK = "quokka", "axolotl"


@dataclasses.dataclass(frozen=True)
class Site:
    """people: of the first team, and strangers.  ours, theirs: what the two teams have, by its name in the table."""

    people: People
    ours: dict[str, Any]
    theirs: dict[str, Any]

    def named(self) -> dict[str, Any]:
        """Names in the URLs of the table: ours by name, theirs as `their.name`."""
        return self.ours | {"their": SimpleNamespace(**self.theirs)}


def make_site() -> Site:
    people = make_people()
    team = Team.objects.get(name="Another team")
    others = dict.fromkeys(("engineer", "viewer", "reviewer", "second_reviewer", "administrator"), people.outsider)
    theirs = dataclasses.replace(people, team=team, **others)
    return Site(people, make_objects(people, MARK), make_objects(theirs, THEIR_MARK))


def member(name: str, *places: tuple[Team, Role]) -> User:
    made = User.objects.create_user(username=name)
    for team, role in places:
        Membership.objects.create(user=made, team=team, role=role)
    return made


def make_objects(people: People, mark: str) -> dict[str, Any]:
    author = member(f"author-{mark}", (people.team, Role.ENGINEER))
    guest = member(f"guest-{people.team.pk}")
    join = members.invite(people.team, guest.username, Role.VIEWER, by=people.administrator)
    ready, other = make_ready(people, f"{mark} baseline"), make_ready(people, f"{mark} wider")
    approved, linked, proposal = (ready.plan.proposals.get(rank=rank) for rank in (1, 2, 3))
    for each in (approved, linked):
        each.data["predicted"] |= {"speedup_low80": 1.1, "speedup_high80": 1.4, "sigma": 0.05}
        each.save()
        reviews.decide(each, people.reviewer, "approved", f"as {mark} does")
    waiting = make_run(people, config_of(linked), ready=False, name=f"{mark} second run")
    measurement = measuring.link(linked, waiting, people.engineer)

    trace = traces.path_of(ready.run)
    drawn(storage.absolute(trace), seed=1)
    traces.store(ready.run.profile, trace)
    failed = _failed(people, mark)

    thread = asking.open_thread(ready.experiment, author)
    answer = asking.ask(thread, author, f"What is the price of data=2, seq=8? This is for {mark}.")
    answered(answer.pk)
    answer.refresh_from_db()
    answer.effects = [
        {"kind": "mesh", "mesh": {"ici": {"data": 2, "seq": 8, "model": 1}, "dcn": {"data": 1}}},
        {"kind": "constraint", "constraint": {"keep_remat": True}, "sentence": "Keep remat."},
    ]
    answer.save()
    held = Held.objects.create(thread=thread, kind=Held.Kind.CONSTRAINT, key="keep_batch", value=True, message=answer)
    queued = asking.ask(asking.open_thread(other.experiment, author), author, f"Why is {mark} slow?")

    Compilation.objects.create(team=people.team, plan=ready.plan)

    notes = upload(f"{mark}.md", f"# Notes on {mark}\n\nAll-gathers of {mark}.\n".encode())
    document = documents.receive(people.team, author, notes, title=f"Notes on {mark}").document
    documents.read(document.pk)
    kept = store.add(record(f"{mark}-1", title=f"{mark}: seq traded for data"), people.team)
    launched = other.plan.proposals.get(rank=1)
    reviews.decide(launched, people.reviewer, "approved", f"as {mark} does")
    launch = launching.launch(launched, people.engineer, tool="maxtext", repeats=2, steps=10, server="http://asap")
    log = reporting.begin_file(reporting.run_of(launch, "proposal", 1), "log", f"{mark}.log", 10, "a" * 64)
    rows = upload(f"{mark}.csv", f"id\n{mark}\n".encode())
    return {
        "team": people.team.pk,
        "experiment": ready.experiment.pk,
        "other": other.experiment.pk,
        "rerun": make_run(people, config_of(approved), name=f"{mark} changed run").pk,
        "undecided": make_experiment(people, f"{mark} arriving").pk,
        "failed": failed.pk,
        "failed_run": runs.newest(failed).pk,  # type: ignore[union-attr]
        "file": failed.profiles.get().files.get(name="host1.xplane.pb").pk,
        "event": Event.objects.filter(experiment=ready.experiment).earliest("pk").pk,
        "profile": ready.run.profile_id,
        "other_profile": other.run.profile_id,
        "run": ready.run.pk,
        "diagnosis": ready.run.diagnosis.pk,
        "plan": ready.plan.pk,
        "proposal": proposal.pk,
        "approved": approved.pk,
        "linked": linked.pk,
        "measurement": measurement.pk,
        "launch": launch.pk,
        "report_file": log.sha256,
        "request": regenerating.request(other.experiment, people.engineer, {}).pk,
        "thread": thread.pk,
        "answer": answer.pk,
        "queued": queued.pk,
        "held": held.pk,
        "document": document.pk,
        "passage": Passage.objects.filter(document=document).earliest("pk").key,
        "record": kept.pk,
        "key": kept.key,
        "view": SavedView.objects.create(team=people.team, name=mark).pk,
        "campaign": _campaign(people, ready.experiment, mark),
        "import": imports.receive(people.team, people.engineer, rows).pk,
        "member": Membership.objects.get(user=author).pk,
        "invitation": Invitation.objects.get(user=guest).pk,
        "join": join,
        "guest": guest,
        "author": author,
        "token": AuthToken.objects.create(author)[0].token_key,
        "link": services.create_sign_in_link(guest, timedelta(hours=1)),
    }  # fmt: skip


def _campaign(people: People, experiment: Experiment, mark: str) -> int:
    """A campaign whose first trial failed."""
    made = campaigns.begin(experiment, people.engineer, campaigns.Campaign(most_trials=3))
    failure = {"cause": "unknown", "confidence": 0.0, "sentence": f"{mark} broke.", "lines": 1}
    made.trials.filter(number=0).update(status="failed", failure=failure, why=f"What {mark} runs.")
    return made.pk


def _failed(people: People, mark: str) -> Experiment:
    """An experiment whose analysis failed on one of its two hosts."""
    files = [upload("host0.xplane.pb"), upload("host1.xplane.pb", b"\x0a\x01\x00")]
    made = uploads.receive(people.team, people.engineer, files, json.dumps(CONFIG), f"{mark} broken")
    run = runs.newest(made)
    assert run is not None
    assert runs.fail(run, f"host1 of {mark} is damaged.", file="host1.xplane.pb", excludable=True)
    return made
