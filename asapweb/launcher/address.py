"""Where the web server listens."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from asapweb.cli.errors import UserError

FIRST_PORT = 8000
PORTS_TRIED = 100


@dataclass(frozen=True)
class Address:
    """A host and a port; `moved` where the first choice was taken."""

    host: str
    port: int
    moved: bool = False

    @property
    def is_loopback(self) -> bool:
        return self.host in ("localhost", "::1") or self.host.startswith("127.")

    @property
    def url(self) -> str:
        """As a browser on this machine opens it."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"


def choose_address(host: str, port: int | None) -> Address:
    """The given port, or the first free one from 8000 on.  Raises UserError where there is none."""
    if port is not None:
        if not 0 < port < 65536:
            raise UserError(f"{port} is no port: choose one from 1 to 65535.")
        _try(host, port, explicit=True)
        return Address(host, port)
    for candidate in range(FIRST_PORT, FIRST_PORT + PORTS_TRIED):
        if _try(host, candidate, explicit=False):
            return Address(host, candidate, moved=candidate != FIRST_PORT)
    raise UserError(f"All ports from {FIRST_PORT} to {FIRST_PORT + PORTS_TRIED - 1} are taken: choose one with PORT=….")


def _try(host: str, port: int, *, explicit: bool) -> bool:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError:
        raise UserError(f"{host} is no address of this machine: choose another with ASAP_HOST.") from None
    family, kind, protocol, _, place = found[0]
    try:
        with socket.socket(family, kind, protocol) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(place)
            listener.listen()
    except PermissionError:
        raise UserError(f"Port {port} is reserved for root: choose one above 1023 with PORT=….") from None
    except OSError as error:
        if error.errno == 98:  # EADDRINUSE
            if explicit:
                raise UserError(
                    f"Port {port} on {host} is taken by another program: choose another with PORT=…, or leave it out."
                ) from None
            return False
        raise UserError(f"{host} cannot be listened on ({error.strerror}): choose another with ASAP_HOST.") from None
    return True
