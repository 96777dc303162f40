"""One part of a JSON export, as its tool wrote it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: A step of one core: its number, core, host, seconds and parts.
CoreStep = tuple[int, str, str, float, dict[str, float]]


@dataclass
class Piece:
    """One part of an export.  tool: XProf's name of it.  ops: normalised rows; scale: `fraction` where its percent
    columns are 0–1 (XProf's roofline), bare_unit: of times without one.  complete: whether all ops are in it.
    planned_bytes: of a program's buffer assignment, heap: XProf's view of it.
    """

    tool: str
    file: str
    kpis: dict[str, Any] = field(default_factory=dict)
    device: dict[str, Any] = field(default_factory=dict)
    ops: list[dict[str, Any]] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)
    notes: list[tuple[str, str]] = field(default_factory=list)
    complete: bool | None = None
    dropped: int | None = None
    bare_unit: str = ""
    scale: str = ""
    allocators: dict[str, Any] = field(default_factory=dict)
    planned_bytes: float | None = None
    heap: Mapping[str, Any] = field(default_factory=dict)
    program: str = ""
    core_steps: list[CoreStep] = field(default_factory=list)
