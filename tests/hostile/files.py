"""Files that mean harm, small on disk."""

# ruff: noqa: E501  a row of a table is a line
from __future__ import annotations

import gzip
import io
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

ZEROS_BYTES = 4_000_000_000
LONG = "../" + "a" * 10_000


def zeros(wbits: int, size_bytes: int = ZEROS_BYTES) -> bytes:
    """So many zeros, compressed a thousandfold: one block, repeated.  wbits as of zlib."""
    packer = zlib.compressobj(9, zlib.DEFLATED, wbits)
    head = packer.compress(b"") + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(b"\0" * 1_000_000) + packer.flush(zlib.Z_FULL_FLUSH)
    return head + block * (size_bytes // 1_000_000)


def zip_of_zeros(name: bytes = b"host-0.xplane.pb", told_bytes: int = ZEROS_BYTES) -> bytes:
    """A zip of one member with 4 GB of zeros.  told_bytes: what its directory says."""
    packed = zeros(-15)
    common = struct.pack("<HHHHHIIIHH", 20, 0, 8, 0, 33, 0, len(packed), told_bytes, len(name), 0)
    local = b"PK\x03\x04" + common + name
    central = b"PK\x01\x02" + struct.pack("<H", 20) + common + struct.pack("<HHHII", 0, 0, 0, 0, 0) + name
    end = struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, 1, 1, len(central), len(local) + len(packed), 0)
    return local + packed + central + end


def zipped(*members: tuple[str, bytes], mode: int = 0) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            archive.writestr(info, content)
    return out.getvalue()


def tarred(*members: tuple[str, bytes], kind: bytes = tarfile.REGTYPE, **values: object) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", format=tarfile.PAX_FORMAT) as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.type, info.size = kind, len(content) if kind == tarfile.REGTYPE else 0
            for key, value in values.items():
                setattr(info, key, value)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def sparse() -> bytes:
    """A tar whose member of 8 GB has a hole and nothing else (GNU format)."""
    info = tarfile.TarInfo("host-0.xplane.pb")
    info.type, info.size = tarfile.GNUTYPE_SPARSE, 0
    head = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    head[386:398], head[398:410] = b"%011o\0" % ZEROS_BYTES, b"%011o\0" % 0
    head[483:495] = b"%011o\0" % ZEROS_BYTES
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    return bytes(head) + bytes(1024)


def many(count: int = 10_001) -> bytes:
    return zipped(*((f"{number}.pb", b"") for number in range(count)))


PB = "host-0.xplane.pb"
#: Name of the file, how it is made, what is said of it.
ARCHIVES: Sequence[tuple[str, str, Callable[[], bytes], str]] = (
    ("a path upwards, zip", "run.zip", lambda: zipped(("../../etc/passwd", b"x")), "No profile was found|text file"),
    ("a path upwards, tar", "run.tar.gz", lambda: tarred(("a/../../b.xplane.pb", b"x")), "No profile was found|text file"),
    ("an absolute path", "run.tgz", lambda: tarred(("/etc/passwd", b"x")), "No profile was found|text file"),
    ("a Windows path", "run.zip", lambda: zipped(("C:\\run\\host.xplane.pb", b"x")), "No profile was found|text file"),
    ("a path of 10,000 letters", "run.zip", lambda: zipped((LONG, b"x")), "No profile was found|text file"),
    ("a path with signs of a terminal", "run.zip", lambda: zipped(("../\x1b[2J\u202e<script>", b"x")), "No profile was found|text file"),
    ("a symbolic link, zip", "run.zip", lambda: zipped((PB, b"/etc/passwd"), mode=0o120777), "No profile was found|text file"),
    ("a symbolic link, tar", "run.tgz", lambda: tarred((PB, b""), kind=tarfile.SYMTYPE, linkname="/etc/passwd"), "No profile was found|text file"),
    ("a device", "run.tgz", lambda: tarred((PB, b""), kind=tarfile.CHRTYPE, devmajor=1, devminor=5), "No profile was found|text file"),
    ("a hole of 4 GB", "run.tar", sparse, "sparse file|unpacks to more|corrupt tar"),
    ("an archive in an archive", "run.zip", lambda: zipped(("inner.zip", zipped((PB, b"x")))), "is an archive itself"),
    ("packed twice", f"{PB}.gz", lambda: gzip.compress(gzip.compress(b"x" * 99)), "compressed twice"),
    ("10,001 files", "run.zip", many, "more than 10,?000 members"),
    ("4 GB of zeros in a zip", "run.zip", zip_of_zeros, "unpacks to more than"),
    ("4 GB in a zip that says 10 bytes", "run.zip", lambda: zip_of_zeros(told_bytes=10), "corrupt zip"),
    ("1 GB of zeros in gzip", f"{PB}.gz", lambda: zeros(31, ZEROS_BYTES // 4), "unpacks to more than"),
    ("an encrypted member", "run.zip", lambda: _encrypted(), "encrypted"),
    ("a zip that is cut", "run.zip", lambda: zipped((PB, b"x" * 5000))[:80], "corrupt zip"),
)  # fmt: skip


def _encrypted() -> bytes:
    whole = zipped((PB, b"x"))
    at = whole.index(b"PK\x01\x02")
    return whole[: at + 8] + b"\x01" + whole[at + 9 :]


def left_in(*folders: Path) -> list[str]:
    """Files below these folders."""
    return sorted(str(path) for folder in folders if folder.exists() for path in folder.rglob("*") if path.is_file())
