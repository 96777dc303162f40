"""A run without a profile, as a StepProfile: what its configuration says was measured, and nothing else.

So that whatever reads a profile reads this too, and finds None with its reason where a profile would have a value.
"""

from __future__ import annotations

from experiments.step_profile import MODEL, STEP_TIME, Device, Memory, StepProfile
from perfmodel.config import ExperimentConfig
from perfmodel.workload import chip_of

#: Quantities that a profile measures and a step time does not.
_UNMEASURED = (
    "duty_cycle", "idle", "communication", "communication_exposed", "communication_overlapped", "communication_ops",
    "input", "host", "output", "hbm_utilization", "flops_utilization", "goodput", "stragglers", "step_time_spread",
)  # fmt: skip
NO_PROFILE = {
    STEP_TIME: "no profile: only the step time was measured",
    MODEL: "no profile and no measured step time",
}


def without_profile(config: ExperimentConfig) -> StepProfile:
    """The measured block of a configuration in the place of a profile.

    Devices are those configured.  `source_kind` is `step_time` where a step time was measured, `model` where nothing
    was.  Raises ConfigError for a chip that is not known.
    """
    measured, chip = config.measured, chip_of(config.hardware)
    step_s = measured.step_time_s if measured is not None else None
    peak = measured.peak_memory_bytes if measured is not None else None
    chips = config.hardware.chips
    kind = STEP_TIME if step_s is not None else MODEL
    reasons = dict.fromkeys(_UNMEASURED, NO_PROFILE[kind])
    if step_s is None:
        reasons |= {"step_time": NO_PROFILE[kind], "mfu": NO_PROFILE[kind]}
    if peak is None:
        reasons["memory_peak_share"] = "no profile, and no measured peak memory was given"
    return StepProfile(
        provenance="measured" if step_s is not None else "predicted",
        source_kind=kind,
        device=Device(
            kind=chip.name,
            chip=chip.name,
            core_count=chips * chip.devices_per_chip,
            host_count=-(-chips // chip.chips_per_vm),
        ),
        step_time_s=step_s,
        not_measured=reasons,
        memory=Memory(peak_bytes=peak),
        ops_dropped=None,
        computed={
            "device": "as configured",
            "step_time_s": "given in the configuration as measured.step_time_s",
            "memory_peak_share": "measured.peak_memory_bytes of the configuration ÷ what a program can use",
        },
    )
