"""Everything that an agent can look at for one run, and nothing that it could change.

`of_values` needs no database; `proposals.services.stored` makes one from a stored run, within what its team may see.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, Generic, TypeVar

from diagnosis.analyzer import diagnose
from diagnosis.report import Diagnosis
from experiments.step_profile import Op, StepProfile
from perfmodel.confidence import Confidence
from perfmodel.config import ConfigError, ExperimentConfig
from perfmodel.config_file import config_to_json, parse_config
from proposals.agents.retrieval import Retrieval
from proposals.agents.shipped import Shipped
from proposals.compiling.result import CompileCheck
from proposals.constraints import Constraints
from proposals.plan import Plan, ProposalPlan
from proposals.proposer.precedents import Precedent
from proposals.proposer.pricer import Pricer

T = TypeVar("T")

#: The peak memory of the run, which the profile holds and the configuration does not.
PEAK = "measured.peak_memory_bytes"
#: Parts of a configuration that a user may state facts of; the current mesh is in the profile.
FACT_PATHS = ("model", "training", "hardware.overrides", PEAK)
#: Runs under other facts, and plans under other constraints, kept in a process.
KEPT = 16


class ComparedByIdentity(Generic[T]):
    """A large value as the key of a cache: equal only to another of the same object, which it keeps alive."""

    def __init__(self, value: T) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ComparedByIdentity) and other.value is self.value


@dataclass(frozen=True)
class ProposalState:
    """A proposal with its state.  status: `proposed`, `approved` or `rejected`, as a person decided; pk: of its row,
    None where it is not stored; compiled: its compile check, None where it has not been compiled."""

    proposal: ProposalPlan
    status: str = "proposed"
    pk: int | None = None
    compiled: CompileCheck | None = None


@dataclass(frozen=True)
class Workbench:
    """One run: what was measured, what it was configured as, why it is slow, what could be changed.

    config and diagnosis: with the facts that users told.  facts: these, by configuration path.  constraints: what they
    pin.  stored: the plan as it was stored, with its proposals' rows, where facts and constraints are the ones it
    was made under.  precedents, confidence: as `Pricer` takes them.  shared_pricer:
    that of the stored plan, which every request of the process shares; of other facts there is another.  compiled: the
    compile check of the current configuration.
    """

    profile: StepProfile
    config: ExperimentConfig
    diagnosis: Diagnosis
    retrieval: Retrieval = field(default_factory=Shipped)
    constraints: Constraints = field(default_factory=Constraints)
    facts: Mapping[str, Any] = field(default_factory=dict)
    stored: Plan | None = None
    rows: tuple[ProposalState, ...] = ()
    precedents: Sequence[Precedent] | None = None
    confidence: Confidence | None = None
    origin: Workbench | None = None
    shared_pricer: Pricer | None = None
    compiled: CompileCheck | None = None

    @classmethod
    def of_values(
        cls, profile: StepProfile, config: ExperimentConfig, diagnosis: Diagnosis | None = None,
        retrieval: Retrieval | None = None,
    ) -> Workbench:  # fmt: skip
        """Without a database.  A diagnosis is computed if none is given, the plan when it is asked for; history and
        knowledge are those that ship with the product."""
        return cls(profile, config, diagnosis or diagnose(profile, config), retrieval or Shipped())

    @cached_property
    def pricer(self) -> Pricer:
        """The proposer's bench.  Raises ConfigError where nothing can be priced."""
        if self.shared_pricer is not None:
            return self.shared_pricer
        parts = (self.profile, self.config, self.diagnosis, self.precedents, self.confidence)
        return _pricer(*map(ComparedByIdentity, parts))

    @cached_property
    def plan(self) -> Plan:
        """The proposals under these facts and constraints.  Raises ConfigError where none can be made."""
        if self.stored is not None:
            return self.stored
        return _proposed(ComparedByIdentity(self.pricer), json.dumps(self.constraints.to_json(), sort_keys=True))

    @cached_property
    def proposals(self) -> tuple[ProposalState, ...]:
        """Current proposals by rank, those that users added at the end.  Raises ConfigError as `plan`."""
        return self.rows or tuple(ProposalState(item) for item in self.plan.proposals)

    @cached_property
    def ops(self) -> Mapping[str, Op]:
        """The profile's ops by key."""
        return {op.key: op for op in self.profile.ops}

    def under(self, facts: Mapping[str, Any], constraints: Constraints | None = None) -> Workbench:
        """The same run under these facts and no others, and under constraints beside those that the plan was made
        under; None: under those that it has.

        facts: by configuration path (`model.name`, `training.global_batch`, `hardware.overrides.hbm_bytes`).  Raises
        ConfigError for a path or value that no configuration can have, and for constraints that make no sense.
        """
        start = self.origin or self
        held = self.constraints if constraints is None else start.constraints.joined(constraints)
        for same in (start, self):
            if (dict(facts), held) == (dict(same.facts), same.constraints):
                return same
        told = start if dict(facts) == dict(start.facts) else start._told(dict(facts))
        held.check(told.config)
        return replace(told, constraints=held, stored=None, rows=(), origin=start)

    def _told(self, facts: Mapping[str, Any]) -> Workbench:
        own = config_to_json(self.config)
        known = tuple(parse_config(own)[1])
        text = json.dumps(_config_with_facts(own, facts), default=str)
        profile, config, diagnosis = _under(ComparedByIdentity(self.profile), text, known, PEAK in facts)
        run = replace(self, profile=profile, config=config, diagnosis=diagnosis)
        return replace(run, facts=facts, shared_pricer=None, compiled=None)


@lru_cache(maxsize=KEPT)
def _under(
    profile: ComparedByIdentity[StepProfile], text: str, known: tuple[str, ...], has_peak: bool
) -> tuple[StepProfile, ExperimentConfig, Diagnosis]:
    """Return the run under a configuration.  known: warnings that the run's own has already; has_peak: whether a
    fact is the peak memory.  Raises ConfigError for a peak where the profile has its own."""
    config, warnings = parse_config(json.loads(text))
    # Of a key that a fact names: ignored, it would look as if it made no difference.
    if more := [line for line in warnings if line not in known]:
        field, message = more[0].split(": ", 1)
        raise ConfigError(field, message.replace(" and is ignored", "").replace("; ignored", ""))
    ran = profile.value
    if has_peak and config.measured is not None:
        if ran.memory.peak_bytes is not None:
            raise ConfigError(PEAK, "was measured by the profile, and is not supposed beside it")
        ran = replace(ran, memory=replace(ran.memory, peak_bytes=config.measured.peak_memory_bytes))
    return ran, config, diagnose(ran, config)


@lru_cache(maxsize=KEPT)
def _pricer(*parts: ComparedByIdentity[Any]) -> Pricer:
    return Pricer(*(part.value for part in parts))


@lru_cache(maxsize=KEPT)
def _proposed(pricer: ComparedByIdentity[Pricer], constraints: str) -> Plan:
    return pricer.value.propose(Constraints.from_json(json.loads(constraints)))


def _config_with_facts(data: dict[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration's JSON with the facts in it.  A model that is named replaces the one that was configured."""
    if "model.name" in facts:
        data["model"] = {"name": facts["model.name"]}
    for path, value in facts.items():
        if path != PEAK and not any(path.startswith(f"{part}.") for part in FACT_PATHS):
            raise ConfigError(str(path)[:60], f"is not a supported fact; facts are about {', '.join(FACT_PATHS)}")
        *parents, last = path.split(".")
        inside = data
        for parent in parents:
            inside = inside.setdefault(parent, {})
            if not isinstance(inside, dict):
                raise ConfigError(str(path)[:60], "is not a path of a configuration")
        inside[last] = value
    return data
