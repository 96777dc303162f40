"""What the endpoints of launches take and give."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from launches.models import ArmRun, Launch, ReportFile
from launches.services import choices


class ArmRunSerializer(serializers.ModelSerializer[ArmRun]):
    """One repeat of one arm.  Seconds and bytes; null if not reported."""

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
    """Runs of both arms of a proposal, or, with no proposal, of a campaign's trial.

    verdict: null until all runs have ended; always null for a trial.
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
    """A file to be uploaded in chunks."""

    kind = serializers.ChoiceField(choices=ReportFile.Kind.choices)
    name = serializers.CharField(max_length=500)
    size_bytes = serializers.IntegerField(min_value=0)
    sha256 = serializers.RegexField(r"^[0-9a-f]{64}$", help_text="In lower case.")


class FileSerializer(serializers.ModelSerializer[ReportFile]):
    """Upload progress of a file: continue from byte received_bytes."""

    class Meta:
        model = ReportFile
        fields = ("sha256", "kind", "name", "size_bytes", "received_bytes", "complete")
        read_only_fields = fields


class ReportAnswer(serializers.Serializer[Any]):
    status = serializers.CharField(help_text="Status of the run.")
    missing_ranks = serializers.IntegerField(help_text="Ranks that have not reported yet.")
