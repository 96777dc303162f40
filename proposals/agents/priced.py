"""A configuration as tools price it: what each returns of it, and what answers read."""

from __future__ import annotations

from typing import Annotated, Any

from proposals.agents.tool_result import BRIEF, ToolResult
from proposals.plan import Broken, Citation, Communication, KnownMemory, KnownRange, PerChip


class Sent(ToolResult):
    """Bytes that a chip sends per step over a group of axes."""

    axes: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    compiled_bytes: float | None = None
    predicted_bytes: float | None = None


class Compiled(ToolResult):
    """What a compile check says."""

    outcome: str = ""
    says: str = ""
    peak_bytes: float | None = None
    needed_at_least_bytes: float | None = None
    capacity_bytes: float | None = None
    headroom_bytes: float | None = None
    effort: str = ""
    sent_per_step: tuple[Sent, ...] = ()


class Neighbour(ToolResult):
    """A neighbouring configuration: see `plan.Neighbour`."""

    varies: str = ""
    step: str = ""
    mesh_text: str = ""
    changes: dict[str, Any] = {}
    step_time_s: KnownRange = None
    speedup_per_token: float | None = None
    speedup_over_this: float | None = None
    hbm_total_bytes: float | None = None
    rule: str = ""
    reason: str = ""


class Current(ToolResult):
    """The current configuration, as measured."""

    chip: str = ""
    chips: int | None = None
    mesh: dict[str, dict[str, int]] = {}
    mesh_text: str = ""
    step_time_s: float | None = None
    breakdown_s: dict[str, int | float] = {}
    hbm_per_chip_bytes: KnownMemory = None
    memory_headroom_bytes: float | None = None
    compiled: Compiled | None = None


class Priced(ToolResult):
    """One configuration, predicted.  A tool gives the fields that it is about.

    configuration: its number in a comparison; value: what was varied; number: of a proposal, proposal_number: of the
    proposal that is this configuration.  reason: why it could not be priced.  speedup_per_token and its 80 % interval:
    over the current configuration.  utility: what candidates are ranked by.  now, is_current: the current one.
    elsewhere: the chips, where they are not those that ran; note: how it was priced there.
    """

    place: int | None = None
    configuration: int | None = None
    value: str = ""
    number: int | None = None
    kind: str = ""
    status: str = "proposed"
    title: str = ""
    chip: str = ""
    chips: int = 0
    topology: str = ""
    slices: int = 0
    mesh: dict[str, dict[str, int]] = {}
    mesh_text: str = ""
    remat: str = ""
    changes: dict[str, Any] = {}
    step_time_s: KnownRange = None
    speedup_per_token: float | None = None
    speedup_low80: float | None = None
    speedup_high80: float | None = None
    speedup_per_token_and_chip: float | None = None
    tokens_per_s_per_chip: float | None = None
    mfu: float | None = None
    breakdown_s: dict[str, int | float] = {}
    hbm_per_chip_bytes: KnownMemory = None
    not_known: tuple[str, ...] = ()
    memory_headroom_bytes: float | None = None
    confidence_share: float | None = None
    utility: float | None = None
    violations: tuple[Broken, ...] = ()
    communication: tuple[Annotated[Communication, BRIEF], ...] = ()
    per_chip: tuple[Annotated[PerChip, BRIEF], ...] = ()
    may_run: bool | None = None
    fits: bool | None = None
    is_current: bool | None = None
    compiled: Compiled | None = None
    keeps_the_mesh: bool | None = None
    now: bool | None = None
    proposal_number: int | None = None
    time_per_token_over_fastest: float | None = None
    why_not_proposed: str = ""
    reasons: tuple[str, ...] = ()
    trade_offs: tuple[str, ...] = ()
    citations: tuple[Annotated[Citation, BRIEF], ...] = ()
    expected_impact: tuple[str, ...] = ()
    raises_confidence: tuple[str, ...] = ()
    lowers_confidence: tuple[str, ...] = ()
    not_priced_in_time: tuple[str, ...] = ()
    answers_findings: tuple[str, ...] = ()
    sensitivity: tuple[Neighbour, ...] = ()
    traffic: tuple[dict[str, Any], ...] = ()
    reason: str = ""
    rules: tuple[str, ...] = ()
    elsewhere: str = ""
    note: str = ""
    current: Current = Current()

    @property
    def sure(self) -> float:
        """Its confidence; 0 where there is none."""
        return self.confidence_share or 0.0

    @property
    def gain(self) -> float:
        """Its speed-up per token; 0 where none is predicted."""
        return self.speedup_per_token or 0.0


class Whole(Priced):
    """A proposal with all that is known of it."""

    last = (
        "communication", "per_chip", "traffic", "expected_impact", "raises_confidence", "lowers_confidence",
        "answers_findings", "sensitivity",
    )  # fmt: skip


class Legality(Priced):
    """Whether a configuration can run."""

    last = (
        "may_run", "violations", "hbm_per_chip_bytes", "memory_headroom_bytes", "fits", "not_known", "rules", "current",
    )  # fmt: skip


class Proposals(ToolResult):
    """All proposals in short, or one of them as a whole."""

    proposal: Whole = Whole()
    current: Current = Current()
    proposals: tuple[Priced, ...] = ()
    meshes_considered: int = 0
    candidates_priced: int = 0
    meshes_rejected: int = 0
    not_known: tuple[str, ...] = ()
    fixed_by_user: dict[str, Any] = {}
    stated_by_user: dict[str, Any] = {}
    notes: tuple[str, ...] = ()


class Candidates(ToolResult):
    """The best of the search, and what is predicted faster and is no candidate."""

    constraints: dict[str, Any] = {}
    candidates: tuple[Priced, ...] = ()
    faster_but_excluded: tuple[Priced, ...] = ()
    current: Current = Current()


class Sensitivity(ToolResult):
    """A configuration and its neighbours."""

    kept = frozenset(("neighbours",))
    of: Priced = Priced()
    step_time_s: KnownRange = None
    speedup_per_token: float | None = None
    neighbours: tuple[Neighbour, ...] = ()


class Compared(ToolResult):
    """Configurations side by side.  fastest_legal: number of the fastest, in this comparison."""

    configurations: tuple[Priced, ...] = ()
    not_priced: tuple[dict[str, Any], ...] = ()
    fastest_legal: int | None = None
    current: Current = Current()


class RejectedMesh(ToolResult):
    """A mesh with the rule it breaks."""

    mesh: dict[str, dict[str, int]] = {}
    mesh_text: str = ""
    rule: str = ""
    reason: str = ""
    whose_rule: str = ""


class Rejected(ToolResult):
    """Meshes that were left out."""

    kept = frozenset(("count_by_rule", "rows"))
    meshes_considered: int = 0
    rejected_listed: int = 0
    count_by_rule: dict[str, int] = {}
    matching: int = 0
    rows: tuple[RejectedMesh, ...] = ()


class Retargeted(ToolResult):
    """The run on other chips."""

    current: Current = Current()
    there: Priced = Priced()
    note: str = ""


class ChipCounts(ToolResult):
    """The run on numbers of chips, each on its best mesh."""

    current: Current = Current()
    smallest_that_fits_chips: int | None = None
    wanted_step_time_s: float | None = None
    reached_with_chips: int | None = None
    rows: tuple[Priced, ...] = ()


class Varied(ToolResult):
    """One key or axis over its values."""

    kept = frozenset(("rows",))
    varied: str = ""
    rows: tuple[Priced, ...] = ()
    current: Current = Current()
