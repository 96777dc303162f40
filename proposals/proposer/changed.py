"""What a proposal changes, an item per axis and setting: direction, words, and how much of the step it moves."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from formatting import counted
from perfmodel.config import BATCH_ROLES, Mesh, micro_batches
from perfmodel.workload import SHARDING
from proposals.candidate import Candidate, candidate, chips_ratio
from proposals.proposer.case import Case
from proposals.proposer.detail import LADDER
from proposals.proposer.precedents import sizes_by_role

#: Parts of the step that a setting bears on (`breakdown_s`); `data`: the collectives of the axes that shard the batch.
_PARTS = {
    "global_batch": ("data", "hbm"),
    "accumulation": ("data", "hbm", "idle"),
    "remat": ("compute", "hbm"),
    "weight_sharding": ("data", "hbm"),
    "virtual_stages": ("idle",),
    "chips": ("compute", "data"),
}


@dataclass(frozen=True)
class Changed:
    """subject and direction: as in `knowledge.supports.DIRECTIONS`; words: `model 4 → 2`; effect_s: seconds (or share)
    of the step, per token, by which the parts that it bears on are predicted to move, without telling them apart from
    what else moves these."""

    subject: str
    direction: str
    words: str
    effect_s: float


def changed(case: Case) -> tuple[Changed, ...]:
    """Axes and settings that change, those first whose parts of the step move most; nothing where a change has no
    direction."""
    return tuple(sorted([*_axes(case), *_settings(case)], key=lambda item: -item.effect_s))


def _axes(case: Case) -> Iterator[Changed]:
    before, after = sizes_by_role(case.config.mesh), sizes_by_role(case.mesh)
    for role, doublings in case.moved.items():
        roles = ("data", "fsdp") if role == "data" else (role,)
        names = {name for mesh in (case.config.mesh, case.mesh) for name in _names(mesh, *roles)}
        own = [(name, sizes) for name, sizes in case.resized.items() if name.removesuffix(" over DCN") in names]
        if len(own) == 1:
            words = f"{own[0][0]} {own[0][1][0]} → {own[0][1][1]}"
        else:
            words = f"{role} {before.get(role, 1)} → {after.get(role, 1)}"
        effect = _moved(case, names)
        yield Changed(role, "up" if doublings > 0 else "down", words, effect)


def _names(mesh: Mesh, *roles: str) -> list[str]:
    return [name for name, _ in (*mesh.ici, *mesh.dcn) if mesh.role(name) in roles]


def _settings(case: Case) -> Iterator[Changed]:
    training, changes = case.config.training, case.changes
    new = candidate(case.config, Candidate(case.mesh.to_json(), changes))
    if changes.get("global_batch", training.global_batch) != training.global_batch:
        yield _setting(case, "global_batch", "global batch", training.global_batch or 0, changes["global_batch"])
    if {"grad_accum", "micro_batch"} & set(changes):
        counts = (micro_batches(training, case.config.mesh), micro_batches(new.training, new.mesh))
        if counts[0] != counts[1]:
            yield _setting(case, "accumulation", "micro-batches per step", *counts)
    if "virtual_stages" in changes:
        yield _setting(case, "virtual_stages", "virtual stages", training.virtual_stages, changes["virtual_stages"])
    for key, words, ladder in (("remat", "remat", LADDER), ("weight_sharding", "weight sharding", SHARDING)):
        if key in changes:
            was, becomes = getattr(training, key), changes[key]
            up = ladder.index(becomes) > ladder.index(was)
            yield Changed(key, "up" if up else "down", f"{words} {was} → {becomes}", _effect(case, key))
    if "xla_flags" in changes:
        count = len(set(changes["xla_flags"]) - set(training.xla_flags))
        words = f"{counted(count, 'XLA flag')} set" if count else "XLA flags removed"
        yield Changed("xla_flags", "up" if count else "down", words, _effect(case, "xla_flags"))
    if "topology" in changes:
        yield _setting(case, "chips", "chips", case.config.hardware.chips, new.hardware.chips)


def _setting(case: Case, subject: str, words: str, was: float, becomes: float) -> Changed:
    direction = "up" if becomes > was else "down"
    return Changed(subject, direction, f"{words} {was:g} → {becomes:g}", _effect(case, subject))


def _effect(case: Case, subject: str) -> float:
    if subject == "xla_flags":
        return 0.0  # nothing of it is priced
    parts = set(_PARTS[subject])
    names = {name for mesh in (case.config.mesh, case.mesh) for name in _names(mesh, *BATCH_ROLES)}
    return _moved(case, names if "data" in parts else set(), parts | ({"dcn"} if "data" in parts else set()))


def _moved(case: Case, axes: set[str], parts: Collection[str] = ()) -> float:
    """Sum over these parts of the step, and the collectives on these axes, of what is predicted to come or go, per
    token and chip."""
    batch = case.config.training.global_batch or 1
    more = case.changes.get("global_batch", batch) / batch / chips_ratio(case.config, case.changes)
    before, after = case.baseline.breakdown_s, case.predicted.breakdown_s
    moved = (part for part in {**before, **after} if part in parts or axes & set(part.partition(":")[2].split("+")))
    return sum(abs(after.get(part, 0.0) / more - before.get(part, 0.0)) for part in moved)
