from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:  # models cannot be imported before pytest has configured Django
    from tests.backend.factories import People, Stored


@pytest.fixture
def people(db: None, tmp_path: Path, settings: Any) -> People:
    from tests.backend.factories import make_people

    settings.ASAP_HOME = tmp_path / "data"
    settings.ASAP_HOME.mkdir()
    return make_people()


@pytest.fixture
def ready(people: People) -> Stored:
    from tests.backend.factories import make_ready

    return make_ready(people)
