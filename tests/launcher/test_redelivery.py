"""What a killed worker had taken from the queue goes to the next one at once, not after the visibility timeout."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kombu import Connection

from asapweb.launcher.redis import Redis, place_redis
from tests.launcher.application import environment, eventually

TAKES_AND_HANGS = """
import sys, time
from kombu import Connection
with Connection(sys.argv[1]) as connection:
    queue = connection.SimpleQueue("celery")
    message = queue.get(timeout=20)   # never acknowledged
    print("taken", flush=True)
    time.sleep(600)
"""

NEXT_WORKER_STARTS = """
from celery.signals import worker_init
from asapweb.celery import app
worker_init.send(sender=None)
"""


@pytest.fixture
def redis(folder: Path) -> Iterator[Redis]:
    with _serving(folder) as server:
        yield server


@contextmanager
def _serving(folder: Path) -> Iterator[Redis]:
    server = place_redis(folder)
    process = subprocess.Popen(server.command(), stdout=subprocess.DEVNULL)
    assert eventually(server.is_alive, within_s=20)
    yield server
    process.terminate()
    process.wait(20)


@pytest.mark.parametrize(("sole", "waiting"), [("1", 1), ("0", 0)])
def test_unacknowledged_work_of_a_killed_worker(folder: Path, redis: Redis, sole: str, waiting: int) -> None:
    with Connection(redis.url) as connection:
        connection.SimpleQueue("celery").put({"run": 7})
        worker = subprocess.Popen([sys.executable, "-c", TAKES_AND_HANGS, redis.url], stdout=subprocess.PIPE, text=True)
        assert worker.stdout is not None
        assert worker.stdout.readline() == "taken\n"
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        assert _waiting(connection) == 0
        subprocess.run(
            [sys.executable, "-c", NEXT_WORKER_STARTS],
            env=environment(
                folder, CELERY_BROKER_URL=redis.url, ASAP_SOLE_WORKER=sole, DJANGO_SETTINGS_MODULE="asapweb.settings"
            ),
            check=True,
        )
        assert _waiting(connection) == waiting
        if waiting:
            assert connection.SimpleQueue("celery").get(timeout=5).payload == {"run": 7}


def test_work_that_redis_6_wrote_is_delivered(folder: Path) -> None:
    written = [["SELECT", "0"], ["RPUSH", "celery", "first"], ["RPUSH", "celery", "second"], ["LPOP", "celery"]]
    lines = [line for command in written for line in (f"*{len(command)}", *(f"${len(w)}\r\n{w}" for w in command), "")]
    (folder / "appendonly.aof").write_text("\r\n".join(filter(None, lines)) + "\r\n", newline="")
    with _serving(folder) as server, Connection(server.url) as connection:
        assert connection.default_channel.client.lrange("celery", 0, -1) == [b"second"]


def _waiting(connection: Connection) -> int:
    count: int = connection.default_channel.client.llen("celery")
    return count
