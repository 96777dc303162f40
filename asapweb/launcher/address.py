"""Where the web server listens."""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass, field

from asapweb.user_error import UserError

FIRST_PORT = 8000
PORTS_TRIED = 100


@dataclass(frozen=True)
class Address:
    """A host and a port; `moved` where the first choice was taken.

    claim: keeps other launchers from the port until this one ends.  The web server listens seconds after its port was
    found free, and lets others listen beside it (SO_REUSEPORT), so that two would share their visitors.
    """

    host: str
    port: int
    moved: bool = False
    claim: socket.socket | None = field(default=None, repr=False, compare=False)

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
            raise UserError(f"{port} is not a port: choose one from 1 to 65535.")
        return Address(host, port, claim=_try(host, port, explicit=True))
    for candidate in range(FIRST_PORT, FIRST_PORT + PORTS_TRIED):
        if claim := _try(host, candidate, explicit=False):
            return Address(host, candidate, moved=candidate != FIRST_PORT, claim=claim)
    raise UserError(
        f"All ports from {FIRST_PORT} to {FIRST_PORT + PORTS_TRIED - 1} are in use: choose one with PORT=…."
    )


def _try(host: str, port: int, *, explicit: bool) -> socket.socket | None:
    """The claim to the port; None where it is taken, UserError where just this one was asked for."""
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError:
        raise UserError(f"{host} is not an address of this machine: choose another with ASAP_HOST.") from None
    family, kind, protocol, _, place = addresses[0]
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0asapweb-port-{port}")  # a name of the kernel's, gone with the process that holds it
        with socket.socket(family, kind, protocol) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(place)
            listener.listen()
    except OSError as error:
        claim.close()
        if error.errno == errno.EADDRINUSE and not explicit:
            return None
        raise UserError(_refusal(host, port, error)) from None
    return claim


def _refusal(host: str, port: int, error: OSError) -> str:
    if isinstance(error, PermissionError):
        return f"Port {port} is reserved for root: choose one above 1023 with PORT=…."
    if error.errno == errno.EADDRINUSE:
        return f"Port {port} on {host} is in use by another program: choose another with PORT=…, or omit it."
    return f"{host} cannot be listened on ({error.strerror}): choose another with ASAP_HOST."
