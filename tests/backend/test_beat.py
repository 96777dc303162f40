"""`celery beat`, as docs/operation.md starts it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).resolve().parents[2]


def test_beat_writes_no_file_where_it_is_started(tmp_path: Path) -> None:
    home, place = tmp_path / "home", tmp_path / "place"
    home.mkdir()
    place.mkdir()
    environment = {**os.environ, "ASAP_HOME": str(home), "PYTHONPATH": str(PROJECT), "CELERY_BROKER_URL": "memory://"}
    command = [sys.executable, "-m", "celery", "-A", "asapweb.celery", "beat", "--loglevel", "INFO"]
    process = subprocess.Popen(command, cwd=place, env=environment, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    said = ""
    for said in process.stderr:
        if "Sending due task" in said:
            break
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert "Sending due task" in said
    assert list(place.iterdir()) == []
