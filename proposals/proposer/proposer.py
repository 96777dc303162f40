"""`propose`: enumerate, price, rank, choose, explain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import exp, log

import numpy as np

from diagnosis.report import Diagnosis
from experiments.step_profile import StepProfile
from perfmodel.config import ConfigError, ExperimentConfig, Mesh
from perfmodel.step_time import Z80, check_products, missing_facts, predict
from proposals.plan import Plan, Predicted, ProposalPlan
from proposals.proposer import wording
from proposals.proposer.choose import Choice, choose
from proposals.proposer.citations import cite
from proposals.proposer.observed import Observed, observe
from proposals.proposer.precedents import Precedent, published
from proposals.proposer.pricing import Prices, calibrated, price
from proposals.proposer.ranking import Ranked, rank
from proposals.proposer.space import Meshes, enumerate_meshes, legal

#: Likeness from which a precedent is named as one.
NAMED_PRECEDENT = 0.3
#: Of exposed communication, what a schedule hides on average, and the spread of that share.
HIDDEN_SHARE = 0.5
HIDDEN_SPREAD = 0.3


def propose(
    profile: StepProfile,
    config: ExperimentConfig,
    diagnosis: Diagnosis,
    precedents: Sequence[Precedent] | None = None,
) -> Plan:
    """Three proposals, always legal as far as is known; the first is the recommendation.

    precedents: measured optimisations to learn from (default: the published ones).  Raises ConfigError for a mesh that
    does not match the chips, or where the profile has neither a step time nor ops.
    """
    check_products(config)
    observed = observe(profile, config, diagnosis)
    if observed is None:
        raise ConfigError(
            "", "The profile has neither a step time nor ops, so nothing can be proposed; record more steps and retry."
        )
    known = tuple(published() if precedents is None else precedents)
    calibration = calibrated(config, profile, diagnosis, observed)
    everything = enumerate_meshes(config, calibration.baseline)
    meshes, rejected = legal(everything)
    prices = price(meshes, calibration, observed, diagnosis)
    ranked = rank(meshes, prices, config, profile, diagnosis, known)
    missing = missing_facts(config)
    seconds = profile.step_time_s is not None
    baseline = _measured(prices.predicted(meshes.baseline, config, seconds), diagnosis, seconds)
    proposals = []
    for number, choice in enumerate(choose(meshes, prices, ranked, config, profile, diagnosis), start=1):
        mesh = meshes.mesh(choice.row)
        predicted = _predicted(choice, meshes, prices, ranked, config, mesh, observed, seconds)
        which = int(ranked.precedent[choice.row])
        named = known[which] if which >= 0 and ranked.likeness[choice.row] >= NAMED_PRECEDENT else None
        case = wording.Case(
            number, config, diagnosis, observed, baseline, choice, mesh, predicted, ranked, missing,
            named if mesh != config.mesh else None,
        )  # fmt: skip
        proposals.append(_plan(number, case))
    return Plan(
        baseline=baseline,
        proposals=tuple(proposals),
        rejected=tuple(rejected),
        considered=len(everything),
        missing=missing,
        observed={
            name: {"time_s": seconds, "share": seconds / observed.step_s}
            for name, seconds in {**observed.work_s, **observed.traffic_s, "fixed": observed.fixed_s}.items()
        },
    )


def _plan(number: int, case: wording.Case) -> ProposalPlan:
    citations = cite(wording.tags(case))
    if case.precedent is not None:
        citations = (*citations, case.precedent.citation())
    return ProposalPlan(
        rank=number,
        kind=case.choice.kind,
        title=wording.title(case),
        mesh=case.mesh.to_json(),
        changes=case.choice.changes,
        predicted=case.predicted,
        confidence=wording.probability(case),
        reasoning=tuple(wording.reasoning(case)),
        expected_impact=tuple(wording.expected_impact(case)),
        trade_offs=tuple(wording.trade_offs(case)),
        citations=citations,
        raises=tuple(wording.raises(case)),
        lowers=tuple(wording.lowers(case)),
        findings=tuple(finding.rule for finding in wording.answered(case)),
    )


def _measured(baseline: Predicted, diagnosis: Diagnosis, seconds: bool) -> Predicted:
    """The baseline's bars are what was measured, not what the model makes of it."""
    if not seconds or not diagnosis.breakdown_s:
        return baseline
    step = (baseline.step_time_s or {})["estimate"]
    exact = dict.fromkeys(("lower", "estimate", "upper", "low80", "high80"), step)
    return replace(baseline, step_time_s=exact, breakdown_s=dict(diagnosis.breakdown_s), speedup=1.0)


def _predicted(
    choice: Choice,
    meshes: Meshes,
    prices: Prices,
    ranked: Ranked,
    config: ExperimentConfig,
    mesh: Mesh,
    observed: Observed,
    seconds: bool,
) -> Predicted:
    """Numbers of a choice: of its mesh, with what its training keys change."""
    own = prices.predicted(choice.row, replace(config, mesh=mesh), seconds)
    own = _after_precedent(own, choice.row, prices, ranked)
    if "xla_flags" in choice.changes:
        share = choice.exposed_s / observed.step_s
        hidden = _scaled(own, 1.0 - HIDDEN_SHARE * share, HIDDEN_SPREAD * share)
        return replace(hidden, breakdown_s=_with_less_communication(own.breakdown_s, HIDDEN_SHARE * choice.exposed_s))
    if choice.changes:
        candidate = replace(config, mesh=mesh, training=replace(config.training, **choice.changes))
        before = replace(config, mesh=mesh)
        found = prices.calibration.price([candidate, before])
        ratio = float(found.step_time_s[0] / found.step_time_s[1])
        spread = float(np.hypot(0.25 * abs(log(ratio)), 0.02))
        changed = _scaled(own, ratio, spread)
        memory = predict(candidate).hbm_per_chip_bytes if own.hbm_per_chip_bytes else None
        return replace(changed, hbm_per_chip_bytes=dict(memory) if memory else None)  # type: ignore[arg-type]
    return own


def _with_less_communication(parts: dict[str, float], hidden_s: float) -> dict[str, float]:
    """The step's parts where so much of the communication runs beside compute."""
    talk = {name: value for name, value in parts.items() if name.startswith("ici") or name == "dcn"}
    left = max(0.0, 1.0 - hidden_s / sum(talk.values())) if talk else 1.0
    return {name: value * left if name in talk else value for name, value in parts.items()}


def _after_precedent(own: Predicted, row: int, prices: Prices, ranked: Ranked) -> Predicted:
    """Expected time and range as ranked: with what precedents say."""
    ratio = exp(float(prices.gain[row] - ranked.gain[row]))
    if abs(log(ratio)) < 1e-9:
        return own
    sigma, gain = float(ranked.sigma[row]), float(ranked.gain[row])
    step = own.step_time_s
    if step is not None:
        estimate = step["estimate"] * ratio
        low, high = estimate * exp(-Z80 * sigma), estimate * exp(Z80 * sigma)
        step = {
            "lower": min(step["lower"], low),
            "estimate": estimate,
            "upper": max(step["upper"], high),
            "low80": low,
            "high80": high,
        }
    return replace(
        own,
        step_time_s=step,
        speedup=exp(gain),
        speedup_low80=exp(gain - Z80 * sigma),
        speedup_high80=exp(gain + Z80 * sigma),
        breakdown_s={name: seconds * ratio for name, seconds in own.breakdown_s.items()},
    )


def _scaled(own: Predicted, ratio: float, spread: float) -> Predicted:
    """A prediction whose time changes by a ratio with a relative spread of its own, added in quadrature."""
    before = own.speedup or 1.0
    old = log((own.speedup_high80 or before) / (own.speedup_low80 or before)) / (2.0 * Z80)
    sigma = float(np.hypot(old, spread))
    low, high = exp(-Z80 * sigma), exp(Z80 * sigma)
    step = own.step_time_s
    if step is not None:
        estimate = step["estimate"] * ratio
        step = {
            "lower": min(step["lower"], estimate * low),
            "estimate": estimate,
            "upper": max(step["upper"], estimate * high),
            "low80": estimate * low,
            "high80": estimate * high,
        }
    speedup = None if own.speedup is None else own.speedup / ratio
    return replace(
        own,
        step_time_s=step,
        speedup=speedup,
        speedup_low80=None if speedup is None else speedup * low,
        speedup_high80=None if speedup is None else speedup * high,
        breakdown_s={name: seconds * ratio for name, seconds in own.breakdown_s.items()},
    )
