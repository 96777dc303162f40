"""Files of records: received, checked row by row, and imported.

A file is read twice: once to say what would happen, once to do it.  Small files are read at once, larger ones by a
worker.  Both passes may be repeated: a record that is there is not added again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from itertools import islice
from typing import Any

from django.core.files import File
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
from history.record import Record
from history.services import formats
from history.services.formats import FileError
from history.services.store import add_many, taken_keys
from jobs import workers
from jobs.jobs import Jobs, released

State = RecordImport.State
IMPORTS = "imports"
#: Files that are checked, or imported.
READING = Jobs(RecordImport, (State.CHECKING, State.IMPORTING), column="state", team="team")
LIMIT_BYTES = 100_000_000
MAX_ROWS = 200_000
#: Files up to this size are read while somebody waits.
AT_ONCE_BYTES = 500_000
#: What a report keeps; how many more there are is counted.
KEPT_ERRORS, KEPT_WARNINGS, PREVIEWED = 200, 50, 20
BATCH = 500
#: A checked file that nobody imported is removed after this.
KEPT_FOR = timedelta(days=1)


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
    """Store the file and check it, at once where it is small, else by a worker.

    straight: import what is good without asking in between.  Raises ImportRefused.
    """
    name = display_name(file.name or "")
    try:
        kind = formats.format_of(name, kind)
    except FileError as error:
        raise ImportRefused(str(error), status=400) from error
    path, size = _write(file)
    if not size:
        storage.remove([path])
        raise ImportRefused(f"{name} is empty; export some records to see the format.", status=400)
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


def work(pk: int) -> None:
    """Do what the state asks for, unless a live worker does; again after a worker died in it."""
    worker = workers.this_thread()
    if not READING.claim(pk, worker):
        return
    made = RecordImport.objects.select_related("team", "created_by").get(pk=pk)
    try:
        if made.attempts > READING.most_attempts:
            raise FileError(f"{READING.gave_up}; import it in parts.")
        with READING.beating(pk, worker):
            if made.state == State.CHECKING:
                _check(made)
            if made.state == State.IMPORTING:
                _import(made)
    except FileError as error:
        _fail(made, str(error))
    except FileNotFoundError:
        _fail(made, "The file no longer exists; upload it again.")


def forget_old() -> None:
    """Remove files that were checked and that nobody imported."""
    old = timezone.now() - KEPT_FOR
    for forgotten in RecordImport.objects.filter(state=State.CHECKED, created_at__lt=old):
        _fail(forgotten, "It was not imported within a day of the check; upload it again.")


def _go_on(made: RecordImport) -> None:
    if made.size_bytes <= AT_ONCE_BYTES:
        work(made.pk)
        made.refresh_from_db()
    else:
        READING.enqueue(made.pk)


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
                        f"A file of records is limited to {limit(LIMIT_BYTES, 'bytes')}; import it in parts.",
                        status=413,
                    )
                target.write(chunk)
    except BaseException:
        storage.remove([path])
        raise
    return path, size


def _rows(made: RecordImport) -> Iterator[ReadRow]:
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
    if _move(made, state, report=report.to_json(), finished_at=done) and done:
        _remove_file(made)


def _previewed(number: int, record: Record, duplicate: bool) -> dict[str, Any]:
    shown = ("id", "title", "change", "chip", "chips", "model_name", "outcome", "speedup")
    return {"row": number, "duplicate": duplicate, **{name: getattr(record, name) for name in shown}}


def _import(made: RecordImport) -> None:
    records = (row.record for row in _rows(made) if row.record is not None)
    while batch := list(islice(records, BATCH)):
        first = {record.id: record for record in reversed(batch)}  # of two with one id the earlier one
        add_many([record for record in batch if first[record.id] is record], made.team, made.created_by, made)
    added = HistoryRecord.objects.filter(imported=made).count()
    report = {**made.report, "added": added}
    if _move(made, State.IMPORTED, report=report, finished_at=timezone.now()):
        _remove_file(made)


def _move(made: RecordImport, new: str, **values: Any) -> bool:
    """On to another state, with what was found; False where it has been moved, or taken over, meanwhile."""
    if new not in READING.open:
        values |= released()
    same = RecordImport.objects.filter(pk=made.pk, state=made.state, worker=made.worker)
    if not same.update(state=new, **values):
        return False
    made.refresh_from_db()
    return True


def _fail(made: RecordImport, reason: str) -> None:
    if _move(made, State.FAILED, reason=reason, finished_at=timezone.now()):
        _remove_file(made)


def _remove_file(made: RecordImport) -> None:
    storage.remove([made.path])
    RecordImport.objects.filter(pk=made.pk).update(path="")
    made.refresh_from_db()
