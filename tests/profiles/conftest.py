"""XProf's tables of the three reconstructions, converted once per session."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the helper is imported again by the process it starts

from xprof_tables import xprof_tables


@pytest.fixture(scope="session")
def tables_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], dict[str, Any]]:
    """XProf's tables of experiment 1, 2 or 3, as shipped."""
    from experiments.samples.samples import SAMPLES

    @cache
    def convert(number: int) -> dict[str, Any]:
        sample = next(s for s in SAMPLES if s.key == f"asap-experiment-{number}")
        return xprof_tables(sample.files, tmp_path_factory.mktemp(sample.key))

    return convert
