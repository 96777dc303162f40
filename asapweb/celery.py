"""The Celery application.  Its settings are the `CELERY_…` ones of asapweb/settings.py."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

from celery import Celery, bootsteps
from celery.signals import worker_before_create_process, worker_init

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "asapweb.settings")

app = Celery("asapweb")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()

#: A file that a consuming worker touches; set by who watches the worker.
HEARTBEAT_FILE = os.environ.get("ASAP_WORKER_HEARTBEAT", "")
HEARTBEAT_S = 2.0


class Heartbeat(bootsteps.StartStopStep):
    """Touches a file from the event loop while connected to the broker: an old file is a hung or cut-off worker."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Any, **options: Any) -> None:
        self.timer: Any = None

    def start(self, consumer: Any) -> None:
        path = Path(HEARTBEAT_FILE)
        path.touch()
        self.timer = consumer.timer.call_repeatedly(HEARTBEAT_S, path.touch)

    def stop(self, consumer: Any) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


if HEARTBEAT_FILE:
    app.steps["consumer"].add(Heartbeat)


@worker_init.connect
def redeliver_of_dead_worker(**_: Any) -> None:
    """Where this is the only worker of its broker, whatever is not acknowledged belonged to a dead one: deliver now.

    Elsewhere the broker delivers it again after its visibility timeout.
    """
    if os.environ.get("ASAP_SOLE_WORKER") != "1":
        return
    with app.connection_for_read() as connection:
        channel: Any = connection.channel()
        with channel.conn_or_acquire() as client:
            for tag in client.zrange(channel.unacked_index_key, 0, -1):
                channel.qos.restore_by_tag(tag, client=client, leftmost=True)


@worker_before_create_process.connect
def share_what_is_loaded(**_: Any) -> None:
    """Processes of the pool begin with our memory; the collector, which writes to all it looks at, leaves it shared."""
    gc.collect()
    gc.freeze()
