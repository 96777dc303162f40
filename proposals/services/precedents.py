"""What the history knows that bears on a run: measured changes of runs like it, and runs that failed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.db.models import Q

from history.case import MOST_TELLING, Case, hardware_kind
from history.labels import situation_likeness
from history.models import HistoryRecord
from history.services.search import visible
from history.services.similar import cases_of_rows
from history.services.store import to_record
from proposals.proposer.precedents import COMPARABLE, TOLD_FAILURES, Precedent, precedents_of

#: Records looked at: on the same chip, and on others of its kind; the newest.
MOST_OF_CHIP, MOST_OF_OTHERS = 400, 100
#: Of these the nearest by what has a column; only they are read whole, and what changed flags alone on the chip.
NEAREST = 150
FLAGS = ["xla_flags"]


@dataclass(frozen=True)
class Known:
    """Precedents for one run."""

    values: tuple[Precedent, ...]

    @property
    def keys(self) -> Sequence[str]:
        """Of their records, in the same order."""
        return [item.id for item in self.values]


def of_run(team_id: int, ran: Case) -> Known:
    """What the team sees of the history that is most like a run, the most alike first."""
    told = Q(speedup__range=(1.0 / MOST_TELLING, MOST_TELLING), changes__contained_by=sorted(COMPARABLE))
    failed = Q(outcome="failed", failure__in=TOLD_FAILURES)
    seen = visible([team_id]).filter(told | failed, hardware=hardware_kind(ran.chip)).order_by("-pk")
    of_flags = seen.filter(chip=ran.chip, changes=FLAGS).values_list("pk", flat=True)[:MOST_OF_CHIP]
    seen = seen.exclude(changes=FLAGS)
    columns = ("pk", "chip", "chips", "model_name", "model_family", "parameters", "bottleneck")
    light = [
        *seen.filter(chip=ran.chip).values_list(*columns)[:MOST_OF_CHIP],
        *seen.exclude(chip=ran.chip).values_list(*columns)[:MOST_OF_OTHERS],
    ]
    # Tokens are in no column: assumed to be the run's own until the record is read.
    near = {
        pk: situation_likeness(
            Case(chip, chips, name, family, parameters, batch=ran.batch, seq_len=ran.seq_len, bottleneck=bottleneck),
            ran,
        )
        for pk, chip, chips, name, family, parameters, bottleneck in light
    }
    best = sorted(near, key=lambda pk: (-near[pk], -pk))[:NEAREST]
    best += of_flags
    rows = HistoryRecord.objects.defer("embedding", "search").in_bulk(best)
    return _precedents_of_rows(rows[pk] for pk in best if pk in rows)


def of_keys(team_id: int, keys: Sequence[str]) -> Known:
    """The precedents of these records, in this order; those that are gone are left out, and of two with one id the
    team's own counts."""
    rows = HistoryRecord.objects.filter(pk__in=visible([team_id]).values("pk"), key__in=keys)
    meant = {row.key: row for row in sorted(rows.defer("embedding", "search"), key=lambda row: row.team_id is not None)}
    return _precedents_of_rows(meant[key] for key in dict.fromkeys(keys) if key in meant)


def _precedents_of_rows(rows: Iterable[HistoryRecord]) -> Known:
    held = list(rows)
    return Known(precedents_of([to_record(row) for row in held], cases_of_rows(held)))
