"""Records that are like a case, each with what is alike.

Likeness is `history.likeness`.  Candidates come from indexes (same bottleneck and same move, same chip, same model,
nearest in meaning), so that the number of records does not matter; then the likeness of each is computed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from django.db.models import Q, QuerySet

from accounts.models import Team
from history import moves
from history.likeness import Case, Part, parts_of, score
from history.models import HistoryRecord
from history.record import Side
from history.services import words
from history.services.search import visible
from knowledge import retrieval
from knowledge.retrieval import retrieve

#: Candidates of each kind.
EACH = 40


@dataclass(frozen=True)
class Alike:
    """score: 0-1, the sum of the parts; parts: the largest first, without those that add nothing."""

    record: HistoryRecord
    score: float
    parts: tuple[Part, ...]


def similar(teams: Team | Iterable[int], to: HistoryRecord | Case, k: int = 5) -> tuple[Alike, ...]:
    """The k records that the teams see which are most like a record (without itself) or a case."""
    rows = visible(teams)
    if isinstance(to, HistoryRecord):
        case = replace(_case(to), text=to.title)
        rows = rows.exclude(pk=to.pk)
        found = retrieval.similar(rows, to, k=EACH).hits
    else:
        case = to
        found = retrieve(rows, words.query_words(case.text), k=EACH).hits if case.text else ()
    meaning = {hit.pk: hit.vector.score for hit in found if hit.vector}
    candidates = _candidates(rows, case) | set(meaning) | {hit.pk for hit in found}
    rated = [
        (row.pk, parts_of(_case(row), case, meaning.get(row.pk, 0.0)))
        for row in HistoryRecord.objects.filter(pk__in=candidates).only(*_RATED)
    ]
    rated.sort(key=lambda item: (-score(item[1]), -item[0]))
    best = visible(teams).in_bulk([pk for pk, _ in rated[:k]])
    return tuple(Alike(best[pk], score(parts), parts) for pk, parts in rated[:k] if pk in best)


#: What likeness is computed from; whole records are loaded only for the best.
_RATED = (
    "chip", "chips", "model_name", "model_family", "parameters", "bottleneck", "changes", "before", "after",
)  # fmt: skip


def _case(row: HistoryRecord) -> Case:
    before, after = moves.role_sizes(Side(**row.before)), moves.role_sizes(Side(**row.after))
    return Case(
        chip=row.chip,
        chips=row.chips,
        model_name=row.model_name,
        model_family=row.model_family,
        parameters=row.parameters,
        bottleneck=row.bottleneck,
        move=moves.doublings(before, after) if before and after else {},
        changes=tuple(row.changes),
        roles=before,
    )


def _candidates(rows: QuerySet[HistoryRecord], case: Case) -> set[int]:
    conditions = []
    signs = moves.signs(case.move)
    if signs and case.bottleneck:
        conditions.append(Q(moves__contains=signs, bottleneck=case.bottleneck))
    if signs:
        # Of many records that share a part of the move, those that share all of it or the chip must not be cut off.
        conditions.append(Q(moves__contains=signs))
        conditions.append(Q(moves__overlap=signs))
        if case.chip:
            conditions.append(Q(moves__overlap=signs, chip=case.chip))
    if case.bottleneck and case.chip:
        conditions.append(Q(bottleneck=case.bottleneck, chip=case.chip))
    if case.model_name and case.bottleneck:
        conditions.append(Q(model_name=case.model_name, bottleneck=case.bottleneck))
    if case.family and case.chip:
        conditions.append(Q(model_family=case.family, chip=case.chip))
    if case.chip and not conditions:
        conditions.append(Q(chip=case.chip))
    return {pk for q in conditions for pk in rows.filter(q).order_by().values_list("pk", flat=True)[:EACH]}
