"""What a cluster reports of one run: its files in pieces, then step times, memory and failure of each rank.

Everything may come twice: a file is known by its SHA-256, a report by its rank, and the same again changes nothing.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Annotated, Any, BinaryIO

from django.db import transaction
from django.http import Http404
from django.utils import timezone
from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic.json_schema import SkipJsonSchema

from accounts.refusals import Refused
from accounts.text import display_name
from disk import space
from experiments.services import secrets, storage, uploads
from formatting import limit
from formatting.text import clean
from launches.models import ArmRun, Launch, ReportFile
from launches.services import queue
from perfmodel.config import ConfigError
from perfmodel.reading import complaints

FOLDER = "launches"
#: Of one PATCH; a piece that is lost is sent again.
MOST_PIECE_BYTES = 8_000_000
MOST_STEPS = 100_000
MOST_RANKS = 100_000
MOST_FILES = 512


class ReportError(Refused):
    """What came cannot be taken: 409 where it would be right at another time.  offset: from where the file goes on."""

    def __init__(self, text: str, *, status: int = 400, offset: int | None = None) -> None:
        super().__init__(text, status=status)
        self.offset = offset


Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Seconds = Annotated[float, Field(ge=1e-9, le=1e7, allow_inf_nan=False)]


class RankReport(BaseModel):
    """The report of one rank.  The run is evaluated once all `ranks` have reported."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    rank: int = Field(default=0, ge=0)
    ranks: int = Field(default=1, ge=1, le=MOST_RANKS)
    step_times_s: list[Seconds] = Field(default=[], max_length=MOST_STEPS, description="Warm-up included.")
    warm_up: Annotated[int, Field(ge=0)] | SkipJsonSchema[None] = Field(
        default=None, description="Number of warm-up steps to exclude; null: detected."
    )
    peak_memory_bytes: Annotated[int, Field(ge=1, le=2**62)] | SkipJsonSchema[None] = Field(
        default=None, description="Peak memory of one device."
    )
    failure: str | SkipJsonSchema[None] = Field(default=None, description="Why the run did not finish.")
    host: str = ""
    files: list[Sha256] = Field(default=[], max_length=MOST_FILES, description="SHA-256 of each uploaded file.")

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, data: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in data.items() if value is not None}

    @field_validator("failure", "host")
    @classmethod
    def _as_stored(cls, text: str, info: ValidationInfo) -> str | None:
        return clean(text)[:100] if info.field_name == "host" else secrets.redact(clean(text.strip()))[:2000] or None

    @model_validator(mode="after")
    def _counts_agree(self) -> RankReport:
        if self.rank >= self.ranks or (self.warm_up or 0) > len(self.step_times_s):
            field, most = ("rank", self.ranks - 1) if self.rank >= self.ranks else ("warm_up", len(self.step_times_s))
            raise ConfigError(field, f"must be a whole number from 0 to {most:,}")
        return self

    @classmethod
    def read(cls, data: dict[str, Any]) -> RankReport:
        """Raises ReportError with the key at fault."""
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise ReportError(f"{complaints(error)[0]}.") from error


def run_of(launch: Launch, arm: str, repeat: int) -> ArmRun:
    """Raises Http404 where the launch has no such run."""
    run = launch.runs.filter(arm=arm, repeat=repeat).first()
    if run is None:
        raise Http404
    return run


def begin_file(run: ArmRun, kind: str, name: str, size_bytes: int, sha256: str) -> ReportFile:
    """The file as far as it was received; new where nothing of it was.  Raises ReportError or NoSpace."""
    name = display_name(name)[:200] or kind
    with transaction.atomic():
        locked = ArmRun.objects.select_for_update(of=("self",)).get(pk=run.pk)
        begun = ReportFile.objects.filter(run=locked, sha256=sha256).first()
        if begun is not None:
            return begun
        _must_be_open(locked)
        held = list(locked.files.values_list("size_bytes", flat=True))
        if len(held) >= MOST_FILES:
            raise ReportError(f"A run reports at most {MOST_FILES} files; put them into one zip.")
        if sum(held) + size_bytes > uploads.limit_bytes():
            most = limit(uploads.limit_bytes(), "bytes")
            raise ReportError(f"The files of a run are limited to {most} together; profile fewer steps.")
        space.require(storage.root(), size_bytes)
        folder = storage.new_folder(FOLDER)
        made = ReportFile.objects.create(
            run=locked, kind=kind, name=name, size_bytes=size_bytes, sha256=sha256, path=f"{folder}/file"
        )
        storage.absolute(made.path).touch(mode=0o600)
    if size_bytes == 0:
        _check_whole(made)
    return made


def append(run: ArmRun, sha256: str, offset: int, stream: BinaryIO) -> ReportFile:
    """Write the next piece of a file at its offset.

    Raises ReportError with the offset to go on from where it is not the next piece or more than was announced, and
    where the whole file is not what was announced, which then begins anew; Http404 where none was announced.
    """
    piece = stream.read(MOST_PIECE_BYTES + 1)
    if len(piece) > MOST_PIECE_BYTES:
        raise ReportError(f"Send at most {MOST_PIECE_BYTES:,} bytes at a time.")
    with transaction.atomic():
        file = ReportFile.objects.select_for_update(of=("self",)).filter(run=run, sha256=sha256).first()
        if file is None:
            raise Http404
        if file.complete:
            return file
        if offset != file.received_bytes or offset + len(piece) > file.size_bytes:
            raise ReportError(
                f"The file continues at byte {file.received_bytes:,} of {file.size_bytes:,}.",
                status=409, offset=file.received_bytes,
            )  # fmt: skip
        space.require(storage.root(), len(piece))
        with storage.absolute(file.path).open("r+b") as target:
            target.seek(offset)  # whatever a dead request wrote beyond it is written again
            target.write(piece)
            target.truncate()
            target.flush()
            os.fsync(target.fileno())
        file.received_bytes = offset + len(piece)
        file.save(update_fields=["received_bytes"])
    if file.received_bytes == file.size_bytes:
        _check_whole(file)
    return file


def report(run: ArmRun, given: RankReport) -> ArmRun:
    """Store a rank's report; once all have reported, a worker reads the run.

    Raises ReportError where one of its files is not complete, or the run has ended with another report.
    """
    with transaction.atomic():
        locked = ArmRun.objects.select_for_update(of=("self",)).get(pk=run.pk)
        key, value = str(given.rank), given.model_dump(exclude={"rank"})
        if locked.reports.get(key) == value:
            return locked
        _must_be_open(locked)
        here = set(locked.files.filter(complete=True).values_list("sha256", flat=True))
        if missing := [item for item in given.files if item not in here]:
            raise ReportError(f"The file {missing[0][:12]}… is not complete; send the rest of it first.", status=409)
        locked.reports = {**locked.reports, key: value}
        locked.reported_at = locked.reported_at or timezone.now()
        locked.save(update_fields=["reports", "reported_at"])
        if len(locked.reports) >= given.ranks:
            queue.begin_collecting(locked.pk)
    locked.refresh_from_db()
    return locked


def _must_be_open(run: ArmRun) -> None:
    if run.status not in queue.REPORTING:
        raise ReportError(
            f"This run has ended ({run.get_status_display().lower()}) and accepts no more reports.", status=409
        )


def _check_whole(file: ReportFile) -> None:
    """Raises ReportError, and begins anew, where the bytes are not those that were announced."""
    digest = _digest(storage.absolute(file.path))
    if digest == file.sha256:
        ReportFile.objects.filter(pk=file.pk).update(complete=True)
        file.complete = True
        return
    ReportFile.objects.filter(pk=file.pk).update(received_bytes=0)
    raise ReportError("The file does not match its announced checksum; send it again.", status=409, offset=0)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
