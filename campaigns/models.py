"""Tuning campaigns and their trials: the pool that every iteration starts from."""

from __future__ import annotations

from datetime import datetime
from math import inf
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import BaseValidator, MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q
from django.urls import reverse
from django.utils.functional import cached_property

from experiments.fields import OrderedJSONField
from jobs.models import Job
from launches.models import ArmRun
from launches.services.choices import MOST_STEPS, TOOLS
from perfmodel.config import shown_sizes

#: Of a trial on the cluster, warm-up among them.
LEAST_STEPS = 10


def between(least: int, most: int) -> list[BaseValidator]:
    return [MinValueValidator(least), MaxValueValidator(most)]


def positive(value: float) -> None:
    if not 0.0 < value < inf:
        raise ValidationError("Give a positive number, or leave it out.")


class CampaignStatus(models.TextChoices):
    RUNNING = "running", "Running"
    PAUSED = "paused", "Paused"
    DONE = "done", "Done"
    CANCELLED = "cancelled", "Cancelled"
    FAILED = "failed", "Failed"


class Campaign(Job):
    """A search for the fastest configuration of an experiment, trial by trial.

    status: running ⇄ paused, then done, cancelled or failed; a campaign that has ended goes on where a failed trial is
    tried again.  config: the experiment's when it began; constraints: what its trials keep to.  tool, steps, server:
    of trials on the cluster, as of a launch.  considered, held_back: of the space.  analysis: the newest bottleneck
    analysis.  tokens, cost_usd: what the language model took so far.  advice: what it asked for and is not planned yet.
    What has a label is declared once for the form of the page, the REST API and `services.campaigns.begin`.
    """

    class Backend(models.TextChoices):
        LOCAL = "local", "Devices of this machine"
        CLUSTER = "cluster", "The team's cluster"
        COMPILED = "compiled", "Compile check (predicted step time, compiled memory)"
        MODELLED = "modelled", "Performance model (runs nothing)"

    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE, related_name="+")
    experiment = models.ForeignKey("experiments.Experiment", on_delete=models.CASCADE, related_name="campaigns")
    status = models.CharField(max_length=20, choices=CampaignStatus, default=CampaignStatus.RUNNING)
    reason = models.TextField(blank=True)
    backend = models.CharField("Run trials on", max_length=20, choices=Backend, default=Backend.MODELLED)
    config = OrderedJSONField()
    constraints = OrderedJSONField(default=dict, blank=True)
    most_trials = models.PositiveIntegerField("Maximum trials", default=20, validators=between(1, 20_000))
    parallel = models.PositiveSmallIntegerField("Trials in parallel", default=1, validators=between(1, 64))
    most_s = models.FloatField("Time limit (s)", null=True, blank=True, validators=[positive])
    most_dollars = models.FloatField("Cost limit ($)", null=True, blank=True, validators=[positive])
    dollars_per_chip_hour = models.FloatField("Price per chip-hour ($)", null=True, blank=True, validators=[positive])
    expert_step_time_s = models.FloatField(
        "Best hand-tuned step time (s)", null=True, blank=True, validators=[positive],
        help_text="Shown in the plot as a reference line.",
    )  # fmt: skip
    most_tokens = models.PositiveIntegerField(
        "Token limit", default=500_000, validators=between(1, 100_000_000),
        help_text="Of the language model, input plus output, where it chooses trials.",
    )  # fmt: skip
    tool = models.CharField(
        "Training program", max_length=20, blank=True, choices=TOOLS, default="maxtext",
        help_text="Used only on the team's cluster, set under Settings, Launching.",
    )  # fmt: skip
    steps = models.PositiveIntegerField(
        "Steps per trial", null=True, blank=True, default=30, validators=between(LEAST_STEPS, MOST_STEPS),
        help_text="Used only on the team's cluster.",
    )  # fmt: skip
    to_budget = models.BooleanField("Use the whole budget, even after convergence", default=False)
    use_language_model = models.BooleanField("Let the language model choose trials", default=False)
    server = models.CharField(max_length=300, blank=True)
    considered = models.PositiveIntegerField(default=0)
    held_back = OrderedJSONField(default=dict, blank=True)
    analysis = OrderedJSONField(default=dict, blank=True)
    tokens = models.PositiveBigIntegerField(default=0)
    cost_usd = models.FloatField(null=True, blank=True)
    advice = models.JSONField(null=True, blank=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-pk"]
        indexes = [
            models.Index(fields=["status"], name="campaign_open", condition=Q(status="running")),
            models.Index(fields=["team", "-id"], name="campaign_newest"),
        ]

    def get_absolute_url(self) -> str:
        return reverse("campaign", args=[self.pk])

    @property
    def open(self) -> bool:
        return self.status in (CampaignStatus.RUNNING, CampaignStatus.PAUSED)

    @property
    def on_other_devices(self) -> bool:
        """Whether steps run on whatever devices are there, not on the configured chips: `asap trial` does."""
        return self.backend == self.Backend.LOCAL or (self.backend == self.Backend.CLUSTER and self.tool == "trial")


class TrialStatus(models.TextChoices):
    WAITING = "waiting", "Waiting"
    RUNNING = "running", "Running"
    LAUNCHED = "launched", "On the cluster"
    PAUSED = "paused", "Paused"
    DONE = "done", "Ran"
    FAILED = "failed", "Failed"
    CANCELLED = "cancelled", "Cancelled"


class Trial(Job):
    """One configuration of a campaign, tried once or, where its failure was not its own, again.

    number: 0 is the current configuration.  key: the same for the same configuration (`engine.space.key_of`), once per
    campaign.  mesh, training: of its configuration.  predicted_*: when it was chosen; gain: expected improvement as a
    share; why: spans of the sentence; chosen_by: whose choice it was.  failure: `Failure.to_json`.  runs: how often it
    ran, ran_s: seconds of all of these together.  started_at, finished_at: of the newest.  launch: of the newest run on
    the cluster; no worker holds the trial while it is there.
    """

    class Author(models.TextChoices):
        BUILT_IN = "built-in", "Built-in acquisition"
        MODEL = "model", "Language model"

    campaign = models.ForeignKey(Campaign, on_delete=models.CASCADE, related_name="trials")
    number = models.PositiveIntegerField()
    key = models.CharField(max_length=32)
    mesh = OrderedJSONField()
    training = OrderedJSONField()
    status = models.CharField(max_length=20, choices=TrialStatus, default=TrialStatus.WAITING)
    why = models.JSONField(default=str, blank=True)
    chosen_by = models.CharField(max_length=20, choices=Author, default=Author.BUILT_IN)
    predicted_step_time_s = models.FloatField(null=True)
    predicted_low_s = models.FloatField(null=True)
    predicted_high_s = models.FloatField(null=True)
    gain = models.FloatField(null=True)
    faster = models.FloatField(null=True)
    runs_probability = models.FloatField(null=True)
    step_time_s = models.FloatField(null=True)
    step_times_s = models.JSONField(default=list, blank=True)
    peak_bytes = models.FloatField(null=True)
    mfu = models.FloatField(null=True)
    duty_cycle = models.FloatField(null=True)
    modelled = models.BooleanField(default=False)
    failure = OrderedJSONField(null=True, blank=True)
    runs = models.PositiveSmallIntegerField(default=0)
    ran_s = models.FloatField(default=0.0)
    launch = models.OneToOneField(
        "launches.Launch", on_delete=models.SET_NULL, related_name="trial", null=True, blank=True
    )
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["number"]
        constraints = [
            models.UniqueConstraint(fields=["campaign", "key"], name="one_trial_per_configuration"),
            models.UniqueConstraint(fields=["campaign", "number"], name="one_trial_per_number"),
        ]
        indexes = [
            models.Index(
                fields=["status"], name="trial_open", condition=Q(status__in=["waiting", "running", "launched"])
            ),
        ]

    @property
    def state(self) -> str:
        """Its status in words; of the performance model's trials nothing ran."""
        return "Predicted" if self.modelled and self.status == TrialStatus.DONE else self.get_status_display()

    def parameter(self, name: str) -> Any:
        """Its value in this trial; of an axis that the mesh does not have, 1."""
        return self.parameters.get(name, None if name in self.training else 1)

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """Sizes of the axes, then the training, as a table shows them."""
        return {**shown_sizes(self.mesh), **{k: v for k, v in self.training.items() if v not in (None, [])}}

    def running_s(self, now: datetime) -> float:
        """Seconds that its newest run has taken so far; 0 where none runs, or its job has not been seen to."""
        begun = end = None
        if self.status == TrialStatus.RUNNING:
            begun, end = self.started_at, now
        elif self.status == TrialStatus.LAUNCHED and (run := self.cluster_run) is not None:
            begun, end = run.began_at, run.reported_at or run.ended_at or now
        return max(0.0, (end - begun).total_seconds()) if begun and end else 0.0

    @property
    def cluster_run(self) -> ArmRun | None:
        """How its newest run on the cluster is doing."""
        return next(iter(self.launch.runs.all()), None) if self.launch is not None else None
