"""A trace's JSON as a stream of events, and the other fields.

Traces of a rank reach gigabytes, so events are parsed one by one and never held.  Kineto has written things that are no
JSON: `nan` and `inf` as numbers, integers beyond 64 bits, bytes that are no UTF-8 in names of kernels and processes and
bare backslashes in paths; they are read as null, as replacement characters and as backslashes.
"""

from __future__ import annotations

import codecs
import json
import mmap
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import ijson  # type: ignore[import-untyped]

from experiments.ingest.errors import IngestError

CHUNK_BYTES = 1 << 18
_NO_NUMBER = re.compile(rb"([:,\[]\s*)-?(?:nan|NaN|inf|Infinity|\d{20,})(?=\s*(?:[,}\]]|\Z))")
_BACKSLASH = re.compile(rb'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})?')
#: Fields other than the events, anywhere in the file.
_KEYS = ("deviceProperties", "distributedInfo", "host_name", "baseTimeNanoseconds", "schemaVersion")
_VALUE_BYTES = 16 << 20
EXPORT_AGAIN = "Export the trace again with prof.export_chrome_trace, and copy the whole file."


class _Cleaned:
    """A file for the parser: bytes with what is no JSON made null.  Chunks end before a comma, so no number is cut."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
        self._rest = b""

    def read(self, size: int = -1) -> bytes:
        if size == 0:
            return b""
        while True:
            raw = self._source.read(CHUNK_BYTES)
            text = self._rest + self._decoder.decode(raw, final=not raw).encode()
            cut = text.rfind(b",") if raw else len(text)
            if cut > 0 or not raw:
                self._rest = text[cut:]
                return _BACKSLASH.sub(_escaped, _NO_NUMBER.sub(rb"\1null", text[:cut]))
            self._rest = text


def _escaped(found: re.Match[bytes]) -> bytes:
    return found[0] if len(found[0]) > 1 else b"\\\\"


class NotStrict(Exception):
    """The JSON holds what `events(…, cleaned=True)` may be able to read."""


def events(path: Path, name: str, *, cleaned: bool = False) -> Iterator[dict[str, Any]]:
    """The trace's events in the order of the file.

    cleaned: read what is no JSON as null, at less than half the speed.  Raises NotStrict where that may help, and
    IngestError where the file is cut off or no JSON at all.
    """
    with path.open("rb") as source:
        prefix = "item" if source.read(4096).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"[") else "traceEvents.item"
        source.seek(0)
        try:
            for event in ijson.items(
                _Cleaned(source) if cleaned else source, prefix, use_float=True, buf_size=CHUNK_BYTES
            ):
                if isinstance(event, dict):
                    yield event
        except ijson.JSONError as error:
            words = str(error)
            if "premature EOF" in words or "Incomplete" in words:
                raise IngestError(
                    f"{name} is truncated: the JSON ends mid-trace.",
                    EXPORT_AGAIN,
                    name,
                    kind="truncated",
                    detail=words,
                ) from error
            if not cleaned:
                raise NotStrict from error
            raise IngestError(
                f"{name} is not valid JSON: {' '.join(words.partition(chr(10))[0].split())[:120]}.",
                EXPORT_AGAIN,
                name,
                kind="truncated",
                detail=words,
            ) from error


def header(path: Path) -> dict[str, Any]:
    """Values of the keys beside the events that are present and can be read."""
    fields: dict[str, Any] = {}
    if not path.stat().st_size:
        return fields
    decoder = json.JSONDecoder()
    with path.open("rb") as source, mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for key in _KEYS:
            mark = f'"{key}"'.encode()
            at = data.find(mark)
            if at < 0:
                continue
            text = data[at + len(mark) : at + _VALUE_BYTES].decode("utf-8", "replace").lstrip(" \t\r\n:")
            try:
                fields[key], _ = decoder.raw_decode(text)
            except (ValueError, RecursionError):
                continue
    return fields
