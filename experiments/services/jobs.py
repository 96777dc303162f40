"""One job in the hands of workers: sent, claimed by compare-and-set, kept by a heartbeat, taken over, swept.

A job is a row with the columns `status`, `worker`, `heartbeat_at`, `attempts` and `created_at`, and a Celery task that
takes its primary key.  The row alone decides who works: a message delivered twice is claimed once, one that was lost is
sent again by the sweep.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar

from celery import current_app
from django.db import models
from django.db.models import F, Q, QuerySet
from django.utils import timezone
from kombu.exceptions import OperationalError

from experiments.services import workers

logger = logging.getLogger(__name__)

#: Who has not said for so long that it lives is dead; a message that nobody took up for so long was lost.
STALE_AFTER = timedelta(seconds=30)

M = TypeVar("M", bound=models.Model)


@dataclass(frozen=True)
class Jobs(Generic[M]):
    """The jobs of one table.

    task: name of the Celery task.  queued, working: the two values of `status` in which a job is not done.
    """

    model: type[M]
    task: str
    queued: str
    working: str

    def claim(self, pk: int, worker: str, **values: Any) -> bool:
        """Take it for this worker and count the attempt; False where it has ended, or a live worker has it.

        values: further columns that an attempt begins with.
        """
        now = timezone.now()
        lost = ~Q(heartbeat_at__range=(now - STALE_AFTER, now + STALE_AFTER)) | Q(worker=worker)
        holder = self._rows.filter(pk=pk).values_list("worker", flat=True).first()
        if holder and workers.is_known_dead(holder):
            lost |= Q(worker=holder)
        free = self._rows.filter(Q(status=self.queued) | Q(lost, status=self.working), pk=pk)
        values |= {"status": self.working, "worker": worker, "heartbeat_at": now}
        return bool(free.update(attempts=F("attempts") + 1, **values))

    def held(self, pk: int, worker: str) -> QuerySet[M]:
        """The row while this worker has it; what it stores goes through here, and changes nothing once it is lost."""
        return self._rows.filter(pk=pk, worker=worker, status=self.working)

    def beat(self, pk: int, worker: str, **values: Any) -> bool:
        """Say that the worker lives, and store what it came to; False where another has the job."""
        return bool(self.held(pk, worker).update(heartbeat_at=timezone.now(), **values))

    def beating(self) -> QuerySet[M]:
        """Those that a worker has which may be alive."""
        now = timezone.now()
        return self._rows.filter(status=self.working, heartbeat_at__range=(now - STALE_AFTER, now + STALE_AFTER))

    def sweep(self) -> list[int]:
        """Send again what no live worker has: a dead one's, and what was never delivered.  Returns the keys."""
        now = timezone.now()
        found = []
        for row in self._rows.filter(status__in=(self.queued, self.working)).values(
            "pk", "status", "worker", "heartbeat_at", "created_at"
        ):
            last = row["heartbeat_at"] or row["created_at"]
            lost = row["status"] == self.working and workers.is_known_dead(row["worker"])
            # A heartbeat of the future was given before the clock was set back, and tells nothing.
            if lost or abs(now - last) > STALE_AFTER:
                # What waits is on its way now, and not sent again at every sweep.
                self._rows.filter(pk=row["pk"], status=self.queued).update(heartbeat_at=now)
                self.send(row["pk"])
                found.append(row["pk"])
        return found

    def send(self, pk: int) -> None:
        """Hand it to the workers.  Where the broker cannot be reached the sweep does so later."""
        try:
            current_app.send_task(self.task, args=[pk], retry=False)
        except (OperationalError, OSError):
            name = self.model._meta.verbose_name
            logger.warning("%s %s is not queued: the broker cannot be reached; the sweep will take it up", name, pk)

    @property
    def _rows(self) -> QuerySet[M]:
        return self.model._default_manager.all()
