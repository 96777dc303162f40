"""Devices that recorded ops, of those in the profile."""

from __future__ import annotations

from experiments.consistency.groups import collective_ops
from experiments.step_profile import PROFILE, StepProfile


def recorded(profile: StepProfile) -> int:
    """Devices of the profile that recorded an op."""
    stated = getattr(profile.device, "recorded_cores", None)
    return stated if isinstance(stated, int) else len(profile.cores) or profile.device.core_count


def exchange_unrecorded(profile: StepProfile) -> str:
    """Why nothing can be said about other meshes: some devices recorded no op, and the others no collective.

    Empty where all devices recorded, or where collectives were.
    """
    count, devices = recorded(profile), profile.device.core_count
    if profile.basis != PROFILE or not 0 < count < devices or collective_ops(profile):
        return ""
    return (
        f"Only {count:,} of {devices:,} devices recorded ops, and no collective: what the devices exchange was not "
        "measured, so the mesh stays as it is. Record all devices to compare meshes."
    )
