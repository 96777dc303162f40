"""Precedents: measured optimisations whose likeness to a case supports a candidate, or warns of it.

A precedent says which way axes and training keys were moved under which bottleneck on which hardware, and what became
of the time per token.  How alike one is to a case: `history.similarity`.  Precedents are drawn from the optimization
database (`history.record`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from diagnosis.report import Diagnosis
from history import moves
from history.case import MOST_TELLING, Case, cases_of
from history.moves import ROLES, role_sizes
from history.record import Record, Side
from history.seeds import records
from history.similarity import Alike, most_similar
from history.term_effects import can_be_priced, price
from perfmodel import accounting, known_flags
from perfmodel.chips import load_chips
from perfmodel.config import ConfigError, ExperimentConfig, Mesh
from proposals.candidate import MeshAndChanges, candidate
from proposals.plan import Citation
from proposals.proposer.changes import missing_flags

#: Changes of a record that a candidate can make too; a record that changed anything else tells of that as well.
COMPARABLE = frozenset(("mesh", "batch", "remat", "weight_sharding", "xla_flags"))
#: Failures that tell of a mesh rather than of its program; of those that nothing is known of (`other`), the runs that
#: the performance model has run out of memory tell of that.
TELLING_FAILURES = ("out_of_memory", "does_not_compile", "hang")
#: Failures of which a record may be a precedent.
TOLD_FAILURES = (*TELLING_FAILURES, "other")


@dataclass(frozen=True)
class Precedent:
    """case: what it is known by, and what it changed.  ran: of a run that failed what it ran with, else the case.
    after: axis sizes by canonical role.

    time_ratio: time after / before per token (below 1: faster), None for a run that failed, which `failure` names.
    remat: policy after the change, empty where it is not known.
    """

    id: str
    title: str
    source: str
    case: Case
    ran: Case
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


def _precedent_of(record: Record, case: Case) -> Precedent | None:
    """The precedent of a record, None where it does not say enough or changed more than a proposal can.

    A failed run needs only its own mesh; any other how far everything moved that it changed, and the effect per token,
    up to `MOST_TELLING`.
    """
    if not record.chip or not record.chips or record.chip not in load_chips():
        return None
    failed, ran = record.outcome == "failed", case
    full = case.mechanism is not None and case.mechanism.fits < 0.5
    if failed and record.failure not in TELLING_FAILURES and not (record.failure == "other" and full):
        return None
    if not failed and (not record.speedup or not set(record.changes) <= COMPARABLE):
        return None
    if record.speedup and not 1.0 / MOST_TELLING <= record.speedup <= MOST_TELLING:
        return None
    if not failed and not case.move:
        return None
    after = role_sizes(record.after if record.after.mesh is not None else record.before, fsdp_as_data=True)
    if failed:
        if record.after.mesh is None or set(after) - set(ROLES):
            return None
        # What failed is known by what it ran with.
        batch, length = (moves.number(record.after.training.get(key)) for key in ("global_batch", "seq_len"))
        ran = replace(case, batch=batch or case.batch, seq_len=length or case.seq_len)
    return Precedent(
        id=record.id,
        title=record.title,
        source=record.source,
        case=case,
        ran=ran,
        after=after,
        effect=record.effect or record.change,
        time_ratio=None if failed or not record.speedup else 1.0 / record.speedup,
        caveat=record.caveats[0] if record.caveats else "",
        url=record.url,
        failure=record.failure,
        remat=str(record.after.training.get("remat") or ""),
    )


def precedents_of(records: Sequence[Record], cases: Sequence[Case] | None = None) -> tuple[Precedent, ...]:
    """The precedents that records hold, in their order.  cases: what the records are known by, where it was priced
    before."""
    known = cases_of(records) if cases is None else cases
    precedents = [_precedent_of(record, case) for record, case in zip(records, known, strict=True)]
    return tuple(one for one in precedents if one is not None)


@cache
def published() -> tuple[Precedent, ...]:
    """The precedents of the optimization database as shipped."""
    return precedents_of(records())


def closest_precedents(
    precedents: Sequence[Precedent], ours: Case, warned: Precedent | None = None
) -> tuple[tuple[Precedent, Alike] | None, tuple[Precedent, Alike | None] | None]:
    """Precedents of a change: the most similar measured one, and the failed one; each with the reason.

    Where a failed run is at least as similar as any that succeeded, no gain is shown.  warned: the failed run that
    lowers the probability most; one that ran out of memory is only named as far as the memory is as full here.
    """
    similar_precedents = [(precedents[n], shown) for n, shown in most_similar([item.case for item in precedents], ours)]
    gain = next((one for one in similar_precedents if not one[0].failure), None)
    failed: tuple[Precedent, Alike | None] | None = next((one for one in similar_precedents if one[0].failure), None)
    if failed is not None and failed[1] is not None and gain is not None:
        gain = gain if gain[1].likeness > failed[1].likeness else None
    if failed is None and warned is not None and (warned.case.mechanism is None or ours.mechanism is None):
        failed = (warned, None)
    return gain, failed


def sizes_by_role(mesh: Mesh) -> dict[str, int]:
    """Axis sizes over ICI and DCN by canonical role; `fsdp` counts as data."""
    return role_sizes(Side(mesh=mesh.to_json(), axis_roles=mesh.axis_roles), fsdp_as_data=True)


def situation(config: ExperimentConfig, diagnosis: Diagnosis) -> Case:
    """What precedents are compared with: the run at hand, and the flags that a proposal would set."""
    chip, training = config.hardware.chip, config.training
    held = {key: value for key in ("global_batch", "grad_accum", "micro_batch") if (value := getattr(training, key))}
    return Case(
        chip=chip,
        chips=config.hardware.chips,
        model_name=config.model.name or "" if config.model is not None else "",
        parameters=accounting.parameters(config.model).total if config.model is not None else None,
        batch=training.global_batch,
        micro_batch=moves.micro_batch(
            Side(mesh=config.mesh.to_json(), axis_roles=config.mesh.axis_roles, training=held)
        ),
        seq_len=training.seq_len,
        bottleneck=diagnosis.bottleneck.primary,
        roles=sizes_by_role(config.mesh),
        settings={key: str(getattr(training, key)) for key in moves.SETTINGS},
        mixture=config.model.experts > 0 if config.model is not None else None,
        flags=known_flags.changed((), missing_flags(config, diagnosis), chip),
        before=config if can_be_priced(config) else None,
    )


def case_of_change(config: ExperimentConfig, diagnosis: Diagnosis, of: MeshAndChanges) -> Case:
    """The run at hand with what a proposal would change; what changes nothing of it, or nothing that has a direction,
    is like nothing."""
    training = config.training
    keys = ("global_batch", "grad_accum", "micro_batch", "remat", "weight_sharding", "precision")
    held = {key: value for key in keys if (value := getattr(training, key))}
    roles = config.mesh.axis_roles
    moved = moves.change_of(
        (), Side(mesh=config.mesh.to_json(), axis_roles=roles, training=held),
        Side(mesh=of.mesh, axis_roles=roles, training={**held, **of.changes}),
    )  # fmt: skip
    flags = known_flags.changed(
        training.xla_flags, of.changes.get("xla_flags", training.xla_flags), config.hardware.chip
    )
    move = {**(moved or {}), **({"xla_flags": 1.0} if flags else {})}
    ours = replace(situation(config, diagnosis), move=move, flags=flags, directed=bool(move))
    if ours.before is None or not move:
        return ours
    try:
        after = candidate(config, of)
    except ConfigError:
        return ours
    if not can_be_priced(after):
        return ours
    return replace(ours, after=after, mechanism=price([(ours.before, after)])[0])
