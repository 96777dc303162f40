"""The optimization database: what was changed and what was measured after."""

from __future__ import annotations

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.utils import timezone

from experiments.fields import OrderedJSONField
from history import words
from knowledge.embedded import Embedded, search_column


class RecordImport(models.Model):
    """One file of records that a person gave.

    report: `services.imports.Report`; reason: why an earlier version imported nothing of it.
    """

    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE, related_name="+")
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, related_name="+", null=True)
    created_at = models.DateTimeField(auto_now_add=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    name = models.CharField(max_length=255)
    format = models.CharField(max_length=10)
    size_bytes = models.BigIntegerField()
    report = models.JSONField(default=dict, blank=True)
    reason = models.TextField(blank=True)

    class Meta:
        ordering = ["-pk"]


class HistoryRecord(Embedded):
    """One `history.record.Record` as stored.  Its content is appended and never edited; those of the product follow
    the files they come from.

    key: `Record.id`.  order: what a sort by effect goes by (`services.store.order`).  keywords: the facets in the words
    that people search with.  extra: fields of the value without a column.  content_hash is of what the vector stands
    for, seed_hash of the whole record where it was shipped.
    """

    team = models.ForeignKey(
        "accounts.Team", on_delete=models.CASCADE, related_name="+", null=True, blank=True, db_index=False
    )  # null where others published it; then every team sees it
    key = models.CharField(max_length=120)
    hardware = models.CharField(max_length=10, blank=True)  # tpu, gpu, or empty where the chip is not known
    chip = models.CharField(max_length=40, blank=True)
    chips = models.PositiveIntegerField(null=True, blank=True)
    model_name = models.CharField(max_length=100, blank=True)
    model_family = models.CharField(max_length=60, blank=True)
    bottleneck = models.CharField(max_length=20, blank=True)
    changes = ArrayField(models.CharField(max_length=30))
    outcome = models.CharField(max_length=20)
    provenance = models.CharField(max_length=20)
    title = models.CharField(max_length=300)
    change = models.TextField(blank=True)
    moves = ArrayField(models.CharField(max_length=30), default=list, blank=True)  # of the mesh: data+, seq-
    topology = ArrayField(models.PositiveIntegerField(), default=list, blank=True)
    slices = models.PositiveIntegerField(default=1)
    parameters = models.FloatField(null=True, blank=True)
    speedup = models.FloatField(null=True, blank=True)
    order = models.FloatField()
    measure = models.CharField(max_length=100, blank=True)
    effect = models.TextField(blank=True)
    failure = models.CharField(max_length=20, blank=True)
    source = models.CharField(max_length=500)
    url = models.CharField(max_length=500, blank=True)
    before = OrderedJSONField(default=dict)
    after = OrderedJSONField(default=dict)
    extra = OrderedJSONField(default=dict, blank=True)
    keywords = models.TextField(blank=True)
    remarks = models.TextField(blank=True)
    experiment_before = models.ForeignKey(
        "experiments.Experiment", on_delete=models.SET_NULL, related_name="+", null=True, blank=True
    )
    experiment_after = models.ForeignKey(
        "experiments.Experiment", on_delete=models.SET_NULL, related_name="+", null=True, blank=True
    )
    profile_after = models.ForeignKey(
        "experiments.Profile", on_delete=models.SET_NULL, related_name="+", null=True, blank=True
    )
    added_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, related_name="+", null=True, blank=True, db_index=False
    )
    imported = models.ForeignKey(RecordImport, on_delete=models.SET_NULL, related_name="records", null=True, blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    seed_hash = models.CharField(max_length=64, blank=True)
    version = models.PositiveSmallIntegerField(default=1)  # of a shipped record; grows when its file changes

    search = search_column(A="title", B="keywords", C=("change", "effect"), D=("remarks", "source"))

    excerpt_fields = ("change", "effect", "remarks")

    class Meta(Embedded.Meta):
        ordering = ["-pk"]
        constraints = [
            models.UniqueConstraint(fields=["team", "key"], name="one_record_per_team_and_key", nulls_distinct=False)
        ]
        indexes = [
            *Embedded.Meta.indexes,
            models.Index(fields=["team", "-id"], name="history_newest"),
            models.Index(fields=["team", "-order", "-id"], name="history_by_effect"),
            models.Index(fields=["team", "chip", "bottleneck"], name="history_by_chip"),
            models.Index(fields=["team", "model_name", "bottleneck"], name="history_by_model"),
            # All that a list is narrowed and sorted by: rare combinations are found without reading the records.
            models.Index(
                fields=[
                    "team",
                    "provenance",
                    "outcome",
                    "hardware",
                    "bottleneck",
                    "chip",
                    "model_family",
                    "model_name",
                    "chips",
                ],
                include=["changes", "order", "id"],
                name="history_facets",
            ),
            GinIndex(fields=["moves"], name="history_by_move"),
        ]

    def __str__(self) -> str:
        return self.title

    @property
    def moves_mesh(self) -> bool:
        """Whether both sides name a mesh and they differ, so that showing them says something."""
        before, after = self.before.get("mesh"), self.after.get("mesh")
        return bool(before and after and before != after)

    def embedding_text(self) -> str:
        return words.embedding_text(self.title, self.keywords, self.change, self.effect, self.remarks)
