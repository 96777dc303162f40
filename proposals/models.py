"""What to change: stored proposals, and the reviews that decide on them."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from experiments.fields import OrderedJSONField


class PlanRecord(models.Model):
    """`proposals.plan.Plan` of one run: baseline, rejected candidates, counts; its proposals are rows."""

    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE, related_name="+")
    run = models.ForeignKey("experiments.Run", on_delete=models.CASCADE, related_name="plans")
    data = OrderedJSONField()  # Plan without the proposals
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-pk"]


class Decision(models.TextChoices):
    APPROVED = "approved", "Approved"
    REJECTED = "rejected", "Rejected"


class Proposal(models.Model):
    """One `proposals.plan.ProposalPlan`.  status moves once: proposed → approved or rejected, by compare-and-set."""

    class Status(models.TextChoices):
        PROPOSED = "proposed", "Needs review"
        APPROVED = "approved", "Approved"
        REJECTED = "rejected", "Rejected"

    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE, related_name="+")
    experiment = models.ForeignKey("experiments.Experiment", on_delete=models.CASCADE, related_name="proposals")
    plan = models.ForeignKey(PlanRecord, on_delete=models.CASCADE, related_name="proposals")
    rank = models.PositiveSmallIntegerField()
    kind = models.CharField(max_length=20)
    title = models.CharField(max_length=200)
    status = models.CharField(max_length=20, choices=Status, default=Status.PROPOSED)
    predicted_step_time_s = models.FloatField(null=True)
    predicted_speedup = models.FloatField(null=True)
    confidence = models.FloatField()
    data = OrderedJSONField()  # the whole ProposalPlan
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-plan_id", "rank"]
        constraints = [models.UniqueConstraint(fields=["plan", "rank"], name="one_proposal_per_plan_and_rank")]


class Review(models.Model):
    """The decision on a proposal: who, when, what, and why.  One per proposal; kept for good."""

    proposal = models.OneToOneField(Proposal, on_delete=models.CASCADE, related_name="review")
    decision = models.CharField(max_length=20, choices=Decision)
    comment = models.TextField(blank=True)
    author = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-pk"]
