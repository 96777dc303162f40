"""Peaks of a device, and ops above the roofline: kept as XProf states them, explained, and left out of sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import formatting
from experiments.ingest.values import number
from experiments.step_profile import Note, Op
from formatting import plain
from perfmodel.chips import chip_of_device, chips_of_device, load_chips

Resource = Literal["compute", "hbm"]

_COUNT = {"compute": "flops", "hbm": "hbm_bytes"}
_NAMED = 3


def utilization(stated: float | None, ops: Sequence[Op], resource: Resource) -> tuple[float | None, str]:
    """(the stated utilisation less what ops above the peak add to it, why it is not the stated one).

    An op that claims more than the peak was not that fast: the cost model counts more than was computed or moved (all
    blocks of an attention kernel that skips masked ones, a whole buffer of which a slice is updated).  What it really
    did is unknown, so that the rest is a lower bound.  An asynchronous copy is above the roof since its bytes are
    counted at its start op, which takes no time: they were moved all the same.
    """
    if stated is None:
        return None, ""
    count = _COUNT[resource]
    total = sum(getattr(op, count) or 0.0 for op in ops)
    wrong = [op for op in ops if not op.is_asynchronous and getattr(op, count) and resource in op.over_roof]
    excess = sum(getattr(op, count) for op in wrong)
    if not wrong or total <= 0 or excess < 0.01 * total:
        return stated, ""
    names = {"compute": "FLOPs", "hbm": "bytes"}
    return (
        stated * (1.0 - excess / total),
        f"without {names[resource]} of {_ops(wrong)} above the peak, which XProf counts in its "
        f"{formatting.share(stated)}",
    )


def efficiencies(
    flops_rate: float | None, hbm_rate: float | None, peak_flops: float | None, peak_hbm: float | None
) -> tuple[float | None, float | None, float | None]:
    """(roofline, compute, bandwidth) efficiency as XProf defines them; None without a rate or its peak."""
    compute = flops_rate / peak_flops if flops_rate is not None and peak_flops else None
    bandwidth = hbm_rate / peak_hbm if hbm_rate is not None and peak_hbm else None
    known = [value for value in (compute, bandwidth) if value is not None]
    return (max(known) if known else None), compute, bandwidth


def notes_on_roof(ops: Sequence[Op]) -> list[Note]:
    """What is above the roof, by how much, and why; one note for copies and one for the others."""
    notes: list[Note] = []
    above = sorted((op for op in ops if op.over_roof), key=lambda op: -op.time_share)
    opaque = [op for op in above if not op.is_asynchronous]
    if opaque:
        most = max(op.roofline_efficiency or 0.0 for op in opaque)
        kinds = {resource for op in opaque for resource in op.over_roof}
        words = (("compute", "FLOPs than were executed"), ("hbm", "bytes than were moved"))
        counted = " and ".join(word for key, word in words if key in kinds)
        share = sum(op.time_share for op in opaque)
        are = "are" if len(opaque) > 1 else "is"
        notes.append(
            Note(
                "warning",
                f"{_ops(opaque)} ({formatting.share(share)} of the time) {are} above the roofline, up to "
                f"{formatting.share(most)}: XProf's cost model counts more {counted}. Their efficiency is shown as "
                "reported but not used.",
            )
        )
    copies = len(above) - len(opaque)
    if copies:
        which = f"{copies} asynchronous ops are" if copies > 1 else "1 asynchronous op is"
        why = "XProf attributes the bytes to the op that only starts or awaits the transfer"
        notes.append(Note("info", f"{which} above the roofline: {why}."))
    return notes


def notes_on_utilization(kpis: Mapping[str, float | None]) -> list[Note]:
    """A counter of the MXU below the cost model's FLOPs: one of them is not of the steps."""
    counter, model = kpis.get("mxu_utilization"), kpis.get("flops_utilization")
    if counter is None or model is None or counter >= 0.8 * model:
        return []
    return [
        Note(
            "warning",
            f"MXU utilisation ({formatting.share(counter)}, a hardware counter over the whole recording) and FLOPs "
            f"utilisation ({formatting.share(model)}, cost model over profiled device time) disagree: the counter also "
            "covers time outside the steps, or the cost model overcounts FLOPs.",
        )
    ]


def _ops(ops: Sequence[Op]) -> str:
    return formatting.first([_short(op.name) for op in ops], _NAMED)


def _short(name: str) -> str:
    return name if len(name) <= 40 else name[:37] + "…"


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
    """Return the peaks that an OpStats message states.  kind: XProf's device type; memory_bytes: of one device, where
    its plane states it.

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
