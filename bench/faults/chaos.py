"""What goes wrong: killed processes, an emptied queue, a full disk, a clock that jumps."""

from __future__ import annotations

import random
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psycopg
import redis

from bench.faults.running import Running

PIECES = ("worker", "answerer", "web server", "PostgreSQL", "Redis")
#: The columns by which workers are known to live, which a clock that jumps makes old or moves into the future.
HEARTBEATS = {
    "experiments_run": "heartbeat_at",
    "proposals_planrequest": "heartbeat_at",
    "proposals_consultation": "heartbeat_at",
    "dialogue_message": "heartbeat_at",
    "knowledge_document": "heartbeat_at",
    "knowledge_embeddingjob": "heartbeat_at",
}
FULL_FOR_S = 4.0
#: How long a piece may take to be there again.
START_S = 60.0


class Chaos:
    """Does one thing after another to a running application, by chance.

    every_s: between two of them, at most.  own_disk: the data folder has a file system of its own, which may be filled.
    done: what was done, how often.
    """

    def __init__(self, running: Running, chance: random.Random, every_s: float, own_disk: bool) -> None:
        self.running, self.chance, self.every_s = running, chance, every_s
        self.done: Counter[str] = Counter()
        self.stopped, self.first_round = threading.Event(), threading.Event()
        kill: dict[str, Callable[[], object]] = {piece: self._killer(piece) for piece in (*PIECES, "launcher")}
        others: dict[str, Callable[[], object]] = {
            "queue emptied": self.empty_queue,
            "clock forward": lambda: self.shift("-"),
            "clock back": lambda: self.shift("+"),
        }
        if own_disk:
            others["disk full"] = self.fill_disk
        self.faults = {**{f"{piece} killed": fault for piece, fault in kill.items()}, **others}

    def run(self, least_rounds: int = 1) -> None:
        """Until stopped, but each fault at least so often; each round in another order."""
        rounds = 0
        while not self.stopped.is_set() or rounds < least_rounds:
            names = list(self.faults)
            self.chance.shuffle(names)
            for name in names:
                if self.stopped.is_set() and rounds >= least_rounds:
                    break
                self._do(name)
                time.sleep(self.chance.uniform(0.2, 1.0) * self.every_s)
            rounds += 1
            self.first_round.set()

    def _do(self, name: str) -> None:
        """Once it can be done: what is to be killed may just be starting."""
        deadline = time.monotonic() + START_S
        while self.faults[name]() is False and time.monotonic() < deadline:
            self.running.ensure()
            time.sleep(0.2)
        self.running.ensure()
        self.done[name] += time.monotonic() < deadline

    def _killer(self, piece: str) -> Callable[[], object]:
        return lambda: self.running.kill(piece, self.chance)

    def empty_queue(self) -> bool:
        """All messages are gone, those included that a worker has taken and not acknowledged."""
        try:
            with redis.Redis(unix_socket_path=str(self.running.home / "redis" / "redis.sock")) as client:
                client.flushall()
        except redis.RedisError:
            return False
        return True

    def shift(self, way: str) -> bool:
        """Ten minutes, as seen from the heartbeats.  way: `-` where the clock went forward, `+` where it went back."""
        try:
            with _connect(self.running.home) as connection:
                for table, column in HEARTBEATS.items():
                    connection.execute(f"update {table} set {column} = {column} {way} interval '10 minutes'".encode())
        except psycopg.Error:
            return False
        return True

    def fill_disk(self) -> bool:
        """Until not a byte is free, for a while."""
        filler = self.running.home.parent / "filler"
        try:
            with filler.open("wb", buffering=0) as file, suppress(OSError):
                while shutil.disk_usage(filler).free > 0:
                    file.write(b"\0" * (1 << 20))
                    if file.tell() > 1 << 34:
                        break
            time.sleep(FULL_FOR_S)
        finally:
            filler.unlink(missing_ok=True)
        return True


def settle(home: Path) -> None:
    """The clock goes forward once more, so that nobody has to wait for what only time tells.

    Not relative: the jumps of before are forgotten.
    """
    with _connect(home) as connection:
        for table, column in HEARTBEATS.items():
            connection.execute(f"update {table} set {column} = now() - interval '10 minutes'".encode())


def _connect(home: Path) -> psycopg.Connection[tuple[object, ...]]:
    return psycopg.connect(host=str(home / "postgres"), user="postgres", dbname="asap", connect_timeout=5)
