"""Precedents: measured optimisations whose likeness to a case supports a candidate, or warns of it.

A precedent says which way axes and training keys were moved under which bottleneck on which hardware, and what became
of the time per token.  How alike one is to a case: `history.similarity`.  Precedents are drawn from the optimization
database (`history.record`).  A `Library` says what they hold of all candidates at once: the same change of the same
run, and runs that failed.  Effects measured in other runs are only shown with a proposal (`closest_precedents`): they
make neither order nor confidence better (`evaluation.transfer`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import hypot, log, log2

import numpy as np
import numpy.typing as npt

from diagnosis.report import Diagnosis
from history import moves
from history.case import MOST_TELLING, Case, cases_of, hardware_kind
from history.labels import BOUND, situation_likeness, vector
from history.moves import KEYS, RECOMPUTES, ROLES, role_sizes
from history.record import Record, Side
from history.seeds import records
from history.similarity import Alike, most_similar, same_run
from history.term_effects import can_be_priced, price
from history.uncertainty import spread
from perfmodel import accounting, known_flags
from perfmodel.chips import load_chips
from perfmodel.config import ConfigError, ExperimentConfig, Mesh
from proposals.candidate import MeshAndChanges, candidate
from proposals.plan import Citation

#: Changes of a record that a candidate can make too; a record that changed anything else tells of that as well.
COMPARABLE = frozenset(("mesh", "batch", "remat", "weight_sharding", "xla_flags"))
#: Changes whose failure tells of a configuration; that of a kernel, a flag or a release tells of the program.
TELLING_CHANGES = frozenset(("mesh", "batch", "remat", "weight_sharding", "precision", "model"))
#: Failures that tell of a mesh rather than of its program; of those that nothing is known of (`other`), the runs that
#: the performance model has run out of memory tell of that.
TELLING_FAILURES = ("out_of_memory", "does_not_compile", "hang")
#: Failures of which a record may be a precedent.
TOLD_FAILURES = (*TELLING_FAILURES, "other")


@dataclass(frozen=True)
class Precedent:
    """case: what it is known by, and what it changed.  ran: of a run that failed what it ran with, else the case.
    after: axis sizes by canonical role."""

    record: Record
    case: Case
    ran: Case
    after: Mapping[str, int]

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def failure(self) -> str:
        return self.record.failure

    @property
    def effect(self) -> str:
        return self.record.effect or self.record.change

    @property
    def time_ratio(self) -> float | None:
        """Time after / before per token, below 1 is faster; None for a run that failed."""
        return 1.0 / self.record.speedup if self.record.speedup and self.record.outcome != "failed" else None

    @property
    def remat(self) -> str:
        """Policy after the change, empty where it is not known."""
        return str(self.record.after.training.get("remat") or "")

    @property
    def tells_of_meshes(self) -> bool:
        """Return True for a failure that other configurations may share."""
        return self.failure in TELLING_FAILURES and bool(TELLING_CHANGES & set(self.record.changes))

    def citation(self) -> Citation:
        return citation_of(self.record)


def citation_of(record: Record) -> Citation:
    """Return what was measured, with its first caveat and its source."""
    effect = (record.effect or record.change).rstrip(".")
    parts = (effect and f"{effect}.", *record.caveats[:1], f"({record.source})")
    return Citation("history", record.id, record.title, " ".join(filter(None, parts)), record.url, record.id)


def _precedent_of(record: Record, case: Case) -> Precedent | None:
    """The precedent of a record, None where it does not say enough or changed more than a proposal can.

    A failed run needs only its own mesh; any other how far everything moved that it changed, and the effect per token,
    up to `MOST_TELLING`.
    """
    if not record.chip or not record.chips or record.chip not in load_chips():
        return None
    failed, ran = record.outcome == "failed", case
    full = case.mechanism is not None and case.mechanism.fits < 0.5
    flags = record.changes == ("xla_flags",)  # every failure of them belongs to their effect
    if failed and not flags and record.failure not in TELLING_FAILURES and not (record.failure == "other" and full):
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
    return Precedent(record, case, ran, after)


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


def policy_trials(told: Iterable[Precedent], key: str, was: str, becomes: str, chip: str) -> list[Record]:
    """Return the records that changed one policy alone as a proposal would, on chips of this kind, timed ones first."""
    same = [
        record for record in (item.record for item in told)
        if record.changes == (key,) and hardware_kind(record.chip) == hardware_kind(chip)
        and (record.before.training.get(key), record.after.training.get(key)) == (was, becomes)
        and (record.speedup or record.failure)
    ]  # fmt: skip
    return sorted(same, key=lambda record: (not record.speedup, record.chip != chip))


def sizes_by_role(mesh: Mesh) -> dict[str, int]:
    """Axis sizes over ICI and DCN by canonical role; `fsdp` counts as data."""
    return role_sizes(Side(mesh=mesh.to_json(), axis_roles=mesh.axis_roles), fsdp_as_data=True)


def situation(config: ExperimentConfig, diagnosis: Diagnosis) -> Case:
    """What precedents are compared with: the run at hand."""
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


Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: Of running, what a failed run on the very same configuration takes.
WARNING_WEIGHT = 0.5
#: Each doubling of an axis between a configuration that failed and a candidate.
PER_DOUBLING_AWAY = 0.35
#: Moves are the same that agree to so many decimals of a doubling.
DECIMALS = 6


@dataclass(frozen=True)
class Support:
    """Hold what precedents say of every candidate.

    measured: log of the speed-up per token that the same change of the same run brought, the mean of its measurements;
    spread: its standard deviation, infinite where none was measured.  runs: factor on the probability that the
    candidate runs; warned: index of the failed run that lowers it most, -1 for none.
    """

    measured: Floats
    spread: Floats
    runs: Floats
    warned: Ints


class Library:
    """Precedents made ready for one situation; asked as often as one likes."""

    def __init__(self, precedents: Sequence[Precedent], situation: Case) -> None:
        self.precedents = tuple(precedents)
        gains = defaultdict(list)
        for item in precedents:
            if item.time_ratio is not None and _same_run(item.case, situation):
                policy = item.remat if item.case.move.get("remat") else ""
                gains[_key(vector(item.case.move), policy)].append(-log(item.time_ratio))
        #: Mean and standard deviation of what was measured, by move.  Nothing is carried over, so no model is asked.
        self._measured = {
            move: (float(np.mean(each)), hypot(float(np.std(each)), spread(1.0, priced=False)))
            for move, each in gains.items()
        }
        failed = [(n, _warning_weight(p, situation)) for n, p in enumerate(precedents) if p.tells_of_meshes]
        self._failed = [(n, weight) for n, weight in failed if weight >= BOUND]

    def support(self, moved: Floats, sizes: Floats, remats: Sequence[str], fullness: Floats | None) -> Support:
        """moved: (candidates, ROLES + KEYS) doublings, NaN where something else changes too; sizes: (candidates, ROLES)
        log2 of the sizes; remats: policies; fullness: share of memory that a candidate fills, None where it is not
        known."""
        recomputes = np.array([RECOMPUTES[remat] for remat in remats], dtype=np.float64)
        return Support(*self._repeated(moved, remats), *self._warnings(sizes, recomputes, fullness))

    def _repeated(self, moved: Floats, remats: Sequence[str]) -> tuple[Floats, Floats]:
        if not self._measured:
            return np.zeros(len(moved)), np.full(len(moved), np.inf)
        changed = moved[:, len(ROLES) + KEYS.index("remat")] != 0
        keys = [_key(row, remat if to else "") for row, remat, to in zip(moved, remats, changed, strict=True)]
        said = np.array([self._measured.get(key, (0.0, np.inf)) for key in keys])
        return said[:, 0], said[:, 1]

    def _warnings(self, sizes: Floats, recomputes: Floats, fullness: Floats | None) -> tuple[Floats, Ints]:
        """Return what failed runs of alike configurations take from the probability of running, and which takes most.

        A run that ran out of memory warns only those that recompute no more, and less where memory was computed and is
        far from full.
        """
        count = len(sizes)
        if not self._failed:
            return np.ones(count), np.full(count, -1, dtype=np.int64)
        unique, back = np.unique(np.column_stack([sizes, recomputes]), axis=0, return_inverse=True)
        worst, which = np.zeros(len(unique)), np.full(len(unique), -1, dtype=np.int64)
        for number, weight in self._failed:
            item = self.precedents[number]
            theirs = np.array([log2(item.after.get(role, 1)) for role in ROLES])
            like = weight * PER_DOUBLING_AWAY ** (np.abs(unique[:, :-1] - theirs[None, :]).sum(axis=1) / 2)
            if item.failure == "out_of_memory" and item.remat in RECOMPUTES:
                like = np.where(unique[:, -1] > RECOMPUTES[item.remat], 0.3 * like, like)
            which, worst = np.where(like > worst, number, which), np.maximum(like, worst)
        like, worst_failure = worst[back.reshape(-1)], which[back.reshape(-1)]
        if fullness is not None:
            like = like * np.clip((fullness - 0.4) / 0.5, 0.0, 1.0)
        like = np.where(like >= BOUND, like, 0.0)
        return 1.0 - WARNING_WEIGHT * like, np.where(like > 0, worst_failure, -1)


def _key(move: Floats, policy: str) -> tuple[object, ...]:
    """policy: remat after the move where it changes; steps alone are the same from none to full and to offload."""
    return (*np.round(move, DECIMALS).tolist(), policy)


def _same_run(theirs: Case, ours: Case) -> bool:
    """Return whether it is the same run; the effect of other flags says nothing."""
    return same_run(theirs, ours) and (not theirs.flags or theirs.flags == ours.flags)


def _warning_weight(precedent: Precedent, situation: Case) -> float:
    """Likeness of what a failed run ran on; where its mesh differs applies to every candidate."""
    case = replace(
        precedent.ran, roles=situation.roles, micro_batch=None, bottleneck=situation.bottleneck, directed=True
    )
    return situation_likeness(case, situation)
