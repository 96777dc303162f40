from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # models cannot be imported before pytest has configured Django
    from tests.permissions.doors import Doors


@pytest.fixture(scope="module")
def doors(rolled_back_rows: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    """Made once for all tests of a module, which take back what they store."""
    from django.test import override_settings

    from tests.dialogue.answerers import model_set_up
    from tests.permissions.doors import Doors
    from tests.permissions.objects import make_site

    quick = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    with model_set_up(), override_settings(ASAP_HOME=tmp_path_factory.mktemp("home"), PASSWORD_HASHERS=quick):
        yield Doors(make_site())
