"""What follows where only some of the devices in a profile recorded ops."""

from __future__ import annotations

from experiments.consistency.groups import collective_ops
from experiments.step_profile import PROFILE, StepProfile


def exchange_unrecorded(profile: StepProfile) -> str:
    """Why nothing can be said about other meshes: some devices recorded no op, and the others no collective.

    Empty where all devices recorded, or where collectives were.
    """
    count, devices = profile.device.measured_cores, profile.device.core_count
    if profile.basis != PROFILE or not 0 < count < devices or collective_ops(profile):
        return ""
    return (
        f"Only {count:,} of {devices:,} devices recorded ops, and no collectives: communication was not measured, so "
        "the mesh is kept. Record all devices to compare meshes."
    )
