"""Two stored diagnoses side by side, from their rows: no profile is opened for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from django.contrib.auth.models import AnonymousUser
from django.core.paginator import Page, Paginator
from django.http import Http404

from accounts.models import Role, Team, User
from accounts.permissions import get_for
from diagnosis.compare import compare
from diagnosis.compare.comparison import Comparison, OpChange
from diagnosis.models import DiagnosisRecord, OpRow
from diagnosis.report import OP, Diagnosis
from experiments.models import Profile
from experiments.services import configuration
from formatting.numbers import whole_number
from perfmodel.config import ExperimentConfig

#: Profiles that the chooser offers, the newest of them.
MOST_CHOICES = 200
#: Comparisons kept in a process: they are computed from two diagnoses that never change.
KEPT = 4


@dataclass(frozen=True)
class Chosen:
    """One side: a profile with its newest diagnosis, None where it has none yet."""

    profile: Profile
    record: DiagnosisRecord | None

    @property
    def op_count(self) -> int:
        return int((self.profile.summary or {}).get("op_count") or 0)


@dataclass(frozen=True)
class Choice:
    """One profile that can be compared, in the words of the chooser."""

    pk: int
    words: str
    experiment: int


def chosen(user: User | AnonymousUser, pk: str) -> Chosen:
    """The profile `pk` for a viewer of its team.  Raises Http404 or PermissionDenied."""
    if (number := whole_number(pk)) is None:
        raise Http404("No such profile.")
    profile = get_for(user, Profile.objects.select_related("experiment"), Role.VIEWER, pk=number)
    record = (
        DiagnosisRecord.objects.select_related("run__profile", "run__experiment")
        .filter(run__profile=profile)
        .order_by("-run_id")
        .first()
    )
    return Chosen(profile, record)


def choices(team: Team, q: str = "") -> list[Choice]:
    """The team's diagnosed profiles, newest first; q: part of the experiment's name."""
    records = DiagnosisRecord.objects.filter(team=team)
    if q:
        records = records.filter(run__experiment__name__icontains=q)
    columns = ("run__profile_id", "run__experiment_id", "run__experiment__name", "bottleneck", "created_at")
    rows = list(records.order_by("-created_at").values_list(*columns)[: MOST_CHOICES * 2])
    seen: dict[int, Choice] = {}
    names: dict[int, set[int]] = {}
    for profile, experiment, *_ in rows:
        names.setdefault(experiment, set()).add(profile)
    for profile, experiment, name, bottleneck, created in rows:
        when = f", profile of {created:%-d %b %Y %H:%M}" if len(names[experiment]) > 1 else ""
        seen.setdefault(profile, Choice(profile, f"{name}{when} ({bottleneck})", experiment))
    return list(seen.values())[:MOST_CHOICES]


def summary(before: DiagnosisRecord, after: DiagnosisRecord) -> Comparison:
    """All but the ops: a few milliseconds, whatever the size of the profiles."""
    return compare(_diagnosed(before, ()), _diagnosed(after, ()))


def full(before: DiagnosisRecord, after: DiagnosisRecord) -> Comparison:
    """The whole comparison; the ops of both are read once and the answer is kept."""
    configs = tuple(json.dumps(record.run.experiment.config, sort_keys=True) for record in (before, after))
    return _kept(before.pk, after.pk, configs)


@lru_cache(maxsize=KEPT)
def _kept(before: int, after: int, configs: tuple[str, str]) -> Comparison:
    records = DiagnosisRecord.objects.select_related("run__profile", "run__experiment")
    sides = [records.get(pk=pk) for pk in (before, after)]
    one, two = (_diagnosed(side, OpRow.objects.filter(diagnosis=side).values_list("data", flat=True)) for side in sides)
    return compare(one, two)


def _diagnosed(record: DiagnosisRecord, ops: Iterable[Any]) -> tuple[ExperimentConfig | None, Diagnosis]:
    config = configuration.load(record.run.experiment)
    return config, replace(record.value, ops=tuple(OP.read(row) for row in ops))


#: What the table of ops may show, and how.
SHOWN: dict[str, Callable[[OpChange], bool]] = {
    "all": lambda row: True,
    "gained": lambda row: row.change < 0,
    "lost": lambda row: row.change > 0,
    "gone": lambda row: row.after is None,
    "new": lambda row: row.before is None,
}


def ops_page(comparison: Comparison, shown: str, q: str, page: str, size: int = 50) -> tuple[Page, dict[str, int]]:
    """The changes by size: all, only time gained or lost, or only ops that one side has; and how many are of each."""
    words = q.lower()
    rows = [row for row in comparison.ops if not words or words in f"{row.label} {row.module} {row.category}".lower()]
    counts = {name: sum(map(shows, rows)) for name, shows in SHOWN.items()}
    kept = [row for row in rows if SHOWN[shown](row)]
    return Paginator(kept, size).get_page(max(1, whole_number(page) or 1)), counts


def ranks(record: DiagnosisRecord, keys: Sequence[str]) -> dict[str, tuple[int, str]]:
    """(rank, name) by key, for links from a change to its ops."""
    rows = OpRow.objects.filter(diagnosis=record, key__in=set(keys)).values_list("key", "rank", "name")
    return {key: (rank, name) for key, rank, name in rows}
