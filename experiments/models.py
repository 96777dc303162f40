"""Experiments, their profiles, the Coordinator's runs and the append-only events (the Sharding Memory)."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.contrib.postgres.search import SearchVectorField
from django.db import models
from django.db.models import Func, Q, Value

from experiments import event_text
from experiments.fields import OrderedJSONField
from jobs.models import Job
from perfmodel.config import placement_text


class Origin(models.TextChoices):
    UPLOADED = "uploaded", "Uploaded"
    RECORDED = "recorded", "Recorded by asap record"
    RECONSTRUCTED = "reconstructed", "Reconstructed from the paper"
    STEP_TIME = "step_time", "Step time only"  # no profile: what the configuration says was measured


class RunStatus(models.TextChoices):
    """Status of a run.  It moves one way, by compare-and-set, with its Event."""

    UPLOADED = "uploaded", "Uploaded"
    INGESTING = "ingesting", "Ingesting"
    CONFIGURING = "configuring", "Needs configuration"  # waits for a person
    DIAGNOSING = "diagnosing", "Diagnosing"
    PROPOSING = "proposing", "Proposing"
    CHECKING = "checking", "Checking"
    READY = "ready", "Ready"
    FAILED = "failed", "Failed"

    @property
    def is_final(self) -> bool:
        return self in (RunStatus.READY, RunStatus.FAILED)

    @property
    def is_working(self) -> bool:
        """A worker has it, or should."""
        return self not in (RunStatus.READY, RunStatus.FAILED, RunStatus.CONFIGURING)


#: Of the name of an experiment.
NAME_CHARACTERS = 200


class ReviewState(models.TextChoices):
    """What people decided on an experiment's proposals so far."""

    NONE = "", "No proposals"
    OPEN = "open", "Needs review"  # of the newest proposals some are undecided, and none was ever approved
    APPROVED = "approved", "Approved"
    REJECTED = "rejected", "Rejected"  # all of the newest ones


class Experiment(models.Model):
    """A training run as configured; profiles and proposals hang on it.

    The columns from `state` on repeat what the newest run found, so that a list of thousands is one query.
    """

    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE, related_name="experiments")
    name = models.CharField(max_length=NAME_CHARACTERS)
    origin = models.CharField(max_length=20, choices=Origin, default=Origin.UPLOADED)
    label = models.CharField(max_length=200, blank=True)  # e.g. "reconstructed from the paper"
    config = OrderedJSONField(null=True, blank=True)  # the contract's JSON; null until the user gave one
    config_warnings = models.JSONField(default=list, blank=True)
    config_kept = models.JSONField(default=list, blank=True)  # what contradicts the profile and was kept all the same
    config_draft = OrderedJSONField(null=True, blank=True)  # given, but with errors; kept so that it can be corrected
    config_errors = models.JSONField(default=dict, blank=True)  # {field: sentence} of the draft
    sample = models.CharField(max_length=60, blank=True)  # key of the shipped sample it was loaded from
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    state = models.CharField(max_length=20, choices=RunStatus, default=RunStatus.UPLOADED, db_index=True)
    chip = models.CharField(max_length=40, blank=True)
    chips = models.PositiveIntegerField(null=True, blank=True)
    model_name = models.CharField(max_length=100, blank=True)
    mesh = OrderedJSONField(null=True, blank=True)  # {"ici": …, "dcn": …}
    step_time_s = models.FloatField(null=True, blank=True)
    bottleneck = models.CharField(max_length=20, blank=True)
    best_speedup = models.FloatField(null=True, blank=True)  # predicted, of the recommended proposal
    review = models.CharField(max_length=20, choices=ReviewState, default=ReviewState.NONE, blank=True)

    class Meta:
        ordering = ["-created_at", "-pk"]
        indexes = [
            models.Index(fields=["team", "-created_at"], name="experiment_by_team"),
            models.Index(fields=["team", "-updated_at", "-id"], name="experiment_by_update"),
            # What the list is narrowed to and counted by, without reading the experiments.
            models.Index(fields=["team", "chip", "bottleneck", "state", "review", "sample"], name="experiment_facets"),
        ]
        constraints = [
            models.UniqueConstraint(fields=["team", "sample"], condition=~Q(sample=""), name="one_sample_per_team"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def axis_roles(self) -> dict[str, str]:
        """Roles of the axes whose names are none, as configured."""
        return ((self.config or {}).get("mesh") or {}).get("axis_roles") or {}

    @property
    def placement(self) -> str:
        """The mesh as `config.placement_text` writes it."""
        return placement_text(self.mesh or {}, self.axis_roles)


class SavedView(models.Model):
    """Keep filters, order and columns of the list of experiments under a name that the team shares."""

    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE, related_name="+")
    name = models.CharField(max_length=60)
    query = models.TextField(blank=True)  # of the list's address

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["team", "name"], name="one_view_of_a_name")]


class Profile(models.Model):
    """One profiling session: the uploaded files, and the StepProfile read from them.

    data: path, below the data folder, of the gzipped JSON of the StepProfile; empty until ingested.  One without files
    stands for the step time that the configuration says was measured (`experiments.without_profile`).
    summary: what the pages need without opening it (device, step count, op count, files' hosts, notes).  trace: path
    of the event store, empty where the files hold no events, null where they were never looked for.
    """

    FILE_COLUMNS = ("data",)

    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE, related_name="+")
    experiment = models.ForeignKey(Experiment, on_delete=models.CASCADE, related_name="profiles")
    data = models.CharField(max_length=300, blank=True)
    trace = models.CharField(max_length=300, null=True, blank=True)
    summary = models.JSONField(default=dict, blank=True)
    step_time_s = models.FloatField(null=True, blank=True)
    excluded = models.JSONField(default=list, blank=True)  # hosts inside an archive that the user went on without
    created_at = models.DateTimeField(auto_now_add=True)
    ingested_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["pk"]


class ProfileFile(models.Model):
    """One uploaded file, kept under a generated name; `name` is what the user called it."""

    FILE_COLUMNS = ("path",)

    profile = models.ForeignKey(Profile, on_delete=models.CASCADE, related_name="files")
    name = models.CharField(max_length=255)
    path = models.CharField(max_length=300)  # below the data folder
    size_bytes = models.BigIntegerField()
    sha256 = models.CharField(max_length=64)
    included = models.BooleanField(default=True)  # False: the user went on without this host

    class Meta:
        ordering = ["pk"]


class ViewerLink(models.Model):
    """A way to XProf's own pages of a profile, for one user while one session lasts.

    The frame that shows them sends no cookie, so its address holds a token, of which the hash is kept.
    """

    profile = models.ForeignKey(Profile, on_delete=models.CASCADE, related_name="viewer_links")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    session_key = models.CharField(max_length=40)
    token_sha256 = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField(auto_now_add=True)


class Run(Job):
    """The Coordinator's work on one profile of an experiment.

    A worker that has it says that it lives; one that does not is dead, and another takes over (`jobs`).
    """

    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE, related_name="+")
    experiment = models.ForeignKey(Experiment, on_delete=models.CASCADE, related_name="runs")
    profile = models.ForeignKey(Profile, on_delete=models.CASCADE, related_name="runs")
    status = models.CharField(max_length=20, choices=RunStatus, default=RunStatus.UPLOADED)
    failed_at = models.CharField(max_length=20, blank=True)  # the status in which it failed, for a retry
    reason = models.TextField(blank=True)  # one sentence with the next step, where it failed
    failure = models.JSONField(default=dict, blank=True)  # of an ingestion: {file, kind, excludable, …}
    created_at = models.DateTimeField(auto_now_add=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-pk"]
        indexes = [
            models.Index(
                fields=["heartbeat_at"],
                name="run_unfinished",
                condition=~Q(status__in=["ready", "failed", "configuring"]),
            ),
        ]


class EventManager(models.Manager["Event"]):
    """Events without their words, which only the search reads."""

    def get_queryset(self) -> models.QuerySet[Event]:
        return super().get_queryset().defer("words")


class Event(models.Model):
    """One thing that happened, appended and never changed: the trace and the live stream.

    kind: `status`, `progress`, `upload`, `config`, `recording`, `constraints`, `message`, `tool_call`, `tool_result`,
    `model_request`, `model_response`, `complaint`, `retry`, `stopped`, `final`, `diagnosis`, `proposal`,
    `measurement`, `launch`, `campaign`, `review`, `error`, `retention`.  actor: `user`, `coordinator`, `analyzer`,
    `proposer`, `tuner`, `worker`.

    The columns from `thread` on repeat what the data says, so that a list of events need not read it: of which
    conversation and answer a step is, with which model, the facts that a list shows (`experiments.event_text.brief`),
    the data's size, and the words that a search finds.  removed_at: when the payload was taken out of the data, as the
    team's retention says; the facts stay.
    """

    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE, related_name="+")
    experiment = models.ForeignKey(Experiment, on_delete=models.CASCADE, related_name="events")
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="events", null=True, blank=True)
    kind = models.CharField(max_length=30)
    actor = models.CharField(max_length=30)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True)
    data = OrderedJSONField(default=dict, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    duration_s = models.FloatField(null=True, blank=True)
    tokens = models.PositiveIntegerField(null=True, blank=True)
    cost_usd = models.FloatField(null=True, blank=True)

    thread = models.PositiveBigIntegerField(null=True, blank=True)
    message = models.PositiveBigIntegerField(null=True, blank=True)
    model = models.CharField(max_length=120, blank=True)
    brief = OrderedJSONField(null=True, blank=True)
    size_bytes = models.PositiveIntegerField(null=True, blank=True)
    words = SearchVectorField(null=True)
    removed_at = models.DateTimeField(null=True, blank=True)

    objects = EventManager()

    class Meta:
        ordering = ["pk"]
        indexes = [
            models.Index(fields=["experiment", "id"], name="event_stream"),
            models.Index(fields=["experiment", "kind", "id"], name="event_by_kind"),
            models.Index(
                fields=["experiment", "thread", "id"], name="event_by_thread", condition=Q(thread__isnull=False)
            ),
            models.Index(
                fields=["team", "created_at"],
                name="event_payloads",
                condition=Q(kind__in=event_text.REMOVABLE_KINDS, removed_at=None),
            ),
            GinIndex(fields=["words"], name="event_words"),
        ]

    def save(self, *args: Any, **kwargs: Any) -> None:
        if self.pk is not None:
            raise TypeError("An event is appended and never changed.")
        self.repeat()
        super().save(*args, **kwargs)

    def repeat(self) -> None:
        """Fill the columns that repeat what the data says."""
        data = self.data if isinstance(self.data, dict) else {}
        self.thread, self.message = _key(data.get("thread")), _key(data.get("message"))
        self.brief = event_text.brief(self.kind, data)
        self.model = str((self.brief or {}).get("model") or "")[:120]
        self.size_bytes = event_text.size_of(self.data)
        self.words = as_words(event_text.words(self.data, self.kind, self.actor))


def _key(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def as_words(words: list[str]) -> Func:
    """Words as a column of the search holds them: each as it is, without a dictionary."""
    return Func(Value(words, ArrayField(models.TextField())), function="array_to_tsvector")
