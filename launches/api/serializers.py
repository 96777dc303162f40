"""What the endpoints of launches take and give."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from launches.models import ArmRun, Launch, ReportFile
from launches.services import choices


class ArmRunSerializer(serializers.ModelSerializer[ArmRun]):
    """One repeat of one arm.  Seconds and bytes; null where it was not reported."""

    median_step_s = serializers.FloatField(read_only=True, allow_null=True, help_text="After warm-up.")
    peak_memory_bytes = serializers.IntegerField(read_only=True, allow_null=True)
    failure = serializers.CharField(read_only=True)

    class Meta:
        model = ArmRun
        fields = (
            "arm", "repeat", "status", "job", "reason", "median_step_s", "peak_memory_bytes", "failure", "experiment",
            "submitted_at", "reported_at",
        )  # fmt: skip
        read_only_fields = fields


class LaunchSerializer(serializers.ModelSerializer[Launch]):
    """A wave of both arms of a proposal, or, with no proposal, a trial of a campaign.

    verdict: null until all of its runs have ended, and of a trial.
    """

    runs = ArmRunSerializer(many=True, read_only=True)
    verdict = serializers.DictField(read_only=True, allow_null=True)
    created_by = serializers.CharField(source="created_by.username", default=None, read_only=True, allow_null=True)

    class Meta:
        model = Launch
        fields = (
            "id", "experiment", "proposal", "tool", "backend", "repeats", "steps", "runs", "verdict", "note",
            "created_by", "created_at", "closed_at",
        )  # fmt: skip
        read_only_fields = fields


class LaunchRequest(serializers.Serializer[Any]):
    proposal = serializers.IntegerField(min_value=1)
    tool = serializers.ChoiceField(choices=[(name, name) for name in choices.TOOLS])
    repeats = serializers.IntegerField(min_value=1, max_value=choices.MOST_REPEATS, default=3)
    steps = serializers.IntegerField(min_value=1, max_value=choices.MOST_STEPS, default=50)


class FileRequest(serializers.Serializer[Any]):
    """A file that is about to be sent in pieces."""

    kind = serializers.ChoiceField(choices=ReportFile.Kind.choices)
    name = serializers.CharField(max_length=500)
    size_bytes = serializers.IntegerField(min_value=0)
    sha256 = serializers.CharField(max_length=64)


class FileSerializer(serializers.ModelSerializer[ReportFile]):
    """How far a file is: send the bytes from received_bytes on."""

    class Meta:
        model = ReportFile
        fields = ("sha256", "kind", "name", "size_bytes", "received_bytes", "complete")
        read_only_fields = fields


class ReportRequest(serializers.Serializer[Any]):
    """What one rank reports; another rank reports its own.  The run is read once all `ranks` have."""

    rank = serializers.IntegerField(min_value=0, default=0)
    ranks = serializers.IntegerField(min_value=1, default=1)
    step_times_s = serializers.ListField(child=serializers.FloatField(), default=list, help_text="Warm-up included.")
    warm_up = serializers.IntegerField(allow_null=True, required=False, help_text="Warm-up steps, not counted.")
    peak_memory_bytes = serializers.IntegerField(allow_null=True, required=False, help_text="Of one device.")
    failure = serializers.CharField(allow_null=True, required=False, help_text="Why it did not finish.")
    host = serializers.CharField(required=False, allow_blank=True)
    files = serializers.ListField(child=serializers.CharField(), default=list, help_text="SHA-256 of what was sent.")


class ReportAnswer(serializers.Serializer[Any]):
    status = serializers.CharField(help_text="Of the run.")
    missing_ranks = serializers.IntegerField(help_text="Ranks that have not reported yet.")
