"""What stands around an op in its program: whose results it takes and who takes its own, a few steps away."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from diagnosis.report import OpDiagnosis
from experiments.hlo import text as hlo
from experiments.step_profile import Op, StepProfile
from proposals.agents.identity import ComparedByIdentity

#: Ops shown on each side.
MOST = 12
#: Characters of an op's line of HLO.
LINE = 240
_NAMED = re.compile(r"%([\w.\-]+)")


@lru_cache(maxsize=4)
def _program(
    profile: ComparedByIdentity[StepProfile],
) -> tuple[Mapping[tuple[str, str], Op], Mapping[tuple[str, str], list[str]]]:
    """(ops by program and name, names of the ops that mention each)."""
    by_name: dict[tuple[str, str], Op] = {}
    for op in profile.value.ops:
        by_name.setdefault((op.program, op.name.lstrip("%")), op)
    mentioned: dict[tuple[str, str], list[str]] = defaultdict(list)
    for (program, name), op in by_name.items():
        for other in dict.fromkeys(_NAMED.findall(op.hlo)):
            if other != name and (program, other) in by_name:
                mentioned[program, other].append(name)
    return by_name, mentioned


def op_neighbourhood(profile: StepProfile, op: Op, hops: int, diagnosed: Mapping[str, OpDiagnosis]) -> dict[str, Any]:
    """Operands and users of an op up to `hops` away, at most MOST of each, the nearest first.

    The program as far as the profile lists it: ops that took no time of their own are not in it.
    """
    by_name, mentioned = _program(ComparedByIdentity(profile))

    def operands(name: str) -> list[str]:
        read = hlo.parse(by_name[op.program, name].hlo)
        return [other for other in dict.fromkeys(read.operand_names if read else ()) if (op.program, other) in by_name]

    def users(name: str) -> list[str]:
        return [other for other in mentioned.get((op.program, name), ()) if name in operands(other)]

    start = op.name.lstrip("%")
    sides: dict[str, Any] = {}
    for side, step in (("operands", operands), ("users", users)):
        seen, frontier, more = {start}, [start], 0
        rows: list[dict[str, Any]] = []
        for hop in range(1, hops + 1):
            reached = [name for near in frontier for name in dict.fromkeys(step(near)) if name not in seen]
            frontier = list(dict.fromkeys(reached))
            seen.update(frontier)
            room = MOST - len(rows)
            more += max(0, len(frontier) - room)
            frontier = frontier[:room]
            rows += [_row(by_name[op.program, name], hop, diagnosed) for name in frontier]
        sides[side] = rows
        if more:
            sides[f"{side}_left_out"] = more
    read = hlo.parse(op.hlo)
    if read is None:
        sides["note"] = "The profile contains no readable HLO for this op, so its operands are unknown."
    return sides


def _row(op: Op, hop: int, diagnosed: Mapping[str, OpDiagnosis]) -> dict[str, Any]:
    known = diagnosed.get(op.key)
    return {
        "hop": hop,
        "name": op.name,
        "key": op.key,
        "category": op.category,
        "time_s": known.time_s if known else None,
        "time_share": op.time_share,
        "hlo": op.hlo[:LINE],
    }
