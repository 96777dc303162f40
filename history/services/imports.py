"""Files of records: received, checked row by row, and imported.

A file is read twice: once to say what would happen, once to do it.  Small files are read at once, larger ones by a
worker.  Both passes may be repeated: a record that is there is not added again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import islice
from typing import Any

from celery import current_app
from django.core.files import File
from django.db import transaction
from django.utils import timezone
from kombu.exceptions import OperationalError

from accounts.models import Team, User
from accounts.text import display_name
from disk import space
from experiments.services import storage
from experiments.services.text import clean_json
from history.models import HistoryRecord, RecordImport
from history.record import Record
from history.services import formats
from history.services.formats import FileError
from history.services.rows import Complaint, Row
from history.services.store import add_many, taken_keys

logger = logging.getLogger(__name__)

State = RecordImport.State
IMPORTS = "imports"
WORK_IMPORT = "history.tasks.work_import"
LIMIT_BYTES = 100_000_000
MAX_ROWS = 200_000
#: Files up to this size are read while somebody waits.
AT_ONCE_BYTES = 500_000
#: What a report keeps; how many more there are is counted.
KEPT_ERRORS, KEPT_WARNINGS, PREVIEWED = 200, 50, 20
BATCH = 500
#: A checked file that nobody imported is removed after this.
KEPT_FOR = timedelta(days=1)


class ImportRefused(Exception):
    """The file or the wish cannot be taken; one sentence.  too_large: it is over the limit."""

    def __init__(self, message: str, *, too_large: bool = False) -> None:
        super().__init__(message)
        self.too_large = too_large


@dataclass
class Report:
    """What is in a file.

    rows: that hold something; good: that are records; duplicates: of these, whose id stands earlier in the file, or in
    the database; bad: the others.  errors, warnings: the first ones; preview: the first records, as they are listed.
    """

    rows: int = 0
    good: int = 0
    duplicates: int = 0
    bad: int = 0
    errors: tuple[Complaint, ...] = ()
    errors_left_out: int = 0
    warnings: tuple[Complaint, ...] = ()
    warnings_left_out: int = 0
    preview: tuple[dict[str, Any], ...] = ()

    @property
    def new(self) -> int:
        return self.good - self.duplicates

    def to_json(self) -> dict[str, Any]:
        """As it is stored and as the API gives it."""
        counts = {name: getattr(self, name) for name in ("rows", "good", "new", "duplicates", "bad")}
        left_out = {"errors_left_out": self.errors_left_out, "warnings_left_out": self.warnings_left_out}
        said = {
            name: [{"row": c.row, "column": c.column, "message": c.message} for c in getattr(self, name)]
            for name in ("errors", "warnings")
        }
        found = clean_json({**counts, **left_out, **said, "preview": list(self.preview)})
        assert isinstance(found, dict)
        return found

    def take(self, row: Row) -> None:
        """Count a row, and keep what it says while there is room."""
        self.rows += 1
        self.good += row.record is not None
        self.bad += row.record is None
        room = max(0, KEPT_ERRORS - len(self.errors))
        self.errors += row.errors[:room]
        self.errors_left_out += len(row.errors[room:])
        room = max(0, KEPT_WARNINGS - len(self.warnings))
        self.warnings += row.warnings[:room]
        self.warnings_left_out += len(row.warnings[room:])


def receive(team: Team, user: User, file: File[bytes], *, kind: str = "", straight: bool = False) -> RecordImport:
    """Store the file and check it, at once where it is small, else by a worker.

    straight: import what is good without asking in between.  Raises ImportRefused.
    """
    name = display_name(file.name or "")
    try:
        kind = formats.format_of(name, kind)
    except FileError as error:
        raise ImportRefused(str(error)) from error
    path, size = _write(file)
    if not size:
        storage.remove([path])
        raise ImportRefused(f"{name} is empty; export some records to see what a file holds.")
    made = RecordImport.objects.create(
        team=team, created_by=user, name=name, format=kind, path=path, size_bytes=size, straight=straight
    )
    _go_on(made)
    return made


def confirm(made: RecordImport) -> None:
    """Import the good rows of a checked file.  Raises ImportRefused where it is not waiting for that."""
    moved = RecordImport.objects.filter(pk=made.pk, state=State.CHECKED).update(state=State.IMPORTING)
    made.refresh_from_db()
    if not moved:
        raise ImportRefused(f"This file is not waiting to be imported: {made.get_state_display().lower()}.")
    _go_on(made)


def discard(made: RecordImport) -> None:
    """Forget a checked file.  Raises ImportRefused where its import has begun."""
    moved = RecordImport.objects.filter(pk=made.pk, state=State.CHECKED).update(
        state=State.FAILED, reason="It was discarded.", finished_at=timezone.now()
    )
    made.refresh_from_db()
    if not moved:
        raise ImportRefused(f"This file cannot be discarded: {made.get_state_display().lower()}.")
    _remove_file(made)


def work(made: RecordImport) -> None:
    """Do what the state asks for; again after a worker died in it."""
    try:
        if made.state == State.CHECKING:
            _check(made)
            made.refresh_from_db()
        if made.state == State.IMPORTING:
            _import(made)
            made.refresh_from_db()
    except FileError as error:
        _fail(made, str(error))
    except FileNotFoundError:
        _fail(made, "The file is no longer there; upload it again.")


def resume() -> list[int]:
    """Queue what a dead worker or a broker that was away left, and remove files that nobody imported."""
    old = timezone.now() - KEPT_FOR
    for forgotten in RecordImport.objects.filter(state=State.CHECKED, created_at__lt=old):
        _fail(forgotten, "It was checked and not imported within a day; upload it again.", State.CHECKED)
    left = RecordImport.objects.filter(state__in=[State.CHECKING, State.IMPORTING])
    now, young = timezone.now(), timedelta(minutes=1)
    # What is of the future was written before the clock was set back.
    waiting = [made.pk for made in left.exclude(created_at__range=(now - young, now + young))]
    for pk in waiting:
        _send(pk)
    return waiting


def _go_on(made: RecordImport) -> None:
    if made.size_bytes <= AT_ONCE_BYTES:
        work(made)
        return
    pk = made.pk
    transaction.on_commit(lambda: _send(pk))


def _send(pk: int) -> None:
    try:
        current_app.send_task(WORK_IMPORT, args=[pk], retry=False)
    except (OperationalError, OSError):
        logger.warning("import %s is not queued: the broker cannot be reached; the sweep will take it up", pk)


def _write(file: File[bytes]) -> tuple[str, int]:
    space.require(storage.root(), file.size or 0, "The file")
    path = f"{storage.new_folder(IMPORTS)}/records"
    size = 0
    try:
        with storage.absolute(path).open("xb") as target:
            for chunk in file.chunks(1 << 20):
                size += len(chunk)
                if size > LIMIT_BYTES:
                    raise ImportRefused(
                        f"A file of records is limited to {LIMIT_BYTES / 1e6:,.0f} MB; import it in parts.",
                        too_large=True,
                    )
                target.write(chunk)
    except BaseException:
        storage.remove([path])
        raise
    return path, size


def _rows(made: RecordImport) -> Iterator[Row]:
    """The rows as they would be stored.  Raises FileError after too many."""
    with storage.absolute(made.path).open("rb") as file:
        for count, row in enumerate(formats.read(file, made.format), 1):
            if count > MAX_ROWS:
                raise FileError(f"The file has more than {MAX_ROWS:,} rows; import it in parts.")
            yield replace(row, record=_theirs(row.record)) if row.record is not None else row


def _theirs(record: Record) -> Record:
    """What another installation measured was not measured here."""
    return replace(record, provenance="imported") if record.provenance == "measured" else record


def _check(made: RecordImport) -> None:
    report = Report()
    seen: set[str] = set()
    rows = _rows(made)
    while batch := list(islice(rows, BATCH)):
        taken = taken_keys([row.record.id for row in batch if row.record], made.team)
        for row in batch:
            report.take(row)
            if row.record is None:
                continue
            duplicate = row.record.id in seen or row.record.id in taken
            report.duplicates += duplicate
            seen.add(row.record.id)
            if len(report.preview) < PREVIEWED:
                report.preview += (_previewed(row.number, row.record, duplicate),)
    state = State.IMPORTING if made.straight and report.new else State.CHECKED
    if made.straight and not report.new:
        state = State.IMPORTED
    done = timezone.now() if state == State.IMPORTED else None
    if _move(made, State.CHECKING, state, report=report.to_json(), finished_at=done) and done:
        _remove_file(made)


def _previewed(number: int, record: Record, duplicate: bool) -> dict[str, Any]:
    return {
        "row": number,
        "id": record.id,
        "title": record.title,
        "change": record.change,
        "chip": record.chip,
        "chips": record.chips,
        "model_name": record.model_name,
        "outcome": record.outcome,
        "speedup": record.speedup,
        "duplicate": duplicate,
    }


def _import(made: RecordImport) -> None:
    records = (row.record for row in _rows(made) if row.record is not None)
    while batch := list(islice(records, BATCH)):
        first = {record.id: record for record in reversed(batch)}  # of two with one id the earlier one
        add_many([record for record in batch if first[record.id] is record], made.team, made.created_by, made)
    added = HistoryRecord.objects.filter(imported=made).count()
    report = {**made.report, "added": added}
    if _move(made, State.IMPORTING, State.IMPORTED, report=report, finished_at=timezone.now()):
        _remove_file(made)


def _move(made: RecordImport, old: str, new: str, **values: Any) -> bool:
    return bool(RecordImport.objects.filter(pk=made.pk, state=old).update(state=new, **values))


def _fail(made: RecordImport, reason: str, old: str = "") -> None:
    if _move(made, old or made.state, State.FAILED, reason=reason, finished_at=timezone.now()):
        _remove_file(made)
    made.refresh_from_db()


def _remove_file(made: RecordImport) -> None:
    storage.remove([made.path])
    RecordImport.objects.filter(pk=made.pk).update(path="")
    made.refresh_from_db()
