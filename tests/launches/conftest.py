from __future__ import annotations

from typing import Any

import pytest

from tests.backend.conftest import approved, data_folder, people, ready

__all__ = ["approved", "data_folder", "people", "ready"]


@pytest.fixture
def launch(people: Any, approved: Any) -> Any:
    """Two repeats of both arms, run by hand, under the approved proposal."""
    from launches.services import launching

    server = "http://testserver"
    return launching.launch(approved, people.engineer, tool="maxtext", repeats=2, steps=30, server=server)


@pytest.fixture
def token(people: Any, launch: Any) -> str:
    from launches.services import launching

    return launching.new_token(launch, people.engineer)
