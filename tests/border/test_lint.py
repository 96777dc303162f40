"""The lint that keeps processes in `jobs.child`."""

from __future__ import annotations

import subprocess
import sys

import pytest

from jobs.child import PROJECT

STARTS = (
    "import subprocess", "from subprocess import Popen", "import multiprocessing", "import os\n\nos.execv('a', [])",
    "import os\n\nos.spawnlp(0, 'a', 'a')", "import os\n\nos.system('a')", "import os\n\nos.posix_spawn('a', [], {})",
    "import asyncio\n\nasyncio.create_subprocess_exec('a')", "from concurrent.futures import ProcessPoolExecutor",
)  # fmt: skip


@pytest.mark.parametrize("text", STARTS)
def test_lint_refuses_processes_outside_of_their_module(text: str) -> None:
    assert b"TID251" in ruff(text, "launches/services/anything.py")


def test_lint_allows_them_in_their_module() -> None:
    assert b"TID251" not in ruff("import subprocess", "jobs/child.py")


def ruff(text: str, name: str) -> bytes:
    command = [sys.executable, "-m", "ruff", "check", "--no-cache", "--stdin-filename", name, "-"]
    return subprocess.run(command, input=text.encode(), capture_output=True, cwd=PROJECT, check=False).stdout
