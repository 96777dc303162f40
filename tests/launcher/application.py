"""Starts the real application in the tests, as `make run` does."""

from __future__ import annotations

import http.client
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

from asapweb.launcher.orphans import PIECE_MARK, find_marked
from asapweb.launcher.postgres import place_cluster

CODE = Path(__file__).resolve().parent.parent.parent
UNPRIVILEGED = "nobody"
#: Of one body, where a test asks what happens above it.
UPLOAD_LIMIT_MB = 500


def environment(home: Path, **variables: str) -> dict[str, str]:
    """Of a new user: nothing of this test session but the path.  Without samples, which would keep the worker busy, and
    with one process that serves pages."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LD_LIBRARY_PATH") if name in os.environ}
    return {
        **kept,
        "HOME": str(home),
        "ASAP_SAMPLES": "0",
        "ASAP_WEB_WORKERS": "1",
        "ASAP_HOME": str(home),
        "PYTHONPATH": os.environ.get("ASAP_TEST_CODE", str(CODE)),
        **variables,
    }


def command(*arguments: str, user: str | None = None) -> list[str]:
    asap = [sys.executable, "-c", "import sys; from asapweb.cli import main; sys.exit(main())", *arguments]
    if user is None:
        return asap
    account = pwd.getpwnam(user)
    return ["setpriv", f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups", "--", *asap]


@cache
def ordinary_user() -> str | None:
    """Who runs the application as people do: we ourselves, as None, or `nobody` where we are root and they can run
    Python, which may lie in another user's folder."""
    if os.getuid() != 0:
        return None
    # Twice, because the first program may still be found with root's rights.
    as_user = command(user=UNPRIVILEGED)[: command(user=UNPRIVILEGED).index("--") + 1]
    tried = subprocess.run(
        [*as_user, "setpriv", "--", sys.executable, "-c", ""], env=environment(Path("/")), check=False, cwd="/"
    )
    return UNPRIVILEGED if tried.returncode == 0 else None


def refused(home: Path, *arguments: str, user: str | None = None, **variables: str) -> str:
    """The sentence with which a start is refused; checks that it is one, on stderr, with status 2."""
    done = subprocess.run(
        command("run", *arguments, user=user),
        env=environment(home, **variables),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2, done
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done
    assert len(lines[0]) <= 300
    return lines[0]


class Application:
    """A running `asap run`.  `output` holds the lines printed so far."""

    def __init__(self, home: Path, *arguments: str, user: str | None = None, **variables: str) -> None:
        self.home = home
        self.process = subprocess.Popen(
            command("run", *arguments, user=user),
            env=environment(home, **variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.output: list[str] = []
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.output.append(line.rstrip("\n"))
            if "Ctrl-C" in line:
                break
        else:
            raise AssertionError("the application did not start:\n" + "\n".join(self.output))
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        """Collect what the running application prints."""
        assert self.process.stdout is not None
        self.output.extend(line.rstrip("\n") for line in self.process.stdout)

    @property
    def text(self) -> str:
        return "\n".join(self.output)

    @property
    def address(self) -> str:
        return self._found(r"^Open\s+(\S+)$")

    @property
    def sign_in_link(self) -> str:
        return self._found(r"^Sign in\s+(\S+)")

    def get(self, path: str) -> tuple[int, str]:
        """Status and body of a GET."""
        place = urlsplit(self.address)
        connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=20)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def is_ready(self) -> bool:
        try:
            return self.get("/readyz")[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def main_process(self, piece: str) -> int:
        """The process that the launcher itself started for a piece."""
        for pid in children(self.process.pid):
            if piece == _piece(pid):
                return pid
        raise AssertionError(f"no process of {piece}")

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        """Send the signal and wait for the orderly end; returns the exit status."""
        self.process.send_signal(number)
        try:
            self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:  # its pieces die with it, and the next test has its own folder
            self.process.kill()
            raise
        self._reader.join(timeout=10)
        return self.process.returncode

    def _found(self, pattern: str) -> str:
        match = re.search(pattern, self.text, re.MULTILINE)
        assert match, self.text
        return match.group(1)


@contextmanager
def running(home: Path, *arguments: str, user: str | None = None, **variables: str) -> Iterator[Application]:
    application = Application(home, *arguments, user=user, **variables)
    try:
        yield application
    finally:
        if application.process.poll() is None:
            application.stop()


def in_database(home: Path, *statements: str) -> None:
    """Of a data folder on which nothing runs."""
    cluster = place_cluster(home, home / "log")
    with cluster.running(), cluster.connect(database="asap") as connection:
        for statement in statements:
            connection.execute(statement.encode())


def without_vector(home: Path) -> int:
    """Rows whose vectors the application still computes."""
    with psycopg.connect(host=str(home / "postgres"), user="postgres", dbname="asap") as connection:
        row = connection.execute(
            "select (select count(*) from knowledge_passage where embedding is null)"
            " + (select count(*) from history_historyrecord where embedding is null)"
        ).fetchone()
    assert row is not None
    return int(row[0])


def new_folder() -> Path:
    """Directly below /tmp: pytest's own folders are closed to the user under whom root's PostgreSQL runs."""
    folder = Path(tempfile.mkdtemp(prefix="asap-run-", dir="/tmp"))
    folder.chmod(0o755)
    return folder


@contextmanager
def copied(home: Path) -> Iterator[Path]:
    """A copy of a data folder on which nothing runs."""
    path = new_folder()
    subprocess.run(["cp", "-a", str(home), str(path / "data")], check=True)
    yield path / "data"
    shutil.rmtree(path, ignore_errors=True)


def _piece(pid: int) -> str:
    """Which piece a child of the launcher is: by its mark; PostgreSQL and Redis overwrite theirs with a title."""
    command = Path(f"/proc/{pid}/cmdline").read_bytes()
    if b"postgres\0-D" in command:
        return "PostgreSQL"
    if b"valkey-server" in command:
        return "Redis"
    for variable in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
        if variable.startswith(f"{PIECE_MARK}=".encode()):
            return variable.partition(b"=")[2].decode()
    return ""


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def processes_of(home: Path) -> list[str]:
    """What still runs on a data folder: by our mark, PostgreSQL and Redis by their folders."""
    found = set(find_marked(home))
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                started = (entry / "cmdline").read_bytes()
                if any(str(home / service).encode() in started for service in ("postgres", "redis")):
                    found.add(int(entry.name))
            except OSError:
                continue
    found.discard(os.getpid())
    names = []
    for pid in found:
        try:
            names.append(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return [name for name in names if name]


def eventually(condition: Callable[[], bool], within_s: float = 60.0) -> bool:
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True
