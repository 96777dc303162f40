"""The short form of `python -m bench.faults`: kills, an emptied queue, a full disk and a clock that jumps."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.launcher.application import environment


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_what_was_accepted_is_done_once_whatever_dies(used_home: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.faults", "--short", "--seed", "1", "--home", str(used_home)],
        env=environment(used_home), capture_output=True, text=True, timeout=1150, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert "nothing lost, nothing twice, no gap, no orphan" in done.stdout
