"""What is kept of a recording's events before they are put together: columns per device and thread, texts once.

A recording holds millions of events, most of them Python frames that tell nothing here; what is kept is some 80 bytes
per op, launch and kernel.  Times are ps from the recording's own zero.
"""

from __future__ import annotations

import re
from array import array
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from experiments.ingest.gpu.device import Exchange
from experiments.ingest.gpu.flops import Work, has_formula, least_traffic, work

KERNEL, COPY, FILL = 0, 1, 2
OP, ANNOTATION, FRAME = 0, 1, 2
#: Beyond this, a time is damage (13 days).
MAX_PS = 1 << 60


@dataclass(frozen=True)
class Comm:
    """One collective call.  ranks: empty where not stated."""

    exchange: Exchange
    ranks: tuple[int, ...]


class Columns:
    """Rows of whole numbers, 8 bytes each; `columns["start"]` is one of the columns as an array."""

    def __init__(self, *names: str) -> None:
        self._names = names
        self._values: array[int] = array("q")

    def __len__(self) -> int:
        return len(self._values) // len(self._names)

    def __getitem__(self, name: str) -> NDArray[np.int64]:
        table = np.frombuffer(self._values, np.int64) if self._values else np.zeros(0, np.int64)
        return table[self._names.index(name) :: len(self._names)].copy()

    def add(self, *row: int) -> None:
        """Add a row: a value for each name, in their order."""
        self._values.extend(row)


#: Device activity: a row per kernel, copy and fill.  comm: index into comms; moved: bytes of a copy; blocks: of threads
#: in a launch; -1 for none.
_DEVICE = ("what", "start", "end", "device", "stream", "correlation", "external", "name", "comm", "moved", "blocks")
#: Ops, annotations and frames of one thread.  seq: autograd's sequence number, -1 for none; forward: whether the op was
#: recorded by the thread of the forward pass.  work: index into works; comm: into comms.
_HOST = ("what", "start", "end", "name", "seq", "forward", "work", "comm", "external")
#: Calls of the runtime.  works: 1 for those that put work on the device.
_LAUNCHES = ("correlation", "start", "end", "thread", "works")
WORKS = re.compile(r"Launch(?!HostFunc)|Memcpy|Memset", re.I)


class Names:
    """Texts stored once."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._index: dict[str, int] = {}

    def of(self, text: str) -> int:
        index = self._index.get(text)
        if index is None:
            index = self._index[text] = len(self.texts)
            self.texts.append(text)
        return index


class Collected:
    """Columns of one recording.  memory: peak bytes allocated by device; threads: host columns by (process,
    thread); trains: whether a backward pass ran; computes: whether the host ran a matmul or a convolution;
    captures: whether a graph was captured; marks: (number, start, end) by what marks steps: `step` (the profiler's
    own), `engine` (a serving engine's), `iteration` (the program's annotations), `optimizer` and other `range`s
    (number is the index of its name); requests: (in prefill, in decode) of each engine's iteration; host_waits:
    (start, end) by `marks.host_wait`."""

    def __init__(self) -> None:
        self.names = Names()
        self.device = Columns(*_DEVICE)
        self.launches = Columns(*_LAUNCHES)
        self.threads: dict[tuple[str, str], Columns] = {}
        self.thread_ids: dict[tuple[str, str], int] = {}
        self.comms: list[Comm] = []
        self.works: list[tuple[Work | None, float | None]] = []
        self.memory: dict[int, float] = {}
        self.marks: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
        self.requests: list[tuple[int, int]] = []
        self.host_waits: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self.events = 0
        self.trains = self.computes = False
        self.captures = False
        self._comm_index: dict[Comm, int] = {}
        self._work_index: dict[tuple[str, str], int] = {}

    def thread(self, thread: tuple[str, str]) -> int:
        return self.thread_ids.setdefault(thread, len(self.thread_ids))

    def host(self, thread: tuple[str, str]) -> Columns:
        """The columns of a thread of the host."""
        rows = self.threads.get(thread)
        if rows is None:
            rows = self.threads[thread] = Columns(*_HOST)
            self.thread(thread)
        return rows

    def comm(self, comm: Comm | None) -> int:
        """Index of a collective call, -1 for none."""
        if comm is None:
            return -1
        index = self._comm_index.get(comm)
        if index is None:
            index = self._comm_index[comm] = len(self.comms)
            self.comms.append(comm)
        return index

    def work(self, name: str, dims: object, types: object, values: object) -> int:
        """Index of what a call of a framework op computes and moves, -1 where its shapes do not tell."""
        if not dims:
            return -1
        if not has_formula(name):
            values = None
        key = (name, f"{dims}{types}{values}")
        index = self._work_index.get(key)
        if index is None:
            amount = work(name, dims, types, values)
            traffic = None if amount else least_traffic(name, dims, types)
            index = self._work_index[key] = -1 if amount is None and traffic is None else len(self.works)
            if index >= 0:
                self.works.append((amount, traffic))
        return index
