"""A stored plan as the page shows it: the baseline beside each proposal, on one scale."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import ceil, floor, log10
from typing import Any
from urllib.parse import urlencode

from diagnosis.models import DiagnosisRecord
from experiments import bars
from experiments.models import Profile
from experiments.sentences import Text
from experiments.services import profiles
from formatting import topology
from perfmodel.config import ConfigError
from perfmodel.config_file import parse_config
from proposals import custom_form, drawing, facts, measured, torus
from proposals.candidate import HARDWARE_KEYS, MeshAndChanges
from proposals.models import PlanRecord, Proposal
from proposals.plan import Broken, Communication, Memory, Neighbour, Predicted, ProposalPlan, Range, Rejected

KIND_WORDS = {
    "recommendation": "Recommended", "safer": "Lower risk", "bolder": "Higher potential", "keep": "Keep current",
    "alternative": "Alternative", "own": "Your own",
}  # fmt: skip


def kind_words(kind: str, changed: Mapping[str, Any], new_mesh: bool, slower: bool = False) -> str:
    """What a proposal is proposed as; an alternative by what it changes.  slower: as predicted."""
    if slower and kind in ("safer", "bolder", "alternative"):
        return "Predicted slower"
    if kind == "alternative" and "global_batch" in changed:
        return "Different batch"
    return "Same mesh" if kind == "alternative" and not new_mesh else KIND_WORDS.get(kind, kind)


@dataclass(frozen=True)
class Side:
    """A step as a bar: its terms, its time and interval.  scaled: divided to the baseline's batch, for a common axis.

    peak_bytes: most memory of a device as profiled.  parts: where the terms come from.
    """

    terms: list[bars.Term]
    time_s: float | None
    low_s: float | None
    high_s: float | None
    origin: str
    hbm: Memory | None
    scaled: bool = False
    peak_bytes: float | None = None
    parts: str = "measured"

    @property
    def is_predicted(self) -> bool:
        """Whether its terms are predicted though its time may be measured."""
        return self.parts == "predicted"

    @property
    def memory_bytes(self) -> float | None:
        """Memory per chip: the measured peak, else as predicted."""
        return self.peak_bytes or (self.hbm.total if self.hbm else None)


@dataclass(frozen=True)
class TermChange:
    """One term before and after."""

    term: bars.Term
    before: float
    after: float

    @property
    def change(self) -> float:
        """Zero where it is less than the four printed digits tell."""
        difference = self.after - self.before
        return difference if abs(difference) >= 1e-4 * self.before else 0.0


@dataclass(frozen=True)
class Traffic:
    """Communication on some axes before and after.  unit: `s`, or `share` where the profile has no step time."""

    axes: str
    css: str
    moves: str
    before: float
    after: float
    unit: str

    @property
    def change(self) -> float:
        return self.after - self.before


@dataclass(frozen=True)
class OneStep:
    """A neighbour of the proposal, and what opens it in the form of one's own mesh."""

    data: Neighbour
    query: str


@dataclass(frozen=True)
class Setting:
    """An axis or training key of the comparison.  after: empty where it stays."""

    name: str
    before: str
    after: str = ""

    @property
    def label(self) -> str:
        return _SHORT.get(self.name, self.name.replace("_", " "))


#: Names of settings in a narrow column.
_SHORT = {
    "global_batch": "batch", "weight_sharding": "sharding", "grad_accum": "accum", "virtual_stages": "virtual",
    "xla_flags": "flags",
}  # fmt: skip


@dataclass(frozen=True)
class Card:
    """A proposal with everything its card draws."""

    proposal: Proposal
    data: ProposalPlan
    kind: str
    side: Side
    changes: list[tuple[str, str, str]]
    terms: list[TermChange]
    before: torus.Drawing | None
    after: torus.Drawing | None
    per_token: bool
    memory: list[bars.Term] = field(default_factory=list)
    loop: measured.Loop | None = None
    traffic: list[Traffic] = field(default_factory=list)
    steps: list[OneStep] = field(default_factory=list)
    range_bar: str = ""
    column: str = ""
    settings: list[Setting] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)  # that the run does not set

    @property
    def memory_bar(self) -> str:
        return drawing.memory_bar(self.hbm) if self.hbm else ""

    @property
    def violations(self) -> Sequence[Broken]:
        return self.data.violations

    @property
    def groups(self) -> list[tuple[str, str, int]]:
        """What the picture marks, before or after: colour class, axes, size."""
        shown = [*(self.after.groups if self.after else ()), *(self.before.groups if self.before else ())]
        return list({(css, names): (css, names, size) for css, names, size in reversed(shown)}.values())[::-1]

    @property
    def new_mesh(self) -> bool:
        return any(name not in self.data.changes for name, _, _ in self.changes)

    @property
    def time(self) -> Range | None:
        return self.data.predicted.step_time_s

    @property
    def hbm(self) -> Memory | None:
        return self.data.predicted.hbm_per_chip_bytes

    @property
    def missing(self) -> str:
        return facts.in_words(self.data.predicted.missing)

    @property
    def free_bytes(self) -> float | None:
        return self.hbm.headroom if self.hbm else None

    @property
    def over_bytes(self) -> float:
        return -(self.free_bytes or 0.0)

    @property
    def has_range(self) -> bool:
        """Whether it has an interval: an unchanged configuration has none."""
        return self.time is not None and self.time.low80 < self.time.high80


@dataclass(frozen=True)
class Ladder:
    """Baseline and proposals on a common scale of `scale_s` at full width.

    settings: of the run, as far as a proposal changes them, and its mesh; column: the run's step, drawn.
    """

    baseline: Side
    cards: list[Card]
    scale_s: float
    settings: list[Setting] = field(default_factory=list)
    column: str = ""

    @property
    def compared(self) -> list[Card]:
        """The configurations that change something."""
        return [card for card in self.cards if card.proposal.kind != "keep"]

    @property
    def changes_batch(self) -> bool:
        """True if one of them trains with another batch."""
        return any("global_batch" in card.proposal.value.changes for card in self.compared)

    @property
    def gives_up(self) -> dict[int, Text]:
        """What each gives up, by rank: the first of its trade-offs that none before it names, else its first."""
        said: dict[int, Text] = {}
        for card in self.compared:
            trades = card.proposal.value.trade_offs
            own = [text for text in trades if str(text) not in set(map(str, said.values()))]
            if trades:
                said[card.proposal.rank] = (own or trades)[0]
        return said

    @property
    def kept(self) -> Card | None:
        """The proposal to change nothing, where fewer than three others are worth a trial."""
        return next((card for card in self.cards if card.proposal.kind == "keep"), None)

    @property
    def memory_bar(self) -> str:
        """The measured peak against what a chip has, else the predicted parts."""
        side = self.baseline
        if side.peak_bytes and side.hbm and side.hbm.capacity:
            return drawing.memory_bar(Memory(total=side.peak_bytes, capacity=side.hbm.capacity), measured=True)
        return drawing.memory_bar(side.hbm) if side.hbm else ""

    @property
    def chips(self) -> torus.Drawing | None:
        """The mesh that ran, on its chips."""
        return next((card.before for card in self.cards if card.before), None)

    @property
    def groups(self) -> list[tuple[str, str, int]]:
        """Return what the pictures mark, of all columns: colour class, axes, size."""
        return list({css: (css, names, size) for card in self.cards for css, names, size in card.groups}.values())


def ladder(
    plan: PlanRecord, proposals: list[Proposal], config: Mapping[str, Any], diagnosis: DiagnosisRecord | None
) -> Ladder:
    roles = (config.get("mesh") or {}).get("axis_roles") or {}
    baseline = _baseline(plan, roles, diagnosis)
    cards = [card(item, baseline, config, roles) for item in proposals]
    sides = [baseline, *(item.side for item in cards)]
    reach = [max(s.high_s or 0.0, s.time_s or 0.0, sum(t.value for t in s.terms)) for s in sides]
    scale_s = _round_up(max(reach, default=0.0))
    now = _settings(config, cards)
    cards = [
        replace(
            item,
            range_bar=drawing.range_bar(item.side, baseline, scale_s),
            column=drawing.step_column(item.side, baseline, scale_s) if scale_s else "",
            settings=_beside(now, item),
        )
        for item in cards
    ]
    column = drawing.step_column(baseline, baseline, scale_s) if scale_s else ""
    return Ladder(baseline, cards, scale_s, now, column)


def _settings(config: Mapping[str, Any], cards: Sequence[Card]) -> list[Setting]:
    """Axes of the run that are larger than one, and whatever a proposal changes."""
    mesh = config.get("mesh") or {}
    now = {axis: str(size) for axis, size in (mesh.get("ici") or {}).items()}
    now |= {f"dcn.{axis}": str(size) for axis, size in (mesh.get("dcn") or {}).items()}
    changed = {name: before.removesuffix(" (default)") for card in cards for name, before, _ in card.changes}
    return [
        Setting(name, _in_column(name, before))
        for name, before in {**now, **changed}.items()
        if name in changed or before != "1"
    ]  # fmt: skip


def _beside(now: Sequence[Setting], card: Card) -> list[Setting]:
    after = {name: _in_column(name, value) for name, _, value in card.changes}
    return [replace(one, after=after.get(one.name, "")) for one in now]


def _in_column(name: str, value: str) -> str:
    """Return a setting as a narrow column shows it: of flags their number."""
    return f"{len(value.split())} set" if name == "xla_flags" and value.startswith("-") else value


def _round_up(value: float) -> float:
    """The next number of two significant digits: the end of a scale that people can read."""
    if value <= 0:
        return 0.0
    step = 10.0 ** (floor(log10(value)) - 1)
    return ceil(value * 1.01 / step) * step


def _baseline(plan: PlanRecord, roles: Mapping[str, str], diagnosis: DiagnosisRecord | None) -> Side:
    predicted = plan.value.baseline
    ran = diagnosis.value if diagnosis is not None else None
    measured = ran.kpis.get("step_time_s") if ran is not None else None
    divided = ran is not None and ran.measured
    breakdown_s = ran.breakdown_s if ran is not None and measured and divided else None
    breakdown = breakdown_s or predicted.breakdown_s
    terms = bars.step_terms(breakdown or {}, roles)
    hbm = predicted.hbm_per_chip_bytes
    peak = _peak_bytes(plan.run.profile)
    if measured:
        parts = "measured" if divided else "predicted"
        return Side(terms, measured, None, None, "measured", hbm, peak_bytes=peak, parts=parts)
    return Side(terms, *_ends(predicted), "predicted", hbm, peak_bytes=peak, parts="predicted")


def _peak_bytes(profile: Profile) -> float | None:
    """As measured.  Summaries of earlier versions leave it out."""
    key = "memory_peak_bytes"
    if key in profile.summary:
        return profile.summary[key]
    try:
        return profiles.load(profile).memory.peak_bytes
    except profiles.NotIngested:
        return None


def _ends(predicted: Predicted, factor: float = 1.0) -> tuple[float | None, float | None, float | None]:
    """Step time with the ends of its 80 % interval, each times a factor."""
    time = predicted.step_time_s
    return (time.estimate * factor, time.low80 * factor, time.high80 * factor) if time else (None, None, None)


def card(item: Proposal, baseline: Side, config: Mapping[str, Any], roles: Mapping[str, str]) -> Card:
    data = item.value
    predicted, changed = data.predicted, data.changes
    training = config.get("training") or {}
    old_batch, new_batch = training.get("global_batch"), changed.get("global_batch")
    factor = old_batch / new_batch if old_batch and new_batch and old_batch != new_batch else 1.0
    terms = bars.step_terms({k: v * factor for k, v in predicted.breakdown_s.items()}, roles)
    side = Side(terms, *_ends(predicted, factor), "predicted", predicted.hbm_per_chip_bytes, scaled=factor != 1.0)
    changes = changed_settings(config, data)
    before, after = torus.before_and_after(config, data)
    return Card(
        proposal=item,
        data=data,
        kind=kind_words(item.kind, changed, any(name not in changed for name, _, _ in changes), data.slower),
        side=side,
        changes=changes,
        terms=_term_changes(baseline, side),
        before=before,
        after=after,
        per_token=factor != 1.0,
        memory=bars.memory_terms(vars(predicted.hbm_per_chip_bytes)) if predicted.hbm_per_chip_bytes else [],
        loop=measured.loop(item) if item.pk else None,
        traffic=_traffic(data.communication, roles),
        steps=[OneStep(row, urlencode({"config": custom_form.written(row)})) for row in data.sensitivity],
        flags=[flag for flag in changed.get("xla_flags", ()) if flag not in (training.get("xla_flags") or ())],
    )


def _traffic(communication: Sequence[Communication], roles: Mapping[str, str]) -> list[Traffic]:
    rows = []
    for row in communication:
        names = " + ".join(row.axes)
        css = "dcn" if row.dcn else bars.axis_class(row.axes[0], roles) if row.axes else "ici"
        words = f"{names} over DCN" if row.dcn and names else names or "unattributed"
        timed = row.before_s is not None
        before, after = (row.before_s, row.after_s) if timed else (row.before_share, row.after_share)
        rows.append(Traffic(words, css, row.moves, before or 0.0, after or 0.0, "s" if timed else "share"))
    return sorted(rows, key=lambda row: -max(row.before, row.after))


def changed_settings(config: Mapping[str, Any], of: MeshAndChanges) -> list[tuple[str, str, str]]:
    """Settings that differ: name, before, after; mesh axes first, then training keys."""
    mesh = config.get("mesh") or {}
    rows = []
    for part in ("ici", "dcn"):
        old, new = mesh.get(part) or {}, of.mesh.get(part) or {}
        for axis in dict.fromkeys([*old, *new]):
            a, b = old.get(axis, 1), new.get(axis, 1)
            if a != b:
                rows.append((axis if part == "ici" else f"dcn.{axis}", str(a), str(b)))
    training, hardware = config.get("training") or {}, config.get("hardware") or {}
    defaults = _defaults(config)
    for key, value in of.changes.items():
        if key not in HARDWARE_KEYS:
            given, default = training.get(key), defaults.get(key)
            ran = f"{_setting(default)} (default)" if given is None and default is not None else _setting(given)
            rows.append((key, ran, _setting(value)))
        elif (chips := hardware.get(key, 1)) != value:
            rows.append((key, _chips(chips), _chips(value)))
    return rows


def _defaults(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The training as it is read, with what holds where nothing was said; empty for what is no configuration."""
    try:
        return asdict(parse_config(dict(config))[0].training)
    except ConfigError:
        return {}


def _chips(value: Any) -> str:
    return topology(value) if isinstance(value, list | tuple) else str(value)


def _setting(value: Any) -> str:
    if value is None:
        return "default"
    if isinstance(value, list | tuple):
        return " ".join(str(part) for part in value) or "none"
    return str(value)


def _term_changes(baseline: Side, side: Side) -> list[TermChange]:
    before = {part.key: part for part in baseline.terms}
    after = {part.key: part for part in side.terms}
    if not before or not after:
        return []
    merged = {**after, **before}
    rows = [
        TermChange(part, before[key].value if key in before else 0.0, after[key].value if key in after else 0.0)
        for key, part in merged.items()
    ]
    return sorted(rows, key=lambda row: (row.term.order, row.term.key))


def is_memory_unknown(plan: PlanRecord, record: DiagnosisRecord | None) -> bool:
    """Whether neither the profile nor the configuration tells how much of a chip's memory the run needs."""
    computed = plan.value.baseline.hbm_per_chip_bytes
    measured = record.value.kpis.get("memory_peak_share") if record is not None else None
    return computed is None and measured is None


def rejected_by_rule(plan: PlanRecord) -> list[tuple[str, list[Rejected]]]:
    """Rejected candidates by the rule they broke, the most frequent rule first."""
    rejected = plan.value.rejected
    counts = Counter(item.rule for item in rejected)
    return [(rule, [item for item in rejected if item.rule == rule]) for rule, _ in counts.most_common()]
