"""The labelled logs: which cause each has, and to which half it belongs."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Labelled:
    """One log.  cause, verdict: as a person read it.  source: the public thread that it is modelled on."""

    name: str
    cause: str
    verdict: str
    source: str

    @property
    def path(self) -> Path:
        return _HERE / "logs" / f"{self.name}.log"

    @property
    def text(self) -> str:
        return self.path.read_text()

    @property
    def seen(self) -> bool:
        """Whether signatures may be written from it; the other half is only measured.  By a hash of the name."""
        return sha256(self.name.encode()).digest()[0] % 2 == 0


@cache
def labelled() -> tuple[Labelled, ...]:
    """All logs of index.toml, in its order."""
    rows: Mapping[str, Mapping[str, str]] = tomllib.loads((_HERE / "index.toml").read_text())
    return tuple(Labelled(name, row["cause"], row["verdict"], row["source"]) for name, row in rows.items())
