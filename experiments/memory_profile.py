"""HBM over a program and over time: what a profile's memory tables say, small enough for a page."""

from __future__ import annotations

from dataclasses import dataclass

MOST_POINTS = 1000
MOST_BUFFERS = 200
#: What a buffer is for.
PARAMETER, OUTPUT, CONSTANT, TEMPORARY = "parameter", "output", "constant", "temporary"


@dataclass(frozen=True)
class Buffer:
    """One logical buffer that is alive when the program needs most.

    name: of its HLO instruction.  kind: `parameter`, `output`, `constant` or `temporary`.  size_bytes: as allocated,
    with the padding of its layout; unpadded_bytes: of the values alone.  path: the framework's name, as `Op.op_name`.
    """

    name: str
    kind: str
    size_bytes: float
    unpadded_bytes: float | None = None
    shape: str = ""
    opcode: str = ""
    path: str = ""
    source: str = ""

    @property
    def padding_bytes(self) -> float | None:
        """What the layout adds to the values; None where it is not reported."""
        return self.size_bytes - self.unpadded_bytes if self.unpadded_bytes is not None else None


@dataclass(frozen=True)
class HeapSchedule:
    """HBM of one program in the order in which its instructions were scheduled, as the compiler assigned it.

    positions: of the instructions kept, of `steps` in all, the one of the peak among them; heap_bytes: in use at each;
    instructions: their names.  buffers: at the peak, largest first; others_bytes: of those beyond.
    """

    program: str
    steps: int
    positions: tuple[int, ...]
    heap_bytes: tuple[float, ...]
    instructions: tuple[str, ...]
    peak_position: int
    peak_bytes: float
    buffers: tuple[Buffer, ...] = ()
    others: int = 0
    others_bytes: float = 0.0


@dataclass(frozen=True)
class AllocatorCurve:
    """What one device's allocator had handed out, at its own events.

    times_s: from the profile's start; heap_bytes: allocated; reserved_bytes: held for the programs' temporaries, beside
    the heap; peak_bytes: the most of both together, at peak_s.  events: how many there were.
    """

    allocator: str
    times_s: tuple[float, ...]
    heap_bytes: tuple[float, ...]
    reserved_bytes: tuple[float, ...]
    peak_bytes: float
    peak_s: float | None
    capacity_bytes: float | None
    events: int
