"""The configuration that each arm of a launch runs."""

from __future__ import annotations

from experiments.services import configuration
from launches.models import ArmRun, Launch
from perfmodel.config import ExperimentConfig
from proposals.models import Proposal
from proposals.services import unmeasured


def proposal_of(launch: Launch) -> Proposal:
    """Of a launch that compares one with its control arm."""
    assert launch.proposal is not None
    return launch.proposal


def config_of(launch: Launch, arm: str) -> ExperimentConfig | None:
    """None where the launch has no such arm, or its configuration is valid no more."""
    if launch.proposal is None:
        is_trial = arm == ArmRun.Arm.TRIAL and launch.config is not None
        return configuration.check(launch.config).config if is_trial else None
    if arm == ArmRun.Arm.TRIAL:
        return None
    return (unmeasured.proposed if arm == ArmRun.Arm.PROPOSAL else unmeasured.before_config)(launch.proposal)
