from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field, extend_schema_serializer
from rest_framework import serializers

from knowledge.models import Document, Passage
from knowledge.retrieval import MODES


class PassageSerializer(serializers.ModelSerializer[Passage]):
    """A statement that can be cited by its key.  team: null for shipped passages; place: location in the document;
    hardware: empty or `any` for all; retired_at: when a newer version of the document dropped it."""

    document_title = serializers.CharField(source="document.title")

    class Meta:
        model = Passage
        fields = (
            "key", "team", "document", "document_title", "title", "text", "formula", "applies_when",
            "counter_indications", "source", "section", "place", "url", "tags", "hardware", "bottlenecks", "version",
            "embedding_model", "embedding_dimension", "retired_at",
        )  # fmt: skip
        read_only_fields = fields


class PlaceSerializer(serializers.Serializer[Any]):
    rank = serializers.IntegerField()
    score = serializers.FloatField()


class FoundWhySerializer(serializers.Serializer[Any]):
    """Why a passage was found.  vector: rank and cosine similarity in semantic search (for a passage with questions,
    the mean of its text's and its closest question's); text: rank and score in keyword search (the sum of the matched
    stems' weights); null if it is not in that list.  score: of both lists fused, 0 to 1, or of the only
    list.  excerpt: text around the matched words; matched: those words."""

    score = serializers.FloatField()
    vector = PlaceSerializer(allow_null=True)
    text = PlaceSerializer(allow_null=True)
    matched = serializers.ListField(child=serializers.CharField())
    excerpt = serializers.SerializerMethodField()

    def get_excerpt(self, hit: Any) -> str:
        return "".join(piece.text for piece in hit.excerpt)


class FoundSerializer(serializers.Serializer[Any]):
    passage = PassageSerializer()
    why = FoundWhySerializer(source="hit")


@extend_schema_serializer(many=False)
class AnswerSerializer(serializers.Serializer[Any]):
    """mode: lists searched.  embedder: embedding model used, empty if none; notes: what could not be done."""

    mode = serializers.ChoiceField(choices=MODES)
    embedder = serializers.CharField()
    notes = serializers.ListField(child=serializers.CharField())
    results = FoundSerializer(source="found", many=True)


class DocumentSerializer(serializers.ModelSerializer[Document]):
    """A document added by the team.  state `reading`: a worker is splitting it into passages; error: why it failed, or
    which parts could not be read.  replaced: a newer version with the same title is searched instead.  embedded: number
    of its passages that have an embedding."""

    passages = serializers.IntegerField(source="living")
    embedded = serializers.IntegerField()
    replaced = serializers.BooleanField()
    uploaded_by = serializers.SerializerMethodField()

    class Meta:
        model = Document
        fields = (
            "id", "team", "title", "name", "kind", "state", "error", "version", "replaced", "pages", "passages",
            "embedded", "size_bytes", "sha256", "uploaded_by", "created_at", "updated_at",
        )  # fmt: skip
        read_only_fields = fields

    @extend_schema_field(serializers.CharField(allow_null=True))
    def get_uploaded_by(self, document: Document) -> str | None:
        return str(document.uploaded_by) if document.uploaded_by else None


class DocumentReceivedSerializer(DocumentSerializer):
    """outcome: `added`; `known`: the content exists already; `again`: retrying a file that could not be read before;
    `restored`: an older version, now current again."""

    outcome = serializers.ChoiceField(choices=("added", "known", "again", "restored"))

    class Meta(DocumentSerializer.Meta):
        fields = (*DocumentSerializer.Meta.fields, "outcome")
        read_only_fields = fields


class DocumentRequest(serializers.Serializer[Any]):
    """multipart/form-data."""

    file = serializers.FileField(allow_empty_file=True, max_length=1000)
    title = serializers.CharField(
        required=False, allow_blank=True, max_length=300,
        help_text="Default: the file name. Reusing a title adds a new version of that document.",
    )  # fmt: skip
    team = serializers.IntegerField(required=False, min_value=1, help_text="One of your teams; default: your first.")
