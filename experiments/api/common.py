"""The errors of a configuration over REST."""

from __future__ import annotations

from rest_framework import serializers

from accounts.rest import Detail


class Contradicted(Detail):
    contradictions = serializers.ListField(
        child=serializers.JSONField(),
        help_text="What the profile contradicts: field, configured, profile, sentence, evidence, and values to use. "
        "Correct the fields, or list them in `accept` to keep them.",
    )


class ConfigErrors(Detail):
    errors = serializers.DictField(
        child=serializers.CharField(), required=False, help_text="Messages by dotted field name, if fields are invalid."
    )
