"""One pass over a PyTorch trace: its events into columns.  Times are ps from the first event."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from math import isfinite, prod
from typing import Any

from experiments.ingest.gpu.columns import (
    ANNOTATION,
    COPY,
    FILL,
    FRAME,
    KERNEL,
    MAX_PS,
    OP,
    WORKS,
    Collected,
)
from experiments.ingest.gpu.marks import host_wait, mark, trains
from experiments.ingest.kineto.comms import read_comm
from experiments.ingest.steps import unix_span
from experiments.ingest.values import text

#: Kineto's categories; before PyTorch 1.11 they were capitalised words.
_DEVICE = {"kernel": KERNEL, "mtia_ccp_events": KERNEL, "gpu_memcpy": COPY, "memcpy": COPY, "gpu_memset": FILL}
_DEVICE["memset"] = FILL
_HOST = {"cpu_op": OP, "operator": OP, "user_annotation": ANNOTATION, "python_function": FRAME}
_KEPT_FRAME = re.compile(
    r"^nn\.Module: |checkpoint\.py\(\d+\): (unpack_hook|backward|recompute)|dataloader\.py\(\d+\): __next__"
)
#: Frames of the interpreter and of libraries: no line of the user's program.
_LIBRARY_FRAME = re.compile(
    r"^(<|torch/|threading\.py|contextlib\.py|inspect\.py|weakref\.py|functools\.py|typing\.py|abc\.py|enum\.py|"
    r"transformer_engine/|triton/|multiprocessing/|queue\.py|copy\.py|runpy\.py|asyncio/|collections/|re\.py|os\.py|.*site-packages)"
)
#: Ops of the host that a model's forward pass consists of.
_PRODUCTS = frozenset(f"aten::{name}" for name in ("linear", "addmm", "convolution", "scaled_dot_product_attention"))
#: Marks of the PyTorch profiler without anything recorded.
_OWN_MARK = re.compile(r"PyTorch Profiler|^Record Window|^Iteration Start|^\[memory\]")
_ON_CPU = 0


class KinetoEvents(Collected):
    """The columns of one trace.  rank: as its collectives state it; ranks: of devices, where tools merged the traces of
    several; foreign: the first event that is none of the PyTorch profiler's."""

    def __init__(self) -> None:
        super().__init__()
        self.rank: int | None = None
        self.ranks: dict[int, int] = {}
        self.foreign = ""
        self._zero: float | None = None

    def add(self, events: Iterable[Mapping[str, Any]], groups: Mapping[str, tuple[int, ...]]) -> None:
        """groups: ranks of each process group by name, as the head of the trace lists them."""
        for event in events:
            phase = event.get("ph")
            if phase == "X":
                self._complete(event, groups)
            elif phase == "i" and event.get("name") == "[memory]":
                self._memory(event)
            if not self.foreign and phase != "M" and not _OWN_MARK.search(name := str(event.get("name"))):
                self.foreign = text(name, 60)

    def span_ns(self, base: object) -> tuple[int, int] | None:
        """(first event's start, last device op's end) in Unix time; None where the trace does not state its base."""
        ends = self.device["end"].tolist() or [int(rows["end"][-1]) for rows in self.threads.values()]
        begin = (base if isinstance(base, int) else 0) + round((self._zero or 0.0) * 1e3)
        return unix_span(begin, begin + max(ends, default=0) // 1000)

    def _complete(self, event: Mapping[str, Any], groups: Mapping[str, tuple[int, ...]]) -> None:
        category = event.get("cat")
        if not isinstance(category, str):
            return
        category = category.lower()
        name, ts, dur = event.get("name"), event.get("ts"), event.get("dur", 0)
        if not isinstance(name, str) or not isinstance(ts, int | float) or not isinstance(dur, int | float):
            return
        if not (isfinite(ts) and isfinite(dur)) or dur < 0:
            return
        what = _HOST.get(category)
        if what == FRAME and not _KEPT_FRAME.search(name) and _LIBRARY_FRAME.match(name):
            self.events += 1
            return
        if self._zero is None:
            self._zero = ts
        start = round((ts - self._zero) * 1e6)
        end = start + round(dur * 1e6)
        if not -MAX_PS < start <= end < MAX_PS:
            return
        args = event.get("args")
        if not isinstance(args, dict):
            args = {}
        if what is not None:
            self._host(event, what, name, start, end, args, groups)
        elif category == "overhead":
            self._wait(name, start, end)
        elif category.endswith("runtime") or category == "cuda_driver":
            self._wait(name, start, end)
            self.captures = self.captures or "BeginCapture" in name
            self._launch(event, name, start, end, args)
        elif category in _DEVICE:
            self._device(event, _DEVICE[category], name, start, end, args, groups)
        else:
            return
        self.events += 1

    def _host(
        self,
        event: Mapping[str, Any],
        what: int,
        name: str,
        start: int,
        end: int,
        args: dict[str, Any],
        groups: Mapping[str, tuple[int, ...]],
    ) -> None:
        if what != FRAME:
            mark(self, name, start, end)
        self._wait(name, start, end)
        rows = self.host((str(event.get("pid")), str(event.get("tid"))))
        comm = -1
        if name == "record_param_comms":
            comm = self.comm(read_comm(args, groups))
            rank = args.get("Rank")
            if self.rank is None and isinstance(rank, int):
                self.rank = rank
        elif name in _PRODUCTS:
            self.computes = True
        self.trains = self.trains or trains(name)
        seq = args.get("Sequence number", -1)
        seq = seq if isinstance(seq, int) and 0 <= seq < MAX_PS else -1
        shapes = (args.get("Input Dims"), args.get("Input type"), args.get("Concrete Inputs"))
        work = self.work(name, *shapes) if what == OP else -1
        external = _integer(args, "External id", "external id")
        is_forward = args.get("Fwd thread id", 0) == 0
        rows.add(what, start, end, self.names.of(name), seq, is_forward, work, comm, external)

    def _wait(self, name: str, start: int, end: int) -> None:
        if cause := host_wait(name):
            self.host_waits[cause].append((start, end))

    def _launch(self, event: Mapping[str, Any], name: str, start: int, end: int, args: dict[str, Any]) -> None:
        correlation = _integer(args, "correlation")
        if correlation <= 0:
            return
        thread = self.thread((str(event.get("pid")), str(event.get("tid"))))
        self.launches.add(correlation, start, end, thread, bool(WORKS.search(name)))

    def _device(
        self,
        event: Mapping[str, Any],
        what: int,
        name: str,
        start: int,
        end: int,
        args: dict[str, Any],
        groups: Mapping[str, tuple[int, ...]],
    ) -> None:
        device, moved = args.get("device", event.get("pid")), args.get("bytes", args.get("Bytes"))
        device = device if isinstance(device, int) and abs(device) < 1 << 31 else -1
        moved = int(moved) if isinstance(moved, int | float) and 0 <= moved < MAX_PS else -1
        if (rank := _integer(args, "rank")) >= 0:
            self.ranks[device] = rank
        comm = self.comm(read_comm(args, groups)) if "Collective name" in args else -1
        stream, correlation = _integer(args, "stream"), _integer(args, "correlation")
        external = _integer(args, "External id", "external id")
        called, grid = self.names.of(name), args.get("grid")
        blocks = prod(grid) if isinstance(grid, list) and all(isinstance(size, int) for size in grid) else -1
        blocks = blocks if 0 < blocks < MAX_PS else -1
        self.device.add(what, start, end, device, stream, correlation, external, called, comm, moved, blocks)

    def _memory(self, event: Mapping[str, Any]) -> None:
        args = event.get("args")
        if not isinstance(args, dict) or args.get("Device Type") in (None, _ON_CPU):
            return
        device, allocated = args.get("Device Id"), args.get("Total Allocated")
        if isinstance(device, int) and isinstance(allocated, int | float) and allocated > 0:
            self.memory[device] = max(self.memory.get(device, 0.0), float(allocated))


def _integer(args: Mapping[str, Any], *keys: str) -> int:
    for key in keys:
        value = args.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) < MAX_PS:
            return value
    return -1
