from __future__ import annotations

from tests.backend.conftest import data_folder, people, ready

__all__ = ["data_folder", "people", "ready"]
