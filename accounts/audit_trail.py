"""What administrators of a team read of the audit trail: their team's entries, filters and exports."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import django_filters
from django.db.models import QuerySet

from accounts.filters import Filters, SearchFilter
from accounts.models import Role
from accounts.services import memberships
from audit.models import Action, Entry
from formatting.cells import csv_line

COLUMNS = ("id", "at", "team_id", "team_name", "actor_id", "actor_name", "action", "about_id", "about_name", "data")
FORMATS = {"jsonl": "application/x-ndjson", "csv": "text/csv; charset=utf-8"}


class EntryFilters(Filters):
    q = SearchFilter(
        "actor_name", "about_name", "about_id", "data",
        help_text="Words, each in the actor, in what it is about, or in the details; case-insensitive.",
    )  # fmt: skip
    action = django_filters.ChoiceFilter(choices=Action.choices)
    since = django_filters.DateFilter("at", "date__gte", help_text="From this day on (UTC).")
    until = django_filters.DateFilter("at", "date__lte", help_text="Up to and including this day (UTC).")

    class Meta:
        model = Entry
        fields = ("actor_name",)


def administered_teams(user: Any) -> list[int]:
    """Return the keys of the teams that this session or token may administer."""
    return list(memberships(user).filter(role=Role.ADMINISTRATOR).values_list("team_id", flat=True))


def entries_of(team_ids: list[int]) -> QuerySet[Entry]:
    return Entry.objects.filter(team_id__in=team_ids)


def export(rows: QuerySet[Entry], kind: str) -> Iterator[bytes]:
    """Yield the entries as a file of the format `kind`, in pieces."""
    if kind == "csv":
        yield csv_line(COLUMNS).encode()
    for entry in rows.iterator(chunk_size=500):
        values = {name: getattr(entry, name) for name in COLUMNS} | {"at": entry.at.isoformat()}
        if kind == "csv":
            yield csv_line(map(_cell, values.values())).encode()
        else:
            yield json.dumps(values, ensure_ascii=False).encode() + b"\n"


def _cell(value: Any) -> Any:
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)
