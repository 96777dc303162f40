"""What each page and list takes when nobody else asks: server time, processor time, queries."""

from __future__ import annotations

import gc
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.population import routes
from bench.retrieval import Timed, timed

AIM_P95_S = 0.150


@dataclass(frozen=True)
class Opened:
    """One address.  repeated: how often the most frequent statement was sent; database_s: of one request."""

    route: str
    address: str
    timed: Timed
    queries: int
    repeated: int
    slowest: tuple[float, str]
    size_bytes: int

    @property
    def p50_s(self) -> float:
        return float(np.percentile(self.timed.wall_s, 50))

    @property
    def p95_s(self) -> float:
        return self.timed.p95_s

    @property
    def processor_p95_s(self) -> float:
        return float(np.percentile(self.timed.processor_s, 95))

    def __str__(self) -> str:
        late = "  over the aim" if self.p95_s > AIM_P95_S else ""
        return (
            f"{self.route:28.28} {self.address:58.58} {self.p50_s * 1e3:7.1f} {self.p95_s * 1e3:7.1f} "
            f"{self.processor_p95_s * 1e3:7.1f} {self.queries:4} {self.repeated:3} "
            f"{self.slowest[0] * 1e3:7.1f}{late}"
        )


def client_of(team: Any) -> Any:
    """A browser of the team's administrator."""
    from django.test import Client

    client = Client(SERVER_NAME="localhost")
    client.force_login(team.memberships.filter(role="administrator").order_by("pk")[0].user)
    return client


def opened(client: Any, route: str, address: str, requests: int) -> Opened:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    def get(address: str) -> Any:
        return client.get(address, follow=True)

    response = get(address)
    if response.status_code != 200:
        raise SystemExit(f"{address} answered {response.status_code}")
    with CaptureQueriesContext(connection) as captured:
        size = len(get(address).getvalue())
    statements = [query["sql"] for query in captured.captured_queries]
    alike = Counter(_shape(statement) for statement in statements)
    slowest = max(((float(q["time"]), q["sql"]) for q in captured.captured_queries), default=(0.0, ""))
    timing = timed([address] * requests, get, warm=0)
    return Opened(route, address, timing, len(statements), max(alike.values(), default=0), slowest, size)


def _shape(statement: str) -> str:
    """The statement without its numbers, so that one per row of a list shows."""
    return re.sub("[0-9]{1,2}", "#", statement)[:400]


def measure(team: Any, requests: int, only: str = "") -> list[Opened]:
    """Every address of `routes`, in the eyes of the team's administrator."""
    from experiments.models import Event

    client, pages = client_of(team), []
    client.get("/")
    gc.collect()
    gc.freeze()  # as the web server does (asapweb/asgi.py)
    rows = routes.rows_of(team)
    recorded = Event.objects.filter(message=rows.answer).exists()
    for route, addresses in routes.addresses(rows).items():
        # What is computed without a model has no steps to replay.
        if (only and only not in route) or (route == "replay" and not recorded):
            continue
        for address in addresses:
            pages.append(opened(client, route, address, requests))
            print(pages[-1], flush=True)
    return pages
