"""Append to and read from the Event table: the trace, the audit log and the source of the live stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from django.db import connection, models, transaction

from accounts.models import User
from experiments.models import Event, Experiment, Run
from experiments.services import secrets

#: First key of the advisory locks that order an experiment's events; the second is the experiment's primary key.
LOCK_SPACE = 0x4153  # "AS"


def lock(experiment_id: int) -> None:
    """Order this transaction before or after every other one that appends to the experiment's events.

    Ids are drawn before commit, so without it an event with a smaller id could appear after a reader has passed it.
    Take it first in a transaction, before any row: then no two transactions wait for each other in a circle.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [LOCK_SPACE, experiment_id & 0x7FFFFFFF])


def append(
    experiment: Experiment | int,
    kind: str,
    actor: str,
    *,
    run: Run | None = None,
    user: User | None = None,
    data: dict[str, Any] | None = None,
    duration_s: float | None = None,
    tokens: int | None = None,
    cost_usd: float | None = None,
) -> Event:
    """Append one event.  `data` must be JSON; text in it is data, never markup.  Secrets in it are left out."""
    if isinstance(experiment, int):
        experiment = Experiment.objects.only("pk", "team_id").get(pk=experiment)
    with transaction.atomic():
        lock(experiment.pk)
        return Event.objects.create(
            team_id=experiment.team_id,
            experiment=experiment,
            run=run,
            kind=kind,
            actor=actor,
            user=user,
            data=secrets.hide(data or {}),
            duration_s=duration_s,
            tokens=tokens,
            cost_usd=cost_usd,
        )


def progress(run: Run, text: str, *, fraction: float | None = None, actor: str = "coordinator", **data: Any) -> Event:
    """Say what is being done now.  fraction 0–1 of the current stage, None where it is not known."""
    values: dict[str, Any] = {"stage": str(run.status), "text": text, "fraction": fraction, **data}
    return append(run.experiment_id, "progress", actor, run=run, data=values)


def after(experiment: Experiment | int, last_id: int = 0) -> models.QuerySet[Event]:
    """The experiment's events after `last_id`, oldest first, with their users."""
    pk = experiment if isinstance(experiment, int) else experiment.pk
    return Event.objects.filter(experiment_id=pk, pk__gt=last_id).select_related("user").order_by("pk")


def to_json(event: Event) -> dict[str, Any]:
    """The event as it is streamed, exported (one per line) and given by the API."""
    return {
        "id": event.pk,
        "experiment": event.experiment_id,
        "run": event.run_id,
        "kind": event.kind,
        "actor": event.actor,
        "user": event.user.get_username() if event.user is not None else None,
        "data": event.data,
        "created_at": event.created_at.isoformat(),
        "duration_s": event.duration_s,
        "tokens": event.tokens,
        "cost_usd": event.cost_usd,
    }


def lines(rows: models.QuerySet[Event]) -> Iterator[str]:
    """The events as JSON Lines, read a part at a time so that a long history needs little memory."""
    for event in rows.select_related("user").iterator(chunk_size=500):
        yield json.dumps(to_json(event), ensure_ascii=False) + "\n"
