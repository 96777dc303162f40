"""The errors of held-out runs that `make fit` wrote down, for the application's pages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ACCURACY_FILE = Path(__file__).with_name("accuracy.json")


def load_accuracy() -> dict[str, Any]:
    """The numbers of the last `make fit`; see evaluation/accuracy.py."""
    data: dict[str, Any] = json.loads(ACCURACY_FILE.read_text(encoding="utf-8"))
    return data
