"""Records that are like a case, each with the reason and the effect expected here.

Likeness is `history.similarity`, the same that the Proposer weighs precedents by; below its bound nothing is shown.
Candidates come from indexes (same move, same chip, same model), so that the number of records does not matter; then
the likeness of each is computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q, QuerySet

from accounts.models import Team
from history import moves
from history.case import Case, cases_of, hardware_kind
from history.models import HistoryRecord
from history.services.search import visible
from history.services.store import to_record
from history.similarity import Expected, most_similar

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
        case, rows = cases_of_rows([to])[0], rows.exclude(pk=to.pk)
    else:
        case = to
    near = list(
        HistoryRecord.objects.filter(pk__in=_candidates(rows, case)).defer("embedding", "search").order_by("-pk")
    )
    return tuple(
        Alike(near[n], match.likeness, match.reason, match.expected)
        for n, match in most_similar(cases_of_rows(near), case, k)
    )


#: Prices of records, as far as this process has asked for them; what a record holds changes with its version only.
_KNOWN: dict[tuple[int, int, datetime], Case] = {}
MOST_KNOWN = 20_000


def cases_of_rows(rows: Sequence[HistoryRecord]) -> list[Case]:
    """What stored records are known by, priced once in a process."""
    keys = [(row.pk, row.version, row.created_at) for row in rows]
    known = {key: case for key in keys if (case := _KNOWN.get(key)) is not None}
    new = [(key, row) for key, row in zip(keys, rows, strict=True) if key not in known]
    made = cases_of([to_record(row) for _, row in new])
    known |= {key: case for (key, _), case in zip(new, made, strict=True)}
    if len(_KNOWN) > MOST_KNOWN:
        _KNOWN.clear()
    _KNOWN.update(known)
    return [known[key] for key in keys]


def _candidates(rows: QuerySet[HistoryRecord], case: Case) -> set[int]:
    if not case.chip or not case.directed:
        return set()
    similar_records = rows.filter(hardware=hardware_kind(case.chip), changes__contained_by=sorted(moves.DIRECTED))
    signs = moves.signs({role: value for role, value in case.move.items() if role in moves.ROLES})
    if signs:
        # A record names its axes as they were called: `fsdp` shards the batch as `data` does.
        fully = [f"fsdp{sign[4:]}" if sign.startswith("data") else sign for sign in signs]
        similar_records = similar_records.filter(Q(moves__contains=signs) | Q(moves__contains=fully))
    elif case.move:
        similar_records = similar_records.filter(changes__contains=sorted({_KIND[key] for key in case.move}))
    near = [Q(chip=case.chip, chips=case.chips), Q(chip=case.chip, bottleneck=case.bottleneck), Q(chip=case.chip)]
    if case.model_name:
        near.append(Q(chip=case.chip, model_name=case.model_name))
    if case.move:
        near.append(~Q(chip=case.chip))
    return {pk for q in near for pk in similar_records.filter(q).order_by().values_list("pk", flat=True)[:EACH]}


#: Kind of change of each training key.
_KIND = {
    "global_batch": "batch",
    "micro_batch": "batch",
    "remat": "remat",
    "weight_sharding": "weight_sharding",
    "precision": "precision",
    "xla_flags": "xla_flags",
}
