"""Copies between HBM and the host's memory, as offloaded activations and optimizer states make them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from diagnosis.analyzer.facts import Facts, OpFacts, keys
from diagnosis.analyzer.quantity import evidence
from diagnosis.report import Evidence
from experiments.hlo import text as hlo
from experiments.step_profile import Op

#: Family of an op that moves a tensor to or from host memory.
HOST_TRANSFER = "host transfer"
#: XLA marks a buffer in host memory by memory space 5 in its layout: ``f32[8]{0:T(8)S(5)}``.
_IN_HOST_MEMORY = re.compile(r"\{[^{}]*S\(5\)[^{}]*\}")
_COPY = re.compile(r"copy|slice|async")


def is_host_copy(op: Op) -> bool:
    """Whether an op moves a tensor between HBM and host memory, or waits for it."""
    if op.host_bytes:
        return True
    if "S(5)" not in op.hlo:
        return False
    instruction = hlo.parse(op.hlo)
    return instruction is not None and bool(_COPY.search(instruction.opcode)) and bool(_IN_HOST_MEMORY.search(op.hlo))


def bytes_each_way(op: Op) -> tuple[float, float]:
    """(bytes to the host, bytes from it) over the op's occurrences; (0, 0) for a start, whose done op counts."""
    instruction = hlo.parse(op.hlo) if op.hlo else None
    if instruction is None or not instruction.results or instruction.opcode.endswith("-start"):
        return 0.0, 0.0
    moved = op.host_bytes or float(instruction.results[0].bytes) * op.occurrences
    result = op.hlo.partition(f" {instruction.opcode}(")[0]
    return (moved, 0.0) if _IN_HOST_MEMORY.search(result) else (0.0, moved)


def host_link_rate(facts: Facts, ops: Sequence[OpFacts]) -> tuple[Evidence, Evidence | None] | None:
    """(bytes/s per core in the busier direction over the time waited, what one core has of the link to the host).

    The wait is at most the time in flight: where compute hides part of a transfer the link is slower than stated.  None
    where no bytes are known, or where they would exceed the link, since the wait is then a small part of the flight.
    """
    to_host, from_host = (sum(way) for way in zip(*(bytes_each_way(op.op) for op in ops), strict=True)) if ops else (0, 0)
    waited = sum(op.op.self_time_s for op in ops)
    moved = max(to_host, from_host)
    if moved <= 0 or waited <= 0:
        return None
    rate = moved / waited
    link = facts.chip.host_link_bytes_per_s / facts.chip.devices_per_chip if facts.chip else None
    if link is not None and rate > 1.1 * link:
        return None
    achieved = evidence(
        "host transfers, busier direction", rate, "bytes_per_s", "computed", "bytes one way ÷ time waited for copies",
        "op profile and shapes", keys(ops),
    )  # fmt: skip
    if link is None:
        return achieved, None
    return achieved, evidence(
        "link to the host per core, one way", link, "bytes_per_s", "computed", "host link of the chip ÷ its cores",
        "chips.toml",
    )  # fmt: skip
