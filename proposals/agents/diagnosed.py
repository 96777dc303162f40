"""The diagnosis as tools return it, and as answers read it."""

from __future__ import annotations

from proposals.agents.tool_result import ToolResult


class EvidenceRow(ToolResult):
    """A number behind a sentence, with the first of the ops that it was computed from: see `diagnosis.Evidence`."""

    label: str = ""
    value: int | float | None = None
    unit: str = ""
    origin: str = ""
    field: str = ""
    formula: str = ""
    source: str = ""
    ops: tuple[str, ...] = ()
    op_count: int | None = None


class Verdict(ToolResult):
    """What limits the step."""

    primary: str = ""
    secondary: str | None = None
    confidence_share: float = 0.0
    statement: str = ""
    contradictions: tuple[str, ...] = ()
    evidence: tuple[EvidenceRow, ...] = ()


class FindingRow(ToolResult):
    """One thing that costs time.  finding: its number, by potential saving."""

    finding: int = 0
    rule: str = ""
    title: str = ""
    insight: str = ""
    action: str = ""
    flags: tuple[str, ...] = ()
    impact: str = ""
    saving_s: float | None = None
    saving_share: float | None = None
    mesh_axis: str | None = None
    evidence: tuple[EvidenceRow, ...] = ()
