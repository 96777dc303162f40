"""A scripted compiler in the place of `proposals.compiling.worker`: a real process with its endings.

The environment's COMPILER says what: an outcome, a step that cannot be built, a crash, a crash at quick effort, a hang,
or to fill the memory.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def steer(monkeypatch: pytest.MonkeyPatch, **variables: str) -> None:
    """Let the compiler do as these variables say."""
    from proposals.compiling import targets

    real = targets.environment
    monkeypatch.setattr(targets, "environment", lambda platform, quick: {**real(platform, quick), **variables})


def say(line: dict[str, object]) -> None:
    print(json.dumps(line), flush=True)


def main() -> None:
    request = json.load(sys.stdin)
    script = os.environ.get("COMPILER", "fits")
    quick = os.environ.get("JAX_OPTIMIZATION_LEVEL") == "O1"
    if count := os.environ.get("COMPILER_COUNT"):
        with open(count, "a") as file:
            file.write("quick\n" if quick else "default\n")
    say({"stage": "tracing"})
    print("a line of a library")
    say({"stage": "compiling"})
    if script == "crash" or (script == "crash at quick effort" and quick):
        os.kill(os.getpid(), signal.SIGSEGV)
    if script == "hang":
        time.sleep(600)
    if script == "fill the memory":
        held = bytearray(400 << 20)
        held[::4096] = b"x" * len(held[::4096])
        time.sleep(600)
    if script == "out of memory":
        say({"result": {"outcome": "out_of_memory", "message": "No room.", "needed_bytes": 4e10}})
        return
    if script == "cannot be built":
        say({"result": {"outcome": "invalid", "message": "The step has no sharding over expert: 3 axes are given."}})
        return
    if request.get("hlo"):
        Path("program.hlo").write_text("HloModule step, is_scheduled=true\n")
    axes = [axis for axis, size in request["config"]["mesh"]["ici"].items() if size > 1]
    use = {"kind": "all-gather", "axes": axes, "participants": 16, "payload_bytes": 1e9, "times": 32,
           "sent_bytes": 3e10, "source": "jit(train_step)/mlp"}  # fmt: skip
    say({"result": {"outcome": "fits", "peak_bytes": 1.25e10, "argument_bytes": 5e9, "collectives": [use],
                    "versions": {"jax": "0"}}})  # fmt: skip
