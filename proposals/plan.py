"""Plan: three ranked proposals as values.  `to_json` is the contract of `asap propose` and the API."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from diagnosis.report import Diagnosis

KINDS = ("recommendation", "safer", "bolder", "keep", "alternative")


@dataclass(frozen=True)
class Citation:
    """Where a sentence comes from.  source: `book`, `profile`, `model`, `history`; section: e.g. `3.2`."""

    source: str
    section: str
    title: str
    statement: str = ""
    url: str = ""


@dataclass(frozen=True)
class Predicted:
    """What the performance model says of a proposal.  None where a missing fact forbids a number.

    step_time_s: {lower, estimate, upper, low80, high80}; speedup: per token against the baseline (same batch: step time
    ratio), with low80 / high80; hbm_per_chip_bytes: {params, optimizer, gradients, activations, total, capacity};
    breakdown_s as in the diagnosis, so that bars stand beside each other.
    """

    step_time_s: dict[str, float] | None = None
    speedup: float | None = None
    speedup_low80: float | None = None
    speedup_high80: float | None = None
    hbm_per_chip_bytes: dict[str, float] | None = None
    breakdown_s: dict[str, float] = field(default_factory=dict)
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class ProposalPlan:
    """One proposed configuration.  mesh: {"ici": {...}, "dcn": {...}}; changes: training keys that change.

    confidence: probability 0–1 that the step gets faster per token; raises and lowers: what moves it, as sentences.
    """

    rank: int
    kind: str
    title: str
    mesh: dict[str, dict[str, int]]
    changes: dict[str, Any]
    predicted: Predicted
    confidence: float
    reasoning: tuple[str, ...]
    expected_impact: tuple[str, ...]
    trade_offs: tuple[str, ...]
    citations: tuple[Citation, ...] = ()
    raises: tuple[str, ...] = ()
    lowers: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()  # rules of the findings it answers


@dataclass(frozen=True)
class Rejected:
    """A candidate that was not legal: the rule it broke and one sentence why."""

    mesh: dict[str, dict[str, int]]
    rule: str
    reason: str


@dataclass(frozen=True)
class Plan:
    """Three proposals and what was considered on the way.

    observed: what the step spent its time on, as the proposals' sentences cite it: {name: {"time_s", "share"}}.
    """

    baseline: Predicted
    proposals: tuple[ProposalPlan, ...]
    rejected: tuple[Rejected, ...] = ()
    considered: int = 0
    missing: tuple[str, ...] = ()
    observed: dict[str, dict[str, float]] = field(default_factory=dict)

    def to_json(self, diagnosis: Diagnosis | None = None) -> dict[str, Any]:
        data = asdict(self)
        for proposal in data["proposals"]:
            proposal["reasoning"] = " ".join(proposal["reasoning"])
        if diagnosis is not None:
            data = {"diagnosis": diagnosis.to_json(), **data}
        return data
