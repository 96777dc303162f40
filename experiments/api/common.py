"""What the endpoints of every app share (accounts.rest), and the errors of a configuration."""

from __future__ import annotations

from rest_framework import serializers

from accounts.rest import Conflict, Detail, Invalid, NoSpace, Paging, TeamObjects, TooLarge, number_param, team_for

__all__ = [
    "ConfigErrors", "Conflict", "Contradicted", "Detail", "Invalid", "NoSpace", "Paging", "TeamObjects", "TooLarge",
    "number_param", "team_for",
]  # fmt: skip


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
