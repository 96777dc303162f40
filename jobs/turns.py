"""Fair order of the jobs that wait in one queue: the team that was served longest ago is next, with its oldest job.

A message only says that some job waits.  `take` chooses which one a worker gets; `jobs_before` counts those before one.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from django.conf import settings
from django.db import connection, transaction
from django.db.models import QuerySet
from django.utils import timezone

from jobs import workers
from jobs.declared import DeclaredTask
from jobs.models import Turn

#: First key of the advisory locks under which turns are given; the second is for the queue.
LOCK_SPACE = 0x4A54  # "JT"
#: Stands for the rows that belong to no team.
NO_TEAM = 0


class Kind(Protocol):
    """The parts of one table of jobs (`jobs.jobs.Jobs`) that a queue reads."""

    @property
    def queue(self) -> str | None: ...
    @property
    def team(self) -> str | None: ...
    @property
    def task(self) -> DeclaredTask: ...
    @property
    def max_at_once(self) -> int | None: ...
    def alive(self) -> QuerySet[Any]: ...
    def waiting(self, idle: Sequence[str] = ()) -> QuerySet[Any]: ...


class QueuedJob(NamedTuple):
    """A job that may start: its place within the team, and whose it is."""

    created_at: datetime
    pk: int
    team: int
    kind: Kind


def take(kinds: Sequence[Kind], worker: str) -> QueuedJob | None:
    """Give the next job of the queue to `worker` and return it; None if none may start now.

    The job is only reserved: its own `claim` follows under the same name and counts the attempt.
    """
    queue = _queue_of(kinds)
    holders = {name for kind in kinds for name in kind.alive().values_list("worker", flat=True)}
    idle = [worker, *(name for name in holders if workers.is_known_dead(name))]
    with transaction.atomic():
        _lock(queue)  # two workers at once would serve the same team twice
        numbers = dict(Turn.objects.filter(queue=queue).values_list("team", "number"))
        startable = _startable(kinds, idle)
        job = min(startable, key=lambda each: (numbers.get(each.team, 0), *each[:2]), default=None)
        if job is None:
            return None
        job.kind.waiting(idle).filter(pk=job.pk).update(worker=worker, heartbeat_at=timezone.now())
        Turn.objects.update_or_create(
            queue=queue, team=job.team, defaults={"number": max(numbers.values(), default=0) + 1}
        )
        return job


def jobs_before(kinds: Sequence[Kind], kind: Kind, pk: int) -> int | None:
    """Return the number of jobs of all teams that start before a waiting one; None if it does not wait."""
    mine = kind.waiting().filter(pk=pk).values_list("created_at", kind.team or "pk").first()
    if mine is None:
        return None
    created_at, team = mine[0], mine[1] or NO_TEAM
    counts: Counter[int] = Counter()
    ahead = 0
    for each in kinds:
        teams = each.waiting().order_by().values_list(each.team or "pk", flat=True)
        counts.update(one or NO_TEAM for one in teams)
        own = each.waiting().filter(**{each.team or "pk": mine[1]}, created_at__lte=created_at)
        ahead += (own.exclude(pk=pk) if each is kind else own).count()
    numbers = dict(Turn.objects.filter(queue=_queue_of(kinds)).values_list("team", "number"))
    before = (
        min(count, ahead + (numbers.get(other, 0) < numbers.get(team, 0)))
        for other, count in counts.items()
        if other != team
    )
    return ahead + sum(before)


def _startable(kinds: Sequence[Kind], idle: Sequence[str]) -> list[QueuedJob]:
    """Return the oldest waiting job of each kind and team that is below the limits; `idle` holders do no work."""
    busy = _busy(kinds, idle)
    found = []
    for kind in kinds:
        if kind.max_at_once is not None and kind.alive().exclude(worker__in=idle).count() >= kind.max_at_once:
            continue
        team = kind.team or "pk"
        rows = kind.waiting(idle).order_by(team, "created_at", "pk").distinct(team)
        for pk, created_at, of in rows.values_list("pk", "created_at", team):
            if settings.TEAM_JOBS is None or busy[of or NO_TEAM] < settings.TEAM_JOBS:
                found.append(QueuedJob(created_at, pk, of or NO_TEAM, kind))
    return found


def _busy(kinds: Sequence[Kind], idle: Sequence[str] = ()) -> Counter[int]:
    """Return the number of jobs in the hands of live workers, by team."""
    busy: Counter[int] = Counter()
    for kind in kinds:
        teams = kind.alive().exclude(worker__in=idle).values_list(kind.team or "pk", flat=True)
        busy.update(team or NO_TEAM for team in teams)
    return busy


def _queue_of(kinds: Sequence[Kind]) -> str:
    return kinds[0].queue or ""


def _lock(queue: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [LOCK_SPACE, zlib.crc32(queue.encode()) & 0x7FFFFFFF])
