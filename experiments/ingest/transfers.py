"""Bytes that ops move between HBM and host memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from experiments.hlo.host_memory import ON_HOST, host_transfer_bytes
from experiments.hlo.text import parse
from experiments.step_profile import Op


def with_host_bytes(ops: Sequence[Op]) -> list[Op]:
    """The ops with `host_bytes` over all their occurrences; an asynchronous transfer counts at its -done op."""
    if not any(ON_HOST in op.hlo for op in ops):
        return list(ops)
    by_name = {(op.program, op.name): op for op in ops}
    counted: list[Op] = []
    waited: set[tuple[str, str]] = set()
    for op in ops:
        start = _start_of(op, by_name)
        moved = host_transfer_bytes(op.hlo, start.hlo if start else "") if op.hlo else None
        if start is not None and moved is not None:
            waited.add((op.program, start.name))
        counted.append(op if moved is None else replace(op, host_bytes=moved * op.occurrences))
    return [replace(op, host_bytes=None) if (op.program, op.name) in waited else op for op in counted]


def _start_of(op: Op, by_name: dict[tuple[str, str], Op]) -> Op | None:
    if "-done" not in op.name and "-done" not in op.category:
        return None
    instruction = parse(op.hlo)
    names = [*(instruction.operand_names if instruction else ()), op.name.replace("-done", "-start")]
    others = ((op.program, name) for name in names if name != op.name)
    return next((by_name[key] for key in others if key in by_name), None)
