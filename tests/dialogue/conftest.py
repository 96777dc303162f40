from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:  # models cannot be imported before pytest has configured Django
    from tests.backend.factories import People, Stored


@pytest.fixture(autouse=True)
def data_folder(tmp_path: Path, settings: Any) -> Path:
    settings.ASAP_HOME = tmp_path
    return tmp_path


@pytest.fixture
def people(transactional_db: None) -> People:
    """Committed rows: who writes an answer, and who says that it lives, use connections of their own."""
    from tests.backend.factories import make_people

    return make_people()


@pytest.fixture
def ready(people: People) -> Stored:
    from tests.backend.factories import make_ready

    return make_ready(people)


@pytest.fixture
def thread(people: People, ready: Stored) -> Any:
    from dialogue.services import asking

    return asking.open_thread(ready.experiment, people.engineer)


@pytest.fixture(autouse=True)
def a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model is set up, which no test reaches: `Scripted` answers in its place.  By the same fixture as the tests'
    own changes of the environment: two that are undone in the order in which they were made leave one behind."""
    from tests.dialogue.answerers import MODEL

    for name, value in MODEL.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def no_model(a_model: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """No model is set up."""
    from tests.dialogue.answerers import MODEL

    for name in MODEL:
        monkeypatch.delenv(name)
