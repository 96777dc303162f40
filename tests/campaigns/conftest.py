from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:  # models cannot be imported before pytest has configured Django
    from tests.backend.factories import People, Stored


@pytest.fixture
def people(db: None) -> People:
    from tests.backend.factories import make_people

    return make_people()


@pytest.fixture(autouse=True)
def data_folder(tmp_path: Path, settings: Any) -> Path:
    settings.ASAP_HOME = tmp_path
    return tmp_path


@pytest.fixture
def ready(people: People) -> Stored:
    from tests.backend.factories import make_ready

    return make_ready(people)
