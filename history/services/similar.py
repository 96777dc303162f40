"""Records that are like a case, each with the reason and what it lets expect.

Likeness is `history.likeness`, the same that the Proposer weighs precedents by; below its bound nothing is shown.
Candidates come from indexes (same move, same chip, same model), so that the number of records does not matter; then
the likeness of each is computed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.db.models import Q, QuerySet

from accounts.models import Team
from history import moves
from history.likeness import BOUND, Case, Expected, case_of, expected, hardware_kind, likeness, reason
from history.models import HistoryRecord
from history.record import Record, Side
from history.services.search import visible

#: Candidates of each kind.
EACH = 30


@dataclass(frozen=True)
class Alike:
    """score: the likeness, 0-1; reason: what is alike and what is not, in one line; expected: the record's effect
    re-scaled to the case, where both changed something and it was timed."""

    record: HistoryRecord
    score: float
    reason: str
    expected: Expected | None


def similar(teams: Team | Iterable[int], to: HistoryRecord | Case, k: int = 5) -> tuple[Alike, ...]:
    """The k records that the teams see which are most like a record (without itself) or a case; none below the
    bound."""
    rows = visible(teams)
    if isinstance(to, HistoryRecord):
        case, rows = _case(to), rows.exclude(pk=to.pk)
    else:
        case = to
    known = {row.pk: _case(row) for row in HistoryRecord.objects.filter(pk__in=_candidates(rows, case)).only(*_RATED)}
    rated = sorted(((likeness(theirs, case), pk) for pk, theirs in known.items()), reverse=True)
    kept = [(score, pk) for score, pk in rated[:k] if score >= BOUND]
    best = visible(teams).in_bulk([pk for _, pk in kept])
    return tuple(
        Alike(best[pk], score, reason(known[pk], case), expected(best[pk].speedup, known[pk], case))
        for score, pk in kept
        if pk in best
    )


#: What likeness is computed from; whole records are loaded only for the best.
_RATED = (
    "chip", "chips", "model_name", "model_family", "parameters", "bottleneck", "changes", "before", "after",
)  # fmt: skip


def _case(row: HistoryRecord) -> Case:
    return case_of(
        Record(
            id="",
            title="",
            change="",
            changes=tuple(row.changes),
            before=Side(**row.before),
            after=Side(**row.after),
            outcome="",
            source="",
            chip=row.chip,
            chips=row.chips,
            model_name=row.model_name,
            model_family=row.model_family,
            parameters=row.parameters,
            bottleneck=row.bottleneck,
        )
    )


def _candidates(rows: QuerySet[HistoryRecord], case: Case) -> set[int]:
    if not case.chip or not case.directed:
        return set()
    alike = rows.filter(hardware=hardware_kind(case.chip), changes__contained_by=sorted(moves.DIRECTED))
    signs = moves.signs({role: value for role, value in case.move.items() if role in moves.ROLES})
    if signs:
        # A record names its axes as they were called: `fsdp` shards the batch as `data` does.
        fully = [f"fsdp{sign[4:]}" if sign.startswith("data") else sign for sign in signs]
        alike = alike.filter(Q(moves__contains=signs) | Q(moves__contains=fully))
    elif case.move:
        alike = alike.filter(changes__contains=sorted({_KIND[key] for key in case.move}))
    near = [Q(chip=case.chip, chips=case.chips), Q(chip=case.chip, bottleneck=case.bottleneck), Q(chip=case.chip)]
    if case.model_name:
        near.append(Q(chip=case.chip, model_name=case.model_name))
    if case.move:
        near.append(~Q(chip=case.chip))
    return {pk for q in near for pk in alike.filter(q).order_by().values_list("pk", flat=True)[:EACH]}


#: Kind of change of each training key.
_KIND = {
    "global_batch": "batch",
    "micro_batch": "batch",
    "remat": "remat",
    "weight_sharding": "weight_sharding",
    "precision": "precision",
    "xla_flags": "xla_flags",
}
