"""A mesh of one's own: priced at once, stored only when it is added, and never if it may not run."""

from __future__ import annotations

from dataclasses import replace
from html import unescape

import pytest
from django.core.exceptions import PermissionDenied
from django.http import Http404

from experiments.models import Event, ReviewState
from experiments.step_profile import Memory
from proposals import custom_form
from proposals.candidate import Candidate
from proposals.models import Proposal
from proposals.services import custom_mesh, launching, reviews
from tests.backend.factories import CONFIG, make_ready, step_profile

LEGAL = {"ici": {"replica": 1, "data": 8, "seq": 1, "model": 2}, "dcn": {"data": 1}}


@pytest.fixture
def other():
    """A legal mesh that is none of the factory's three proposals."""
    return {"ici": {"replica": 1, "data": 4, "seq": 2, "model": 2}, "dcn": {"data": 1}}


def test_a_legal_mesh_is_priced_and_nothing_is_stored(people, ready, other):
    before = Event.objects.count()
    found = custom_mesh.evaluate(ready.plan, Candidate(other))
    assert found.kind == "own" and found.violations == ()
    assert found.predicted.step_time_s.low80 < found.predicted.step_time_s.estimate
    assert found.predicted.hbm_per_chip_bytes.total > 0
    assert (Event.objects.count(), Proposal.objects.count()) == (before, 3)


@pytest.mark.parametrize(
    "text",
    [
        "data=8 seq=1 model=2 remat=minimal", "dcn.data=2 remat=minimal", "--xla_disable_hlo_passes=a,b data=16",
        "remat=full xla_flags=none", "global_batch=64",
    ],
)  # fmt: skip
def test_what_is_typed_reads_back_from_what_is_written(text):
    current = {"ici": {"data": 4, "model": 4}, "dcn": {"data": 1}}
    read = custom_form.read(text, current)
    again = custom_form.read(custom_form.written(read), current)
    assert (again.mesh, again.changes) == (read.mesh, read.changes)
    if "dcn" in text:
        assert read.mesh == {"ici": {"data": 4, "model": 4}, "dcn": {"data": 2}}


def test_what_runs_takes_the_time_it_took(people, ready):
    found = custom_mesh.evaluate(ready.plan, Candidate(CONFIG["mesh"]))
    assert found.predicted.step_time_s.estimate == pytest.approx(1.25)
    assert found.predicted.speedup == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("ici", "rule"),
    [
        ({"data": 4, "seq": 1, "model": 1}, "chips"),  # 4 of 16 chips
        ({"data": 1, "seq": 1, "model": 16}, ""),  # 8 KV heads
    ],
)
def test_an_illegal_mesh_names_its_rule_and_is_not_added(people, ready, ici, rule):
    found = custom_mesh.evaluate(ready.plan, Candidate({"ici": ici}))
    assert found.violations and found.violations[0].reason
    assert not rule or found.violations[0].rule == rule
    with pytest.raises(custom_mesh.CustomMeshError):
        custom_mesh.add(ready.plan, people.engineer, Candidate({"ici": ici}))
    assert Proposal.objects.count() == 3


@pytest.mark.parametrize(
    ("mesh", "changes", "words"),
    [
        ({"ici": {"data": "many"}}, {}, "whole number"),
        ({"ici": {"depth": 16}}, {}, "role"),
        ({}, {}, "is missing"),
        (LEGAL, {"remat": "sometimes"}, "remat"),
        (LEGAL, {"speed": "high"}, "not a training key"),
    ],
)
def test_what_is_no_mesh_at_all_is_said_in_a_sentence(people, ready, mesh, changes, words):
    with pytest.raises(custom_mesh.CustomMeshError, match=words):
        custom_mesh.evaluate(ready.plan, Candidate(mesh, changes))


def test_added_it_is_a_proposal_like_any_other(people, ready, other):
    for item in ready.plan.proposals.all():
        reviews.decide(item, people.reviewer, "rejected")
    made = custom_mesh.add(ready.plan, people.engineer, Candidate(other, {"global_batch": 16}))
    assert (made.rank, made.kind, made.added_by) == (4, "own", people.engineer)
    assert made.data["changes"] == {"global_batch": 16}
    ready.experiment.refresh_from_db()
    assert ready.experiment.review == ReviewState.OPEN
    event = Event.objects.filter(kind="proposal").last()
    assert (event.user, event.data["proposals"][0]["rank"]) == (people.engineer, 4)
    reviews.decide(made, people.reviewer, "approved")
    texts = {item.kind: item.text for item in launching.files(made)}
    assert "seq: 2" in texts["yaml"]


def test_the_same_is_not_added_twice(people, ready, other):
    custom_mesh.add(ready.plan, people.engineer, Candidate(other))
    with pytest.raises(custom_mesh.CustomMeshError, match="This is already proposal 4"):
        custom_mesh.add(ready.plan, people.engineer, Candidate({"ici": {"data": 4, "seq": 2, "model": 2}}))


def test_a_constraint_of_the_plan_holds_for_it_too(people, ready, other):
    ready.plan.constraints = {"keep_axes": ["seq"]}
    ready.plan.save()
    found = custom_mesh.evaluate(ready.plan, Candidate(other))
    assert "constraint" in found.violations[0].rule
    with pytest.raises(custom_mesh.CustomMeshError):
        custom_mesh.add(ready.plan, people.engineer, Candidate(other))


@pytest.mark.parametrize(("name", "error"), [("viewer", PermissionDenied), ("outsider", Http404)])
def test_who_may_not_change_the_team_cannot_add(people, ready, other, name, error):
    with pytest.raises(error):
        custom_mesh.add(ready.plan, getattr(people, name), Candidate(other))


TYPED = "replica=1 data=4, seq=2 model=2 dcn.data=1"


def test_the_page_prices_while_one_types_and_adds(people, ready, other):
    client, place = people.client("engineer"), f"/plans/{ready.plan.pk}/own/"
    assert "Current configuration" in client.get(place).content.decode()
    part = client.get(place, {"config": TYPED}, headers={"HX-Request": "true"}).content.decode()
    assert "<html" not in part and "Legal" in part
    part = client.get(place, {"config": "data=4"}, headers={"HX-Request": "true"}).content.decode()
    assert "but the topology has 16 chips per slice" in part and "disabled" in part
    for odd in ("data", "=4", "x.y=3", "data=", "data=-1", "data=²", "remat=often", "\0", "a=b=c"):
        part = client.get(place, {"config": odd}, headers={"HX-Request": "true"}).content.decode()
        assert "callout--err" in part, odd
    assert Proposal.objects.count() == 3
    refused = client.post(place + "add/", {"config": "data=4"})
    assert refused.status_code == 422 and "Not added" in refused.content.decode()
    answer = client.post(place + "add/", {"config": TYPED})
    made = Proposal.objects.get(rank=4)
    assert answer.status_code == 302 and answer["Location"] == made.get_absolute_url()
    page = client.get(answer["Location"]).content.decode()
    assert "Your own" in page and "added by engineer" in page
    again = client.post(place + "add/", {"config": TYPED})  # as the second of two clicks does
    assert again["Location"] == answer["Location"] and Proposal.objects.count() == 4
    assert "This is already proposal 4." in client.get(again["Location"]).content.decode()


def test_the_page_opens_at_a_proposal(people, ready):
    client, place = people.client("viewer"), f"/plans/{ready.plan.pk}/own/"
    proposal = ready.plan.proposals.get(rank=3)
    assert custom_form.written(proposal.value) in client.get(f"{place}?proposal={proposal.pk}").content.decode()
    assert client.get(f"{place}?proposal=9999999").status_code == 404


def test_what_is_typed_is_what_is_written(other):
    given = Candidate(other, {"remat": "minimal", "global_batch": 16, "xla_flags": ["--xla_a=1", "--xla_b=x=y"]})
    assert custom_form.read(custom_form.written(given), {}) == given
    assert custom_form.read("remat=full", other) == Candidate(other, {"remat": "full"})


def test_memory_that_only_the_profile_knows_is_shown_in_bytes(people):
    ran = replace(step_profile(3), memory=Memory(peak_bytes=636_000_000.0, capacity_bytes=288e9))
    shown = make_ready(people, profile=ran)
    address = f"/experiments/{shown.experiment.pk}/proposals/"
    page = unescape(people.client("viewer").get(address).content.decode())
    assert "636\N{NO-BREAK SPACE}MB" in page and "0.221\N{NO-BREAK SPACE}%" not in page
    profile = shown.run.profile
    del profile.summary["memory_peak_bytes"]  # as an earlier version stored it
    profile.save()
    assert "636\N{NO-BREAK SPACE}MB" in unescape(people.client("viewer").get(address).content.decode())
