"""The protobuf wire format, as far as it takes to tell an XSpace by its first bytes."""

from __future__ import annotations

VARINT, LENGTH = 0, 2

#: field number → wire type, of XSpace and XPlane.
XSPACE_FIELDS = {1: LENGTH, 2: LENGTH, 3: LENGTH, 4: LENGTH}
XPLANE_FIELDS = {1: VARINT, 2: LENGTH, 3: LENGTH, 4: LENGTH, 5: LENGTH, 6: LENGTH}


def varint(data: memoryview, position: int, end: int) -> tuple[int, int]:
    """(value, position after it); ValueError where it does not end."""
    value = shift = 0
    while position < end:
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & 0xFFFF_FFFF_FFFF_FFFF, position
        shift += 7
        if shift > 63:
            raise ValueError("a number is longer than ten bytes")
    raise ValueError("it ends inside a number")


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
    except ValueError:
        return False


def _is_text(raw: bytes) -> bool:
    return raw.decode("utf-8", "ignore").isprintable()
