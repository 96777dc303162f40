"""What to change: stored proposals, the reviews that decide on them, and what was measured of them afterwards."""

from __future__ import annotations

from functools import cached_property
from math import exp
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.urls import reverse

from experiments.fields import OrderedJSONField
from jobs.models import Job
from proposals.candidate import changes_chips
from proposals.compiling.result import CHECK, CompileCheck
from proposals.constraints import Constraints
from proposals.failures.stored import FAILURE, StoredFailure
from proposals.plan import PLAN, PROPOSAL, Plan, ProposalPlan

#: What a failure (`history.record.FAILURES`) is called.
FAILURE_WORDS = {
    "out_of_memory": "Out of memory",
    "does_not_compile": "Does not compile",
    "illegal_mesh": "Invalid mesh",
    "numerics": "Numerics (loss NaN or diverged)",
    "hang": "Hangs",
    "other": "Other",
}


class PlanRecord(models.Model):
    """`proposals.plan.Plan` of one run: baseline, rejected candidates, counts; its proposals are rows.

    A run has one plan from the Coordinator, and one more each time somebody asked again with other constraints.
    """

    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE, related_name="+")
    run = models.ForeignKey("experiments.Run", on_delete=models.CASCADE, related_name="plans")
    data = OrderedJSONField()  # what `PLAN` writes, without the proposals
    config = OrderedJSONField(null=True, blank=True)  # the experiment's configuration as it was then
    constraints = OrderedJSONField(default=dict, blank=True)  # `proposals.constraints.Constraints`; empty: none
    precedents = models.JSONField(default=list, blank=True)  # keys of the history records that bore on it
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-pk"]
        indexes = [models.Index(fields=["team", "-id"], name="plan_newest")]

    @cached_property
    def value(self) -> Plan:
        """The plan as it was made, without its proposals: these are rows, to which users add."""
        return PLAN.read({**self.data, "proposals": ()})

    @property
    def asked(self) -> Constraints:
        """What its proposals keep to.  Raises ConfigError where a stored constraint is none any more."""
        return Constraints.from_json(self.constraints or {})

    @property
    def priced_with(self) -> dict[str, Any]:
        """The configuration that its proposals were priced with, whatever was saved since; of plans that were stored
        without one, the experiment's."""
        return self.config or self.run.experiment.config or {}


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
    data = OrderedJSONField()  # what `PROPOSAL` writes
    mesh_key = models.TextField()  # `config.placement_text` of the mesh in `data`, to look proposals up by
    added_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-plan_id", "rank"]
        constraints = [models.UniqueConstraint(fields=["plan", "rank"], name="one_proposal_per_plan_and_rank")]
        indexes = [
            models.Index(fields=["team", "status", "-id"], name="proposal_by_status"),
            models.Index(fields=["team", "-plan", "rank"], include=["id"], name="proposal_newest"),
            models.Index(fields=["team", "status", "mesh_key"], name="proposal_by_mesh"),
        ]

    def get_absolute_url(self) -> str:
        """Its card, in its own plan."""
        return f"{reverse('proposals', args=[self.experiment_id])}?plan={self.plan_id}#proposal-{self.rank}"

    @cached_property
    def value(self) -> ProposalPlan:
        """The proposal as it was made, or as the checks left it."""
        return PROPOSAL.read(self.data)

    @property
    def per(self) -> str:
        """What speed-up and confidence are about: on fewer chips a step takes longer, whatever each of them does."""
        return "per token and chip" if changes_chips(self.data.get("changes") or ()) else "per token"

    @property
    def rank_text(self) -> str:
        return str(self.rank)


class Review(models.Model):
    """The decision on a proposal: who, when, what, and why.  One per proposal; kept for good."""

    proposal = models.OneToOneField(Proposal, on_delete=models.CASCADE, related_name="review")
    decision = models.CharField(max_length=20, choices=Decision)
    comment = models.TextField(blank=True)
    author = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-pk"]


class PlanRequest(Job):
    """Somebody asks for proposals again, of the same run, with constraints; a worker makes the plan.

    status moves one way by compare-and-set: queued → working → done or failed; another worker takes over a dead one's.
    """

    class Status(models.TextChoices):
        QUEUED = "queued", "Queued"
        WORKING = "working", "Proposing"
        DONE = "done", "Done"
        FAILED = "failed", "Failed"

    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE, related_name="+")
    run = models.ForeignKey("experiments.Run", on_delete=models.CASCADE, related_name="plan_requests")
    constraints = OrderedJSONField(default=dict, blank=True)
    status = models.CharField(max_length=20, choices=Status, default=Status.QUEUED)
    reason = models.TextField(blank=True)  # one sentence with the next step, where it failed
    plan = models.ForeignKey(PlanRecord, on_delete=models.SET_NULL, null=True, blank=True, related_name="requests")
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-pk"]
        indexes = [
            models.Index(fields=["status"], name="plan_request_open", condition=Q(status__in=["queued", "working"])),
        ]

    @property
    def asked(self) -> Constraints:
        """Raises ConfigError where a stored constraint is none any more."""
        return Constraints.from_json(self.constraints or {})


class Consultation(Job):
    """A run in the hands of the language model, after the built-in analysis is there: report, then proposals.

    status moves one way by compare-and-set: queued → working → done, failed or cancelled; another worker takes over a
    dead one's, and continues unfinished work.  model: who was asked.  report, proposals: what each agent came
    to, with source (`model` or `fallback`), model, struck and sentence (why the built-in text stands); of the
    report its sections, of the proposals the lines of each, every line with the Events behind it.  plan: with the
    model's proposals, None if the built-in ones are used.  note: a sentence where it failed or was cancelled.
    created_by: who asked; empty where the Coordinator did.
    """

    class Status(models.TextChoices):
        QUEUED = "queued", "Waiting"
        WORKING = "working", "Reading"
        DONE = "done", "Done"
        FAILED = "failed", "Failed"
        CANCELLED = "cancelled", "Cancelled"

    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE, related_name="+")
    run = models.ForeignKey("experiments.Run", on_delete=models.CASCADE, related_name="consultations")
    status = models.CharField(max_length=20, choices=Status, default=Status.QUEUED)
    model = models.CharField(max_length=120, blank=True)
    report = OrderedJSONField(default=dict, blank=True)
    proposals = OrderedJSONField(default=dict, blank=True)
    plan = models.ForeignKey(PlanRecord, on_delete=models.SET_NULL, null=True, blank=True, related_name="consultations")
    note = models.TextField(blank=True)
    tokens = models.PositiveIntegerField(null=True, blank=True)
    cost_usd = models.FloatField(null=True, blank=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["run"], condition=Q(status__in=["queued", "working"]), name="one_open_consultation_per_run"
            )
        ]
        indexes = [
            models.Index(fields=["status"], name="consultation_open", condition=Q(status__in=["queued", "working"])),
        ]

    @property
    def is_open(self) -> bool:
        return self.status in (Consultation.Status.QUEUED, Consultation.Status.WORKING)


class Compilation(Job):
    """The compile check of a plan's baseline or of one of its proposals (`proposals.compiling`).

    proposal: None for the baseline.  status moves one way by compare-and-set: queued → working → done, failed or
    cancelled; another worker takes over a dead one's.  stage: what the compiler is doing.  result: what `CHECK` writes.
    note: a sentence where it failed.  created_by: empty where it was queued with the plan.
    """

    class Status(models.TextChoices):
        QUEUED = "queued", "Waiting"
        WORKING = "working", "Compiling"
        DONE = "done", "Done"
        FAILED = "failed", "Failed"
        CANCELLED = "cancelled", "Cancelled"

    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE, related_name="+")
    plan = models.ForeignKey(PlanRecord, on_delete=models.CASCADE, related_name="compilations")
    proposal = models.ForeignKey(Proposal, on_delete=models.CASCADE, null=True, blank=True, related_name="compilations")
    status = models.CharField(max_length=20, choices=Status, default=Status.QUEUED)
    stage = models.CharField(max_length=40, blank=True)
    result = OrderedJSONField(default=dict, blank=True)
    note = models.TextField(blank=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["plan", "proposal"],
                condition=Q(status__in=["queued", "working"]),
                nulls_distinct=False,
                name="one_open_compilation_per_proposal",
            )
        ]
        indexes = [
            models.Index(fields=["status"], name="compilation_open", condition=Q(status__in=["queued", "working"])),
        ]

    @property
    def is_open(self) -> bool:
        return self.status in (Compilation.Status.QUEUED, Compilation.Status.WORKING)

    @property
    def value(self) -> CompileCheck | None:
        """What the compiler said; None until then."""
        return CHECK.read(self.result) if self.status == Compilation.Status.DONE else None


class Measurement(models.Model):
    """What became of an approved proposal: its prediction beside what its run measured.  One per proposal.

    status moves by compare-and-set with its Event: linked (the run's profile is there, its analysis is not done) →
    measured, or refused (the two runs do not compare; another may be linked); failed: the run did not work.
    """

    class Status(models.TextChoices):
        LINKED = "linked", "Being analysed"
        MEASURED = "measured", "Measured"
        REFUSED = "refused", "Not comparable"
        FAILED = "failed", "Failed"

    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE, related_name="+")
    proposal = models.OneToOneField(Proposal, on_delete=models.CASCADE, related_name="measurement")
    status = models.CharField(max_length=20, choices=Status, default=Status.LINKED)
    experiment = models.ForeignKey(
        "experiments.Experiment", on_delete=models.SET_NULL, null=True, blank=True, related_name="measures"
    )
    run = models.ForeignKey("experiments.Run", on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    outcome = models.CharField(max_length=20, blank=True)  # `history.record.OUTCOMES`
    failure = models.CharField(max_length=30, blank=True)  # `history.record.FAILURES`
    comment = models.TextField(blank=True)
    analysis = OrderedJSONField(default=dict, blank=True)  # `proposals.failures.Failure.to_json` of its log
    control = OrderedJSONField(default=dict, blank=True)  # what `proposals.control_arm.VERDICT` writes of its wave
    reason = models.TextField(blank=True)  # why it was refused, a sentence
    predicted_log_gain = models.FloatField(null=True)  # of time per token
    predicted_sigma = models.FloatField(null=True)  # of the same
    predicted_confidence = models.FloatField(null=True)
    before_step_time_s = models.FloatField(null=True)
    after_step_time_s = models.FloatField(null=True)
    speedup = models.FloatField(null=True)  # measured, per token
    within_range = models.BooleanField(null=True)  # of the predicted 80 %
    caveats = models.JSONField(default=list, blank=True)
    record = models.CharField(max_length=100, blank=True)  # key of the history record it became
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    measured_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-pk"]
        indexes = [models.Index(fields=["team", "status"], name="measurement_by_status")]

    @property
    def told(self) -> StoredFailure:
        """What the log was read as."""
        return FAILURE.read(self.analysis)

    @property
    def failure_words(self) -> str:
        return FAILURE_WORDS.get(self.failure, self.failure.replace("_", " ").capitalize())

    @property
    def predicted_speedup(self) -> float | None:
        return None if self.predicted_log_gain is None else exp(self.predicted_log_gain)

    @property
    def error(self) -> float | None:
        """Measured over predicted speed-up, less one: above zero it went better than was said."""
        if self.speedup is None or self.predicted_log_gain is None:
            return None
        return self.speedup / exp(self.predicted_log_gain) - 1.0
