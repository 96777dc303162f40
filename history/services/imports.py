"""Import of files of records: every row is checked, the good ones are stored, and the report names what is wrong with
the others.  Rows whose id is known are left out, so that a corrected file can be imported again."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from io import BytesIO

from django.core.files import File
from django.db import transaction
from django.utils import timezone

from accounts.models import Team, User
from accounts.refusals import Refused
from accounts.text import display_name
from disk import space
from experiments.services import storage
from formatting import limit
from formatting.text import clean_json
from history.models import RecordImport
from history.reading import ReadRow, RowProblem
from history.record import Record
from history.services import formats
from history.services.formats import FileError
from history.services.store import add_many, taken_keys

LIMIT_BYTES = 5_000_000
#: What a report keeps; how many more there are is counted.
KEPT_ERRORS, KEPT_WARNINGS = 200, 50


class ImportRefused(Refused):
    """The file cannot be taken."""


@dataclass
class Report:
    """What is in a file.

    rows: that hold something; good: that are records; duplicates: of these, whose id stands earlier in the file, or in
    the database; bad: the others.  errors, warnings: the first ones.  added: records that were stored.
    """

    rows: int = 0
    good: int = 0
    duplicates: int = 0
    bad: int = 0
    errors: tuple[RowProblem, ...] = ()
    errors_left_out: int = 0
    warnings: tuple[RowProblem, ...] = ()
    warnings_left_out: int = 0
    added: int = 0

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


def receive(team: Team, user: User, file: File[bytes], *, kind: str = "") -> RecordImport:
    """Store the good rows of a file, and the report.  Raises ImportRefused where it cannot be read at all."""
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
    with transaction.atomic():
        made = RecordImport.objects.create(
            team=team, created_by=user, name=name, format=kind, size_bytes=len(content), finished_at=timezone.now()
        )
        add_many(records, team, user, made)
        report.added = made.records.count()
        made.report = clean_json(asdict(report))
        made.save(update_fields=["report"])
    return made


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
    return report, list(new.values())
