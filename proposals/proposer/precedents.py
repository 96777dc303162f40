"""Precedents: measured optimisations whose likeness to a case supports a candidate, or warns of it.

A precedent says which way axes and training keys were moved under which bottleneck on which hardware, and what became
of the time per token.  Likeness is a product of plain factors; its weight only ever shifts an estimate towards what was
measured.  Precedents are drawn from the optimization database (`history.record`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import log2

import numpy as np
import numpy.typing as npt

from history.record import Record, Side
from history.seeds import records
from perfmodel.chips import load_chips
from perfmodel.config import Mesh, Training
from proposals.plan import Citation
from proposals.proposer.changes import RECOMPUTES, doublings_of

Floats = npt.NDArray[np.float64]

#: What moves, in doublings (policies: in steps): axes by canonical role (`fsdp` counts as data), then training keys.
ROLES = ("data", "replica", "seq", "model", "expert", "pipeline")
KEYS = ("global_batch", "grad_accum", "remat", "weight_sharding", "xla_flags")
#: Changes of a record that a candidate can make too; a record that changed anything else tells of that as well.
COMPARABLE = frozenset(("mesh", "batch", "remat", "weight_sharding", "xla_flags"))
#: Factors of likeness.  Another chip of the same kind, another kind; each doubling that a move is longer or shorter;
#: each doubling of the number of chips; each doubling of the model's size; a bottleneck that was not published.
OTHER_CHIP, OTHER_KIND = 0.6, 0.3
PER_DOUBLING_MOVED, PER_DOUBLING_OF_CHIPS, PER_DOUBLING_OF_MODEL = 0.35, 0.8, 0.85
BOTTLENECK_UNKNOWN = 0.4
#: Precedents at least this alike, relative to the most alike one, are averaged.
COMPANIONS = 0.5
#: Moves of precedents below this likeness on every candidate are not looked at.
NEGLIGIBLE = 0.02
#: Failures that tell of a mesh rather than of its program.
TELLING_FAILURES = ("out_of_memory", "does_not_compile", "hang")
#: Of running, what a failed run on the very same configuration takes.
WARNING_WEIGHT = 0.5
#: Candidates compared with precedents at a time.
BLOCK = 4096


@dataclass(frozen=True)
class Precedent:
    """before, after: axis sizes by canonical role.  keys: doublings or steps of training keys (KEYS).

    time_ratio: time after / before per token (below 1: faster), None for a run that failed, which `failure` names.
    remat: policy after the change, empty where it is not known.
    """

    id: str
    title: str
    source: str
    chip: str
    chips: int
    bottleneck: str
    before: Mapping[str, int]
    after: Mapping[str, int]
    effect: str
    time_ratio: float | None
    caveat: str = ""
    url: str = ""
    keys: Mapping[str, float] = field(default_factory=dict)
    parameters: float | None = None
    failure: str = ""
    remat: str = ""

    def citation(self) -> Citation:
        effect = self.effect.rstrip(".")
        statement = " ".join(part for part in (effect and f"{effect}.", self.caveat, f"({self.source})") if part)
        return Citation("history", self.id, self.title, statement, self.url, self.id)


def from_record(record: Record) -> Precedent | None:
    """The precedent of a record, None where it does not say enough or changed more than a proposal can.

    A failed run needs only its own mesh; any other both meshes, where the mesh changed, and the effect per token.
    """
    if not record.chip or not record.chips or record.chip not in load_chips():
        return None
    failed = record.outcome == "failed"
    if failed and record.failure not in TELLING_FAILURES:
        return None
    if not failed and (not record.speedup or not set(record.changes) <= COMPARABLE):
        return None
    before, after = _sizes(record.before), _sizes(record.after)
    if after is None and (failed or "mesh" in record.changes):
        return None
    if before is None and "mesh" in record.changes and not failed:
        return None
    keys = _keys(record)
    if keys is None:
        return None
    return Precedent(
        id=record.id,
        title=record.title,
        source=record.source,
        chip=record.chip,
        chips=record.chips,
        bottleneck=record.bottleneck,
        before=(before if before is not None else after) or {},
        after=(after if after is not None else before) or {},
        effect=record.effect or record.change,
        time_ratio=None if failed or not record.speedup else 1.0 / record.speedup,
        caveat=record.caveats[0] if record.caveats else "",
        url=record.url,
        keys=keys,
        parameters=record.parameters,
        failure=record.failure,
        remat=str(record.after.training.get("remat") or ""),
    )


def _sizes(side: Side) -> dict[str, int] | None:
    if side.mesh is None:
        return None
    ici, dcn = side.mesh.get("ici", {}), side.mesh.get("dcn", {})
    sizes = sizes_by_role(Mesh(tuple(ici.items()), tuple(dcn.items()), side.axis_roles))
    return None if set(sizes) - set(ROLES) else sizes


def _keys(record: Record) -> dict[str, float] | None:
    """Doublings of the training keys that a record changed; None where it does not say by how much."""
    old, new = record.before.training, record.after.training
    values = {name: old[name] for name in ("global_batch", "grad_accum", "remat", "weight_sharding") if old.get(name)}
    try:
        moved = doublings_of(
            Training(**values),
            {name: new[name] for name in values if new.get(name)},
        )
    except (KeyError, TypeError, ValueError):
        return None
    if "xla_flags" in record.changes:
        moved["xla_flags"] = 1.0
    for change, name in (("batch", "global_batch"), ("remat", "remat"), ("weight_sharding", "weight_sharding")):
        if change in record.changes and name not in moved and record.outcome != "failed":
            return None
    return moved


def precedents_of(records: Sequence[Record]) -> tuple[Precedent, ...]:
    """The precedents that records hold, in their order."""
    return tuple(found for record in records if (found := from_record(record)) is not None)


@cache
def published() -> tuple[Precedent, ...]:
    """The precedents of the optimization database as shipped."""
    return precedents_of(records())


def moves(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, float]:
    """Change of every role's size in doublings (log2); roles that stay are absent."""
    roles = set(before) | set(after)
    change = {r: log2(after.get(r, 1) / before.get(r, 1)) for r in roles}
    return {r: d for r, d in change.items() if d}


def sizes_by_role(mesh: Mesh) -> dict[str, int]:
    """Axis sizes over ICI and DCN by canonical role; `fsdp` counts as data."""
    sizes: dict[str, int] = {}
    for axis, size in (*mesh.ici, *mesh.dcn):
        role = mesh.role(axis)
        role = "data" if role == "fsdp" else role
        sizes[role] = sizes.get(role, 1) * size
    return sizes


@dataclass(frozen=True)
class Situation:
    """What precedents are compared with: the hardware, the verdict and the model's size of the run at hand."""

    chip: str
    chips: int
    bottleneck: str
    parameters: float | None


@dataclass(frozen=True)
class Support:
    """What precedents say of every candidate.

    said: log of the speed-up per token that alike ones had, averaged by likeness; spread: how far these differ.
    likeness: of the most alike, 0–1; which: its index among the precedents, -1 for none.  runs: factor on the
    probability that the candidate runs; warned: index of the failed run that lowers it most, -1 for none.
    """

    said: Floats
    spread: Floats
    likeness: Floats
    which: npt.NDArray[np.int64]
    runs: Floats
    warned: npt.NDArray[np.int64]


def support(
    precedents: Sequence[Precedent],
    situation: Situation,
    moved: Floats,
    sizes: Floats,
    recomputes: Floats,
    fullness: Floats | None,
) -> Support:
    """moved: (candidates, ROLES + KEYS) doublings; sizes: (candidates, ROLES) log2 of the sizes; recomputes: steps of
    the remat policy; fullness: share of memory that a candidate fills, None where it is not known."""
    held = [i for i, p in enumerate(precedents) if p.time_ratio is not None]
    failed = [i for i, p in enumerate(precedents) if p.failure]
    unique, back = np.unique(moved, axis=0, return_inverse=True)
    found = _supported(precedents, held, situation, unique)
    runs, warned = _warnings(precedents, failed, situation, sizes, recomputes, fullness)
    back = back.reshape(-1)
    said, spread, like, which = found[0][back], found[1][back], found[2][back], found[3][back]
    return Support(said, spread, like, which, runs, warned)


def _supported(
    precedents: Sequence[Precedent], held: Sequence[int], situation: Situation, unique: Floats
) -> tuple[Floats, Floats, Floats, npt.NDArray[np.int64]]:
    count = len(unique)
    said, spread, best = np.zeros(count), np.zeros(count), np.zeros(count)
    which = np.full(count, -1, dtype=np.int64)
    weights = np.array([_alike(precedents[i], situation) for i in held])
    keep = [n for n in range(len(held)) if weights[n] >= NEGLIGIBLE]
    rows = [_vector(precedents[held[n]]) for n in keep]
    keep = [n for n, row in zip(keep, rows, strict=True) if any(row)]
    if not keep:
        return said, spread, best, which
    # Precedents that made the same move are one: their best weight, and sums of what they say.
    theirs, group = np.unique(np.array([row for row in rows if any(row)]), axis=0, return_inverse=True)
    group = group.reshape(-1)
    weight = weights[keep]
    tells = np.array([-np.log(precedents[held[n]].time_ratio or 1.0) for n in keep])
    total, first, second = (np.bincount(group, weight * tells**power, len(theirs)) for power in (0, 1, 2))
    leader = np.array([max(np.flatnonzero(group == g), key=lambda n: weight[n]) for g in range(len(theirs))])
    most = weight[leader]
    for start in range(0, count, BLOCK):
        rows_ = slice(start, start + BLOCK)
        shape = _same_move(unique[rows_], theirs)
        like = shape * most[None, :]
        top = like.max(axis=1)
        counted = np.where((like >= COMPANIONS * top[:, None]) & (like > 0), shape, 0.0)
        mass = np.maximum(counted @ total, 1e-30)
        mean = counted @ first / mass
        said[rows_], best[rows_] = mean, top
        spread[rows_] = np.sqrt(np.maximum(0.0, counted @ second / mass - mean**2))
        which[rows_] = np.where(top > 0, np.array([held[keep[n]] for n in leader])[like.argmax(axis=1)], -1)
    return said, spread, best, which


def _same_move(ours: Floats, theirs: Floats) -> Floats:
    """(ours, theirs): 1 for the same move; less for another direction or length, 0 from a right angle on."""
    norm = np.linalg.norm(ours, axis=1)[:, None] * np.linalg.norm(theirs, axis=1)[None, :]
    aligned = np.maximum(ours @ theirs.T / np.maximum(norm, 1e-30), 0.0)
    gap = np.abs(np.abs(ours).sum(axis=1)[:, None] - np.abs(theirs).sum(axis=1)[None, :]) / 2
    return np.asarray(aligned**4 * PER_DOUBLING_MOVED**gap)


def _alike(precedent: Precedent, situation: Situation) -> float:
    """Likeness of the case, whatever the move."""
    if precedent.bottleneck and precedent.bottleneck != situation.bottleneck and not precedent.failure:
        return 0.0
    known = 1.0 if precedent.bottleneck or precedent.failure else BOTTLENECK_UNKNOWN
    return known * _hardware(precedent, situation) * _model(precedent, situation)


def _hardware(precedent: Precedent, situation: Situation) -> float:
    chips = load_chips()
    family = 1.0
    if precedent.chip != situation.chip:
        same = chips[precedent.chip].kind == chips[situation.chip].kind
        family = OTHER_CHIP if same else OTHER_KIND
    return float(family * PER_DOUBLING_OF_CHIPS ** abs(log2(situation.chips / precedent.chips)))


def _model(precedent: Precedent, situation: Situation) -> float:
    if not precedent.parameters or not situation.parameters:
        return 1.0
    return float(PER_DOUBLING_OF_MODEL ** abs(log2(precedent.parameters / situation.parameters)))


def _vector(precedent: Precedent) -> list[float]:
    moved = moves(precedent.before, precedent.after)
    return [moved.get(role, 0.0) for role in ROLES] + [precedent.keys.get(name, 0.0) for name in KEYS]


def _warnings(
    precedents: Sequence[Precedent],
    failed: Sequence[int],
    situation: Situation,
    sizes: Floats,
    recomputes: Floats,
    fullness: Floats | None,
) -> tuple[Floats, npt.NDArray[np.int64]]:
    """What failed runs of alike configurations take from the probability of running, and which takes most.

    A run that ran out of memory warns only those that recompute no more, and less where memory was computed and is far
    from full.
    """
    count = len(sizes)
    runs, warned = np.ones(count), np.full(count, -1, dtype=np.int64)
    if not failed:
        return runs, warned
    unique, back = np.unique(np.column_stack([sizes, recomputes]), axis=0, return_inverse=True)
    back = back.reshape(-1)
    worst, which = np.zeros(len(unique)), np.full(len(unique), -1, dtype=np.int64)
    for number in failed:
        item = precedents[number]
        weight = _hardware(item, situation) * _model(item, situation)
        if item.failure == "out_of_memory" and not (item.parameters and situation.parameters):
            weight *= 0.5
        if weight < NEGLIGIBLE:
            continue
        theirs = np.array([log2(item.after.get(role, 1)) for role in ROLES])
        like = weight * PER_DOUBLING_MOVED ** (np.abs(unique[:, :-1] - theirs[None, :]).sum(axis=1) / 2)
        if item.failure == "out_of_memory" and item.remat in RECOMPUTES:
            like = np.where(unique[:, -1] > RECOMPUTES[item.remat], 0.3 * like, like)
        which, worst = np.where(like > worst, number, which), np.maximum(like, worst)
    like, which = worst[back], which[back]
    if fullness is not None:
        like = like * np.clip((fullness - 0.4) / 0.5, 0.0, 1.0)
    return 1.0 - WARNING_WEIGHT * like, np.where(like >= NEGLIGIBLE, which, -1)
