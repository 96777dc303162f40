"""The protobuf wire format of an XSpace, walked without building it.

XProf and protobuf accept much that is no profile (an XSpace of five million empty planes is 10 MB and takes 1 GB to
parse).  This reads only the outer two levels, so it costs next to nothing, and says where a file breaks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

VARINT, FIXED64, LENGTH = 0, 1, 2

#: field number → wire type, of XSpace and XPlane.
XSPACE_FIELDS = {1: LENGTH, 2: LENGTH, 3: LENGTH, 4: LENGTH}
XPLANE_FIELDS = {1: VARINT, 2: LENGTH, 3: LENGTH, 4: LENGTH, 5: LENGTH, 6: LENGTH}


class WireError(ValueError):
    """Bytes that are no such message.  offset: where.  needs: size the data would need, if it is only cut off."""

    def __init__(self, reason: str, offset: int, needs: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.offset = offset
        self.needs = needs


class TooManyPlanes(WireError):
    """Well-formed, and no profile."""


@dataclass(frozen=True)
class Outline:
    """What the outer levels of an XSpace say.

    planes: number of planes.  named: names of those that have one.
    hostnames: as written in the file.
    """

    planes: int
    named: tuple[str, ...]
    hostnames: tuple[str, ...]


def varint(data: memoryview, position: int, end: int) -> tuple[int, int]:
    """(value, position after it); WireError where it does not end."""
    value = shift = 0
    while position < end:
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & 0xFFFF_FFFF_FFFF_FFFF, position
        shift += 7
        if shift > 63:
            raise WireError("a number is longer than ten bytes", position)
    raise WireError("it ends inside a number", position, end + 1)


def fields(data: memoryview, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """(field number, wire type, first byte, byte after) of each field of the message in data[start:end]."""
    position = start
    while position < end:
        tag_at = position
        tag, position = varint(data, position, end)
        number, kind = tag >> 3, tag & 7
        if number == 0 or kind in (3, 4, 6, 7):
            raise WireError("no field can start here", tag_at)
        if kind == LENGTH:
            size, position = varint(data, position, end)
            stop = position + size
        elif kind == VARINT:
            _, stop = varint(data, position, end)
        else:
            stop = position + (8 if kind == FIXED64 else 4)
        if stop > end:
            raise WireError("it ends inside a field", tag_at, stop)
        yield number, kind, position, stop
        position = stop


def looks_like_xspace(head: bytes) -> bool:
    """Whether the first bytes of a file could open an XSpace (the rest of the file may be missing).

    An HLO proto and XProf's own caches also start with a length-delimited field 1; inside it, an XPlane has a varint
    `id` or a printable `name`, they have other wire types.
    """
    data = memoryview(head)
    try:
        tag, position = varint(data, 0, len(data))
        if tag & 7 != LENGTH or tag >> 3 not in XSPACE_FIELDS:
            return False
        size, position = varint(data, position, len(data))
        if tag >> 3 != 1:
            return _is_text(bytes(data[position : position + size]))
        if size == 0:
            return True
        if position >= len(data):
            return False
        tag, after = varint(data, position, len(data))
        number, kind = tag >> 3, tag & 7
        if XPLANE_FIELDS.get(number) != kind:
            return False
        if number == 2:
            length, after = varint(data, after, len(data))
            return _is_text(bytes(data[after : after + length]))
        if number == 1:
            _, after = varint(data, after, len(data))
            if after >= position + size:
                return True
            tag, _ = varint(data, after, len(data))
            return XPLANE_FIELDS.get(tag >> 3) == tag & 7
        return True
    except WireError:
        return False


def outline(data: memoryview, max_planes: int = 20_000) -> Outline:
    """The outline of an XSpace; WireError where the outer levels are broken.

    max_planes: more than this is no profile (one host has a few planes per device).
    """
    planes = 0
    named: list[str] = []
    hosts: list[str] = []
    for number, kind, start, stop in fields(data, 0, len(data)):
        if XSPACE_FIELDS.get(number, kind) != kind:
            raise WireError(f"field {number} is not a field of a profile", start)
        if number == 4:
            hosts.append(_text(data, start, stop))
        if number != 1:
            continue
        planes += 1
        if planes > max_planes:
            raise TooManyPlanes(f"it contains more than {max_planes:,} planes", start)
        try:
            for inner, inner_kind, first, last in fields(data, start, stop):
                if XPLANE_FIELDS.get(inner, inner_kind) != inner_kind:
                    raise WireError(f"it contains field {inner}, which no plane has", first)
                if inner == 2:
                    named.append(_text(data, first, last))
        except WireError as error:
            # Inside a complete plane nothing is merely cut off.
            raise WireError(f"plane {planes} is damaged: {error.reason}", error.offset) from None
    return Outline(planes, tuple(named), tuple(hosts))


def _text(data: memoryview, start: int, stop: int) -> str:
    return bytes(data[start : min(stop, start + 1000)]).decode("utf-8", "replace")


def _is_text(raw: bytes) -> bool:
    return raw.decode("utf-8", "ignore").isprintable()
