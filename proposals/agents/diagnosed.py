"""The diagnosis as tools return it, and as answers read it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Any

from diagnosis.report import AxisCollective, OpDiagnosis
from proposals.agents.tool_result import BRIEF, ToolResult


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


class Kpis(ToolResult):
    """Figures of the step.  breakdown_origin, profile, predicted_step_time_s: where there is no profile."""

    kept = frozenset(
        ("step_time_s", "shares_0_to_1", "mfu_convention", "breakdown_s", "breakdown_share", "predicted_step_time_s",
         "memory", "not_measured")
    )  # fmt: skip
    step_time_s: float | None = None
    step_time_min_s: float | None = None
    step_time_max_s: float | None = None
    step_time_stdev_s: float | None = None
    shares_0_to_1: dict[str, int | float | None] = {}
    mfu_convention: str = ""
    breakdown_s: dict[str, int | float] = {}
    breakdown_share: dict[str, int | float] = {}
    breakdown_origin: str = ""
    profile: str = ""
    predicted_step_time_s: float | None = None
    memory: dict[str, int | float] = {}
    not_measured: dict[str, str] = {}

    @property
    def shares(self) -> dict[str, float]:
        """Those that were measured."""
        return {key: value for key, value in self.shares_0_to_1.items() if value is not None}


class OpRow(ToolResult):
    """An op of the table by its rank, or ops summed by one property: see `diagnosis.OpDiagnosis`.

    axis, op_count and parts: of a sum; each part is a sum as well.
    """

    rank: int | None = None
    name: str = ""
    key: str = ""
    category: str = ""
    family: str = ""
    time_s: float | None = None
    time_share: float = 0.0
    occurrences: int = 0
    bound_by: str | None = None
    roofline_efficiency: float | None = None
    resource: str = ""
    mesh_axis: str | tuple[str, ...] | None = None
    collective: str | None = None
    achieved_bytes_per_s: float | None = None
    possible_bytes_per_s: float | None = None
    exposed_s: float | None = None
    phase: str = ""
    module: str = ""
    source: str = ""
    axis: str = ""
    op_count: int | None = None
    parts: tuple[OpRow, ...] = ()

    @property
    def is_bound(self) -> bool:
        """Whether the profile says what bounds it."""
        return (self.bound_by or "unknown").lower() != "unknown"

    @property
    def axes(self) -> str:
        """The mesh axes of a collective."""
        return self.mesh_axis or "" if isinstance(self.mesh_axis, str | None) else " and ".join(self.mesh_axis)

    def of(self, name: str) -> str:
        """The property of this name that ops are summed by; empty where they have none."""
        return str(getattr(self, name) or "")


class OpSum(OpRow):
    """Ops summed by one property."""

    kept = frozenset(OpRow.model_fields)
    last = ("op_count", "time_s", "time_share", "parts")


class OpPart(OpRow):
    """A part of a sum."""

    last = ("time_share", "time_s")


class Roofline(ToolResult):
    """The roof that an op is under."""

    peak_flops_per_s: float | None = None
    peak_hbm_bytes_per_s: float | None = None
    ridge_flops_per_byte: float | None = None


class OpDetail(OpRow):
    """Everything known of one op."""

    participants: int | None = None
    collective_bytes: float | None = None
    flops_per_s: float | None = None
    hbm_bytes_per_s: float | None = None
    operational_intensity: float | None = None
    tensor: str = ""
    axis_source: str = ""
    resource_source: str = ""
    flops: float | None = None
    hbm_bytes: float | None = None
    in_flight_s: float | None = None
    core_max_s: float | None = None
    core_min_s: float | None = None
    slowest_core: str = ""
    op_name: str = ""
    hlo: str = ""
    calls_per_step_and_core: float | None = None
    time_per_call_s: float | None = None
    hbm_bytes_per_call: float | None = None
    roofline: Roofline = Roofline()
    neighbourhood: dict[str, Any] = {}
    last = (
        *(field.name for field in fields(OpDiagnosis)), "op_name", "hlo", "calls_per_step_and_core", "time_per_call_s",
        "hbm_bytes_per_call", "roofline", "neighbourhood",
    )  # fmt: skip


class Ops(ToolResult):
    """Ops that match, with their sum."""

    matching_ops: int = 0
    matching_time_s: float | None = None
    matching_time_share: float | None = None
    grouped_by: str = ""
    rows: tuple[OpRow, ...] = ()
    hint: str = ""


@dataclass(frozen=True)
class CollectiveRow(AxisCollective):
    """The collectives of one kind on one axis, with the first of their ops."""

    op_count: int = 0
    achieved_of_possible_share: float | None = None

    @property
    def place(self) -> str:
        """The axis in words."""
        return self.axis or "an unattributed axis"


class CollectiveSum(ToolResult):
    """The collectives of one axis, or of one kind on all of its axes."""

    kind: str = ""
    axis: str = ""
    time_s: float | None = None
    share: float = 0.0
    exposed_s: float | None = None
    bytes: float | None = None


class Collectives(ToolResult):
    """Communication by axis and kind, and in sum."""

    kept = frozenset(("of_the_step_share", "by_axis", "rows", "by_kind"))
    of_the_step_share: dict[str, int | float] = {}
    by_axis: tuple[CollectiveSum, ...] = ()
    rows: tuple[Annotated[CollectiveRow, BRIEF], ...] = ()
    axes_of_the_mesh: dict[str, dict[str, int]] = {}
    by_kind: tuple[CollectiveSum, ...] = ()
