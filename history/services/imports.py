"""Files of records: checked row by row, then imported.

What was checked is kept with the import until somebody confirms it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from io import BytesIO
from typing import Any

from django.core.files import File
from django.db import transaction
from django.utils import timezone

from accounts.models import Team, User
from accounts.refusals import Refused
from accounts.text import display_name
from disk import space
from experiments.services import storage
from experiments.services.text import clean_json
from formatting import limit
from history.models import HistoryRecord, RecordImport
from history.reading import ReadRow, RowProblem
from history.record import RECORD, Record
from history.services import formats
from history.services.formats import FileError
from history.services.store import add_many, taken_keys

State = RecordImport.State
LIMIT_BYTES = 5_000_000
#: What a report keeps; how many more there are is counted.
KEPT_ERRORS, KEPT_WARNINGS, PREVIEWED = 200, 50, 20


class ImportRefused(Refused):
    """The file or the wish cannot be taken."""


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
    errors: tuple[RowProblem, ...] = ()
    errors_left_out: int = 0
    warnings: tuple[RowProblem, ...] = ()
    warnings_left_out: int = 0
    preview: tuple[dict[str, Any], ...] = ()

    @property
    def new(self) -> int:
        return self.good - self.duplicates

    def to_json(self) -> dict[str, Any]:
        """Return it as it is stored and as the API gives it."""
        written: dict[str, Any] = clean_json({**asdict(self), "new": self.new})
        return written

    def take(self, row: ReadRow) -> None:
        """Count a row, and store its message while there is room."""
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
    """Check a file.  straight: import what is good without asking in between.  Raises ImportRefused."""
    name = display_name(file.name or "")
    if (file.size or 0) > LIMIT_BYTES:
        most = limit(LIMIT_BYTES, "bytes")
        raise ImportRefused(f"A file of records is limited to {most}; import it in parts.", status=413)
    space.require(storage.root(), file.size or 0, "The file")
    content = file.read()
    try:
        kind = formats.format_of(name, kind)
        if not content:
            raise FileError(f"{name} is empty; export some records to see the format.")
        report, records = _checked(team, content, kind)
    except FileError as error:
        raise ImportRefused(str(error), status=400) from error
    made = RecordImport.objects.create(
        team=team, created_by=user, name=name, format=kind, size_bytes=len(content), report=report.to_json(),
        checked=[RECORD.write(record) for record in records],
    )  # fmt: skip
    if straight:
        confirm(made)
    return made


@transaction.atomic
def confirm(made: RecordImport) -> None:
    """Import the good rows of a checked file.  Raises ImportRefused where it is not waiting for that."""
    _leave(made, State.IMPORTED, "waiting to be imported")
    add_many([RECORD.read(data) for data in made.checked], made.team, made.created_by, made)
    made.report = {**made.report, "added": HistoryRecord.objects.filter(imported=made).count()}
    made.checked = []
    made.save(update_fields=["report", "checked"])


def discard(made: RecordImport) -> None:
    """Forget a checked file.  Raises ImportRefused where it was imported."""
    _leave(made, State.FAILED, "waiting any more", reason="It was discarded.", checked=[])


def _leave(made: RecordImport, state: str, waiting: str, **values: Any) -> None:
    """Move a checked import on, once."""
    moved = RecordImport.objects.filter(pk=made.pk, state=State.CHECKED)
    left = moved.update(state=state, finished_at=timezone.now(), **values)
    made.refresh_from_db()
    if not left:
        raise ImportRefused(f"This file is not {waiting}: {made.get_state_display().lower()}.")


def _theirs(record: Record) -> Record:
    """What another installation measured was not measured here."""
    return replace(record, provenance="imported") if record.provenance == "measured" else record


def _checked(team: Team, content: bytes, kind: str) -> tuple[Report, list[Record]]:
    """Return what is in a file, and its new records.  Raises FileError."""
    report, new = Report(), dict[str, Record]()
    rows = [
        replace(row, record=_theirs(row.record)) if row.record is not None else row
        for row in formats.read(BytesIO(content), kind)
    ]
    taken = taken_keys([row.record.id for row in rows if row.record], team)
    for row in rows:
        report.take(row)
        if row.record is None:
            continue
        duplicate = row.record.id in new or row.record.id in taken
        report.duplicates += duplicate
        if not duplicate:
            new[row.record.id] = row.record
        if len(report.preview) < PREVIEWED:
            report.preview += (_previewed(row.number, row.record, duplicate),)
    return report, list(new.values())


def _previewed(number: int, record: Record, duplicate: bool) -> dict[str, Any]:
    shown = ("id", "title", "change", "chip", "chips", "model_name", "outcome", "speedup")
    return {"row": number, "duplicate": duplicate, **{name: getattr(record, name) for name in shown}}
