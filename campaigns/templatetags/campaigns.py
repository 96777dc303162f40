"""Words of a campaign's trials."""

from __future__ import annotations

from django import template

register = template.Library()

#: Badge of a trial's or campaign's status.
_BADGES = {
    "waiting": "plain", "running": "running", "launched": "running", "paused": "review", "done": "measured",
    "failed": "failed", "cancelled": "plain",
}  # fmt: skip


@register.filter
def badge_kind(status: str) -> str:
    return _BADGES.get(status, "plain")
