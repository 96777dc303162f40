"""One job in the hands of workers: sent, claimed by compare-and-set, kept by a heartbeat, taken over, swept.

A job is a row of a `jobs.models.Job` and a task that takes its primary key.  The row alone decides who works: a message
delivered twice is claimed once, one that was lost is sent again by the sweep.  Where a kind names its team, a message
starts whichever job of the queue is next (`jobs.turns`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from errno import EDQUOT, ENOSPC
from functools import wraps
from typing import Any, Generic, TypeVar

from django.db import InterfaceError, OperationalError, transaction
from django.db.models import F, Q, QuerySet
from django.utils import timezone

from jobs import turns, workers
from jobs.declared import DeclaredTask
from jobs.models import Job

logger = logging.getLogger(__name__)

#: Who has not said for so long that it lives is dead; a message that nobody took up for so long was lost.
STALE_AFTER = timedelta(seconds=30)
#: Younger rows that were never claimed are still on their way to a worker.
DELIVERED_AFTER = timedelta(seconds=10)

#: Messages of jobs that queue up are delivered after all others: the sweep must not wait behind hundreds of uploads.
BACKLOG_PRIORITY = 6
#: Jobs that take turns run under the same limit (s), since a message may start any of them: a trial of an hour too.
LONGEST_S = 3_900

M = TypeVar("M", bound=Job)

#: Every kind, by the name of its task, and the functions of those that this process implements: all, in a worker.
_declared: dict[str, Jobs[Any]] = {}
_functions: dict[str, Callable[[int], Any]] = {}


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
    team: str | None = None  # lookup of the team's key, by which turns are taken; None: a message is about its own row
    ready: Q | None = None  # the open rows that a worker may start now; None: all
    max_at_once: int | None = None  # of all workers together

    def __post_init__(self) -> None:
        _declared[self.task.name] = self

    @property
    def task(self) -> DeclaredTask:
        name = f"work.{self.model._meta.label_lower}"
        return DeclaredTask(name, self.queue, BACKLOG_PRIORITY if self.team is not None else 0)

    def implementation(self, **options: Any) -> Callable[[Callable[[int], Any]], Callable[[int], Any]]:
        """Decorator of the function that does the work of a primary key; options as of Celery's `shared_task`."""

        def decorate(function: Callable[[int], Any]) -> Callable[[int], Any]:
            @wraps(function)
            def in_turn(pk: int) -> None:
                self._work_in_turn()

            _functions[self.task.name] = function
            if self.team is not None:
                options.update(soft_time_limit=LONGEST_S, time_limit=LONGEST_S + 60)
            register = self.task.implementation(acks_late=True, reject_on_worker_lost=True, **options)
            return register(function if self.team is None else in_turn)

        return decorate

    def _work_in_turn(self) -> None:
        """Do the job of the queue whose turn it is, and let another worker look for the one after it."""
        job = turns.take([kind for kind in self._peers if kind.task.name in _functions], workers.this_thread())
        if job is None:
            return
        try:
            _functions[job.kind.task.name](job.pk)
        finally:
            # Some message may have found nothing to start while this job held its team or kind at the limit.
            if any(peer.waiting().exists() for peer in self._peers):
                self.send(job.pk)

    def jobs_before(self, pk: int) -> int | None:
        """Return the number of jobs that start before one that waits for a worker; None if it does not wait."""
        return turns.jobs_before(self._peers, self, pk)

    @property
    def _peers(self) -> list[Jobs[Any]]:
        """The kinds that take turns with this one."""
        return [kind for kind in _declared.values() if kind.queue == self.queue and kind.team is not None]

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

    def take(self, pk: int, fail: Callable[[M, str], object], *related: str, **values: Any) -> M | None:
        """Claim it for this thread, and return the row with what is `related`.

        None where it has ended, a live worker has it, or it killed its workers: then it is ended by `fail`.
        """
        worker = workers.this_thread()
        if not self.claim(pk, worker, **values):
            return None
        row = self.row_of_worker(pk, worker).select_related(*related).first()
        if row is not None and row.attempts > self.most_attempts:
            fail(row, f"{self.gave_up}.")
            return None
        return row

    @contextmanager
    def doing(
        self,
        row: M,
        fail: Callable[[M, str], object],
        expected: tuple[type[Exception], ...] = (),
        *duties: tuple[float, Callable[[], object]],
    ) -> Iterator[None]:
        """Keep a row that was taken while the block works on it.

        An `expected` error ends it by `fail`, with its sentence.  Our own faults do too, and are raised again; where
        the database is away or a disk is full, which pass by themselves, the row is left for the sweep.
        """
        try:
            with self.beating(row.pk, row.worker, *duties):
                yield
        except expected as error:
            fail(row, str(error))
        except Exception as error:
            if isinstance(error, OperationalError | InterfaceError) or getattr(error, "errno", 0) in (ENOSPC, EDQUOT):
                raise
            logger.exception("%s %s failed", self.model._meta.label_lower, row.pk)
            name = self.model._meta.verbose_name
            fail(row, f"Internal error ({type(error).__name__}); retry, or report {name} {row.pk}.")
            raise

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

    def waiting(self, idle: Sequence[str] = ()) -> QuerySet[M]:
        """Return the rows that a worker may start: nobody has them, or only a holder that is stale or in `idle`."""
        free = Q(worker__in=["", *idle]) | ~_fresh(timezone.now())
        return self._open.filter(free if self.ready is None else free & self.ready)

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


def kinds() -> tuple[Jobs[Any], ...]:
    """Return every kind whose service has been imported."""
    return tuple(_declared.values())


def sweep_all() -> dict[str, list[int]]:
    """Sweep every kind; returns the keys that were sent again, by task."""
    swept = {name: kind.sweep() for name, kind in _declared.items() if name in _functions}
    return {name: keys for name, keys in swept.items() if keys}


def _fresh(now: Any) -> Q:
    """A heartbeat of the future was given before the clock was set back, and tells nothing."""
    return Q(heartbeat_at__range=(now - STALE_AFTER, now + STALE_AFTER))
