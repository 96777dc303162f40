"""Plan: three ranked proposals as values, and their one way to JSON and back.

`PROPOSAL` and `PLAN` write what is stored and read it as the value it was; `to_json` is the contract of `asap propose`
and the API.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer

from diagnosis.report import Diagnosis
from experiments.codec import Codec
from experiments.sentences import Text
from formatting.numbers import whole_number
from proposals.candidate import changes_chips

#: What a citation calls `book`.
BOOK = "How to Scale Your Model"
#: `own`: a mesh or an edit of the user's, priced by `evaluate`.
KINDS = ("recommendation", "safer", "bolder", "keep", "alternative", "own")


@dataclass(frozen=True)
class Citation:
    """Where a sentence comes from.  source: `book`, `profile`, `model`, `history`; section: e.g. `3.2`.

    key: id of the knowledge passage or history record, so that it opens in place; empty where there is none.
    supports: one line on which change or verdict it bears and how, `model 4 → 2: …`; empty where it says so itself.
    """

    source: str = ""
    section: str = ""
    title: str = ""
    statement: str = ""
    url: str = ""
    key: str = ""
    supports: str = ""

    @property
    def place(self) -> str:
        """Where it stands, as the knowledge base says it: `How to Scale Your Model, section 5.1.3`."""
        if self.source == "book":
            section = f"section {self.section}" if whole_number(self.section[:1]) is not None else self.section
            return ", ".join(part for part in (BOOK, section) if part)
        section = "" if self.source == "history" else self.section
        return f"{self.source.capitalize()} {section}".strip()

    @property
    def short(self) -> str:
        """The place in a word or two, for a column: `Book 5.1.3`, `History`."""
        return f"Book {self.section}".strip() if self.source == "book" else self.source.capitalize()


@dataclass(frozen=True, kw_only=True)
class Range:
    """A predicted time: estimate, 80 % interval, and of a whole step its bounds."""

    lower: float | None = None
    estimate: float
    upper: float | None = None
    low80: float
    high80: float


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Predicted bytes per chip; capacity: what a program can fill."""

    params: float | None = None
    optimizer: float | None = None
    gradients: float | None = None
    activations: float | None = None
    total: float
    capacity: float

    @property
    def headroom(self) -> float:
        """Negative where it does not fit."""
        return self.capacity - self.total


def _if_complete(kind: type[Range] | type[Memory]) -> BeforeValidator:
    """What lacks a number is not known: no field of it may read as 0."""
    required = {item.name for item in fields(kind) if item.default is MISSING}
    return BeforeValidator(lambda value: None if isinstance(value, Mapping) and not required <= value.keys() else value)


_WITHOUT_ABSENT = PlainSerializer(
    lambda value: value and {key: number for key, number in vars(value).items() if number is not None}
)
KnownRange = Annotated[Range | None, _if_complete(Range), _WITHOUT_ABSENT]
KnownMemory = Annotated[Memory | None, _if_complete(Memory), _WITHOUT_ABSENT]


@dataclass(frozen=True)
class Predicted:
    """What the performance model says of a proposal.  None where a missing fact forbids a number.

    speedup: per token against the baseline (same batch: step time ratio), with low80 / high80; breakdown_s as in the
    diagnosis, so that bars can be compared.  sigma: the model's own spread of the log of the speed-up, before what
    measured pairs add to it (`perfmodel.confidence`).
    """

    step_time_s: KnownRange = None
    speedup: float | None = None
    speedup_low80: float | None = None
    speedup_high80: float | None = None
    hbm_per_chip_bytes: KnownMemory = None
    breakdown_s: dict[str, float] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    sigma: float | None = None


@dataclass(frozen=True)
class Broken:
    """A rule that a configuration breaks, or a constraint of the user's (rule `your constraint: …`), in a sentence."""

    rule: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Neighbour:
    """A neighbouring configuration of a proposal: one axis halved or doubled against another, the batch, or the remat
    policy.

    varies: what is varied: `mesh`, `batch` or `remat`; step: in words, such as `data 8 → 16, model 4 → 2`.  mesh and
    changes: the whole neighbouring configuration, against the baseline as in ProposalPlan.  step_time_s: without
    bounds, None where the profile has no step time.  speedup: per token against the current configuration; relative:
    per token against the proposal.  memory_bytes: total per chip, None where it cannot be computed.  rule, reason: the
    first rule or constraint it breaks, empty where it breaks none.
    """

    varies: str
    step: str
    mesh: dict[str, dict[str, int]]
    changes: dict[str, Any]
    step_time_s: KnownRange = None
    speedup: float | None = None
    relative: float | None = None
    memory_bytes: float | None = None
    rule: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Communication:
    """Exposed communication on one axis or group of axes, before and after: seconds per step, None where the profile
    has no step time, and shares (0-1) of the time that ran.

    axes: the user's names, empty where the profile does not tell; dcn: across slices.  moves: what crosses it:
    `weights and gradients`, `activations`, `keys and values`, `tokens`, `activations between stages`.
    """

    axes: tuple[str, ...] = ()
    moves: str = ""
    before_s: float | None = None
    after_s: float | None = None
    dcn: bool = False
    before_share: float | None = None
    after_share: float | None = None

    @property
    def change(self) -> float:
        """Of its share."""
        return (self.after_share or 0.0) - (self.before_share or 0.0)


@dataclass(frozen=True)
class ProposalPlan:
    """One proposed configuration.  mesh: {"ici": {...}, "dcn": {...}}; changes: training keys that change.

    confidence: probability 0–1 that the step gets faster per token; raises and lowers: what moves it, as sentences.
    sensitivity: one-step neighbours.  memory_headroom_bytes: what a program can fill less what is needed, negative
    where it does not fit, None where memory cannot be computed.  violations: rules that the user's own mesh breaks, and
    constraints that the current configuration breaks; empty for every other proposal.  doublings: factors of two moved
    between axes, how far it is from the current configuration.  support: `proven` where the reasons cite a record of a
    measured gain, `hypothesis` where they cite none; empty where the built-in rules wrote them.  utility: what
    candidates are ranked by (`proposer.prices`), 0 for the current configuration; None for a model's own configuration
    and for plans of earlier versions.  disputed: by element (`mesh`, or a training key), the speed-up that it adds
    under the measurement and by the model alone, where one is a gain and the other a loss.  parts: seconds of the step
    by part, {"before", "after"}, both for the tokens of the current step.  precedent_speedup: per token, as measured of
    the closest similar change elsewhere.  flags: the measured effect of its flags (`history.effects`): expected
    `speedup` with low80 and high80, `measured` speed-up of the median trial, numbers of `trials`, of those of the
    `whole` set, of `stacks` and of runs that `failed`; empty where no flags change or nothing is known of them.
    policies: by key of a policy that changes, the `measured` median speed-up of runs that changed it alone in the same
    way, and numbers of `trials` and of runs that `failed`.

    A value in a sentence names a panel of the diagnosis, or its path from `proposal` or `plan`; several joined by ` + `
    are summed.
    """

    rank: int
    kind: str
    title: str
    mesh: dict[str, dict[str, int]]
    changes: dict[str, Any]
    predicted: Predicted
    confidence: float
    reasoning: tuple[Text, ...]
    expected_impact: tuple[Text, ...]
    trade_offs: tuple[Text, ...]
    citations: tuple[Citation, ...] = ()
    raises: tuple[Text, ...] = ()
    lowers: tuple[Text, ...] = ()
    findings: tuple[str, ...] = ()  # rules of the findings it answers
    sensitivity: tuple[Neighbour, ...] = ()
    memory_headroom_bytes: float | None = None
    communication: tuple[Communication, ...] = ()
    violations: tuple[Broken, ...] = ()
    doublings: float = 0.0
    support: str = ""
    utility: float | None = None
    disputed: dict[str, dict[str, float]] = field(default_factory=dict)
    parts: dict[str, dict[str, float]] = field(default_factory=dict)
    precedent_speedup: float | None = None
    flags: dict[str, float] = field(default_factory=dict)
    policies: dict[str, dict[str, float]] = field(default_factory=dict)
    runs: float | None = None  # probability that it runs at all, which the confidence includes

    @property
    def slower(self) -> bool:
        """Whether its speed-up reads as less than 1.00×; of fewer chips the gain per chip counts, not this."""
        speedup = None if changes_chips(self.changes) else self.predicted.speedup
        return speedup is not None and round(speedup, 2) < 1.0

    def to_json(self) -> dict[str, Any]:
        """The contract's object, with its reasons as one text."""
        return {**PROPOSAL.plain(self), "reasoning": " ".join(self.reasoning)}


@dataclass(frozen=True)
class Rejected:
    """A candidate that was left out: the rule it broke and one sentence why.

    rule: a name of `perfmodel.legality.RULES`, `…_unknown` where a fact is missing, or `your constraint: …`.
    """

    mesh: dict[str, dict[str, int]]
    rule: str
    reason: str


@dataclass(frozen=True)
class Listed:
    """A legal candidate in a list of the best.

    faster: probability that it runs and the step gets faster per token; runs: that it runs; utility: what candidates
    are ranked by (`proposer.prices`), 0 for the current configuration.  keeps: whether it is the current
    configuration. memory_headroom_bytes as in ProposalPlan.
    """

    mesh: dict[str, dict[str, int]]
    changes: dict[str, Any]
    predicted: Predicted
    faster: float
    runs: float
    utility: float
    memory_headroom_bytes: float | None = None
    keeps: bool = False


@dataclass(frozen=True)
class Plan:
    """Three proposals and what was considered on the way.

    observed: what the step spent its time on, as the proposals' sentences cite it: {name: {"time_s", "share"}}; further
    `exposed` communication, and `listed`, the share of the step whose ops the profile lists.
    considered: meshes; priced: legal candidates, each mesh with every further change.  constraints: the user's, as
    `Constraints.to_json`.  notes: sentences on what could not be done as asked.  author: the model that chose and
    argued the proposals; empty: the built-in rules.  basis: what is known of the step that ran, as
    Diagnosis.basis: without a profile `observed` and the baseline's breakdown are predicted.  model_error: of the
    performance model without this run, on held-out runs as far from the measured ones as its configuration.  evidence:
    {"name", "digest"} of `price.Evidence` that priced it; empty in plans of before.  not_modelled: why nothing is
    priced or proposed; empty where something is.
    """

    baseline: Predicted
    proposals: tuple[ProposalPlan, ...]
    rejected: tuple[Rejected, ...] = ()
    considered: int = 0
    missing: tuple[str, ...] = ()
    observed: dict[str, dict[str, float]] = field(default_factory=dict)
    priced: int = 0
    constraints: dict[str, Any] = field(default_factory=dict)
    notes: tuple[Text, ...] = ()
    author: str = ""
    basis: str = "profile"
    model_error: dict[str, Any] | None = None
    evidence: dict[str, str] = field(default_factory=dict)
    not_modelled: str = ""

    @property
    def slots(self) -> tuple[ProposalPlan, ...]:
        """Three proposals as the contract has them: keeping the current configuration fills what is not proposed."""
        keep = [item for item in self.proposals if item.kind == "keep"][:1]
        missing = range(len(self.proposals) + 1, 4)
        return (*self.proposals, *(replace(item, rank=rank) for rank in missing for item in keep))

    def to_json(self, diagnosis: Diagnosis | None = None) -> dict[str, Any]:
        data = {**PLAN.plain(self), "proposals": [proposal.to_json() for proposal in self.slots]}
        return data if diagnosis is None else {"diagnosis": diagnosis.to_json(), **data}


PROPOSAL = Codec(ProposalPlan)
PLAN = Codec(Plan)
