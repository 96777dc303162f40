"""Comparison: two diagnoses side by side, as values.  `to_json` is the contract of `asap compare` and of the page."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from diagnosis.report import SourcedValue

#: What a time can be compared as: `step` seconds per step and core; `token` chip-seconds per token, where steps hold
#: different work; `share` of the step, where nothing says how much work a step holds.
BASES = ("step", "token", "share")


@dataclass(frozen=True)
class Comparability:
    """Whether two runs do the same work on the same chips.

    comparable: True, False, or None where a configuration is missing.  reasons: what differs, a sentence each.
    basis: one of BASES, how times are compared.  allowed: what can be said all the same, a sentence; empty if all can.
    """

    comparable: bool | None
    basis: str
    reasons: tuple[str, ...] = ()
    allowed: str = ""


@dataclass(frozen=True)
class ConfigChange:
    """One key of the configuration that differs; values as the file states them, None where absent."""

    field: str
    before: Any
    after: Any


@dataclass(frozen=True)
class KpiChange:
    """One KPI.  unit: `s`, `s_per_token`, `tokens_per_s` or `share`.

    change: after − before.  ratio: after ÷ before, None where before is 0; both None where the two cannot be compared.
    better: `lower`, `higher` or empty where neither is, or the runs do other work.  reason: why a side is None.
    """

    key: str
    unit: str
    before: float | None
    after: float | None
    change: float | None
    ratio: float | None
    better: str = ""
    reason: str = ""


@dataclass(frozen=True)
class TermChange:
    """One bar of the breakdown, in the comparison's basis; 0 where a side has none of it."""

    term: str
    before: float
    after: float
    change: float


@dataclass(frozen=True)
class OpChange:
    """Ops of both runs that do the same, summed; fusion numbers and order do not matter.

    label: framework path or name.  before, after: time in the comparison's basis, None where a run has no such op.
    change: after − before, a missing side counted as 0.  before_count, after_count: occurrences per step and core, None
    without steps.  before_axes, after_axes: mesh axes of collectives.  before_ops, after_ops: keys of at most 20 ops.
    matched_by: `path`, `module`, `shape` or `name`; empty where only one run has them.
    """

    label: str
    module: str
    category: str
    collective: str | None
    before: float | None
    after: float | None
    change: float
    before_count: float | None
    after_count: float | None
    before_axes: tuple[str, ...] = ()
    after_axes: tuple[str, ...] = ()
    before_ops: tuple[str, ...] = ()
    after_ops: tuple[str, ...] = ()
    matched_by: str = ""


@dataclass(frozen=True)
class CollectiveChange:
    """Collectives of one kind on one axis: time in the comparison's basis, bandwidth in bytes/s; None where none."""

    axis: str
    kind: str
    before: float | None
    after: float | None
    change: float
    before_achieved_bytes_per_s: float | None = None
    after_achieved_bytes_per_s: float | None = None
    before_exposed: float | None = None
    after_exposed: float | None = None


@dataclass(frozen=True)
class FindingChange:
    """One rule's finding: `gone`, `new`, or `stays`, with the share of the step it could save on either side."""

    rule: str
    title: str
    state: str
    before_share: float | None
    after_share: float | None


@dataclass(frozen=True)
class Comparison:
    """Everything that can be said about two profiles.

    speedup: before ÷ after of the time per step (per token where the basis is that), None where unknown.
    significant: whether the change is more than twice the standard error of the two mean steps; None where the spread
    of steps is not known.  matched_before, matched_after: share of op time that the matched ops make up.
    statement: sentences whose numbers are all in `evidence`.  ops: by size of change; ops_total: how many.
    """

    comparability: Comparability
    configuration: tuple[ConfigChange, ...]
    kpis: tuple[KpiChange, ...]
    breakdown: tuple[TermChange, ...]
    ops: tuple[OpChange, ...]
    ops_total: int
    matched_before: float
    matched_after: float
    collectives: tuple[CollectiveChange, ...]
    findings: tuple[FindingChange, ...]
    bottleneck: tuple[str, str]
    speedup: float | None
    significant: bool | None
    statement: tuple[str, ...]
    evidence: tuple[SourcedValue, ...] = ()

    def to_json(self, top: int = 50) -> dict[str, Any]:
        """The fields above as plain values, with the `top` largest op changes and `bottleneck {before, after}`."""
        data = asdict(self)
        data["ops"] = data["ops"][:top]
        data["bottleneck"] = {"before": self.bottleneck[0], "after": self.bottleneck[1]}
        return data
