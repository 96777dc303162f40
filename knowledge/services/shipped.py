"""The passages that ship with the product, from knowledge/passages into the database; again whenever a file changed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.db import connection, transaction
from django.utils import timezone

from knowledge.models import Document, Kind, Passage, Question, stamped
from knowledge.passage_file import FOLDER, PassageFile, fingerprints, read_all
from knowledge.services import embedding

_LOCK = 0x61736171


@dataclass(frozen=True)
class Loaded:
    """passages: how many there are now; added, changed, retired: how many of them are."""

    passages: int
    added: int = 0
    changed: int = 0
    retired: int = 0


def load_shipped(folder: Path = FOLDER) -> Loaded:
    """Bring the database to what the files say; one query where it is there already.

    A passage that changed counts up its version and gets a new vector; one that is gone is retired, so that what cited
    it can still open it.  Raises PassageError.
    """
    if _loaded() == fingerprints(folder):
        return Loaded(_living().count())
    files = read_all(folder)
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("select pg_advisory_xact_lock(%s)", [_LOCK])  # two starts at once
        result = _store(files)
        _store_questions()
    if result.added or result.changed:
        embedding.enqueue(Passage)
        embedding.enqueue(Question)
    return result


def _loaded() -> dict[str, str]:
    shipped = Document.objects.filter(team=None, kind=Kind.SHIPPED).exclude(sha256="")
    return dict(shipped.values_list("name", "sha256"))


def _living() -> Any:
    return Passage.objects.filter(team=None, retired_at=None)


def _store(files: list[PassageFile]) -> Loaded:
    present = {passage.key: passage for passage in Passage.objects.filter(team=None).defer("embedding", "search")}
    added: list[Passage] = []
    changed = 0
    for file in files:
        document = _document(file)
        for position, given in enumerate(file.passages):
            values = {
                "document": document, "position": position, "title": given.title, "text": given.text,
                "formula": given.formula, "applies_when": given.applies_when,
                "counter_indications": given.counter_indications, "source": given.source, "section": given.section,
                "url": given.url, "place": given.title, "tags": list(given.tags), "hardware": list(given.hardware),
                "bottlenecks": list(given.bottlenecks), "questions": list(given.questions), "retired_at": None,
            }  # fmt: skip
            passage = present.pop(given.id, None)
            if passage is None:
                passage = Passage(team=None, key=given.id, **values)
                passage.stamp()
                added.append(passage)
            elif differing := {name for name, value in values.items() if getattr(passage, name) != value}:
                if differing - {"position", "document"}:
                    passage.version += 1
                    changed += 1
                for name in differing:
                    setattr(passage, name, values[name])
                passage.save(update_fields={*differing, "version"})
    Passage.objects.bulk_create(added)
    gone = [passage.pk for passage in present.values() if passage.retired_at is None]
    Passage.objects.filter(pk__in=gone).update(retired_at=timezone.now())
    shipped = Document.objects.filter(team=None, kind=Kind.SHIPPED)
    shipped.exclude(name__in=[file.name for file in files]).update(sha256="")
    return Loaded(_living().count(), len(added), changed, len(gone))


def _store_questions() -> None:
    """A row with a vector for each question of the passages that are found; those that stay keep theirs."""
    wanted = {(pk, text) for pk, asked in _living().values_list("pk", "questions") for text in asked}
    present = {(pk, text): row for row, pk, text in Question.objects.values_list("pk", "passage_id", "text")}
    Question.objects.filter(pk__in=[row for key, row in present.items() if key not in wanted]).delete()
    new = sorted(wanted - present.keys())
    Question.objects.bulk_create(stamped(Question(passage_id=pk, text=text) for pk, text in new))


def _document(file: PassageFile) -> Document:
    values = {
        "title": file.title, "source": file.source, "url": file.url, "chapter": file.chapter, "sha256": file.sha256,
    }  # fmt: skip
    document, created = Document.objects.get_or_create(
        team=None, name=file.name, defaults={"kind": Kind.SHIPPED, **values}
    )
    if not created and document.sha256 != file.sha256:
        for name, value in values.items():
            setattr(document, name, value)
        document.version += 1
        document.save()
    return document
