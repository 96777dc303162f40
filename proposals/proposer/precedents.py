"""Precedents: measured optimisations whose likeness to a case supports a candidate, or warns of it.

A precedent says which way axes and training keys were moved under which bottleneck on which hardware, and what became
of the time per token.  How alike one is to a case: `history.likeness`.  Precedents are drawn from the optimization
database (`history.record`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from diagnosis.report import Diagnosis
from history import moves
from history.likeness import MOST_TELLING, Case, case_of
from history.moves import ROLES, flag_names, role_sizes
from history.record import Record, Side
from history.seeds import records
from perfmodel import accounting
from perfmodel.chips import load_chips
from perfmodel.config import ExperimentConfig, Mesh
from proposals.plan import Citation
from proposals.proposer.changes import missing_flags

#: Changes of a record that a candidate can make too; a record that changed anything else tells of that as well.
COMPARABLE = frozenset(("mesh", "batch", "remat", "weight_sharding", "xla_flags"))
#: Failures that tell of a mesh rather than of its program.
TELLING_FAILURES = ("out_of_memory", "does_not_compile", "hang")


@dataclass(frozen=True)
class Precedent:
    """case: what it is known by, and what it changed.  after: axis sizes by canonical role.

    time_ratio: time after / before per token (below 1: faster), None for a run that failed, which `failure` names.
    remat: policy after the change, empty where it is not known.
    """

    id: str
    title: str
    source: str
    case: Case
    after: Mapping[str, int]
    effect: str
    time_ratio: float | None
    caveat: str = ""
    url: str = ""
    failure: str = ""
    remat: str = ""

    def citation(self) -> Citation:
        effect = self.effect.rstrip(".")
        statement = " ".join(part for part in (effect and f"{effect}.", self.caveat, f"({self.source})") if part)
        return Citation("history", self.id, self.title, statement, self.url, self.id)


def from_record(record: Record) -> Precedent | None:
    """The precedent of a record, None where it does not say enough or changed more than a proposal can.

    A failed run needs only its own mesh; any other how far everything moved that it changed, and the effect per token,
    up to `MOST_TELLING`.
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
    case = case_of(record)
    if not failed and not case.move:
        return None
    after = role_sizes(record.after if record.after.mesh is not None else record.before, fsdp_as_data=True)
    if failed:
        if record.after.mesh is None or set(after) - set(ROLES):
            return None
        # What failed is known by what it ran with.
        batch, length = (moves.number(record.after.training.get(key)) for key in ("global_batch", "seq_len"))
        case = replace(case, batch=batch or case.batch, seq_len=length or case.seq_len)
    return Precedent(
        id=record.id,
        title=record.title,
        source=record.source,
        case=case,
        after=after,
        effect=record.effect or record.change,
        time_ratio=None if failed or not record.speedup else 1.0 / record.speedup,
        caveat=record.caveats[0] if record.caveats else "",
        url=record.url,
        failure=record.failure,
        remat=str(record.after.training.get("remat") or ""),
    )


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


def situation(config: ExperimentConfig, diagnosis: Diagnosis) -> Case:
    """What precedents are compared with: the run at hand, and the flags that a proposal would set."""
    return Case(
        chip=config.hardware.chip,
        chips=config.hardware.chips,
        model_name=config.model.name or "" if config.model is not None else "",
        parameters=accounting.parameters(config.model).total if config.model is not None else None,
        batch=config.training.global_batch,
        seq_len=config.training.seq_len,
        bottleneck=diagnosis.bottleneck.primary,
        roles=sizes_by_role(config.mesh),
        settings={key: str(getattr(config.training, key)) for key in moves.SETTINGS},
        mixture=config.model.experts > 0 if config.model is not None else None,
        flags=flag_names(missing_flags(config, diagnosis)),
    )


def case_of_change(
    config: ExperimentConfig, diagnosis: Diagnosis, mesh: Mapping[str, Mapping[str, int]], changes: Mapping[str, Any]
) -> Case:
    """The run at hand with what a proposal would change."""
    training = config.training
    keys = ("global_batch", "grad_accum", "micro_batch", "remat", "weight_sharding")
    held = {key: value for key in keys if (value := getattr(training, key))}
    roles = config.mesh.axis_roles
    moved = moves.change_of(
        (), Side(mesh=config.mesh.to_json(), axis_roles=roles, training=held),
        Side(mesh=mesh, axis_roles=roles, training={**held, **changes}),
    )  # fmt: skip
    flags = flag_names(set(changes.get("xla_flags", ())) - set(training.xla_flags))
    move = {**(moved or {}), **({"xla_flags": 1.0} if flags else {})}
    return replace(situation(config, diagnosis), move=move, flags=flags)
