from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.utils.urls import replace_query_param

from history.models import HistoryRecord, RecordImport
from history.record import RECORD
from history.services.formats import FORMATS
from history.services.store import to_record


class RecordListedSerializer(serializers.ModelSerializer[HistoryRecord]):
    """A record in a list.  team: null for shipped records; key: id within the source; speedup: time per token before /
    after, above 1 is faster, null if the run failed or no number was published."""

    class Meta:
        model = HistoryRecord
        fields = (
            "id", "team", "key", "title", "change", "changes", "outcome", "failure", "speedup", "measure", "effect",
            "hardware", "chip", "chips", "topology", "slices", "model_name", "model_family", "parameters", "bottleneck",
            "provenance", "source", "url", "experiment_before", "experiment_after", "profile_after", "created_at",
        )  # fmt: skip
        read_only_fields = fields


class WhySerializer(serializers.Serializer[Any]):
    """Why a record matches a query: its rank in semantic search and in keyword search."""

    score = serializers.FloatField()
    meaning_rank = serializers.IntegerField(source="vector.rank", default=None, allow_null=True)
    similarity = serializers.FloatField(source="vector.score", default=None, allow_null=True)
    words_rank = serializers.IntegerField(source="text.rank", default=None, allow_null=True)
    matched = serializers.ListField(child=serializers.CharField())


class ListedSerializer(serializers.Serializer[Any]):
    record = RecordListedSerializer()
    why = WhySerializer(source="hit", allow_null=True)


class FacetValueSerializer(serializers.Serializer[Any]):
    """count: null if another value of the facet is chosen and the request has a text query."""

    value = serializers.CharField()
    label = serializers.CharField()
    count = serializers.IntegerField(allow_null=True)
    chosen = serializers.BooleanField()


class FacetSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    title = serializers.CharField()
    values = FacetValueSerializer(many=True)


class PageSerializer(serializers.Serializer[Any]):
    """count: matching records; available: all records visible to the caller.  bounded: a text query has more matches,
    of which these are the best.  next, previous: addresses of the adjacent pages."""

    count = serializers.IntegerField(source="total")
    available = serializers.IntegerField()
    first = serializers.IntegerField(source="listed.start_index")
    bounded = serializers.BooleanField()
    notes = serializers.ListField(child=serializers.CharField())
    next = serializers.SerializerMethodField()
    previous = serializers.SerializerMethodField()
    facets = FacetSerializer(many=True)
    results = ListedSerializer(source="rows", many=True)

    def _address(self, number: int) -> str:
        return replace_query_param(self.context["request"].build_absolute_uri(), "page", str(number))

    @extend_schema_field(serializers.URLField(allow_null=True))
    def get_next(self, page: Any) -> str | None:
        return self._address(page.listed.next_page_number()) if page.listed.has_next() else None

    @extend_schema_field(serializers.URLField(allow_null=True))
    def get_previous(self, page: Any) -> str | None:
        return self._address(page.listed.previous_page_number()) if page.listed.has_previous() else None


class RecordSerializer(RecordListedSerializer):
    """A record with its before and after.  record: the object as exported and imported."""

    record = serializers.SerializerMethodField()
    version = serializers.IntegerField(help_text="Version of a shipped record; incremented when a release changes it.")

    class Meta(RecordListedSerializer.Meta):
        fields = (*RecordListedSerializer.Meta.fields, "version", "record")
        read_only_fields = fields

    @extend_schema_field(serializers.DictField())
    def get_record(self, row: HistoryRecord) -> dict[str, Any]:
        return RECORD.write(to_record(row))


class ExpectedSerializer(serializers.Serializer[Any]):
    """The record's expected effect in the other case: speed-up per token with its 80 % interval."""

    speedup = serializers.FloatField()
    low80 = serializers.FloatField()
    high80 = serializers.FloatField()


class AlikeSerializer(serializers.Serializer[Any]):
    record = RecordListedSerializer()
    score = serializers.FloatField(help_text="Similarity, 0–1: how much of the effect carries over.")
    reason = serializers.CharField(help_text="Similarities and differences, in one line.")
    expected = ExpectedSerializer(allow_null=True)


class ImportSerializer(serializers.ModelSerializer[RecordImport]):
    """A file of records.

    report: numbers of rows, good (valid), duplicates, bad and added; errors and warnings by row and column.
    """

    report = serializers.DictField(read_only=True)

    class Meta:
        model = RecordImport
        fields = ("id", "team", "name", "format", "size_bytes", "reason", "report", "created_at", "finished_at")
        read_only_fields = fields


class ImportRequest(serializers.Serializer[Any]):
    """multipart/form-data."""

    file = serializers.FileField(allow_empty_file=True)
    type = serializers.ChoiceField(choices=FORMATS, required=False, help_text="Default: from the file name.")
    team = serializers.IntegerField(required=False, min_value=1, help_text="One of your teams; default: your first.")
