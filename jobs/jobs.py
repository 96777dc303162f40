"""One job in the hands of workers: sent, claimed by compare-and-set, kept by a heartbeat, taken over, swept.

A job is a row of a `jobs.models.Job` and a task that takes its primary key.  The row alone decides who works: a message
delivered twice is claimed once, one that was lost is sent again by the sweep.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar

from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.utils import timezone

from jobs import workers
from jobs.declared import DeclaredTask
from jobs.models import Job

#: Who has not said for so long that it lives is dead; a message that nobody took up for so long was lost.
STALE_AFTER = timedelta(seconds=30)
#: Younger rows that were never claimed are still on their way to a worker.
DELIVERED_AFTER = timedelta(seconds=10)

M = TypeVar("M", bound=Job)

#: The kinds that this process implements, which is all of them in a worker; `sweep_all` goes through them.
_implemented: list[Jobs[Any]] = []


def released(*, sent: bool = False) -> dict[str, Any]:
    """Columns of a row that nobody holds, whose attempts count anew.  sent: it is on its way to the workers."""
    return {"worker": "", "attempts": 0, "heartbeat_at": timezone.now() if sent else None}


@dataclass(frozen=True)
class Jobs(Generic[M]):
    """The jobs of one table.

    open: the values of `column` in which a job is not done.  working: what a claim sets it to; None where the column
    says how far the work is and stays.  most_attempts: who claims it more often gives up, since it kills its workers.
    """

    model: type[M]
    open: tuple[str, ...]
    working: str | None = None
    column: str = "status"
    queue: str | None = None
    most_attempts: int = 3

    @property
    def task(self) -> DeclaredTask:
        return DeclaredTask(f"work.{self.model._meta.label_lower}", self.queue)

    def implementation(self, **options: Any) -> Callable[[Callable[[int], Any]], Callable[[int], Any]]:
        """Decorator of the function that does the work of a primary key; options as of Celery's `shared_task`."""
        _implemented.append(self)
        return self.task.implementation(acks_late=True, reject_on_worker_lost=True, **options)

    @property
    def gave_up(self) -> str:
        """The beginning of the sentence with which a row ends that killed its workers."""
        return f"The worker died in each of {self.most_attempts} attempts"

    def send(self, pk: int, after_s: float = 0.0) -> bool:
        """Hand it to the workers.  Where the broker cannot be reached the sweep does so later."""
        return self.task.send(pk, after_s)

    def enqueue(self, pk: int) -> None:
        """Hand it to the workers once the transaction has committed."""
        transaction.on_commit(lambda: self.send(pk))

    def claim(self, pk: int, worker: str, **values: Any) -> bool:
        """Take it for this worker and count the attempt; False where it has ended, or a live worker has it.

        values: further columns that an attempt begins with.
        """
        now = timezone.now()
        free = Q(worker="") | Q(worker=worker) | ~_fresh(now)
        holder = self._open.filter(pk=pk).values_list("worker", flat=True).first()
        if holder and workers.is_known_dead(holder):
            free |= Q(worker=holder)
        values |= {"worker": worker, "heartbeat_at": now, "attempts": F("attempts") + 1}
        if self.working is not None:
            values[self.column] = self.working
        return bool(self._open.filter(free, pk=pk).update(**values))

    def row_of_worker(self, pk: int, worker: str) -> QuerySet[M]:
        """The row while this worker has it; what it stores goes through here, and changes nothing once it is lost."""
        return self._open.filter(pk=pk, worker=worker)

    def beat(self, pk: int, worker: str, **values: Any) -> bool:
        """Say that the worker lives, and store what it came to; False where another has the job."""
        return bool(self.row_of_worker(pk, worker).update(heartbeat_at=timezone.now(), **values))

    def beating(
        self, pk: int, worker: str, *duties: tuple[float, Callable[[], object]]
    ) -> AbstractContextManager[None]:
        """While the block runs, a thread says that the worker lives, and does further duties (`workers.beside`)."""
        beat = (workers.HEARTBEAT_EVERY_S, lambda: self.beat(pk, worker))
        return workers.beside(f"{self.model._meta.label_lower}-{pk}", *duties, beat)

    def alive(self) -> QuerySet[M]:
        """Those that a worker has which may be alive."""
        return self._open.filter(_fresh(timezone.now())).exclude(worker="")

    def sweep(self) -> list[int]:
        """Send again what no live worker has: a dead one's, and what was never delivered.  Returns the keys."""
        now = timezone.now()
        sent = []
        for row in self._open.values("pk", "worker", "heartbeat_at", "created_at"):
            waited = abs(now - (row["heartbeat_at"] or row["created_at"]))  # ahead of us: the clock was set back
            limit = STALE_AFTER if row["heartbeat_at"] else DELIVERED_AFTER
            if waited <= limit and not (row["worker"] and workers.is_known_dead(row["worker"])):
                continue
            unchanged = self._open.filter(pk=row["pk"], worker=row["worker"], heartbeat_at=row["heartbeat_at"])
            # It is on its way now, and not sent again at every sweep.
            if unchanged.update(worker="", heartbeat_at=now):
                self.send(row["pk"])
                sent.append(row["pk"])
        return sent

    @property
    def _open(self) -> QuerySet[M]:
        return self.model._default_manager.filter(**{f"{self.column}__in": self.open})


def sweep_all() -> dict[str, list[int]]:
    """Sweep every kind; returns the keys that were sent again, by task."""
    swept = {kind.task.name: kind.sweep() for kind in _implemented}
    return {name: keys for name, keys in swept.items() if keys}


def _fresh(now: Any) -> Q:
    """A heartbeat of the future was given before the clock was set back, and tells nothing."""
    return Q(heartbeat_at__range=(now - STALE_AFTER, now + STALE_AFTER))
