"""The uploaded files of a profile as a log directory of XProf, in one zip that is written while it is sent."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from experiments.ingest.convert import session_file
from experiments.ingest.validate import file_host
from experiments.models import Profile, ProfileFile
from experiments.services import storage

_PIECE = 1 << 18


class _Sink:
    """A file that cannot be sought, whose bytes are taken away again and again."""

    def __init__(self) -> None:
        self._waiting = bytearray()
        self._at = 0

    def write(self, data: Any) -> int:
        self._waiting += data
        self._at += len(data)
        return len(data)

    def tell(self) -> int:
        return self._at

    def flush(self) -> None:
        pass

    def take(self) -> bytes:
        taken = bytes(self._waiting)
        self._waiting.clear()
        return taken


def pieces(profile: Profile, files: Sequence[ProfileFile]) -> Iterator[bytes]:
    """The zip: each profile under its host's name; an upload that was an archive already, beside them as it came.

    Packed files stay packed: XProf wants them unpacked, which the reader of the zip does (`gunzip`).
    """
    sink, taken = _Sink(), set[str]()
    session = f"plugins/profile/{profile.created_at:%Y_%m_%d_%H_%M_%S}"
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED, compresslevel=1, allowZip64=True) as packed:  # type: ignore[call-overload]
        for file in files:
            source = storage.absolute(file.path)
            if not source.exists():
                continue
            archive = file.name.lower().endswith((".zip", ".tar", ".tar.gz", ".tgz"))
            gz = not archive and file.name.lower().endswith(".gz")
            name = session_file(Path(session), file_host(file.name), taken).as_posix()
            target = f"uploaded/{Path(file.name).name}" if archive else name + (".gz" if gz else "")
            yield from _copy(packed, sink, source, target)
    yield sink.take()


def _copy(packed: zipfile.ZipFile, sink: _Sink, source: Any, name: str) -> Iterator[bytes]:
    with source.open("rb") as opened, packed.open(name, "w", force_zip64=True) as target:
        while piece := opened.read(_PIECE):
            target.write(piece)
            if ready := sink.take():
                yield ready
    if ready := sink.take():
        yield ready
