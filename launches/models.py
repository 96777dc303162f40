"""Runs on a cluster and what they reported: a wave of an approved proposal and its baseline, or one configuration."""

from __future__ import annotations

from statistics import median
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.urls import reverse

from experiments.fields import OrderedJSONField
from jobs.models import Job
from proposals.control_arm import VERDICT, Verdict, warm_up
from proposals.failures.stored import FAILURE, StoredFailure


class LaunchSettings(models.Model):
    """Where a team's launches run.  backend: key of `launches.backends`.  values: what that backend asks of a team, and
    what every bundle needs (`launches.services.choices.TeamValues`)."""

    team = models.OneToOneField("accounts.Team", on_delete=models.CASCADE, related_name="launch_settings")
    backend = models.CharField(max_length=60, default="manual")
    values = OrderedJSONField(default=dict, blank=True)


class Launch(models.Model):
    """One wave: every repeat of the proposal arm and of the control arm, which is the baseline run again.

    Without a proposal it is one run of `config`, the trial arm: nothing is compared, and whoever launched it takes what
    was reported (`campaigns.services.launched`).

    tool: the launch tool (`launches.services.bundles.TOOLS`).  backend, values: of the team's settings as they were
    then.  server: the address under which the cluster reaches us.  verdict: `proposals.control_arm.Verdict`, once every
    run has ended.  note: why the measurement of the proposal could not be made from it, a sentence.
    """

    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE, related_name="+")
    experiment = models.ForeignKey("experiments.Experiment", on_delete=models.CASCADE, related_name="+")
    proposal = models.ForeignKey(
        "proposals.Proposal", on_delete=models.CASCADE, related_name="launches", null=True, blank=True
    )
    config = OrderedJSONField(null=True, blank=True)
    tool = models.CharField(max_length=20)
    backend = models.CharField(max_length=60)
    values = OrderedJSONField(default=dict, blank=True)
    server = models.CharField(max_length=300)
    repeats = models.PositiveSmallIntegerField()
    steps = models.PositiveIntegerField()
    verdict = OrderedJSONField(null=True, blank=True)
    note = models.TextField(blank=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    closed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-pk"]
        indexes = [models.Index(fields=["team", "-id"], name="launch_newest")]
        constraints = [
            models.UniqueConstraint(
                fields=["proposal"], condition=Q(closed_at=None), name="one_open_launch_per_proposal"
            ),
            models.CheckConstraint(
                condition=Q(proposal__isnull=True, config__isnull=False)
                | Q(proposal__isnull=False, config__isnull=True),
                name="launch_of_proposal_or_configuration",
            ),
        ]

    def get_absolute_url(self) -> str:
        if self.proposal_id is None:
            return reverse("experiment", args=[self.experiment_id])
        return f"{reverse('launches', args=[self.proposal_id])}#launch-{self.pk}"

    @property
    def scope(self) -> str:
        """What a token may do that reports to this launch and to nothing else."""
        return f"launch:{self.pk}"

    @property
    def judged(self) -> Verdict | None:
        return VERDICT.read(self.verdict) if self.verdict else None

    @property
    def is_open(self) -> bool:
        return self.closed_at is None


class ArmRun(Job):
    """One repeat of one arm.

    status moves one way by compare-and-set: queued → submitted → running → collecting (everything reported, being read)
    → reported or failed; cancelled from any state before collecting.  `queued` and `collecting` are held by workers.
    job: its name at the backend.  released: nothing of it is left at the backend; until then heartbeat_at of a run that
    has ended says when cancelling its job last failed.  reports: what each rank reported, by rank.  analysis:
    `proposals.failures.Failure.to_json` of its logs.  experiment: made of its profile or step time.
    """

    class Arm(models.TextChoices):
        PROPOSAL = "proposal", "Proposal"
        CONTROL = "control", "Control"
        TRIAL = "trial", "Trial"

    class Status(models.TextChoices):
        QUEUED = "queued", "Queued"
        SUBMITTED = "submitted", "Submitted"
        RUNNING = "running", "Running"
        COLLECTING = "collecting", "Reading its report"
        REPORTED = "reported", "Reported"
        FAILED = "failed", "Failed"
        CANCELLED = "cancelled", "Cancelled"

    launch = models.ForeignKey(Launch, on_delete=models.CASCADE, related_name="runs")
    arm = models.CharField(max_length=10, choices=Arm)
    repeat = models.PositiveSmallIntegerField()
    status = models.CharField(max_length=12, choices=Status, default=Status.QUEUED)
    job = models.CharField(max_length=200, blank=True)
    released = models.BooleanField(default=False)
    reason = models.TextField(blank=True)  # a sentence, where it failed or waits
    reports = OrderedJSONField(default=dict, blank=True)
    analysis = OrderedJSONField(default=dict, blank=True)
    experiment = models.ForeignKey(
        "experiments.Experiment", on_delete=models.SET_NULL, null=True, blank=True, related_name="arm_runs"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    submitted_at = models.DateTimeField(null=True, blank=True)
    began_at = models.DateTimeField(null=True, blank=True)  # when its job was first seen to run
    reported_at = models.DateTimeField(null=True, blank=True)  # when the first rank had reported
    ended_at = models.DateTimeField(null=True, blank=True)  # when its job was first seen to have ended

    class Meta:
        ordering = ["launch_id", "repeat", "-arm"]
        constraints = [models.UniqueConstraint(fields=["launch", "arm", "repeat"], name="one_run_per_arm_and_repeat")]
        indexes = [
            models.Index(
                fields=["status"],
                name="arm_run_open",
                condition=Q(status__in=["queued", "submitted", "running", "collecting"]) | Q(released=False),
            )
        ]

    @property
    def name(self) -> str:
        """Unique at the backend, so that a job is never submitted twice; letters, digits and hyphens."""
        return f"asap-{self.launch_id}-{self.arm}-{self.repeat}"

    @property
    def job_shown(self) -> str:
        """As whoever looks for it there knows it; commands keep our name before theirs."""
        return self.job.rpartition(" ")[2] or self.name

    @property
    def records_profile(self) -> bool:
        """The first repeat of each arm that is compared does; the others are timed undisturbed."""
        return self.repeat == 1 and self.arm != self.Arm.TRIAL

    @property
    def report(self) -> dict[str, Any]:
        """What the lowest rank with step times reported, else the lowest rank; empty before any report."""
        ordered = [self.reports[key] for key in sorted(self.reports, key=int)]
        return next((item for item in ordered if item.get("step_times_s")), ordered[0] if ordered else {})

    @property
    def failure(self) -> str:
        """The first failure that any rank reported; empty where none did."""
        said = (self.reports[key].get("failure") for key in sorted(self.reports, key=int))
        return next((text for text in said if text), "")

    @property
    def peak_memory_bytes(self) -> int | None:
        """Of the device that held most, over all ranks."""
        peaks = [item["peak_memory_bytes"] for item in self.reports.values() if item.get("peak_memory_bytes")]
        return max(peaks, default=None)

    @property
    def measured_steps_s(self) -> list[float]:
        """Step times after warm-up; empty where none were reported."""
        times: list[float] = self.report.get("step_times_s") or []
        first = self.report.get("warm_up")
        return times[warm_up(times) if first is None else first :]

    @property
    def median_step_s(self) -> float | None:
        kept = self.measured_steps_s
        return median(kept) if kept else None

    @property
    def told(self) -> StoredFailure:
        """What its logs were read as."""
        return FAILURE.read(self.analysis)


class ReportFile(models.Model):
    """A log or a profile of a run, received in pieces.  path: below the data folder.  Complete when received_bytes is
    size_bytes; the pieces then had the SHA-256 that was announced."""

    class Kind(models.TextChoices):
        LOG = "log", "Log"
        PROFILE = "profile", "Profile"

    run = models.ForeignKey(ArmRun, on_delete=models.CASCADE, related_name="files")
    kind = models.CharField(max_length=10, choices=Kind)
    name = models.CharField(max_length=200)
    size_bytes = models.PositiveBigIntegerField()
    sha256 = models.CharField(max_length=64)
    received_bytes = models.PositiveBigIntegerField(default=0)
    complete = models.BooleanField(default=False)
    path = models.CharField(max_length=200)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["pk"]
        constraints = [models.UniqueConstraint(fields=["run", "sha256"], name="one_report_file_per_content")]
