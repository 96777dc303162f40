"""Why it is slow: the stored diagnosis of a run, and its ops as rows so that a page of 20,000 is a query."""

from __future__ import annotations

from functools import cached_property

from django.db import models

from diagnosis.report import DIAGNOSIS, OP, Diagnosis, OpDiagnosis
from experiments.fields import OrderedJSONField


class DiagnosisRecord(models.Model):
    """The diagnosis of one run; `data` is what `DIAGNOSIS` writes, without the ops, which are rows."""

    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE, related_name="+")
    run = models.OneToOneField("experiments.Run", on_delete=models.CASCADE, related_name="diagnosis")
    bottleneck = models.CharField(max_length=20)
    confidence = models.FloatField()
    data = OrderedJSONField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        indexes = [models.Index(fields=["team", "-run"], include=["id"], name="diagnosis_newest")]

    @cached_property
    def value(self) -> Diagnosis:
        """The diagnosis as it was made, without its ops."""
        return DIAGNOSIS.read({**self.data, "ops": ()})


class OpRow(models.Model):
    """One `diagnosis.report.OpDiagnosis`, for sorting, filtering and paging on the server."""

    diagnosis = models.ForeignKey(DiagnosisRecord, on_delete=models.CASCADE, related_name="ops")
    rank = models.PositiveIntegerField()
    name = models.TextField()
    key = models.TextField()
    category = models.TextField()
    mesh_axis = models.CharField(max_length=200, blank=True)  # "model", "data, seq", "dcn"; blank: not a collective
    resource = models.CharField(max_length=20, blank=True)
    bound_by = models.CharField(max_length=40, blank=True)
    module = models.CharField(max_length=100, blank=True)
    source = models.TextField(blank=True, default="")
    path = models.TextField(blank=True, default="")  # the framework's `op_name`
    scope = models.TextField(blank=True, default="")  # what is left of it without wrappers: `scopes.scope`
    collective = models.TextField(blank=True, default="")
    phase = models.TextField(blank=True, default="")
    time_share = models.FloatField()
    time_s = models.FloatField(null=True)
    occurrences = models.PositiveBigIntegerField()
    roofline_efficiency = models.FloatField(null=True)
    data = models.JSONField()  # what `OP` writes, with hlo, op_name and source of the op

    class Meta:
        ordering = ["rank"]
        indexes = [
            models.Index(fields=["diagnosis", "rank"], name="op_by_rank"),
            models.Index(fields=["diagnosis", "category"], name="op_by_category"),
        ]

    @property
    def value(self) -> OpDiagnosis:
        """The op as it was diagnosed."""
        return OP.read(self.data)
