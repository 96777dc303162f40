"""The audit trail: who gave and took rights, changed settings, deleted and decided.

An entry has no foreign keys: it holds keys and names, so that it outlives what it is about.
"""

from __future__ import annotations

from typing import Any

from django.db import models


class Action(models.TextChoices):
    MEMBER_ADDED = "member.added", "Member added"
    MEMBER_INVITED = "member.invited", "Member invited"
    INVITATION_WITHDRAWN = "invitation.withdrawn", "Invitation withdrawn"
    ROLE_CHANGED = "role.changed", "Role changed"
    MEMBER_REMOVED = "member.removed", "Member removed"
    LINK_CREATED = "link.created", "Sign-in link created"
    LINK_REVOKED = "link.revoked", "Sign-in link revoked"
    TOKEN_CREATED = "token.created", "API token created"
    TOKEN_REVOKED = "token.revoked", "API token revoked"
    PASSWORD_SET = "password.set", "Password set"
    LAUNCH_SETTINGS_SAVED = "launch_settings.saved", "Launch settings saved"
    MODEL_SETTINGS_SAVED = "model_settings.saved", "Model settings saved"
    EXPERIMENT_DELETED = "experiment.deleted", "Experiment deleted"
    RECORD_DELETED = "record.deleted", "Record deleted"
    DOCUMENT_DELETED = "document.deleted", "Document deleted"
    PROPOSAL_APPROVED = "proposal.approved", "Proposal approved"
    PROPOSAL_REJECTED = "proposal.rejected", "Proposal rejected"


class Entry(models.Model):
    """One action.  PostgreSQL refuses to change or delete it (migration 0001)."""

    at = models.DateTimeField(auto_now_add=True)
    team_id = models.BigIntegerField(null=True)  # null: a user without a team
    team_name = models.CharField(max_length=100, blank=True)
    actor_id = models.BigIntegerField(null=True)  # null: the operator at a terminal, or the application itself
    actor_name = models.CharField(max_length=150)
    action = models.CharField(max_length=30)  # an Action
    about_id = models.CharField(
        max_length=64, blank=True
    )  # key of the user, experiment, …; first characters of a token
    about_name = models.CharField(max_length=300, blank=True)
    data = models.JSONField(default=dict, blank=True)  # by action, see docs/accounts.md

    class Meta:
        ordering = ["-pk"]
        indexes = [models.Index(fields=["team_id", "-id"], name="audit_by_team")]

    def save(self, *args: Any, **kwargs: Any) -> None:
        if self.pk is not None:
            raise TypeError("An entry is appended and never changed.")
        super().save(*args, **kwargs)

    @property
    def label(self) -> str:
        return str(Action(self.action).label)

    @property
    def details(self) -> list[tuple[str, str]]:
        """The known facts as (name, value), those of a nested object beside them; of a list, its length."""
        flat: dict[str, Any] = {}
        for name, value in self.data.items():
            flat |= value if isinstance(value, dict) else {name: value}
        known = {name: value for name, value in flat.items() if value not in (None, "", [], {})}
        return [
            (name.replace("_", " "), f"{len(value):,}" if isinstance(value, list) else str(value))
            for name, value in known.items()
        ]
