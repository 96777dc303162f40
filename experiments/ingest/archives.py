"""What an upload holds: profiles and JSON exports, taken out of gzip, zip and tar.

Decided by content, never by the file's ending.  Members are written under generated names, so that their paths lead
nowhere, and links and devices are left out; bombs and archives in archives are refused whole.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import io
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path, PurePosixPath
from typing import IO

from experiments.ingest.errors import IngestError
from experiments.ingest.formats import (
    HEAD_BYTES,
    KINDS,
    PACK_AGAIN,
    WHAT_IS_ACCEPTED,
    holds_trace,
    named_format,
    sniff,
    why_not,
)
from experiments.ingest.limits import Limits
from formatting import first, limit

CHUNK_BYTES = 1 << 20
#: Characters of a member's name in a sentence.
LONGEST_NAME = 120
#: Below this, a ratio says nothing: a short text may shrink a hundredfold.
RATIO_FROM_BYTES = 16_000_000


@dataclass(frozen=True)
class Found:
    """One profile or export found in the uploads.

    path: the bytes, unpacked.  name: as the user knows it (`run.zip: plugins/profile/a/host0.xplane.pb`).
    kind: one of KINDS.  session: the profile session's folder, empty if it lay in none.
    """

    path: Path
    name: str
    kind: str
    session: str = ""


@dataclass(frozen=True)
class Contents:
    """Everything found, and the names of members that are neither profile nor export."""

    files: tuple[Found, ...]
    ignored: tuple[str, ...] = ()


def unpack(uploads: Sequence[tuple[Path, str]], folder: Path, limits: Limits) -> Contents:
    """Every profile and export in the uploads [(path, name), …]; archives are unpacked into `folder`.

    Raises IngestError for an empty or unknown upload, a malicious or broken archive, an archive with
    several sessions, and where nothing readable is found.
    """
    unpacker = _Unpacker(folder, limits)
    files: list[Found] = []
    for upload in uploads:
        files += unpacker.read(*upload)
    if not files:
        raise IngestError(
            f"No profile was found in {first([name for _, name in uploads], 5)}.",
            WHAT_IS_ACCEPTED,
            kind="archive",
        )
    # The exports beside a profile say the same with less detail, and profilers of two kinds record two sessions.
    best = min((item.kind for item in files), key=KINDS.index)
    unpacker.ignored += [item.name for item in files if item.kind != best]
    files = [item for item in files if item.kind == best]
    return Contents(tuple(files), tuple(unpacker.ignored))


class _Unpacker:
    """Writes members into one folder and counts what came out."""

    def __init__(self, folder: Path, limits: Limits) -> None:
        self.folder = folder
        self.limits = limits
        self.ignored: list[str] = []
        self.total_bytes = self.before_bytes = 0
        self.count = 0
        self.named: list[tuple[str, str]] = []

    def read(self, path: Path, name: str) -> list[Found]:
        self.before_bytes = self.total_bytes  # what other uploads unpacked to says nothing of this one's ratio
        packed_bytes = path.stat().st_size
        kind = _sniff_file(path, name)
        if kind == "gzip":
            with path.open("rb") as source:
                path = self._write(_gunzipped(source, name), packed_bytes, name)
            kind = _sniff_file(path, name)
        if _is_profile_name(name) and kind not in ("empty", "zip", "tar", "gzip", "text", *KINDS):
            # A damaged profile is described by its own check, which knows where it breaks.
            return [Found(path, name, "xplane")]
        if kind in KINDS:
            return [Found(path, name, kind)]
        if kind in ("zip", "tar"):
            return self._read_archive(path, name, kind, packed_bytes)
        raise IngestError(*why_not(name, kind), name, kind="empty" if kind == "empty" else "format")

    def _read_archive(self, path: Path, name: str, kind: str, packed_bytes: int) -> list[Found]:
        """The profiles and exports of a zip or tar."""
        members: list[tuple[str, Callable[[], IO[bytes] | None]]]
        most = self.limits.entries + 1
        try:
            with contextlib.ExitStack() as stack:
                if kind == "zip":
                    packed = stack.enter_context(zipfile.ZipFile(path))
                    infos = packed.infolist()[:most]
                    if any(info.flag_bits & 1 for info in infos):
                        raise _refused(name, "it is encrypted")
                    sizes = [info.file_size for info in infos]
                    members = [(info.filename, partial(packed.open, info)) for info in infos if not info.is_dir()]
                else:
                    tape = stack.enter_context(tarfile.open(path, "r:"))
                    entries = list(islice(tape, most))
                    sizes = [entry.size for entry in entries]
                    members = [(one.name, partial(tape.extractfile, one)) for one in entries if one.isreg()]
                if len(sizes) == most:
                    raise _refused(name, f"it has more than {self.limits.entries} members")
                self._check_total(sum(sizes), packed_bytes, name)
                return self._take(members, name, packed_bytes)
        except (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, NotImplementedError, OSError,
                ValueError) as error:  # fmt: skip
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise  # a full disk is our trouble, not the archive's
            raise _broken(name, kind, error) from error

    def _take(
        self, members: Iterable[tuple[str, Callable[[], IO[bytes] | None]]], archive_name: str, packed_bytes: int
    ) -> list[Found]:
        """The profiles and exports among the members of one archive, written to the folder."""
        files: list[Found] = []
        for member, open_member in members:
            shown = f"{archive_name}: {member}"
            base = PurePosixPath(member).name
            if base.startswith("._") or member.startswith("__MACOSX/"):
                continue
            with io.BufferedReader(open_member() or io.BytesIO(), CHUNK_BYTES) as source:  # type: ignore[type-var]
                head = source.peek(HEAD_BYTES)[:HEAD_BYTES]
                chunks = iter(partial(source.read, CHUNK_BYTES), b"")
                if (kind := sniff(head)) == "gzip":
                    chunks = _gunzipped(source, shown)
                    first_chunk = next(chunks, b"")
                    head = first_chunk[:HEAD_BYTES]
                    chunks, kind = chain((first_chunk,), chunks), sniff(head)
                if kind in ("zip", "tar", "gzip"):
                    raise _refused(archive_name, f"{_short(member)} is an archive itself")
                if _is_profile_name(member) and kind not in KINDS:
                    kind = "xplane"
                if kind not in KINDS:
                    self.ignored.append(shown)
                    continue
                if kind == "json" and (other := named_format(shown, head)):
                    self.named.append(other)
                    continue
                path = self._write(chunks, packed_bytes, archive_name)
            if kind == "json" and holds_trace(path):
                kind = "kineto"
            files.append(Found(path, shown, kind, _session(member)))
        self._check_sessions(files, archive_name)
        if not files and self.named:
            raise IngestError(*self.named[0], archive_name)
        return files

    def _write(self, chunks: Iterable[bytes], packed_bytes: int, name: str) -> Path:
        self.count += 1
        path = self.folder / f"unpacked-{self.count}"
        with path.open("xb") as target:
            for chunk in chunks:
                self.total_bytes += len(chunk)
                self._check_total(0, packed_bytes, name)
                target.write(chunk)
        return path

    def _check_total(self, more_bytes: int, packed_bytes: int, name: str) -> None:
        total = self.total_bytes + more_bytes
        if total > self.limits.unpacked_bytes:
            raise IngestError(
                f"{name} unpacks to more than {limit(self.limits.unpacked_bytes, 'bytes')}.",
                "Profile fewer steps or upload fewer hosts.",
                name,
                kind="too_large",
            )
        if total - self.before_bytes > max(RATIO_FROM_BYTES, self.limits.ratio * packed_bytes):
            raise IngestError(
                f"{name} unpacks to more than {self.limits.ratio} times its size, which no profile does.",
                PACK_AGAIN,
                name,
                kind="archive",
            )

    def _check_sessions(self, files: Sequence[Found], archive_name: str) -> None:
        sessions = sorted({item.session for item in files if item.kind == "xplane"})
        if len(sessions) > 1:
            raise IngestError(
                f"{archive_name} contains {len(sessions)} profiling sessions: "
                f"{first([session or '(no folder)' for session in sessions], 5)}.",
                "Upload one session at a time: pack only one folder below plugins/profile.",
                archive_name,
                kind="sessions",
            )


def _gunzipped(source: IO[bytes], name: str) -> Iterator[bytes]:
    """The decompressed bytes of a gzip file, in chunks; IngestError where it is damaged or cut off."""
    try:
        with gzip.GzipFile(fileobj=source) as inflated:
            yield from iter(partial(inflated.read, CHUNK_BYTES), b"")
    except EOFError as error:
        raise IngestError(
            f"{name} is truncated: the compressed data ends before its end marker.",
            "Copy it again from the original.",
            name,
            kind="truncated",
        ) from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise _broken(name, "gzip", error) from error


def _sniff_file(path: Path, name: str) -> str:
    """The kind of a file; IngestError where it is of a tool whose files are not read."""
    with path.open("rb") as source:
        head = source.read(HEAD_BYTES)
    kind = sniff(head)
    if kind in ("json", "text", "unknown") and (other := named_format(name, head)):
        raise IngestError(*other, name)
    return "kineto" if kind == "json" and holds_trace(path) else kind


def _is_profile_name(name: str) -> bool:
    return name.lower().endswith((".xplane.pb", ".xplane.pb.gz"))


def _session(member: str) -> str:
    """`a` of `plugins/profile/a/host.xplane.pb`; the folder as a whole where the layout is another one."""
    parts = PurePosixPath(member).parts[:-1]
    for index in range(len(parts) - 1, 0, -1):
        if parts[index - 1] == "profile":
            return parts[index]
    return ""


def _short(member: str) -> str:
    """A member's name in a sentence: its end, where it is long."""
    return member if len(member) <= LONGEST_NAME else f"…{member[1 - LONGEST_NAME :]}"


def _refused(archive_name: str, why: str) -> IngestError:
    return IngestError(f"{archive_name} was refused: {why}.", PACK_AGAIN, archive_name, kind="archive")


def _broken(name: str, kind: str, error: Exception) -> IngestError:
    return IngestError(
        f"{name} is a corrupt {kind} file.",
        "Copy it again from the original, or pack it again.",
        name,
        kind="truncated",
        detail=repr(error),
    )
