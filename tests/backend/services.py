"""A real Redis and a real Celery worker on the test session's database."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from django.conf import settings
from django.db import connection

from asapweb.launcher.redis import Redis, place_redis

CODE = Path(__file__).resolve().parents[2]


def eventually(condition: Callable[[], Any], timeout_s: float = 60.0, what: str = "") -> Any:
    """What `condition` returns once it is true; asserts after the time is up."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.05)
    raise AssertionError(f"not within {timeout_s:.0f} s: {what or condition}")


@contextmanager
def redis_server() -> Iterator[Redis]:
    with tempfile.TemporaryDirectory(prefix="asap-redis-", dir="/tmp") as folder:
        redis = place_redis(Path(folder))
        process = subprocess.Popen(redis.command(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            eventually(redis.is_alive, 20, "Redis answers")
            yield redis
        finally:
            process.kill()
            process.wait()


class Worker:
    """`celery worker` with one process for tasks, in a process group of its own; `log` is what it wrote."""

    def __init__(self, broker_url: str, home: Path, *options: str) -> None:
        database = connection.settings_dict
        host = quote(str(database["HOST"]), safe="")
        self.log_path = home / f"worker-{time.monotonic_ns()}.log"
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable, "-W", "ignore::RuntimeWarning", "-m", "celery", "-A", "asapweb.celery", "worker",
                    "--pool", "prefork", "--concurrency", "1", "--loglevel", "INFO",
                    "--without-gossip", "--without-mingle", *options,
                ],
                env={
                    **os.environ,
                    "DATABASE_URL": f"postgresql://{database['USER']}@{host}/{database['NAME']}",
                    "CELERY_BROKER_URL": broker_url,
                    "ASAP_HOME": str(home),
                    "SECRET_KEY": settings.SECRET_KEY,
                    "C_FORCE_ROOT": "1",
                    "PYTHONPATH": str(CODE),
                },
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=CODE,
                start_new_session=True,
            )  # fmt: skip
        eventually(lambda: " ready." in self.log or self.process.poll() is not None, 60, "the worker is ready")
        assert self.process.poll() is None, self.log

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def children(self) -> list[int]:
        """Processes of the pool."""
        listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(self.process.pid)], capture_output=True, text=True)
        return [int(pid) for pid in listed.stdout.split()]

    def kill(self) -> None:
        """As if the machine had lost power: no process of the group gets to say anything."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.kill()


@contextmanager
def worker(broker_url: str, home: Path, *options: str) -> Iterator[Worker]:
    running = Worker(broker_url, home, *options)
    try:
        yield running
    finally:
        running.stop()


def dead_process() -> str:
    """The name, as a worker has one, of a process of this machine that is gone."""
    code = "from jobs import workers; print(workers.this_process())"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
