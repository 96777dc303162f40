"""Diagnosis: the Analyzer's answer as values, and their one way to JSON and back.

`DIAGNOSIS` and `OP` write what is stored and read it as the value it was; `to_json` is the contract of `asap diagnose`
and the API.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from diagnosis.recording import Recording
from experiments.codec import Codec
from experiments.sentences import Text, Value, citing, values
from experiments.step_profile import PROFILE, Timeline

#: `memory` is HBM bandwidth; capacity is a finding.
BOTTLENECKS = ("compute", "memory", "communication", "input", "host", "idle", "unknown")


@dataclass(frozen=True)
class SourcedValue(Value):
    """A value of a sentence with what is behind it.

    origin: `measured` (file, op), `computed` (formula) or `predicted` (model).  ops: keys of the ops it was taken from.
    """

    formula: str = ""
    source: str = ""
    ops: tuple[str, ...] = ()


def cited(*texts: str) -> tuple[SourcedValue, ...]:
    """The evidence of sentences, each item once, in order."""
    return tuple(value for value in values(*texts) if isinstance(value, SourcedValue))


def numbered(rows: Iterable[SourcedValue], ref: str = "") -> dict[Value, SourcedValue]:
    """Evidence by itself before it knew its panel: the first item's is `<ref>0`."""
    return {row: replace(row, field=f"{ref}{index}") for index, row in enumerate(dict.fromkeys(rows))}


@dataclass(frozen=True)
class OpDiagnosis:
    """One op with the axis it talks on.  Shares 0–1; mesh_axis: name, list of names, `"dcn"`, or None if no collective.
    time_share: of the step, of device time where no step was marked; ops that ran beside each other on several streams
    are scaled to the time that they took together, in `time_s` as well.

    Further facts beside the contract's: `time_s` self time per step and core, `collective` kind, participants,
    bytes_per_occurrence, achieved and possible bandwidth, `module`, `bound_by`, `roofline_efficiency`.  family: the
    category reduced to matmul, collective, elementwise, reduction, data movement, attention kernel, custom call, input,
    output, host or other.  phase: forward, backward, recompute or optimizer where `op_name` tells.  tensor: what a
    collective moves.  axis_source: how the axis was found (`replica_groups`, `source_target_pairs`, `start op`,
    `group size`, `only axis`, `mesh name`).  resource_source: `roofline`, `category`, `collective` or `host bytes`.

    Per step and core: flops, hbm_bytes, in_flight_s (a collective from its start to its end), exposed_s (the part of it
    that no other op hid), core_max_s and core_min_s (this op on the core where it takes longest and shortest), all None
    where the profile does not tell.  slowest_core: host and name.  op_name: framework path.  hlo: HLO text, which only
    the pages of an op print.
    """

    name: str
    key: str
    category: str
    time_share: float
    time_s: float | None
    occurrences: int
    bound_by: str | None
    roofline_efficiency: float | None
    mesh_axis: str | tuple[str, ...] | None = None
    collective: str | None = None
    participants: int | None = None
    collective_bytes: float | None = None
    achieved_bytes_per_s: float | None = None
    possible_bytes_per_s: float | None = None
    flops_per_s: float | None = None
    hbm_bytes_per_s: float | None = None
    operational_intensity: float | None = None
    resource: str = ""  # compute | hbm | ici | dcn | host | idle | other : the bar it is drawn in
    module: str = ""
    source: str = ""
    family: str = ""
    phase: str = ""
    tensor: str = ""
    axis_source: str = ""
    resource_source: str = ""
    flops: float | None = None
    hbm_bytes: float | None = None
    in_flight_s: float | None = None
    exposed_s: float | None = None
    core_max_s: float | None = None
    core_min_s: float | None = None
    slowest_core: str = ""
    op_name: str = ""
    hlo: str = ""


@dataclass(frozen=True)
class Bottleneck:
    """What limits the step.  confidence 0–1; `contradictions` are the KPIs that pointed elsewhere, resolved."""

    primary: str
    confidence: float
    statement: Text
    evidence: tuple[SourcedValue, ...] = ()
    contradictions: tuple[Text, ...] = ()
    secondary: str | None = None

    def numbered(self) -> Bottleneck:
        """The same, with the values of its sentences as evidence, each with the panel that shows it."""
        rows = numbered((*cited(self.statement, *self.contradictions), *self.evidence), "bottleneck-")
        contradictions = tuple(citing(text, rows) for text in self.contradictions)
        return replace(
            self, statement=citing(self.statement, rows), contradictions=contradictions, evidence=tuple(rows.values())
        )


@dataclass(frozen=True)
class Finding:
    """One thing that costs time.  saving_s, saving_share: at most that much of a step (Amdahl bound), None if
    unknown."""

    rule: str
    title: str
    insight: Text
    action: Text
    impact: Text
    evidence: tuple[SourcedValue, ...] = ()
    saving_s: float | None = None
    saving_share: float | None = None
    mesh_axis: str | None = None

    def numbered(self, ref: str) -> Finding:
        """The same, its values with the panel that shows each."""
        rows = numbered(self.evidence, f"{ref}-")
        insight, action, impact = (citing(text, rows) for text in (self.insight, self.action, self.impact))
        return replace(self, insight=insight, action=action, impact=impact, evidence=tuple(rows.values()))


@dataclass(frozen=True)
class AxisCollective:
    """The collectives of one kind on one axis: times and bytes per step and core, None where the profile does not tell.

    axis: `model`, `data+seq`, `dcn`; empty where no axis explains the participants.  share: of the device time, 0–1.
    in_flight_s: from start to end; exposed_s: the part of it that no other op hid; hidden_share: 0–1 of in_flight_s.
    tensors: what it moves.  waiting_share: 0–1 of the step in -done ops.  ops: keys.
    """

    axis: str = ""
    kind: str = ""
    time_s: float | None = None
    share: float = 0.0
    count: float | None = None
    bytes: float | None = None
    achieved_bytes_per_s: float | None = None
    possible_bytes_per_s: float | None = None
    in_flight_s: float | None = None
    exposed_s: float | None = None
    hidden_share: float | None = None
    tensors: tuple[str, ...] = ()
    waiting_share: float = 0.0
    ops: tuple[str, ...] = ()

    @property
    def exposed_share(self) -> float | None:
        """Of its time in flight, the share 0–1 that no other op hid."""
        return None if self.hidden_share is None else min(1.0, max(0.0, 1.0 - self.hidden_share))


@dataclass(frozen=True)
class Roofline:
    """Peaks of a core, None where the profile does not state them."""

    peak_flops_per_s: float | None = None
    peak_hbm_bytes_per_s: float | None = None


@dataclass(frozen=True)
class Diagnosis:
    """Everything the Analyzer says about one profile under one configuration.

    kpis: the contract's keys, value 0–1 (step_time_s in s) or None.  breakdown_s: seconds per step and core by
    `compute`, `hbm`, `ici:<axis>`, `dcn`, `host_transfer`, `host`, `input`, `idle`, `other`; sums to the step time
    where that is known.
    breakdown_share: the same as shares 0–1 (of device time where no step was marked).
    collectives: per axis and kind, the costliest axis first.
    timeline: the profile's own steps by cores; without steps where no core marks them.
    report: the four sections of the paper's report, {heading: [sentence, …]}.
    basis: `profile`; `step_time` where nothing but the step time was measured, `model` where nothing
    was.  Without a profile breakdown_s, breakdown_share and the bottleneck are predicted, not measured, and
    predicted_step_time_s is what the performance model alone makes of the configuration.
    coverage: share 0–1 of op time that the listed ops make up; None in what earlier versions stored.
    not_modelled: why the performance model does not apply, so that nothing is priced; empty where it may.
    recording: what the profile is a recording of, from which everything else follows.
    """

    kpis: dict[str, float | None]
    not_measured: dict[str, str]
    bottleneck: Bottleneck
    findings: tuple[Finding, ...]
    ops: tuple[OpDiagnosis, ...]
    breakdown_s: dict[str, float] = field(default_factory=dict)
    breakdown_share: dict[str, float] = field(default_factory=dict)
    collectives: tuple[AxisCollective, ...] = ()
    roofline: Roofline = field(default_factory=Roofline)
    mfu_convention: str = ""
    report: dict[str, list[Text]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    timeline: Timeline = field(default_factory=Timeline)
    basis: str = PROFILE
    predicted_step_time_s: float | None = None
    coverage: float | None = None
    not_modelled: str = ""
    recording: Recording = field(default_factory=Recording)

    @property
    def measured(self) -> bool:
        """Whether it is based on a profile: otherwise the breakdown and the bottleneck are predicted."""
        return self.basis == PROFILE

    @property
    def cited(self) -> tuple[SourcedValue, ...]:
        """The evidence of the bottleneck and of every finding."""
        return (*self.bottleneck.evidence, *(item for finding in self.findings for item in finding.evidence))

    def to_json(self, top: int = 20) -> dict[str, Any]:
        """The contract's object: `kpis`, `top_ops` (the `top` largest), `bottleneck`, `findings` and what is beside."""
        data = DIAGNOSIS.plain(replace(self, ops=tuple(replace(op, hlo="") for op in self.ops[:top])))
        data["top_ops"] = data.pop("ops")
        return data


DIAGNOSIS = Codec(Diagnosis)
OP = Codec(OpDiagnosis)
