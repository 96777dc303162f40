"""Peaks of a device as the profile states them, and the chip that they are of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from experiments.ingest.values import number
from formatting import plain
from perfmodel.chips import chip_of_device, chips_of_device, load_chips

#: What a GPU's driver states over what the chip moves, where it states the memory's clock and not its transfers.
_HALF = (0.42, 0.58)


@dataclass(frozen=True)
class Peaks:
    """FLOP/s and HBM bytes/s of one core.

    chip: our key, None if unclear.  note: why they are not as XProf has them, and hbm_stated_bytes_per_s what it has.
    """

    flops_per_s: float | None
    hbm_bytes_per_s: float | None
    chip: str | None = None
    note: str = ""
    hbm_stated_bytes_per_s: float | None = None


def peaks_of(stats: Any, kind: str, memory_bytes: float | None) -> Peaks:
    """Of an OpStats message.  kind: XProf's device type; memory_bytes: of one device, where its plane states it.

    ROCm lists HBM by its clock, at which it transfers twice: XProf then prices it at half of what it moves.
    """
    environment = stats.perf_env
    flops = number(environment.peak_tera_flops_per_second) or 0.0
    bandwidths = list(environment.peak_bws_giga_bytes_per_second)
    hbm = (number(bandwidths[0] if bandwidths else environment.peak_hbm_bw_giga_bytes_per_second) or 0.0) * 1e9
    peak = flops * 1e12 if flops > 0 else None
    stated = {"memory_bytes": memory_bytes, "peak_flops_per_s": peak, "hbm_bytes_per_s": hbm or None}
    chip = chip_of_device(kind, **stated)
    known = [load_chips()[name] for name in chips_of_device(kind, **stated)]
    halved = [chip for chip in known if chip.kind == "gpu" and _HALF[0] <= hbm / chip.hbm_bytes_per_s <= _HALF[1]]
    if hbm > 0 and known and len(halved) == len(known):
        note = (
            f"XProf assumes {plain(hbm, 'bytes_per_s')} of HBM bandwidth for the {kind}, one transfer per clock "
            "instead of two. Efficiencies and HBM utilisation here are relative to "
            f"{plain(2 * hbm, 'bytes_per_s')} and so half of XProf's."
        )
        return Peaks(peak, 2 * hbm, chip, note, hbm)
    return Peaks(peak, hbm or None, chip)
