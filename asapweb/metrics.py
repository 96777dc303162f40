"""Metrics for Prometheus: what only the application knows.

All are read from database and disk when they are asked for: every replica and web process says the same, nothing is
counted twice, and nothing is lost when a process ends.  Rates and latencies of requests are the proxy's to measure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db.models import Count, Min, Q
from django.utils import timezone
from django.utils.module_loading import autodiscover_modules
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4 as CONTENT_TYPE
from prometheus_client.registry import Collector

from accounts.attempts import WINDOW
from accounts.models import SignInAttempt
from disk import space
from jobs import jobs
from jobs.jobs import Jobs

__all__ = ["CONTENT_TYPE", "exposition"]


def exposition(states: Mapping[str, str]) -> bytes:
    """Return the metrics as text.  states: "ok" or what is wrong, by part."""
    registry = CollectorRegistry()
    registry.register(_Application(states))
    return generate_latest(registry)


class _Application(Collector):
    def __init__(self, states: Mapping[str, str]) -> None:
        self._states = states

    def collect(self) -> Iterator[GaugeMetricFamily]:
        working = {part: float(state == "ok") for part, state in self._states.items()}
        yield _gauge("asap_ok", "1 if the part works, 0 if it is degraded", "part", working)
        home = Path(settings.ASAP_HOME)
        yield _gauge("asap_disk_free_bytes", "free bytes of the data folder's disk", value=space.free_bytes(home))
        kept = space.keep_free_bytes()
        yield _gauge("asap_disk_reserve_bytes", "free bytes below which uploads are refused", value=kept)
        if self._states["database"] == "ok":
            yield from _of_database()


def _of_database() -> Iterator[GaugeMetricFamily]:
    counts = GaugeMetricFamily("asap_jobs", "jobs in the database by kind and status", labels=("job", "status"))
    waits = {}
    for kind in _kinds():
        name = kind.model._meta.label_lower
        rows = kind.model._default_manager.order_by()
        for status, count in rows.values_list(kind.column).annotate(Count("pk")):
            counts.add_metric((name, str(status)), count)
        waiting = rows.filter(kind.ready or Q(), worker="", **{f"{kind.column}__in": kind.open})
        oldest = waiting.aggregate(at=Min("created_at"))["at"]
        waits[name] = 0.0 if oldest is None else max(0.0, (timezone.now() - oldest).total_seconds())
    yield counts
    yield _gauge("asap_job_oldest_wait_seconds", "age of the oldest job that no worker has", "job", waits)
    failed = SignInAttempt.objects.filter(about__startswith="address ", at__gte=timezone.now() - WINDOW).count()
    yield _gauge("asap_wrong_passwords", "wrong passwords in the last 15 minutes", value=failed)


@cache
def _kinds() -> tuple[Jobs[Any], ...]:
    """Return all kinds of jobs, which a web process has not imported before its first page."""
    autodiscover_modules("tasks")
    return jobs.kinds()


def _gauge(
    name: str, text: str, label: str = "", values: Mapping[str, float] | None = None, value: float | None = None
) -> GaugeMetricFamily:
    """Return a gauge with one value, or with one for each value of its label."""
    family = GaugeMetricFamily(name, text, value=value, labels=None if value is not None else (label,))
    for key, each in (values or {}).items():
        family.add_metric((key,), each)
    return family
