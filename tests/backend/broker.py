"""Point this process's Celery application at another broker for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from celery import current_app


@contextmanager
def broker(url: str) -> Iterator[None]:
    app = current_app._get_current_object()
    names = ("broker_url", "broker_read_url", "broker_write_url")
    before = {name: app.conf[name] for name in names}

    def use(values: dict[str, str]) -> None:
        app.conf.update(values)
        app._pool = app.amqp._producer_pool = None  # both keep connections to the broker before

    use(dict.fromkeys(names, url))
    try:
        yield
    finally:
        use(before)
