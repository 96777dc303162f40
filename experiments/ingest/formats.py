"""What a file is, told by its first bytes, and what to say of one that is no profile."""

from __future__ import annotations

import mmap
import re
import tomllib
from functools import cache
from pathlib import Path

from formatting import plain

HEAD_BYTES = 4096
PACK_AGAIN = "Pack only the profile's log directory (plugins/profile/<session>) and upload that."
WHAT_IS_ACCEPTED = (
    "Upload *.xplane.pb files, a zip or tar.gz of a profile's log directory, XProf's JSON exports, PyTorch profiler "
    "traces or Nsight Systems .sqlite exports."
)
#: Kinds of profile, the one that says most first: what lies beside it is not used.
KINDS = ("xplane", "kineto", "nsight", "json", "trace")
_METADATA_BYTES = 16 << 20
_SQLITE = b"SQLite format 3\0"
#: An XSpace by its first field: a plane with its id or its name, or the text of an error, a warning or a host's name.
#: An HLO proto and XProf's own caches begin with another message.
_XSPACE = re.compile(
    rb"\n[\x80-\xff]{0,9}[\x00-\x7f](\x08[\x80-\xff]{0,9}[\x00-\x7f])?(\x12[\x80-\xff]?[\x01-\x7f][ -~]|(?<=\n\x00))"
    rb"|[\x12\x1a\x22][\x80-\xff]{0,2}[\x01-\x7f][ -~]"
)
#: A trace that is a bare list of events.
_EVENTS = re.compile(rb'\[\s*\{[^\]]{0,2000}?"ph"\s*:\s*"')
#: Keys that only the PyTorch profiler writes beside its events.
_KINETO = (b'"schemaVersion"', b'"deviceProperties"', b'"distributedInfo"', b'"baseTimeNanoseconds"')
_XPROF_TRACE = re.compile(rb'"highres-ticks"|"displayTimeUnit"\s*:\s*"ns"')


@cache
def _other_formats() -> list[dict[str, str]]:
    entries: list[dict[str, str]] = tomllib.loads((Path(__file__).parent / "other_formats.toml").read_text())["format"]
    return entries


def named_format(name: str, head: bytes) -> tuple[str, str] | None:
    """(what a file of another tool is by its first bytes or its name, what to upload instead); None where it may be a
    profile."""
    for other in _other_formats():
        found = re.search(other["head"].encode(), head, re.I) if "head" in other else None
        if found or ("name" in other and re.search(other["name"], name, re.I)):
            size = plain(int(found["size"]), "bytes") if found and "size" in found.groupdict() else ""
            return f"{name} is {other['is'].format(size=size)}.", other.get("do", WHAT_IS_ACCEPTED)
    return None


def sniff(head: bytes) -> str:
    """`empty`, `gzip`, `zip`, `tar`, `text`, `unknown` or one of KINDS (`trace`: of XProf's trace viewer).

    Any other trace of events is taken for the PyTorch profiler's; its reader says if it is none.
    """
    if not head:
        return "empty"
    if head.startswith(b"\x1f\x8b"):
        return "gzip"
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return "zip"
    if head[257:262] == b"ustar":
        return "tar"
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(b"{") and any(key in head for key in _KINETO):
        return "kineto"  # whatever bytes the names of its processes hold
    if text.startswith((b"{", b"[")) and _is_utf8(head):
        if b'"traceEvents"' in head or b'"displayTimeUnit"' in head or _EVENTS.match(text):
            return "trace" if _XPROF_TRACE.search(head) else "kineto"
        return "json"
    if head.startswith(_SQLITE):
        return "nsight"
    if _is_utf8(head) and not any(byte < 9 for byte in head):
        return "text"
    return "xplane" if _XSPACE.match(head) else "unknown"


def holds_trace(path: Path) -> bool:
    """Whether JSON that does not say so at its beginning is a trace of events: metadata may stand before them."""
    if not path.stat().st_size:
        return False
    with path.open("rb") as source, mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return data.find(b'"traceEvents"', 0, _METADATA_BYTES) >= 0


def why_not(name: str, kind: str) -> tuple[str, str]:
    """(what a file of this kind is, what to do) where it is none of KINDS."""
    match kind:
        case "empty":
            return f"{name} is empty (0 bytes).", "Check that the profiler finished writing, and copy it again."
        case "text":
            return f"{name} is a text file, not a profile.", WHAT_IS_ACCEPTED
        case "gzip":
            return f"{name} is compressed twice.", PACK_AGAIN
        case _:
            return f"{name} is not a profile: its format is not supported.", WHAT_IS_ACCEPTED


def _is_utf8(head: bytes) -> bool:
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        # The head may end inside a character.
        return error.start >= len(head) - 3 and error.reason == "unexpected end of data"
    return True
