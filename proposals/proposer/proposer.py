"""`propose`: three configurations from a profile and what is known of its run."""

from __future__ import annotations

from collections.abc import Sequence

from diagnosis.report import Diagnosis
from experiments.step_profile import StepProfile
from perfmodel.confidence import Confidence
from perfmodel.config import ExperimentConfig
from proposals.constraints import Constraints
from proposals.plan import Plan, Predicted
from proposals.proposer.precedents import Precedent
from proposals.proposer.pricer import Pricer
from proposals.proposer.pricing import as_measured


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
