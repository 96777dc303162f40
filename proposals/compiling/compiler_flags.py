"""Which flags of a configuration reach the compiler of this server: `refused_flag`.

A configuration is text of a user, and flags of XLA name files to write and libraries to load.  Performance flags that
`perfmodel` documents, or the shipped history measured, pass with plain values; launch files keep all of them, quoted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from history.seeds import records
from perfmodel import known_flags

_VALUE = re.compile(r"[A-Za-z0-9_.,+-]{0,100}")


def words(written: Sequence[str]) -> tuple[str, ...]:
    """Return the flags one by one, each with its two dashes: XLA takes what begins otherwise for the name of a file."""
    parts = [part for text in written for part in text.split()]
    return tuple(f"--{part.lstrip('-')}" for part in parts)


def refused_flag(written: Sequence[str], platform: str) -> str | None:
    """Return one sentence about the first flag that this server's compiler for `platform` does not get."""
    for flag in words(written):
        name, _, value = flag.removeprefix("--").partition("=")
        if name not in _known(platform) or not _VALUE.fullmatch(value):
            return (
                f"The compile check passes documented performance flags alone to this server's compiler, and "
                f"{flag[:80]} is none: remove it from training.xla_flags to check the rest; launch files keep it."
            )
    return None


@cache
def _known(platform: str) -> frozenset[str]:
    kinds = {"xla", "xla-tpu" if platform == "tpu" else "xla-gpu"}
    described = {name for name, flag in known_flags.load().items() if flag.takes in kinds}
    bundled = {name for flag in known_flags.load().values() for name in known_flags.flag_values(flag.holds)}
    sides = (side for record in records() for side in (record.before, record.after))
    measured = {name for side in sides for name in known_flags.flag_values(side.training.get("xla_flags"))}
    other = "xla_gpu_" if platform == "tpu" else "xla_tpu_"
    return frozenset(described | {name for name in bundled | measured if not name.startswith(other)})
