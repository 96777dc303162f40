from __future__ import annotations

import pytest
from django.core.exceptions import PermissionDenied
from django.db import connection
from django.http import Http404

from experiments.models import Event
from proposals.models import Decision, Proposal, Review
from proposals.services import plans, reviews
from tests.backend.factories import make_people, make_ready, plan
from tests.backend.threads import in_threads


def test_a_reviewer_approves_with_a_comment_and_it_is_listed(people, ready):
    proposal = ready.plan.proposals.get(rank=1)
    review = reviews.decide(proposal, people.reviewer, "approved", "  Try it on one pod first.\n")
    assert (review.author, review.comment) == (people.reviewer, "Try it on one pod first.")
    proposal.refresh_from_db()
    assert proposal.status == Proposal.Status.APPROVED
    event = Event.objects.get(kind="review")
    assert (event.user, event.data["decision"]) == (people.reviewer, "approved")
    listed = people.api("viewer").get("/api/proposals/", {"status": "approved"}).json()["results"]
    assert [row["id"] for row in listed] == [proposal.pk]


def test_the_experiment_shows_where_its_review_stands(people, ready):
    def shown():
        ready.experiment.refresh_from_db()
        return ready.experiment.review

    assert shown() == "open"
    first, second, third = ready.plan.proposals.order_by("rank")
    reviews.decide(first, people.reviewer, "rejected")
    reviews.decide(second, people.reviewer, "rejected")
    assert shown() == "open"
    reviews.decide(third, people.reviewer, "rejected")
    assert shown() == "rejected"
    again = plans.store(ready.run, plan())
    assert shown() == "open"
    reviews.decide(again.proposals.get(rank=2), people.reviewer, "approved")
    assert shown() == "approved"
    reviews.decide(again.proposals.get(rank=1), people.reviewer, "rejected")
    plans.store(ready.run, plan())
    assert shown() == "approved"


@pytest.mark.parametrize("name", ["engineer", "viewer"])
def test_below_reviewer_nobody_decides(people, ready, name):
    with pytest.raises(PermissionDenied, match="role of a reviewer"):
        reviews.decide(ready.plan.proposals.first(), getattr(people, name), "approved")
    assert Review.objects.count() == 0


@pytest.mark.parametrize("name", ["outsider", "teamless"])
def test_for_an_outsider_the_proposal_does_not_exist(people, ready, name):
    with pytest.raises(Http404):
        reviews.decide(ready.plan.proposals.first(), getattr(people, name), "approved")


def test_a_decision_stands(people, ready):
    proposal = ready.plan.proposals.first()
    reviews.decide(proposal, people.reviewer, "rejected", "Too much memory.")
    with pytest.raises(reviews.AlreadyDecided, match="reviewer already rejected this proposal on 20"):
        reviews.decide(proposal, people.second_reviewer, "approved")
    assert Review.objects.get().decision == Decision.REJECTED


@pytest.mark.parametrize("decision", ["", "maybe", "proposed"])
def test_a_decision_is_to_approve_or_to_reject(people, ready, decision):
    with pytest.raises(reviews.ReviewError, match="Approve or reject"):
        reviews.decide(ready.plan.proposals.first(), people.reviewer, decision)


@pytest.mark.django_db(transaction=True)
def test_of_two_who_decide_at_once_one_wins_and_the_other_is_told_who():
    people = make_people()
    for round_number in range(5):
        ready = make_ready(people, str(round_number))
        proposal = ready.plan.proposals.get(rank=1)
        deciders = [(people.reviewer, "approved"), (people.second_reviewer, "rejected")]

        def decide(index, proposal=proposal, deciders=deciders):
            user, decision = deciders[index]
            return reviews.decide(Proposal.objects.get(pk=proposal.pk), user, decision, "mine")

        results = in_threads(2, decide)
        won = [r for r in results if isinstance(r, Review)]
        lost = [r for r in results if isinstance(r, reviews.AlreadyDecided)]
        assert (len(won), len(lost)) == (1, 1)
        proposal.refresh_from_db()
        assert proposal.status == won[0].decision
        assert won[0].author.username in str(lost[0])
        assert Event.objects.filter(kind="review", experiment=ready.experiment).count() == 1
    connection.close()
