"""The mesh that the groups of a profile suggest: sizes from their strides, roles from what they carry."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from math import prod

from experiments.consistency.facts import Fact
from experiments.consistency.groups import Pattern, collective_ops, pattern_key, suggested_axes
from experiments.consistency.matmuls import ATTENTION, kind_of
from experiments.consistency.names import short
from experiments.hlo import text as hlo_text
from experiments.step_profile import Op, StepProfile
from perfmodel.config import mesh_text

#: What a collective carries, and the role of an axis on which mostly that is carried.
ACTIVATIONS, KEYS, WEIGHTS = "activations", "keys and values", "weights or gradients"
_ROLE = {ACTIVATIONS: "model", KEYS: "seq", WEIGHTS: "data"}
#: The matmul that makes queries, keys and values: a collective named after it moves its weights.
_PROJECTION = re.compile(r"(query|key|value|out|qkv|proj)[^/]*/dot_general")
#: Names of axes by role; a second axis of the same role takes the next one.
_NAMES = {"model": ("model", "tensor"), "seq": ("seq", "context"), "data": ("data", "fsdp", "replica")}


def mesh_fact(
    profile: StepProfile, patterns: Sequence[Pattern], facts: Mapping[str, Fact], unavailable: dict[str, str]
) -> Fact | str:
    """`{axis: size}`, major to minor, as a fact that is likely at most; a sentence why where groups do not give one.

    unavailable: takes the reason, as `mesh_roles`, where nothing tells what one of the axes shards.
    """
    if not patterns:
        return "no collective has replica groups"
    axes = suggested_axes(patterns)
    if not axes:
        return "the replica groups do not match the axes of any one mesh"
    carried = _carried(profile, facts)
    mesh: dict[str, int] = {}
    evidence = []
    for size, along in axes:
        what = _mostly(along, carried)
        role = _ROLE[what]
        name = next((name for name in _NAMES[role] if name not in mesh), None)
        if name is None:
            return "the replica groups suggest more axes of one role than there are names for"
        mesh[name] = size
        if along:
            alone = min(along, key=lambda pattern: pattern.size)
            evidence.append(f"{name} {size:,}: {short(alone.op)} runs over {alone.text}; these groups carry {what}.")
        else:
            evidence.append(f"{name} {size:,}: the remaining factor; what it shards is unknown.")
            unavailable["mesh_roles"] = f"no collective runs along {name} {size:,} alone"
    return Fact(mesh, mesh_text({"ici": mesh}), tuple(evidence), "likely")


def _carried(profile: StepProfile, facts: Mapping[str, Fact]) -> Mapping[tuple[tuple[int, ...], ...], Counter[str]]:
    """Seconds by what is carried, for each grouping of devices."""
    kinds_by_groups: dict[tuple[tuple[int, ...], ...], Counter[str]] = {}
    for op, groups in collective_ops(profile):
        counts = kinds_by_groups.setdefault(pattern_key(groups), Counter())
        counts[_payload(op, facts)] += op.self_time_s  # type: ignore[assignment]
    return kinds_by_groups


def _payload(op: Op, facts: Mapping[str, Fact]) -> str:
    instruction = hlo_text.parse(op.hlo)
    arrays = (*instruction.results, *instruction.operands) if instruction is not None else ()
    tokens, width = facts.get("tokens_per_device"), facts.get("d_model")
    if tokens is not None and width is not None:
        for shape in arrays:
            if len(shape.dims) == 3 and shape.dims[-1] == width.value and not prod(shape.dims[:-1]) % tokens.value:
                return ACTIVATIONS
    if kind_of(op.op_name) == ATTENTION and not _PROJECTION.search(op.op_name.lower()):
        return KEYS if any(len(shape.dims) >= 3 for shape in arrays) else WEIGHTS
    return WEIGHTS


def _mostly(along: Sequence[Pattern], carried: Mapping[tuple[tuple[int, ...], ...], Counter[str]]) -> str:
    """What the narrowest groups along an axis carry most of the time."""
    if not along:
        return WEIGHTS
    least = min(pattern.size for pattern in along)
    counts: Counter[str] = Counter()
    for pattern in along:
        if pattern.size == least:
            counts.update(carried.get(pattern.key, Counter()))
    return counts.most_common(1)[0][0] if counts else WEIGHTS
