"""Records into the database and back.  Their content is appended; only shipped ones follow their files."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import fields
from hashlib import sha256
from typing import Any

from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import PermissionDenied
from django.db import IntegrityError, transaction
from django.db.models import Q

from accounts.models import Team, User
from audit import trail
from audit.models import Action
from experiments.models import Experiment, Profile
from history import moves, reading, seeds, words
from history.models import HistoryRecord, RecordImport
from history.record import NO_CHANGE, RECORD, Record, Side
from knowledge.services.embedding import enqueue

#: Fields of the value that have a column of the same name.
_SAME = (
    "title", "change", "outcome", "source", "provenance", "chip", "chips", "slices", "model_name", "parameters",
    "bottleneck", "speedup", "measure", "effect", "failure", "url",
)  # fmt: skip
_OTHER = ("id", "changes", "topology", "model_family", "before", "after")
_EXTRA = tuple(field.name for field in fields(Record) if field.name not in (*_SAME, *_OTHER))
_PUBLISHED = "This record ships with the product; only records of your team can be deleted."


class RecordError(ValueError):
    """A record that cannot be stored; the sentence says what is wrong."""


def order(record: Record) -> float:
    """Sort key by effect: its speed-up; 0 where the run failed; beside 1 where only a statement
    was published."""
    if record.speedup is not None:
        return record.speedup
    return {"faster": 1 + NO_CHANGE, "slower": 1 - NO_CHANGE, "failed": 0.0}.get(record.outcome, 1.0)


def to_row(record: Record, team: Team | None, **links: Any) -> HistoryRecord:
    """The row of a record, stamped and not saved.  links: experiments, profile, user."""
    data = RECORD.write(record)
    row = HistoryRecord(
        team=team,
        key=record.id,
        hardware=words.hardware_kind(record.chip),
        model_family=record.model_family or words.family_of(record.model_name),
        changes=list(record.changes),
        moves=moves.signs(moves.move(record)),
        topology=list(record.topology),
        order=order(record),
        before=data["before"],
        after=data["after"],
        extra={name: data[name] for name in _EXTRA},
        keywords=words.keywords(record),
        remarks=" ".join(record.caveats),
        **{name: getattr(record, name) for name in _SAME},
        **links,
    )
    row.stamp()
    return row


def to_record(row: HistoryRecord) -> Record:
    """The value behind a row; a model family that its record left empty is the one that its model's name says."""
    extra: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in row.extra.items()
    }
    return Record(
        id=row.key,
        changes=tuple(row.changes),
        topology=tuple(row.topology),
        model_family=row.model_family,
        before=Side(**row.before),
        after=Side(**row.after),
        **{name: getattr(row, name) for name in _SAME},
        **extra,
    )


def add(
    record: Record,
    team: Team,
    user: AbstractBaseUser | AnonymousUser | None = None,
    *,
    experiment_before: Experiment | None = None,
    experiment_after: Experiment | None = None,
    profile_after: Profile | None = None,
) -> HistoryRecord:
    """Store one record of a team; where the team has one of this id, that one, unchanged.

    Raises RecordError with the first thing that is wrong with the record.
    """
    row = reading.read_row(1, RECORD.write(record))
    if row.record is None:
        raise RecordError(f"{row.errors[0].column}: {row.errors[0].message}")
    for linked in (experiment_before, experiment_after, profile_after):
        if linked is not None and linked.team_id != team.pk:
            raise RecordError("A record can only point at experiments and profiles of its own team.")
    made = to_row(
        row.record,
        team,
        added_by=user if user is not None and user.pk else None,
        experiment_before=experiment_before,
        experiment_after=experiment_after,
        profile_after=profile_after,
    )
    try:
        with transaction.atomic():
            made.save()
            enqueue(HistoryRecord)
    except IntegrityError:
        existing = HistoryRecord.objects.filter(team=team, key=record.id).first()
        if existing is None:
            raise
        return existing
    return made


def add_many(
    records: Iterable[Record], team: Team, user: AbstractBaseUser | None, imported: RecordImport | None = None
) -> None:
    """Store records of a team in one transaction; one whose id the team or a shipped record has is left out."""
    made = [to_row(record, team, added_by=user, imported=imported) for record in records]
    with transaction.atomic():
        taken = taken_keys([row.key for row in made], team)
        new = [row for row in made if row.key not in taken]
        HistoryRecord.objects.bulk_create(new, ignore_conflicts=True, batch_size=1000)
        enqueue(HistoryRecord)


def taken_keys(keys: list[str], team: Team) -> set[str]:
    """Those of the ids that a record of the team or a shipped one already has."""
    seen = HistoryRecord.objects.filter(Q(team=team) | Q(team=None), key__in=keys)
    return set(seen.values_list("key", flat=True))


@transaction.atomic
def delete(record: HistoryRecord, *, by: User) -> None:
    """Remove a record of a team.  Raises PermissionDenied for one that ships with the product."""
    if record.team is None:
        raise PermissionDenied(_PUBLISHED)
    deleted, _ = HistoryRecord.objects.filter(pk=record.pk).delete()
    if deleted:
        trail.record(Action.RECORD_DELETED, record.team, by, about=record.pk, name=record.title, key=record.key)


def seed() -> int:
    """Bring the shipped records in line with their files; how many were new, changed or are gone.

    A record that did not change is not touched, so this may run at every start.  A changed one keeps its row.
    """
    wanted = {record.id: (record, _hash(record)) for record in seeds.records()}
    with transaction.atomic():
        present = {
            key: (pk, digest, version)
            for key, pk, digest, version in HistoryRecord.objects.select_for_update()
            .filter(team=None)
            .values_list("key", "pk", "seed_hash", "version")
        }
        gone = [pk for key, (pk, _, _) in present.items() if key not in wanted]
        HistoryRecord.objects.filter(pk__in=gone).delete()
        new, changed = list[HistoryRecord](), list[HistoryRecord]()
        for key, (record, digest) in wanted.items():
            pk, stored, version = present.get(key, (None, "", 0))
            if stored != digest:
                row = to_row(record, None, seed_hash=digest, pk=pk, version=version + 1)
                (changed if pk else new).append(row)
        HistoryRecord.objects.bulk_create(new, ignore_conflicts=True)  # another start may be doing the same
        HistoryRecord.objects.bulk_update(changed, _SEEDED)
        if new or changed or gone:
            enqueue(HistoryRecord)
    return len(new) + len(changed) + len(gone)


#: What a new edition of a shipped record may change; its row, its links and its first day stay.
_SEEDED = [
    *_SAME, "hardware", "model_family", "changes", "moves", "topology", "order", "before", "after", "extra", "keywords",
    "remarks", "content_hash", "seed_hash", "version",
]  # fmt: skip


def _hash(record: Record) -> str:
    """Of everything that is stored, our own derived words included."""
    text = json.dumps([RECORD.write(record), words.keywords(record)], ensure_ascii=False)
    return sha256(text.encode()).hexdigest()
