"""Copies between HBM and host memory (offloading), as HLO text shows them: arrays in memory space S(5)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from experiments.hlo.text import Shape, parse, shapes

#: `Layout::kHostMemorySpace` of XLA.  0 is HBM, 1 VMEM, 2 a semaphore: the context of an asynchronous op.
HOST_SPACE = 5
_SEMAPHORE = 2
ON_HOST = f"S({HOST_SPACE})"
_ARRAY = re.compile(r"\b\w+\[[\d,<=\s]*\](?:\{[^{}]*\})?")
_SPACE = re.compile(r"S\((\d+)\)")
#: Ops that move data and do nothing else.  A fusion may also read or write host memory, of which its text does not say
#: how much.
_MOVES = re.compile(r"^(async|copy|slice|dynamic-slice|dynamic-update-slice)(-start|-done|-update)?$")


def host_transfer_bytes(text: str, start_text: str = "") -> float | None:
    """Bytes that one run of the op moves between device and host memory; None where it does not, or it is not said.

    A copy moves its array; a slice, or an update of one, moves the part that lies on the device.  start_text: of a
    `-done` op printed without its operands' shapes, the text of its `-start` op.
    """
    if ON_HOST not in text and ON_HOST not in start_text:
        return None
    instruction = parse(text)
    if instruction is None or not _MOVES.match(instruction.opcode):
        return None
    arrays = list(_arrays(text, instruction.attributes))
    if start_text and (start := parse(start_text)) is not None and not instruction.operands:
        arrays += _arrays(start_text, start.attributes)
    on_host = [shape.bytes for shape, space in arrays if space == HOST_SPACE]
    on_device = [shape.bytes for shape, space in arrays if space not in (HOST_SPACE, _SEMAPHORE) and shape.dims]
    if not on_host:
        return None
    if not on_device:
        # Printed without operands: a result on the host that was copied as a whole came from the device.
        alone = instruction.opcode.startswith("copy") and not instruction.operands
        return max(on_host) if alone else None
    return min(max(on_device), max(on_host))


def _arrays(text: str, attributes: str) -> Iterator[tuple[Shape, int]]:
    """(shape, memory space) of each array among results and operands."""
    printed = text[: len(text) - len(attributes)] if attributes else text
    for match in _ARRAY.finditer(printed):
        space = _SPACE.search(match.group())
        for shape in shapes(match.group()):
            yield shape, int(space.group(1)) if space else 0
