"""The application under attack: started as `make run` does, and its processes by piece."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import httpx

from asapweb.launcher.orphans import find_marked

#: What of our own environment the application sees.
KEPT = ("PATH", "LANG", "LD_LIBRARY_PATH", "PYTHONPATH", "OPENAI_BASE_URL", "OPENAI_API_KEY", "ASAP_LLM_MODEL")


class Running:
    """`asap run` on one data folder and one port, started again whenever it is gone.  log: what it printed."""

    def __init__(self, home: Path, **variables: str) -> None:
        self.home = home
        self.port = _free_port()
        self.environment = {name: os.environ[name] for name in KEPT if name in os.environ}
        self.environment |= {"HOME": str(home), "ASAP_HOME": str(home), "ASAP_SAMPLES": "0", "PORT": str(self.port)}
        self.environment |= variables
        self.log = home.parent / f"{home.name}.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.lock = threading.Lock()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        program = "import sys; from asapweb.cli import main; sys.exit(main(['run']))"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", program], env=self.environment, stdout=log, stderr=log, start_new_session=True
            )

    def ensure(self) -> None:
        """Start it where it is gone: killed, or refused to start because the one before was still ending."""
        with self.lock:
            if self.process is None or self.process.poll() is not None:
                self.start()

    def wait_until_ready(self, for_s: float) -> None:
        deadline = time.monotonic() + for_s
        while not self.is_ready():
            self.ensure()
            if time.monotonic() > deadline:
                raise SystemExit(f"the application is not ready after {for_s:.0f} s; see {self.log}")
            time.sleep(0.3)

    def is_ready(self) -> bool:
        with suppress(httpx.HTTPError, ValueError):
            return bool(httpx.get(f"{self.address}/healthz", timeout=5).json()["status"] == "ok")
        return False

    def kill(self, piece: str, chance: random.Random) -> bool:
        """Kill one process of a piece with SIGKILL: its first, or one that it started.  False where none runs."""
        if piece == "launcher":
            pids = [self.process.pid] if self.process is not None and self.process.poll() is None else []
        elif piece == "PostgreSQL":
            pids = _number_in(self.home / "postgres" / "postmaster.pid")
        elif piece == "Redis":
            pids = _number_in(self.home / "redis" / "redis.pid")
        else:
            pids = find_marked(self.home, piece)
        if not pids:
            return False
        with suppress(ProcessLookupError):
            os.kill(chance.choice(pids), signal.SIGKILL)
        if piece == "launcher" and self.process is not None:
            self.process.wait()
        return True

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(60)
                return
            self.process.kill()


def _number_in(path: Path) -> list[int]:
    try:
        return [int(path.read_text().split("\n", 1)[0])]
    except (OSError, ValueError):
        return []


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
