"""Copies between HBM and the host's memory, as offloaded activations and optimizer states make them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import fmean

from diagnosis.analyzer.facts import HOST_TRANSFER, Facts, OpFacts, keys
from diagnosis.analyzer.quantity import evidence
from diagnosis.report import SourcedValue

#: A result in host memory (XLA's memory space 5) was copied there; any other was copied from there.
_TO_HOST = re.compile(r"=\s*\(?\w+\[[^\]]*\]\{[^{}]*S\(5\)[^{}]*\}")
#: As traces of GPUs name such a copy.
_TO_HOST_KERNEL = re.compile(r"device to host|d2h|dtoh|devicetohost", re.I)
#: What copies of unified memory are called, which the driver makes as pages are touched.
MIGRATION = "Page migration"
#: Bytes one way below this part of the other way's are no tensors that come back.
RETURNED = 0.1
#: Bytes over time beyond the link by more than this mean that the wait is only a part of the time in flight.
_TOLERANCE = 1.1


def host_copies(facts: Facts) -> tuple[OpFacts, ...]:
    """Ops that move a tensor between HBM and host memory, or wait for it, by descending share."""
    return facts.where(lambda op: op.family == HOST_TRANSFER)


def bytes_each_way(ops: Sequence[OpFacts]) -> tuple[float, float]:
    """(bytes to the host, bytes from it) over all occurrences."""
    to_host = sum(op.op.host_bytes or 0.0 for op in ops if _is_to_host(op))
    return to_host, sum(op.op.host_bytes or 0.0 for op in ops) - to_host


def _is_to_host(op: OpFacts) -> bool:
    return bool(_TO_HOST.search(op.op.hlo) or _TO_HOST_KERNEL.search(f"{op.op.category} {op.op.name}"))


def offloads(ops: Sequence[OpFacts]) -> bool:
    """Return whether tensors go to host memory and come back: XLA's memory spaces say so, else copies both ways do."""
    one, other = sorted(bytes_each_way(ops))
    return any(op.op.hlo for op in ops) or one >= RETURNED * other > 0


def host_link_rate(facts: Facts) -> tuple[SourcedValue, SourcedValue | None] | None:
    """(bytes/s per core in the busier direction while a copy is in flight, what one core has of the host link).

    Without intervals of the copies the time waited for them is used, which is at most the time in flight.  None where
    no bytes are known, or where they would exceed the link, since the wait is then only a part of the flight.
    """
    ops = host_copies(facts)
    moved = max(bytes_each_way(ops))
    time, formula = _in_flight_s(facts), "one-way bytes ÷ merged time with a copy in flight"
    if time is None:
        time, formula = sum(op.op.self_time_s for op in ops), "one-way bytes ÷ time spent waiting for copies"
    if moved <= 0 or time <= 0:
        return None
    rate = moved / time
    link = _link_bytes_per_s(facts)
    if link is not None and rate > _TOLERANCE * link:
        return None
    achieved = evidence(
        "host transfers per core, busier direction", rate, "bytes_per_s", "computed", formula,
        "op profile and shapes", keys(ops),
    )  # fmt: skip
    if link is None:
        return achieved, None
    return achieved, evidence(
        "host link per core, one way", link, "bytes_per_s", "computed", "host link of the chip ÷ its cores",
        "chips.toml",
    )  # fmt: skip


def link_time_s(facts: Facts) -> SourcedValue | None:
    """Least time per step and core for the bytes of the busier direction; None where bytes, step or link are unknown.

    Both directions of the link run at once, each at its full bandwidth.
    """
    ops = host_copies(facts)
    time = sum(op.op.self_time_s for op in ops)
    per_step = sum(op.time_s or 0.0 for op in ops)
    link = _link_bytes_per_s(facts)
    if time <= 0 or per_step <= 0 or not link:
        return None
    return evidence(
        "time the host link needs per step", max(bytes_each_way(ops)) * per_step / time / link, "s", "computed",
        "bytes per step of the busier direction ÷ host-link bandwidth", "HLO shapes and chips.toml", keys(ops),
    )  # fmt: skip


def _link_bytes_per_s(facts: Facts) -> float | None:
    """Return the bandwidth that one core has of the host link, one way, in bytes/s."""
    return facts.chip.host_link_bytes_per_s / facts.chip.devices_per_chip if facts.chip else None


def _in_flight_s(facts: Facts) -> float | None:
    """Merged time in which a copy was in flight, summed over steps and cores; None without such intervals."""
    times = [core.host_transfer_s for core in facts.profile.cores if core.host_transfer_s]
    if not times or not facts.profile.steps:
        return None
    return fmean(times) * len(facts.profile.cores) * len(facts.profile.steps)
