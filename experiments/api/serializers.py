from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from experiments.models import Event, Experiment, Profile, ProfileFile, Run
from experiments.services import runs


class ExperimentSerializer(serializers.ModelSerializer[Experiment]):
    """An experiment in a list.  Shares 0–1, times in seconds; null if unknown or not measured."""

    created_by = serializers.CharField(source="created_by.username", default=None, read_only=True, allow_null=True)

    class Meta:
        model = Experiment
        fields = (
            "id",
            "team",
            "name",
            "origin",
            "label",
            "state",
            "chip",
            "chips",
            "model_name",
            "mesh",
            "step_time_s",
            "bottleneck",
            "best_speedup",
            "review",
            "created_by",
            "created_at",
            "updated_at",
        )
        read_only_fields = fields


class RunSerializer(serializers.ModelSerializer[Run]):
    """One analysis of a profile by the Coordinator.  reason: why it failed."""

    class Meta:
        model = Run
        fields = (
            "id",
            "experiment",
            "profile",
            "status",
            "failed_at",
            "reason",
            "attempts",
            "created_at",
            "finished_at",
        )
        read_only_fields = fields


class QueuePlaceSerializer(serializers.Serializer[Any]):
    """The place of a waiting job in its queue."""

    jobs_before = serializers.IntegerField(help_text="Jobs of all teams that start before it.")


class RunDetailSerializer(RunSerializer):
    """One analysis, with its place in the queue while it waits for a worker."""

    place = serializers.SerializerMethodField()

    class Meta(RunSerializer.Meta):
        fields = (*RunSerializer.Meta.fields, "place")
        read_only_fields = fields

    @extend_schema_field(QueuePlaceSerializer(allow_null=True))
    def get_place(self, run: Run) -> Any:
        count = runs.jobs_before(run)
        return {"jobs_before": count} if count is not None else None


class ProfileFileSerializer(serializers.ModelSerializer[ProfileFile]):
    class Meta:
        model = ProfileFile
        fields = ("id", "name", "size_bytes", "sha256", "included")
        read_only_fields = fields


class ProfileSerializer(serializers.ModelSerializer[Profile]):
    """One profiling session.  summary: device, step and op counts, KPIs and notes, once it has been read."""

    files = ProfileFileSerializer(many=True, read_only=True)

    class Meta:
        model = Profile
        fields = ("id", "experiment", "step_time_s", "summary", "files", "created_at", "ingested_at")
        read_only_fields = fields


class ExperimentDetailSerializer(ExperimentSerializer):
    """One experiment with its configuration, profiles and runs."""

    profiles = ProfileSerializer(many=True, read_only=True)
    runs = RunSerializer(many=True, read_only=True)

    class Meta(ExperimentSerializer.Meta):
        fields = (
            *ExperimentSerializer.Meta.fields,
            "config",
            "config_warnings",
            "config_kept",
            "config_errors",
            "profiles",
            "runs",
        )
        read_only_fields = fields


class UploadSerializer(serializers.Serializer[Any]):
    """multipart/form-data.  `files` may be repeated, one per host."""

    files = serializers.ListField(child=serializers.FileField(allow_empty_file=True), max_length=512)
    config = serializers.CharField(required=False, help_text="JSON or YAML text, or a file in this field.")
    name = serializers.CharField(required=False, max_length=200)
    team = serializers.IntegerField(required=False, help_text="One of your teams; default: your first.")
    accept = serializers.ListField(
        child=serializers.CharField(),
        required=False,
        help_text="Fields of the configuration to keep even if the profile contradicts them.",
    )


class StepTimeSerializer(serializers.Serializer[Any]):
    """A run without a profile: its configuration, with `measured: {step_time_s, peak_memory_bytes}`."""

    config = serializers.JSONField(help_text="The experiment configuration, as in docs/configuration.md.")
    name = serializers.CharField(required=False, allow_blank=True, max_length=200)
    team = serializers.IntegerField(required=False, help_text="One of your teams; default: your first.")


class ConfigurationSerializer(serializers.Serializer[Any]):
    config = serializers.JSONField(help_text="The experiment configuration, as in docs/configuration.md.")
    saved = serializers.BooleanField(help_text="False: not saved yet, prefilled from the profile.")
    warnings = serializers.ListField(child=serializers.CharField())
    contradictions = serializers.ListField(
        child=serializers.JSONField(),
        help_text="Fields that the profile contradicts; if saved, the user kept them.",
    )


class EventSerializer(serializers.ModelSerializer[Event]):
    user = serializers.CharField(source="user.username", default=None, read_only=True, allow_null=True)

    class Meta:
        model = Event
        fields = (
            "id",
            "experiment",
            "run",
            "kind",
            "actor",
            "user",
            "data",
            "created_at",
            "duration_s",
            "tokens",
            "cost_usd",
        )
        read_only_fields = fields


class PredictRequest(serializers.Serializer[Any]):
    config = serializers.JSONField(help_text="An experiment configuration, or a list of them.")
    mesh = serializers.CharField(required=False, help_text="Replaces mesh.ici, e.g. data=8,seq=16,model=2")
    baseline = serializers.JSONField(
        required=False, help_text="A configuration with measured.step_time_s, to calibrate the predictions."
    )


class SearchRequest(serializers.Serializer[Any]):
    config = serializers.JSONField(help_text="An experiment configuration.")
    top = serializers.IntegerField(required=False, default=20, min_value=1, max_value=200)
