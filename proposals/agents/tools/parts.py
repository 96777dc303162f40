"""What `look` returns of each part of a run."""

from __future__ import annotations

from typing import Annotated, Any

from experiments.step_profile import PROFILE
from proposals.agents.retrieval import LaunchRow
from proposals.agents.tool_result import About, Is, ToolResult
from proposals.agents.tools.shared import Current, Row


class Run(ToolResult):
    """The run as configured and recorded.  held: constraints and facts that the engineer confirmed.  not_modelled: why
    no configuration of this program can be priced."""

    experiment: str = ""
    configuration: dict[str, Any] = {}
    chips: int = 0
    mesh: str = ""
    tokens_per_step: int | None = None
    not_known: tuple[str, ...] = ()
    held: dict[str, Any] = {}
    profile: dict[str, Any] = {}
    not_modelled: str = ""
    warnings: tuple[str, ...] = ()

    def about(self) -> About:
        return About("stated", "run")


class Kpis(ToolResult):
    """Figures of the step, as measured.  not_measured: why a figure is absent."""

    step_time_s: float | None = None
    step_time_min_s: float | None = None
    step_time_max_s: float | None = None
    step_time_deviation_s: float | None = None
    shares: Annotated[dict[str, int | float], Is(unit="share", subject="")] = {}
    mfu_convention: str = ""
    tokens_per_s_per_chip: Annotated[float | None, Is(origin="computed", unit="tokens_per_s")] = None
    not_measured: dict[str, str] = {}

    def about(self) -> About:
        return About("measured", "step", "kpi:step_time_s")


class Breakdown(ToolResult):
    """Parts of the step that add up to it.  basis: `profile` where they were measured, else they are predicted."""

    basis: str = ""
    step_time_s: Annotated[float | None, Is(origin="measured")] = None
    predicted_step_time_s: Annotated[float | None, Is(origin="predicted", subject="step time")] = None
    parts_s: Annotated[dict[str, int | float], Is(subject="")] = {}
    parts_share: Annotated[dict[str, int | float], Is(subject="share of")] = {}

    def about(self) -> About:
        return About("measured" if self.basis == PROFILE else "predicted", "step", "kpi:breakdown")


class Number(ToolResult):
    """A number behind a verdict or finding; unit and origin are its own."""

    label: str = ""
    value: int | float | None = None
    unit: str = ""
    origin: str = ""
    formula: str = ""
    source: str = ""
    ops: tuple[str, ...] = ()


class Verdict(ToolResult):
    """What limits the step, and the figures that pointed elsewhere."""

    primary: str = ""
    secondary: str = ""
    confidence_share: Annotated[float | None, Is(unit="probability", subject="confidence")] = None
    statement: str = ""
    contradictions: tuple[str, ...] = ()
    evidence: tuple[Number, ...] = ()

    def about(self) -> About:
        return About("computed", "verdict", "kpi:bottleneck")


class FindingRow(ToolResult):
    """Something that costs time.  saving: at most so much of a step (Amdahl); savings overlap and do not add up."""

    number: int = 0
    title: str = ""
    saving_s: Annotated[float | None, Is(subject="at most saved")] = None
    saving_share: Annotated[float | None, Is(subject="at most saved, of the step")] = None
    axis: str = ""
    insight: str = ""
    action: str = ""
    impact: str = ""
    flags: tuple[str, ...] = ()
    evidence: tuple[Number, ...] = ()

    def about(self) -> About:
        return About("", f"finding {self.number}", f"finding:{self.number}")


class Findings(ToolResult):
    """basis: `profile` where the parts of the step were measured, else they are predicted."""

    basis: str = ""
    findings: tuple[FindingRow, ...] = ()

    def about(self) -> About:
        return About("computed" if self.basis == PROFILE else "predicted", "findings")


class CollectiveRow(ToolResult):
    """Collectives of one kind on one axis: per step and core."""

    axis: str = ""
    kind: str = ""
    time_s: float | None = None
    exposed_s: float | None = None
    share: Annotated[float | None, Is(unit="share", subject="share of the step")] = None
    calls: float | None = None
    sent_bytes: float | None = None
    achieved_bytes_per_s: float | None = None
    possible_bytes_per_s: Annotated[float | None, Is(origin="computed")] = None
    ops: tuple[str, ...] = ()

    def about(self) -> About:
        first = self.ops[0] if self.ops else ""
        return About("measured", f"{self.kind} on {self.axis}", f"op:{first}" if first else "")


class Collectives(ToolResult):
    """Communication; total_s: of all rows, exposed_s: what no other op hid."""

    total_s: float | None = None
    exposed_s: float | None = None
    rows: tuple[CollectiveRow, ...] = ()

    def about(self) -> About:
        return About("measured", "collectives", "kpi:communication")


class MemoryUse(ToolResult):
    """Memory per chip: measured peak, and the predicted parts with what shards them."""

    measured_peak_bytes: Annotated[float | None, Is(origin="measured")] = None
    capacity_bytes: Annotated[float | None, Is(origin="stated", subject="usable memory")] = None
    predicted_bytes: float | None = None
    parts_bytes: Annotated[dict[str, int | float], Is(subject="")] = {}
    headroom_bytes: float | None = None
    sharding: dict[str, Any] = {}
    compile_check: str = ""

    def about(self) -> About:
        return About("predicted", "memory per chip", "kpi:memory")


class Core(ToolResult):
    core: str = ""
    mean_step_s: float = 0.0
    idle_s: float | None = None

    def about(self) -> About:
        return About("measured", self.core)


class Steps(ToolResult):
    """Recorded steps and cores, the slowest core first."""

    recorded_steps: int = 0
    recorded_cores: int = 0
    mean_s: float | None = None
    median_s: float | None = None
    shortest_s: float | None = None
    longest_s: float | None = None
    deviation_s: float | None = None
    first_steps_s: tuple[float, ...] = ()
    median_core_s: float | None = None
    cores: tuple[Core, ...] = ()

    def about(self) -> About:
        return About("measured", "recorded steps", "kpi:steps")


class Cited(ToolResult):
    id: str = ""
    title: str = ""
    supports: str = ""


class Exposed(ToolResult):
    """Exposed communication on axes, now and then."""

    axes: str = ""
    moves: str = ""
    before_s: Annotated[float | None, Is(origin="measured")] = None
    after_s: float | None = None

    def about(self) -> About:
        return About("predicted", f"exposed on {self.axes}")


class Proposed(Row):
    """A proposal with its reasons."""

    reasons: tuple[str, ...] = ()
    trade_offs: tuple[str, ...] = ()
    raises_confidence: tuple[str, ...] = ()
    lowers_confidence: tuple[str, ...] = ()
    communication: tuple[Exposed, ...] = ()
    citations: tuple[Cited, ...] = ()
    compile_check: str = ""


class Proposals(ToolResult):
    """The proposals, with what was considered."""

    current: Current = Current()
    proposals: tuple[Proposed, ...] = ()
    meshes_considered: int = 0
    candidates_priced: int = 0
    notes: tuple[str, ...] = ()


class LaunchFile(ToolResult):
    kind: str = ""
    name: str = ""
    text: str = ""
    notes: tuple[str, ...] = ()


class LaunchFiles(ToolResult):
    """Files that would launch a proposal; nothing is launched."""

    proposal: int = 0
    files: tuple[LaunchFile, ...] = ()


class Launches(ToolResult):
    """Launches of the proposals, newest first."""

    launches: tuple[LaunchRow, ...] = ()
    note: str = ""

    def about(self) -> About:
        return About("measured", "launches")


#: What each part returns.
RESULTS: dict[str, type[ToolResult]] = {
    "run": Run, "kpis": Kpis, "breakdown": Breakdown, "verdict": Verdict, "collectives": Collectives,
    "memory": MemoryUse, "steps": Steps, "findings": Findings, "proposals": Proposals, "launch_files": LaunchFiles,
    "launches": Launches,
}  # fmt: skip
