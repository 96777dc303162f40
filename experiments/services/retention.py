"""Retention: what agents sent and got goes after the days that a team sets; what was decided and measured stays.

Payloads are the data of `model_request`, `model_response`, `tool_call`, `tool_result` and `complaint`.  Their events
stay, with the facts of the step (which model, which tool, how long, how many tokens), and an Event says what was taken
out.  Statuses, uploads, configurations, diagnoses, proposals, reviews, measurements, questions and final answers are
never touched.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from django.db import transaction
from django.utils import timezone

from accounts.models import Team, User
from accounts.refusals import Refused
from audit import trail
from audit.models import Action
from experiments import event_text
from experiments.models import Event, as_words
from experiments.services import events
from formatting.numbers import whole_number

logger = logging.getLogger(__name__)

#: Events of one experiment that one transaction changes, and batches of one sweep: the next sweep goes on.
BATCH, MOST_BATCHES = 500, 200
LEAST_DAYS, MOST_DAYS = 1, 3650


class RetentionError(Refused):
    """What was asked for is no retention."""


def set_days(team: Team, text: str, *, by: User) -> int | None:
    """Keep payloads for so many days, for ever where the text is empty.  Raises RetentionError."""
    days = whole_number(text.strip(), digits=5)
    if text.strip() and (days is None or not LEAST_DAYS <= days <= MOST_DAYS):
        raise RetentionError(
            f"Enter a whole number of days from {LEAST_DAYS} to {MOST_DAYS:,}, or leave it empty to keep them forever."
        )
    with transaction.atomic():
        Team.objects.filter(pk=team.pk).update(keep_payloads_days=days)
        before = team.keep_payloads_days
        trail.record(Action.MODEL_SETTINGS_SAVED, team, by, keep_payloads_days=days, before=before)
    team.keep_payloads_days = days
    logger.info("team %s keeps payloads for %s", team.pk, "ever" if days is None else f"{days} days")
    return days


def sweep(now: datetime | None = None) -> int:
    """Take out every payload that is older than its team keeps them; returns how many events that were."""
    now = now or timezone.now()
    removed = 0
    for team in Team.objects.exclude(keep_payloads_days=None).order_by("pk"):
        assert team.keep_payloads_days is not None
        before = now - timedelta(days=team.keep_payloads_days)
        for _ in range(MOST_BATCHES):
            count = _remove_some(team, before, team.keep_payloads_days)
            if not count:
                break
            removed += count
    return removed


def _remove_some(team: Team, before: datetime, days: int) -> int:
    """One batch of one experiment, in one transaction with the Event that says so; 0 where nothing is left."""
    old = Event.objects.filter(
        team=team, created_at__lt=before, kind__in=event_text.REMOVABLE_KINDS, removed_at=None
    ).order_by("created_at")
    experiment_id = old.values_list("experiment_id", flat=True).first()
    if experiment_id is None:
        return 0
    with transaction.atomic():
        events.lock(experiment_id)
        batch = list(old.filter(experiment_id=experiment_id).order_by("pk")[:BATCH])
        if not batch:
            return 0
        size = 0
        for row in batch:
            was = row.size_bytes if row.size_bytes is not None else event_text.size_of(row.data)
            row.data = event_text.remaining(event_text.brief(row.kind, row.data) or {})
            row.brief, row.size_bytes = row.data, event_text.size_of(row.data)
            row.words, row.removed_at = as_words(event_text.words(row.data, row.kind, row.actor)), timezone.now()
            size += max(was - row.size_bytes, 0)
        Event.objects.bulk_update(batch, ["data", "brief", "size_bytes", "words", "removed_at"], batch_size=100)
        data = {"events": len(batch), "bytes": size, "before": before.isoformat(), "days": days,
                "first": batch[0].pk, "last": batch[-1].pk}  # fmt: skip
        events.append(experiment_id, "retention", "worker", data=data)
    return len(batch)
