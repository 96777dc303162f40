"""The proposer's bench: one run's profile, configuration and diagnosis, calibrated once, asked many times.

pricer = Pricer(profile, config, diagnosis)
pricer.propose(Constraints(keep_batch=True))
pricer.evaluate(Candidate({"ici": {"data": 8, "model": 2}}, {"remat": "minimal"}))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

import formatting
from diagnosis.report import Diagnosis
from experiments.consistency import exchange_unrecorded
from experiments.sentences import Sentence
from experiments.step_profile import PROFILE, StepProfile
from formatting import listed
from history.effects import Effects, FlagEffect, Situation
from history.moves import SETTINGS as POLICIES
from history.record import Record
from perfmodel.confidence import Confidence, shipped
from perfmodel.config import (
    ConfigError,
    ExperimentConfig,
    Mesh,
    MeshSizes,
    check_products,
    framework_of,
    mesh_text,
    missing_facts,
    wide_sizes,
)
from perfmodel.config_file import read_mesh
from perfmodel.efficiency import load_efficiencies
from perfmodel.execution import profile_named
from perfmodel.prediction import precision_doubts
from perfmodel.prediction import predict as predict_alone
from perfmodel.space import Space
from perfmodel.workload import chip_of
from proposals.candidate import Candidate, MeshAndChanges
from proposals.constraints import RULE, Constraints
from proposals.plan import Broken, Listed, Neighbour, Plan, Predicted, ProposalPlan
from proposals.proposer import detail
from proposals.proposer.build import proposal_of
from proposals.proposer.case import Case
from proposals.proposer.changes import (
    Change,
    further_changes,
    given_changes,
    impossible,
    products,
    split_once,
)
from proposals.proposer.choose import Choice, choose, in_order, keeping_is_right, shortlist
from proposals.proposer.facts import yes
from proposals.proposer.limits import broken_by, legal, rules_of
from proposals.proposer.observed import Observed, evidence_of, observe, recomputes_nothing, refuse
from proposals.proposer.precedents import (
    Library,
    Precedent,
    case_of_change,
    closest_precedents,
    policy_trials,
    published,
    situation,
    sizes_by_role,
)
from proposals.proposer.prices import (
    PricedCandidates,
    as_measured,
    confidence_of,
    exposed_s,
    fastest,
    price,
    rank,
)
from proposals.proposer.space import CHANGE_KINDS, Candidates, enumerate_meshes, side_by_side
from proposals.proposer.words import memory_of, said

#: Sets of flags tried at a time, those that gained most.
MOST_SETS = 3
#: Candidates that are ranked by what may go wrong besides their time: the fastest.
LOOKED_AT = 4096


class Pricer:
    """Prices configurations of one run.  Nothing in it changes once it is made, but for what it remembers.

    precedents: measured optimisations to learn from (default: those of the database as shipped).  confidence: what own
    measured proposals make of the shipped fit (default: that fit).  Raises ConfigError for a mesh that does not match
    the chips, where the profile has neither a step time nor ops, or where the performance model does not describe the
    program (`Diagnosis.not_modelled`).
    """

    def __init__(
        self,
        profile: StepProfile,
        config: ExperimentConfig,
        diagnosis: Diagnosis,
        precedents: Sequence[Precedent] | None = None,
        confidence: Confidence | None = None,
    ) -> None:
        check_products(config)
        if diagnosis.not_modelled:
            raise ConfigError("", diagnosis.not_modelled)
        self.profile, self.config, self.diagnosis = profile, config, diagnosis
        observation = observe(profile, config, diagnosis) if profile.basis == PROFILE else None
        refuse(profile, config)
        self.exchange_unrecorded = exchange_unrecorded(profile)
        self.precedents = tuple(published() if precedents is None else precedents)
        self.confidence = confidence or shipped()
        self.recomputes_nothing = observation is not None and recomputes_nothing(config, observation, diagnosis)
        ran = replace(config, training=replace(config.training, remat="none")) if self.recomputes_nothing else config
        self.evidence = evidence_of(ran, profile, observation, self.confidence)
        assert self.evidence.calibration is not None
        self.calibration = self.evidence.calibration
        self.observed = Observed(self.evidence, profile.basis, bool(profile.step_time_s) or profile.basis != PROFILE)
        self.missing = missing_facts(config)
        self._effects_of: dict[tuple[str, ...], FlagEffect | None] = {}

    def propose(self, constraints: Constraints | None = None) -> Plan:
        """Up to three proposals, legal as far as is known and within the constraints; the first is the recommendation.
        Where fewer are worth a trial, keeping the current configuration is the last.

        Raises ConfigError where a constraint makes no sense, or leaves nothing.
        """
        asked = constraints or Constraints()
        priced = self._searched(asked)
        candidates, prices, ranked = priced.candidates, priced.prices, priced.ranked
        rules = rules_of(candidates, asked)
        unwanted = tuple(broken_by(candidates, candidates.baseline, [r for r in rules if r.asked]))
        if asked and len(candidates) == 1:
            near = next((item for item in priced.rejected if not item.rule.startswith(RULE)), None)
            why = f"; the nearest alternative is {mesh_text(near.mesh)}: {near.reason}" if near else ""
            raise ConfigError("constraints", f"no other configuration satisfies them; relax one and try again{why}")
        choices = choose(candidates, ranked, bool(unwanted))
        keeping = keeping_is_right(candidates, ranked, choices)
        baseline = as_measured(self.profile, self.diagnosis, priced.predicted(candidates.baseline))
        proposals = []
        for number, choice in enumerate(choices, start=1):
            broken = unwanted if choice.index == candidates.baseline else ()
            plan = self._proposal(priced, choice, number, baseline, keeping, broken)
            steps, around = self._around(Candidate(plan.mesh, plan.changes))
            proposals.append(replace(plan, sensitivity=self._sensitivity(steps, around, asked)))
        # Errors measured on the chip that is named say nothing of a profile from another one.
        known = None if self.evidence.stand_in else load_efficiencies().errors_of(self.config)
        step = self.observed.step_s
        times = {**self.observed.parts_s, "exposed": exposed_s(prices, candidates)}
        return Plan(
            baseline=baseline,
            proposals=tuple(proposals),
            rejected=tuple(priced.rejected),
            considered=priced.considered,
            missing=self.missing,
            observed={
                **{
                    name: {**({"time_s": seconds} if self.observed.timed else {}), "share": seconds / step}
                    for name, seconds in times.items()
                },
                "listed": {"share": self.calibration.observation.coverage},
            },
            priced=priced.priced,
            constraints=asked.to_json(),
            notes=notes(self, asked, baseline, proposals),
            basis=self.observed.basis,
            model_error=known.to_json() if known else None,
            evidence={"name": self.evidence.name, "digest": self.evidence.digest},
        )

    def search(self, constraints: Constraints | None = None, top: int = 10) -> tuple[Listed, ...]:
        """The best of all that can be priced, by what proposals are chosen by.  Raises as `propose`."""
        priced = self._searched(constraints or Constraints())
        candidates, ranked = priced.candidates, priced.ranked
        room = None if self.missing else candidates.used.capacity - candidates.used.total
        return tuple(
            Listed(
                mesh=candidates.mesh(index).to_json(),
                changes=dict(candidates.change(index)),
                predicted=priced.predicted(index),
                faster=float(ranked.faster[index]),
                runs=float(ranked.runs[index]),
                utility=float(ranked.utility[index]),
                memory_headroom_bytes=None if room is None else float(room[index]),
                keeps=index == candidates.baseline,
            )
            for index in in_order(candidates, ranked)[:top]
        )

    def evaluate(self, of: MeshAndChanges, constraints: Constraints | None = None) -> ProposalPlan:
        """A mesh of the user's own, or an edited proposal, as a proposal of kind `own` and rank 0.

        A rule or constraint that it breaks is in `violations`; where it does not even name the chips, nothing is
        predicted.  Raises ConfigError with one sentence for what is no mesh or no training key at all.
        """
        asked = constraints or Constraints()
        asked.check(self.config)
        own, change = read_mesh(self.config, of.mesh), given_changes(self.config, of.changes)
        if wide_sizes(own) == wide_sizes(self.config.mesh):  # the mesh that ran, with or without axes of one
            own = self.config.mesh
        wrong = products(self.config, own)
        if wrong:
            return impossible(own, change, wrong, self.missing)
        change = split_once(self.config, own, change)
        steps, priced = self._around(Candidate(own.to_json(), change))
        rules = rules_of(priced.candidates, asked)
        broken = tuple(broken_by(priced.candidates, 1, rules))
        unchecked = tuple(rule.reason for rule in rules if not rule.certain and rule.broken[1])
        unchecked += (self.exchange_unrecorded,) if self.exchange_unrecorded and own != self.config.mesh else ()
        baseline = as_measured(self.profile, self.diagnosis, priced.predicted(0))
        keeping = self._keeping if own == self.config.mesh and not change else 0.0
        plan = self._proposal(priced, Choice("own", 1), 0, baseline, keeping, broken, unchecked)
        return replace(plan, sensitivity=self._sensitivity(steps, priced, asked))

    @cached_property
    def _library(self) -> Library:
        # What limits another kind of chip says nothing of how the configured one would do.
        precedents = () if self.evidence.stand_in else self.precedents
        return Library(precedents, situation(self.config, self.diagnosis))

    def _searched(self, asked: Constraints) -> PricedCandidates:
        """The best legal candidates within the constraints.

        Every mesh is tried with at most two training keys at once, and the best meshes with every combination.
        """
        asked.check(self.config)
        offers = () if asked.no_flags else self.offers[:MOST_SETS]
        alone: tuple[Change, ...] = tuple({"xla_flags": list(flags)} for flags, _ in offers)
        changes = (*further_changes(self.config, asked), *alone)
        candidates, rejected = legal(self._space, self.config, changes, asked, known=self.evidence.memory)
        first = self._priced(fastest(candidates, self.evidence, LOOKED_AT))
        assert isinstance(candidates.meshes, Space)
        closer = candidates.meshes.take(shortlist(first.candidates, first.ranked))
        together = (*further_changes(self.config, asked, len(CHANGE_KINDS)), *alone)
        best, _ = legal(closer, self.config, together, asked, listed=0, known=self.evidence.memory)
        return replace(
            self._priced(best),
            rejected=rejected,
            considered=len(self._space.sizes),
            priced=len(candidates) + len(best),
        )

    @cached_property
    def _space(self) -> Space:
        space = enumerate_meshes(self.config, self.calibration.baseline)
        row = space.row_of(self.config.mesh)
        return space.take(np.array([row])) if self.exchange_unrecorded and row is not None else space

    @cached_property
    def _keeping(self) -> float:
        """Probability that nothing legal gains what is worth a change."""
        priced = self._searched(Constraints())
        return keeping_is_right(priced.candidates, priced.ranked)

    def _priced(self, candidates: Candidates) -> PricedCandidates:
        effects = [self.effect_of(change) for change in candidates.changes]
        prices = price(candidates, self.evidence, effects)
        confidence = confidence_of(self.evidence, self.diagnosis)
        ranked = rank(candidates, prices, self._library, confidence, effects=effects)
        return PricedCandidates(candidates, prices, ranked, self.evidence, effects, self.observed.timed)

    def effect_of(self, change: Mapping[str, Any]) -> FlagEffect | None:
        """Return the measured effect of the flags of a change; None where nothing is known of it."""
        flags = tuple(change.get("xla_flags", self.config.training.xla_flags))
        if flags == self.config.training.xla_flags or not self.flags_of_run:
            return None
        if flags not in self._effects_of:
            self._effects_of[flags] = self.effects.of(self.config.training.xla_flags, flags, self.flags_of_run)
        return self._effects_of[flags]

    @cached_property
    def effects(self) -> Effects:
        """The measured effects of flags on the chip of the run."""
        told = () if self.evidence.stand_in else self.precedents
        return Effects((item.record for item in told), self.config.hardware.chip)

    @cached_property
    def flags_of_run(self) -> Situation | None:
        """The situation in which flags would act; None for programs that XLA does not compile or of unknown models."""
        config, program = self.config, framework_of(self.config) or ""
        kind = chip_of(config.hardware).kind
        if config.model is None or (kind == "gpu" and (not program or profile_named(program, kind).name != "xla")):
            return None
        roles = frozenset(role for role, size in sizes_by_role(config.mesh).items() if size > 1)
        stack = (program.lower(), config.model.name or "")
        return Situation(config.hardware.chip, stack, config.training.seq_len, roles)

    @cached_property
    def offers(self) -> tuple[tuple[tuple[str, ...], FlagEffect], ...]:
        """The flags of the run with each set that measured well, with its effect; the largest gain first."""
        where = self.flags_of_run
        return tuple(self.effects.offers(self.config.training.xla_flags, where)) if where else ()

    def _proposal(
        self,
        priced: PricedCandidates,
        choice: Choice,
        number: int,
        baseline: Predicted,
        keeping: float,
        broken: tuple[Broken, ...],
        unchecked: tuple[str, ...] = (),
    ) -> ProposalPlan:
        """The proposal of a choice, without its neighbours."""
        candidates, prices, ranked, index = priced.candidates, priced.prices, priced.ranked, choice.index
        mesh, changes = candidates.mesh(index), dict(candidates.change(index))
        bears, warns = None, None
        if index != candidates.baseline:
            warned = int(ranked.support.warned[index])
            told = () if self.evidence.stand_in else self.precedents
            like = case_of_change(self.config, self.diagnosis, Candidate(mesh.to_json(), changes))
            bears, warns = closest_precedents(told, like, self.precedents[warned] if warned >= 0 else None)
        case = Case(
            rank=number,
            kind=choice.kind,
            config=self.config,
            diagnosis=self.diagnosis,
            observed=self.observed,
            baseline=baseline,
            mesh=mesh,
            changes=changes,
            predicted=baseline if mesh == self.config.mesh and not changes else priced.predicted(index),
            faster=float(ranked.faster[index]),
            runs=float(ranked.runs[index]),
            counts_measured=ranked.counts_measured(index),
            keeping=keeping,
            exposed_s=exposed_s(prices, candidates),
            utility=float(ranked.utility[index]),
            missing=self.missing,
            precedent=bears[0] if bears else None,
            bears=bears[1] if bears else None,
            warning=warns[0] if warns else None,
            warns=warns[1] if warns else None,
            broken=broken,
            unchecked=unchecked,
            doubts=(*self.evidence.doubts, *precision_doubts(candidates.configured(index))),
            parts=detail.parts(priced, index) if priced.timed else {},
            disputed=detail.disputed(self.config, mesh, changes, self.evidence),
            effect=self.effect_of(changes),
            policies={key: self._policy(key, changes[key]) for key in POLICIES if key in changes},
        )
        used = case.predicted.hbm_per_chip_bytes
        return replace(
            proposal_of(case),
            memory_headroom_bytes=used.headroom if used else None,
            communication=detail.communication(priced, index),
        )

    def _policy(self, key: str, becomes: str) -> list[Record]:
        """Return the records that changed this policy alone from what the run has."""
        told = () if self.evidence.stand_in else self.precedents
        return policy_trials(told, key, getattr(self.config.training, key), becomes, self.config.hardware.chip)

    def _around(self, of: Candidate) -> tuple[list[Neighbour], PricedCandidates]:
        """The neighbours of a configuration, and beside each other the current one, this one and these, priced."""

        def laid(mesh: MeshSizes) -> Mesh:
            return Mesh(tuple(mesh["ici"].items()), tuple(mesh["dcn"].items()), self.config.mesh.axis_roles)

        steps = list(detail.steps_from(self.config, laid(of.mesh), dict(of.changes)))
        every: list[MeshAndChanges] = [of, *steps]
        listed = [(laid(each.mesh), dict(each.changes)) for each in every]
        return steps, self._priced(side_by_side(self.config, self.calibration.baseline, listed, self.evidence.memory))

    def _sensitivity(
        self, steps: list[Neighbour], around: PricedCandidates, asked: Constraints
    ) -> tuple[Neighbour, ...]:
        return tuple(detail.neighbours(steps, around, rules_of(around.candidates, asked)))


def propose(
    profile: StepProfile,
    config: ExperimentConfig,
    diagnosis: Diagnosis,
    precedents: Sequence[Precedent] | None = None,
    constraints: Constraints | None = None,
    confidence: Confidence | None = None,
) -> Plan:
    """Three proposals, always legal as far as is known; the first is the recommendation.  See `Pricer.propose`.

    None where the performance model does not describe the program; the plan says why.  confidence: what own measured
    proposals make of the shipped fit (`confidence.updated`); default the shipped one.
    """
    if diagnosis.not_modelled:
        measured = as_measured(profile, diagnosis, Predicted())
        return Plan(measured, (), basis=profile.basis, not_modelled=diagnosis.not_modelled)
    return Pricer(profile, config, diagnosis, precedents, confidence).propose(constraints)


def notes(
    run: Pricer, asked: Constraints, baseline: Predicted, proposals: Sequence[ProposalPlan]
) -> tuple[Sentence, ...]:
    """Sentences on the run, its profile, what could not be checked, and all its proposals."""
    config, memory = run.config, baseline.hbm_per_chip_bytes
    assumed, wanted = "", ""
    if "model" in run.calibration.assumed:
        assumed, wanted = _assumed(run.calibration.baseline, config)
    doubt = " ".join((*run.evidence.doubts, *precision_doubts(config)))
    told = {
        "run": not run.missing,
        "doubt": doubt,
        "unrecorded": run.exchange_unrecorded,
        "memory": memory,
        "peak": run.evidence.memory.has_peak,
        "assumed": assumed,
    }
    of: dict[str, Any] = {
        "known": frozenset(name for name, fact in told.items() if fact),
        "basis": run.observed.basis,
        "doubt": doubt,
        "unrecorded": run.exchange_unrecorded,
        "stand_in": yes(run.evidence.stand_in),
        "recorded_on": run.profile.device.kind or "another chip",
        "chip": config.hardware.chip,
        "headroom": memory.headroom if memory else None,
        "fits_alone": yes(bool(run.missing) or predict_alone(config).fits is not False),
        "margin": yes(bool(asked.memory_margin)),
        "assumed": assumed,
        "wanted": wanted,
        "recomputes_nothing": yes(run.recomputes_nothing),
        "remat": config.training.remat,
        "worth_a_trial": float(sum(item.kind != "keep" for item in proposals)),
        "verdict": run.diagnosis.bottleneck.primary,
    }
    if memory:
        of["memory"], of["capacity"] = memory_of(memory, "plan.baseline")
    return tuple(said("Notes", of))


def _assumed(filled: ExperimentConfig, given: ExperimentConfig) -> tuple[str, str]:
    """Return what candidates are priced with where nobody said what was trained, and what would tell better."""
    shape, training = filled.model, filled.training
    assert shape is not None
    assumed = [f"a dense LLaMA-3-like shape with {shape.layers} layers of width {formatting.number(shape.d_model)}"]
    wanted = ["model"]
    if given.training.global_batch is None:
        assumed.append(f"global batch {formatting.number(training.global_batch or 0)}")
        wanted.append("batch")
    if given.training.seq_len is None:
        assumed.append(f"sequence length {formatting.number(training.seq_len or 0)}")
        wanted.append("sequence length")
    return listed(assumed), listed(wanted)
