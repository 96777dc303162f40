"""One pass over a trace: what is kept of its events, in columns.

A rank's trace holds millions of events, most of them Python frames that tell nothing here; what is kept is some 60
bytes per op, launch and kernel, with names and shapes stored once.  Times are ps from the first event.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from experiments.ingest.kineto.comms import Comm, read_comm
from experiments.ingest.kineto.flops import Work, has_formula, least_traffic, work

KERNEL, COPY, FILL = 0, 1, 2
OP, ANNOTATION, FRAME = 0, 1, 2
#: Kineto's categories; before PyTorch 1.11 they were capitalised words.
_DEVICE = {"kernel": KERNEL, "gpu_memcpy": COPY, "memcpy": COPY, "gpu_memset": FILL, "memset": FILL}
_DEVICE["mtia_ccp_events"] = KERNEL
_HOST = {"cpu_op": OP, "operator": OP, "user_annotation": ANNOTATION, "python_function": FRAME}
_RUNTIME = {"cuda_runtime", "cuda_driver", "runtime", "mtia_runtime", "xpu_runtime", "hip_runtime", "privateuse1_runtime"}
_KEPT_FRAME = re.compile(
    r"^nn\.Module: |checkpoint\.py\(\d+\): (unpack_hook|backward|recompute)|dataloader\.py\(\d+\): __next__"
)
#: Frames of the interpreter and of libraries: no line of the user's program.
_LIBRARY_FRAME = re.compile(
    r"^(<|torch/|threading\.py|contextlib\.py|inspect\.py|weakref\.py|functools\.py|typing\.py|abc\.py|enum\.py|"
    r"transformer_engine/|triton/|multiprocessing/|queue\.py|copy\.py|runpy\.py|asyncio/|collections/|re\.py|os\.py|.*site-packages)"
)
_INPUT = re.compile(r"DataLoader|dataloader\.py\(\d+\): __next__|data_?iterator|next\(.*loader", re.I)
_STEP = re.compile(r"^ProfilerStep\s*#\s*(\d{1,15})$")
_ITERATION = re.compile(r"^\W*(?:train(?:ing)?[ _-]?)?(?:iteration|iter|step)[ _#:-]*(\d{1,15})\W*$", re.I)
_OPTIMIZER = re.compile(r"^Optimizer\.step#")
#: Beyond this, a time is damage (13 days).
_MAX_PS = 1 << 60
_ON_CPU = 0


def _column() -> array[int]:
    return array("q")


@dataclass
class DeviceColumns:
    """Device activity: a row per kernel, copy and fill.  comm: index into comms, -1 for none."""

    what: array[int] = field(default_factory=lambda: array("b"))
    start: array[int] = field(default_factory=_column)
    end: array[int] = field(default_factory=_column)
    device: array[int] = field(default_factory=_column)
    stream: array[int] = field(default_factory=_column)
    correlation: array[int] = field(default_factory=_column)
    external: array[int] = field(default_factory=_column)
    name: array[int] = field(default_factory=_column)
    comm: array[int] = field(default_factory=_column)
    moved: array[float] = field(default_factory=lambda: array("d"))


@dataclass
class HostColumns:
    """Ops, annotations and frames of one thread.  seq: autograd's sequence number, -1 for none; forward: whether the op
    was recorded by the thread of the forward pass.  work, traffic: index into works, traffics; comm: into comms."""

    what: array[int] = field(default_factory=lambda: array("b"))
    start: array[int] = field(default_factory=_column)
    end: array[int] = field(default_factory=_column)
    name: array[int] = field(default_factory=_column)
    seq: array[int] = field(default_factory=_column)
    forward: array[int] = field(default_factory=lambda: array("b"))
    work: array[int] = field(default_factory=_column)
    comm: array[int] = field(default_factory=_column)
    external: array[int] = field(default_factory=_column)


@dataclass
class Launches:
    """Calls of the runtime that launch device activity."""

    correlation: array[int] = field(default_factory=_column)
    start: array[int] = field(default_factory=_column)
    end: array[int] = field(default_factory=_column)
    thread: array[int] = field(default_factory=_column)
    external: array[int] = field(default_factory=_column)


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
    """What one trace holds.  memory: peak bytes allocated by device; threads: host columns by (process, thread)."""

    def __init__(self) -> None:
        self.names = Names()
        self.device = DeviceColumns()
        self.launches = Launches()
        self.threads: dict[tuple[str, str], HostColumns] = {}
        self.thread_ids: dict[tuple[str, str], int] = {}
        self.comms: list[Comm] = []
        self.works: list[tuple[Work | None, float | None]] = []
        self.memory: dict[int, float] = {}
        self.steps: dict[str, list[tuple[int, int, int]]] = {"step": [], "iteration": [], "optimizer": []}
        self.input_waits: list[tuple[int, int]] = []
        self.events = 0
        self.trains = False
        self.rank: int | None = None
        self.is_xprof = False
        self._zero: float | None = None
        self._comm_index: dict[Comm, int] = {}
        self._work_index: dict[tuple[str, str], int] = {}

    def add(self, events: Iterable[Mapping[str, Any]], groups: Mapping[str, tuple[int, ...]]) -> None:
        """groups: ranks of each process group by name, as the head of the trace lists them."""
        for event in events:
            phase = event.get("ph")
            if phase == "X":
                self._complete(event, groups)
            elif phase == "i" and event.get("name") == "[memory]":
                self._memory(event)

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
        if not -_MAX_PS < start <= end < _MAX_PS:
            return
        args = event.get("args")
        if not isinstance(args, dict):
            args = {}
        if what is not None:
            self._host(event, what, name, start, end, args, groups)
        elif category in _RUNTIME:
            self._launch(event, start, end, args)
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
            self._mark(name, start, end)
        if _INPUT.search(name):
            self.input_waits.append((start, end))
        thread = (str(event.get("pid")), str(event.get("tid")))
        rows = self.threads.get(thread)
        if rows is None:
            rows = self.threads[thread] = HostColumns()
            self._thread(thread)
        comm = -1
        if name == "record_param_comms":
            comm = self._comm(args, groups)
            rank = args.get("Rank")
            if self.rank is None and isinstance(rank, int):
                self.rank = rank
        elif name.startswith("autograd::engine::evaluate_function"):
            self.trains = True
        seq = args.get("Sequence number", -1)
        rows.what.append(what)
        rows.start.append(start)
        rows.end.append(end)
        rows.name.append(self.names.of(name))
        rows.seq.append(seq if isinstance(seq, int) and 0 <= seq < _MAX_PS else -1)
        rows.forward.append(args.get("Fwd thread id", 0) == 0)
        rows.work.append(self._work(name, args) if what == OP else -1)
        rows.comm.append(comm)
        rows.external.append(_integer(args, "External id", "external id"))

    def _mark(self, name: str, start: int, end: int) -> None:
        if match := _STEP.match(name):
            self.steps["step"].append((int(match.group(1)), start, end))
        elif match := _ITERATION.match(name):
            self.steps["iteration"].append((int(match.group(1)), start, end))
        elif _OPTIMIZER.match(name):
            self.steps["optimizer"].append((self.names.of(name), start, end))

    def _launch(self, event: Mapping[str, Any], start: int, end: int, args: dict[str, Any]) -> None:
        correlation = _integer(args, "correlation")
        if correlation <= 0:
            return
        rows = self.launches
        rows.correlation.append(correlation)
        rows.start.append(start)
        rows.end.append(end)
        rows.thread.append(self._thread((str(event.get("pid")), str(event.get("tid")))))
        rows.external.append(_integer(args, "External id", "external id"))

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
        rows = self.device
        device = args.get("device", event.get("pid"))
        moved = args.get("bytes", args.get("Bytes"))
        rows.what.append(what)
        rows.start.append(start)
        rows.end.append(end)
        rows.device.append(device if isinstance(device, int) and abs(device) < 1 << 31 else -1)
        rows.stream.append(_integer(args, "stream"))
        rows.correlation.append(_integer(args, "correlation"))
        rows.external.append(_integer(args, "External id", "external id"))
        rows.name.append(self.names.of(name))
        rows.comm.append(self._comm(args, groups) if "Collective name" in args else -1)
        rows.moved.append(float(moved) if isinstance(moved, int | float) and moved >= 0 else float("nan"))

    def _memory(self, event: Mapping[str, Any]) -> None:
        args = event.get("args")
        if not isinstance(args, dict) or args.get("Device Type") in (None, _ON_CPU):
            return
        device, allocated = args.get("Device Id"), args.get("Total Allocated")
        if isinstance(device, int) and isinstance(allocated, int | float) and allocated > 0:
            self.memory[device] = max(self.memory.get(device, 0.0), float(allocated))

    def _thread(self, thread: tuple[str, str]) -> int:
        return self.thread_ids.setdefault(thread, len(self.thread_ids))

    def _comm(self, args: Mapping[str, Any], groups: Mapping[str, tuple[int, ...]]) -> int:
        comm = read_comm(args, groups)
        if comm is None:
            return -1
        index = self._comm_index.get(comm)
        if index is None:
            index = self._comm_index[comm] = len(self.comms)
            self.comms.append(comm)
        return index

    def _work(self, name: str, args: Mapping[str, Any]) -> int:
        """Index of what this call computes and moves, -1 where its shapes do not tell."""
        dims = args.get("Input Dims")
        if not dims:
            return -1
        types = args.get("Input type")
        values = args.get("Concrete Inputs") if has_formula(name) else None
        key = (name, f"{dims}{types}{values}")
        index = self._work_index.get(key)
        if index is None:
            found = work(name, dims, types, values)
            traffic = None if found else least_traffic(name, dims, types)
            index = self._work_index[key] = -1 if found is None and traffic is None else len(self.works)
            if index >= 0:
                self.works.append((found, traffic))
        return index


def _integer(args: Mapping[str, Any], *keys: str) -> int:
    for key in keys:
        value = args.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) < _MAX_PS:
            return value
    return -1
