"""Precedents: measured optimisations whose likeness to a case supports a candidate, or warns of it.

A precedent says which way axes and training keys were moved under which bottleneck on which hardware, and what became
of the time per token.  Likeness is a product of plain factors; its weight only ever shifts an estimate towards what was
measured.  Precedents are drawn from the optimization database (`history.record`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from history.moves import role_sizes
from history.record import Record, Side
from history.seeds import records
from perfmodel.chips import load_chips
from perfmodel.config import Mesh, Training
from proposals.plan import Citation
from proposals.proposer.changes import doublings_of

#: What moves, in doublings (policies: in steps): axes by canonical role (`fsdp` counts as data), then training keys.
ROLES = ("data", "replica", "seq", "model", "expert", "pipeline")
KEYS = ("global_batch", "grad_accum", "remat", "weight_sharding", "xla_flags")
#: Changes of a record that a candidate can make too; a record that changed anything else tells of that as well.
COMPARABLE = frozenset(("mesh", "batch", "remat", "weight_sharding", "xla_flags"))
#: Time per token that grew or fell by more tells of a program that stalls, not of what was changed.
MOST_TELLING = 4.0
#: Failures that tell of a mesh rather than of its program.
TELLING_FAILURES = ("out_of_memory", "does_not_compile", "hang")


@dataclass(frozen=True)
class Precedent:
    """before, after: axis sizes by canonical role.  keys: doublings or steps of training keys (KEYS).

    time_ratio: time after / before per token (below 1: faster), None for a run that failed, which `failure` names.
    remat: policy after the change, empty where it is not known.  flags: names of the XLA flags that were set.
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
    flags: frozenset[str] = frozenset()

    def citation(self) -> Citation:
        effect = self.effect.rstrip(".")
        statement = " ".join(part for part in (effect and f"{effect}.", self.caveat, f"({self.source})") if part)
        return Citation("history", self.id, self.title, statement, self.url, self.id)


def from_record(record: Record) -> Precedent | None:
    """The precedent of a record, None where it does not say enough or changed more than a proposal can.

    A failed run needs only its own mesh; any other both meshes, where the mesh changed, and the effect per token, up to
    `MOST_TELLING`.
    """
    if not record.chip or not record.chips or record.chip not in load_chips():
        return None
    failed = record.outcome == "failed"
    if failed and record.failure not in TELLING_FAILURES:
        return None
    if not failed and (not record.speedup or not set(record.changes) <= COMPARABLE):
        return None
    if record.speedup and not 1.0 / MOST_TELLING <= record.speedup <= MOST_TELLING:
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
        flags=_flags(record),
    )


def _sizes(side: Side) -> dict[str, int] | None:
    sizes = role_sizes(side, fsdp_as_data=True)
    return None if side.mesh is None or set(sizes) - set(ROLES) else sizes


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
    if _flags(record):
        moved["xla_flags"] = 1.0
    elif "xla_flags" in record.changes:
        return None
    for change, name in (("batch", "global_batch"), ("remat", "remat"), ("weight_sharding", "weight_sharding")):
        if change in record.changes and name not in moved and record.outcome != "failed":
            return None
    return moved


def _flags(record: Record) -> frozenset[str]:
    """Names of the XLA flags that a record's change sets, or sets otherwise."""
    if "xla_flags" not in record.changes:
        return frozenset()
    before, after = (set(side.training.get("xla_flags") or ()) for side in (record.before, record.after))
    return flag_names(after - before)


def flag_names(flags: Iterable[str]) -> frozenset[str]:
    """`--name` of every `--name=value`."""
    return frozenset(flag.partition("=")[0] for flag in flags)


def precedents_of(records: Sequence[Record]) -> tuple[Precedent, ...]:
    """The precedents that records hold, in their order."""
    return tuple(found for record in records if (found := from_record(record)) is not None)


@cache
def published() -> tuple[Precedent, ...]:
    """The precedents of the optimization database as shipped."""
    return precedents_of(records())


def sizes_by_role(mesh: Mesh) -> dict[str, int]:
    """Axis sizes over ICI and DCN by canonical role; `fsdp` counts as data."""
    return role_sizes(Side(mesh=mesh.to_json(), axis_roles=mesh.axis_roles), fsdp_as_data=True)
