"""`propose`: three configurations from a profile and what is known of its run."""

from __future__ import annotations

from collections.abc import Sequence

from diagnosis.report import Diagnosis
from experiments.step_profile import StepProfile
from perfmodel.confidence import Confidence
from perfmodel.config import ExperimentConfig
from proposals.constraints import Constraints
from proposals.plan import Plan
from proposals.proposer.precedents import Precedent
from proposals.proposer.pricer import Pricer


def propose(
    profile: StepProfile,
    config: ExperimentConfig,
    diagnosis: Diagnosis,
    precedents: Sequence[Precedent] | None = None,
    constraints: Constraints | None = None,
    confidence: Confidence | None = None,
) -> Plan:
    """Three proposals, always legal as far as is known; the first is the recommendation.  See `Pricer.propose`.

    confidence: what own measured proposals make of the shipped fit (`confidence.updated`); default the shipped one.
    """
    return Pricer(profile, config, diagnosis, precedents, confidence).propose(constraints)
