"""What a change did: to the mesh by the role of its axes, and to training keys.  Knows no Django."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import log2, prod

from history.record import Record, Side
from perfmodel import known_flags
from perfmodel.config import BATCH_ROLES, ROLE_SYNONYMS, doublings
from perfmodel.workload import SHARDING

#: What moves, in doublings (policies: in steps): axes by canonical role (`fsdp` counts as data), then training keys.
ROLES = ("data", "replica", "seq", "model", "expert", "pipeline")
KEYS = ("global_batch", "micro_batch", "remat", "weight_sharding", "precision", "xla_flags")
#: Policies among them, of which a change starts at one.
SETTINGS = ("remat", "weight_sharding", "precision")
#: Changes that have a direction and a length; of a kernel, a model or a release nothing says how far it went.
DIRECTED = frozenset(("mesh", "batch", "remat", "weight_sharding", "xla_flags", "precision"))
#: How much a rematerialisation policy recomputes, in steps.
RECOMPUTES = {"none": 0, "minimal": 1, "offload": 2, "full": 2}
#: How far weights and optimizer state are sharded, in steps.
SHARDED = {name: number for number, name in enumerate(SHARDING)}
#: How narrow the numbers of matmuls are, in halvings.
NARROW = {"fp32": 0, "bf16": 1, "fp16": 1, "fp8": 2, "mxfp8": 2, "int8": 2, "nvfp4": 3}
#: The steps of each policy.
STEPS: Mapping[str, Mapping[str, int]] = {"remat": RECOMPUTES, "weight_sharding": SHARDED, "precision": NARROW}


def role_sizes(side: Side, *, fsdp_as_data: bool = False) -> dict[str, int]:
    """Size of each canonical role over ICI and DCN; empty where the side's mesh is not known.

    fsdp_as_data: `fsdp` shards the batch as `data` does and is counted with it, as the Proposer does.
    """
    sizes: dict[str, int] = {}
    for axes in (side.mesh or {}).values():
        for axis, size in axes.items():
            role = side.axis_roles.get(axis, axis)
            role = ROLE_SYNONYMS.get(role, role)
            role = "data" if fsdp_as_data and role == "fsdp" else role
            sizes[role] = sizes.get(role, 1) * size
    return sizes


def move(record: Record) -> dict[str, float]:
    """The move of the mesh in doublings by role; empty where a mesh is not known or none of its roles changed size."""
    before, after = role_sizes(record.before), role_sizes(record.after)
    return doublings(before, after) if before and after else {}


def change(record: Record) -> dict[str, float] | None:
    """What a record changed, by ROLES and KEYS in doublings or steps; what stays is absent.

    None where it changed something without a direction, or does not say by how much.
    """
    return change_of(record.changes, record.before, record.after, record.chip)


def change_of(changes: Iterable[str], before: Side, after: Side, chip: str = "") -> dict[str, float] | None:
    """`change` of its parts.  chip: whose default flags are no change."""
    kinds = set(changes)
    if not kinds <= DIRECTED:
        return None
    sizes = [role_sizes(side, fsdp_as_data=True) for side in (before, after)]
    if "mesh" in kinds and not all(sizes):
        return None
    moved = doublings(*sizes) if all(sizes) else {}
    if set(moved) - set(ROLES):
        return None
    moved |= _training(before, after)
    if "xla_flags" in kinds:
        if flags(before, after, chip):
            moved["xla_flags"] = 1.0
        elif any(known_flags.flag_values(side.training.get("xla_flags")) for side in (before, after)):
            kinds.remove("xla_flags")  # what it names acts on this chip anyway
    shown = {
        "mesh": bool(set(moved) & set(ROLES)),
        "batch": any(_differs(before, after, key) for key in ("global_batch", "micro_batch", "grad_accum")),
        **{kind: kind in moved for kind in ("remat", "weight_sharding", "xla_flags", "precision")},
    }
    return moved if moved and all(shown[kind] for kind in kinds) else None


def _training(before: Side, after: Side) -> dict[str, float]:
    """Of the training keys that both sides name."""
    old, new = before.training, after.training
    moved: dict[str, float] = {}
    for key, one, other in (
        ("global_batch", number(old.get("global_batch")), number(new.get("global_batch"))),
        ("micro_batch", micro_batch(before), micro_batch(after)),
    ):
        if one and other:
            moved[key] = log2(other / one)
    for key, steps in STEPS.items():
        was, becomes = str(old.get(key)), str(new.get(key))
        if was in steps and becomes in steps:
            moved[key] = float(steps[becomes] - steps[was])
            if key == "remat" and was != becomes and not moved[key]:
                moved[key] = 1.0 if becomes == "offload" else -1.0
    return {key: value for key, value in moved.items() if value}


def _differs(before: Side, after: Side, key: str) -> bool:
    one, other = number(before.training.get(key)), number(after.training.get(key))
    return bool(one and other and one != other)


def micro_batch(side: Side) -> float | None:
    """Sequences per batch shard that are worked on at once; None where the side does not say."""
    training, sizes = side.training, role_sizes(side)
    if stated := number(training.get("micro_batch")):
        return stated
    batch = number(training.get("global_batch"))
    if batch is None or not sizes:
        return None
    shards = prod(sizes.get(role, 1) for role in BATCH_ROLES)
    return batch / (shards * (number(training.get("grad_accum")) or 1.0))


def settings(training: Mapping[str, object]) -> dict[str, str]:
    """The policies that training keys name."""
    return {key: str(training[key]) for key in SETTINGS if training.get(key)}


def number(value: object) -> float | None:
    """A number above zero; None for anything else that an import may hold."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else None


def flags(before: Side, after: Side, chip: str) -> frozenset[tuple[str, str]]:
    """The XLA flags that a change sets, sets otherwise or drops, as they become; of a side after it that names none
    nothing is known."""
    old, new = (side.training.get("xla_flags") for side in (before, after))
    return frozenset() if new is None else known_flags.changed(old, new, chip)


def signs(moved: Mapping[str, float]) -> list[str]:
    """The direction of each role that moved, sorted: `data+`, `seq-`."""
    return sorted(f"{role}{'+' if value > 0 else '-'}" for role, value in moved.items())
