"""The block `measured` of a configuration: what was measured of it as it ran, read strictly and written back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfmodel.checks import Checker, shown
from perfmodel.config import Hardware, Measured
from perfmodel.workload import chip_of

MEASURED_KEYS = tuple(Measured.__dataclass_fields__)
#: No optimizer step of a day; and no program that trains holds less than a megabyte of device memory.
LONGEST_STEP_S = 86_400.0
LEAST_PEAK_BYTES = 1e6


def read_measured(check: Checker, value: Any, hardware: Hardware | None) -> Measured | None:
    """The block as values; None where it is absent, empty or wrong, with the complaints on `check`.

    hardware: whose memory bounds the peak; None where it could not be read.
    """
    given = check.mapping("measured", value)
    check.unknown_keys("measured", given, MEASURED_KEYS)
    step_s = peak = None
    if given.get("step_time_s") is not None:
        step_s = check.positive("measured.step_time_s", given["step_time_s"], high=LONGEST_STEP_S)
    if given.get("peak_memory_bytes") is not None:
        peak = _peak(check, given["peak_memory_bytes"], hardware)
    return Measured(step_s, peak) if step_s is not None or peak is not None else None


def _peak(check: Checker, value: Any, hardware: Hardware | None) -> float | None:
    name = "measured.peak_memory_bytes"
    peak = check.positive(name, value, high=1e15)
    if peak is None:
        return None
    if peak < LEAST_PEAK_BYTES:
        check.fail(name, f"is {shown(value)} bytes; give bytes per chip, 61.5 GB as 61.5e9")
        return None
    if hardware is None:
        return peak
    chip = chip_of(hardware)
    memory = max(chip.hbm_bytes, hardware.overrides.get("hbm_bytes", 0.0))
    if peak > memory:
        text = f"is {peak / 1e9:.4g} GB, more than the {memory / 1e9:.4g} GB of one {chip.name}; give the peak per chip"
        check.fail(name, text)
        return None
    return peak


def measured_to_json(measured: Measured | None) -> Mapping[str, float]:
    """The mapping that `read_measured` reads back; empty where nothing was measured."""
    values = {key: getattr(measured, key, None) for key in MEASURED_KEYS}
    return {key: value for key, value in values.items() if value is not None}
