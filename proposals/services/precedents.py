"""What the history knows that bears on a run: measured changes under the same bottleneck, and runs that failed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.db.models import Q

from history.models import HistoryRecord
from history.services.search import visible
from history.services.store import to_record
from proposals.proposer.precedents import Precedent, precedents_of

#: Records looked at: on the same chip, and on others.
MOST_OF_CHIP = 300
MOST_OF_OTHERS = 200


@dataclass(frozen=True)
class Known:
    """Precedents for one run."""

    values: tuple[Precedent, ...]

    @property
    def keys(self) -> Sequence[str]:
        """Of their records, in the same order."""
        return [item.id for item in self.values]


def of_run(team_id: int, bottleneck: str, chip: str) -> Known:
    """What the team sees of the history: the same bottleneck or one not published, and failures; the newest first."""
    bearing = Q(bottleneck__in=[bottleneck, ""], speedup__isnull=False) | Q(outcome="failed")
    seen = HistoryRecord.objects.filter(pk__in=visible([team_id]).values("pk")).filter(bearing)
    seen = seen.defer("embedding", "search").order_by("-pk")
    others = seen.exclude(chip=chip).exclude(outcome="failed")
    return _known([*seen.filter(chip=chip)[:MOST_OF_CHIP], *others[:MOST_OF_OTHERS]])


def of_keys(team_id: int, keys: Sequence[str]) -> Known:
    """The precedents of these records, in this order; those that are gone are left out."""
    place = {key: number for number, key in enumerate(keys)}
    rows = HistoryRecord.objects.filter(pk__in=visible([team_id]).values("pk"), key__in=keys)
    return _known(sorted(rows.defer("embedding", "search"), key=lambda row: place[row.key]))


def _known(rows: Iterable[HistoryRecord]) -> Known:
    return Known(precedents_of([to_record(row) for row in rows]))
