"""The decision on a proposal: once, by a reviewer, with a comment."""

from __future__ import annotations

from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import Http404

from accounts.models import Role, User
from accounts.permissions import membership_in, refusal
from accounts.refusals import Refused
from audit import trail
from audit.models import Action
from experiments.models import Experiment, ReviewState
from experiments.services import events
from formatting.text import clean
from proposals.models import Decision, Proposal, Review

MAX_COMMENT = 10_000


class ReviewError(Refused):
    """The decision cannot be taken."""

    status = 400


class AlreadyDecided(ReviewError):
    """Somebody was first; `review` is their decision."""

    status = 409

    def __init__(self, review: Review) -> None:
        self.review = review
        who = review.author.get_username() if review.author is not None else "A former user"
        when = review.created_at.strftime("%Y-%m-%d %H:%M UTC")
        super().__init__(f"{who} already {review.get_decision_display().lower()} this proposal on {when}.")


def decide(proposal: Proposal, user: User, decision: Decision | str, comment: str = "") -> Review:
    """Approve or reject the proposal, once, with its Event.

    Of two users who decide at the same moment one wins and the other gets AlreadyDecided with the winner's name.
    Raises Http404 for outsiders, PermissionDenied below reviewer, ReviewError for a decision or comment that is none.
    """
    membership = membership_in(user, proposal.team_id)
    if membership is None:
        raise Http404
    if not membership.may(Role.REVIEWER):
        raise PermissionDenied(refusal(Role.REVIEWER))
    try:
        chosen = Decision(decision)
    except ValueError:
        raise ReviewError("Approve or reject the proposal.") from None
    comment = clean(comment.strip())
    if len(comment) > MAX_COMMENT:
        raise ReviewError(f"A comment has at most {MAX_COMMENT:,} characters.")
    with transaction.atomic():
        events.lock(proposal.experiment_id)
        won = Proposal.objects.filter(pk=proposal.pk, status=Proposal.Status.PROPOSED).update(status=chosen.value)
        if not won:
            first = Review.objects.select_related("author").filter(proposal=proposal).first()
            if first is None:  # deleted with its proposal, or status and review disagree
                raise ReviewError("This proposal no longer exists; reload the page.")
            raise AlreadyDecided(first)
        _show_on_experiment(proposal, chosen)
        review = Review.objects.create(proposal=proposal, decision=chosen, comment=comment, author=user)
        events.append(
            proposal.experiment_id,
            "review",
            "user",
            run=proposal.plan.run,
            user=user,
            data={
                "proposal": proposal.pk,
                "rank": proposal.rank,
                "title": proposal.title,
                "decision": str(chosen),
                "comment": comment,
            },
        )
        trail.record(
            Action.PROPOSAL_APPROVED if chosen == Decision.APPROVED else Action.PROPOSAL_REJECTED,
            membership.team, user, about=proposal.pk, name=proposal.title, rank=proposal.rank, comment=comment,
            experiment=proposal.experiment_id, experiment_name=proposal.experiment.name,
        )  # fmt: skip
    proposal.status = chosen.value
    return review


def _show_on_experiment(proposal: Proposal, chosen: Decision) -> None:
    """Repeat on the experiment where its review stands; the caller holds its lock."""
    experiment = Experiment.objects.filter(pk=proposal.experiment_id)
    if chosen == Decision.APPROVED:
        experiment.update(review=ReviewState.APPROVED)
        return
    newest = Proposal.objects.filter(experiment_id=proposal.experiment_id).order_by("-plan_id").values("plan_id")[:1]
    if not Proposal.objects.filter(plan_id__in=newest, status=Proposal.Status.PROPOSED).exists():
        experiment.exclude(review=ReviewState.APPROVED).update(review=ReviewState.REJECTED)
