"""Steps that are slow by something known, because it was put into them: scenarios.toml."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from evaluation.steps.scenario import SHAPES, Scenario

SCENARIOS_FILE = Path(__file__).with_name("scenarios.toml")


def _as_fields(row: dict[str, Any]) -> dict[str, Any]:
    meshes: dict[str, Any] = {part: tuple(row[part].items()) for part in ("ici", "dcn") if part in row}
    return {**row, **meshes, "model": SHAPES[row["model"]]}


_ROWS = tomllib.loads(SCENARIOS_FILE.read_text(encoding="utf-8"))["scenario"]
SCENARIOS = TypeAdapter(tuple[Scenario, ...]).validate_python([_as_fields(row) for row in _ROWS])
