from __future__ import annotations

from typing import Any

from django.urls import reverse
from rest_framework import serializers

from dialogue.models import Held, Message, Thread
from dialogue.services import asking

_BY = {"source": "created_by.username", "default": None, "read_only": True, "allow_null": True}


class ThreadSerializer(serializers.ModelSerializer[Thread]):
    created_by = serializers.CharField(**_BY)

    class Meta:
        model = Thread
        fields = ("id", "experiment", "title", "created_by", "created_at", "updated_at")
        read_only_fields = fields


class NewThread(serializers.Serializer[Any]):
    experiment = serializers.IntegerField(min_value=1)


class MessageSerializer(serializers.ModelSerializer[Message]):
    """A question, or an answer; an answer grows while `status` is queued or answering.

    steps: tool calls, with the ids of the events of their input (`event`) and result (`returned`).  effects: what the
    answer asks to hold (`constraint`, `fact`; `decided` says how a person decided), or offers (`mesh`).  content: the
    text with its values, bars and further questions; null where it is plain text.  provider: the model, or `computed`.
    """

    author = serializers.CharField(source="author.username", default=None, read_only=True, allow_null=True)
    steps = serializers.ListField(child=serializers.DictField(), read_only=True)
    effects = serializers.ListField(child=serializers.DictField(), read_only=True)
    content = serializers.DictField(read_only=True, allow_null=True)
    stream = serializers.SerializerMethodField(help_text="Address of the answer's server-sent event stream.")

    class Meta:
        model = Message
        fields = (
            "id", "thread", "role", "author", "question", "status", "text", "provider", "note", "steps", "effects",
            "content", "tokens", "cost_usd", "first_text_s", "stream", "created_at", "finished_at",
        )  # fmt: skip
        read_only_fields = fields

    def get_stream(self, message: Message) -> str | None:
        return reverse("answer-stream", args=[message.pk]) if message.role == Message.Role.ASSISTANT else None


class NewMessage(serializers.Serializer[Any]):
    text = serializers.CharField(max_length=asking.MOST_CHARACTERS)


class HeldSerializer(serializers.ModelSerializer[Held]):
    """An active constraint (`fixed.model`, `keep_batch`) or fact (`training.remat`) of a thread.

    value: for a constraint as in a plan request (`{"model": 4}`), for a fact as in a configuration.
    """

    value = serializers.JSONField(read_only=True)

    class Meta:
        model = Held
        fields = ("id", "thread", "kind", "key", "value", "sentence", "message", "created_at")
        read_only_fields = fields


class OfferRequest(serializers.Serializer[Any]):
    effect = serializers.IntegerField(min_value=0, help_text="Index of the mesh in the answer's `effects`.")


class CardDecision(serializers.Serializer[Any]):
    effect = serializers.IntegerField(
        min_value=0, help_text="Index of the constraint or fact in the answer's `effects`."
    )
    hold = serializers.BooleanField(help_text="false: dismiss it.")
