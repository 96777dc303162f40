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
    LEGACY_DEVICE,
    MAX_PS,
    OP,
    WORKS,
    Collected,
)
from experiments.ingest.gpu.marks import host_wait, mark, trains
from experiments.ingest.kineto.comms import read_comm
from experiments.ingest.steps import unix_span
from experiments.ingest.values import text
from formatting.numbers import whole_number

#: Kineto's categories; before PyTorch 1.11 they were capitalised words.
_DEVICE = {"kernel": KERNEL, "mtia_ccp_events": KERNEL, "gpu_memcpy": COPY, "memcpy": COPY, "gpu_memset": FILL}
_DEVICE["memset"] = FILL
_HOST = {"cpu_op": OP, "operator": OP, "user_annotation": ANNOTATION, "python_function": FRAME}
#: torch.autograd.profiler.profile without Kineto names no category, only a process.
_LEGACY = {"CPU functions": "cpu_op", LEGACY_DEVICE: "cpu_op"}
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
#: A process of a TensorFlow 1 timeline: a device's ops as their host ran them, or one stream of the device.
_TENSORFLOW = re.compile(r"'(?P<job>/job:.*)?/(device:)?(gpu|cpu|stream)\S*?(/stream:(?P<stream>\d+))? Compute'", re.I)
#: Kineto's category of a process of rocprof: calls of HIP, copies, ranges of roctx, and the kernels of one GPU.
_ROCPROF = (
    (re.compile(r"^CPU H(IP|SA) API$"), "cuda_runtime"),
    (re.compile(r"^COPY$"), "gpu_memcpy"),
    (re.compile(r"^Markers and Ranges$"), "user_annotation"),
    (re.compile(r"^GPU\d+$"), "kernel"),
)
#: Marks of the PyTorch profiler without anything recorded.
_OWN_MARK = re.compile(r"PyTorch Profiler|^Record Window|^Iteration Start|^\[memory\]")
_ON_CPU = 0
_EDGE = re.compile(r"^edge_\d+_")
#: The ops of optimizers: ApplyGradientDescent, ResourceApplyAdam.
_OPTIMIZER = re.compile(r"(?:Resource|Sparse)*Apply[A-Z]")


class KinetoEvents(Collected):
    """The columns of one trace.  rank: as its collectives state it; ranks: of devices, where tools merged the traces of
    several; foreign: the first event that is none of the PyTorch profiler's."""

    def __init__(self) -> None:
        super().__init__()
        self.rank: int | None = None
        self.ranks: dict[int, int] = {}
        self.foreign = ""
        self._roles: dict[str, str] = {}
        self._processes: dict[object, re.Match[str]] = {}
        self._zero: float | None = None

    def add(self, events: Iterable[Mapping[str, Any]], groups: Mapping[str, tuple[int, ...]]) -> None:
        """groups: ranks of each process group by name, as the head of the trace lists them."""
        for event in events:
            phase = event.get("ph")
            if phase == "X":
                role = self._roles.get(str(event.get("pid")))
                self._complete(_of_rocprof(event, role) if role else event, groups)
            elif phase == "i" and event.get("name") == "[memory]":
                self._memory(event)
            elif phase == "M" and (process := _TENSORFLOW.search(str(event.get("args")))):
                self._processes[event.get("pid")] = process
            elif phase == "M" and event.get("name") == "process_name" and isinstance(event.get("args"), dict):
                called = str(event["args"].get("name"))
                role = next((category for pattern, category in _ROCPROF if pattern.search(called)), "")
                if role:
                    self._roles[str(event.get("pid"))] = role
            if not self.foreign and phase != "M" and not _OWN_MARK.search(name := str(event.get("name"))):
                self.foreign = text(name, 60)

    def span_ns(self, base: object) -> tuple[int, int] | None:
        """(first event's start, last device op's end) in Unix time; None where the trace does not state its base."""
        ends = self.device["end"].tolist() or [int(rows["end"][-1]) for rows in self.threads.values()]
        begin = (base if isinstance(base, int) else 0) + round((self._zero or 0.0) * 1e3)
        return unix_span(begin, begin + max(ends, default=0) // 1000)

    def _complete(self, event: Mapping[str, Any], groups: Mapping[str, tuple[int, ...]]) -> None:
        category = event.get("cat") or _LEGACY.get(str(event.get("pid")))
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
        if category == "op" and (process := self._processes.get(event.get("pid"))) is not None:
            self._tensorflow(event, process, name, start, end, args)
        elif what is not None:
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

    def _tensorflow(
        self, event: Mapping[str, Any], process: re.Match[str], name: str, start: int, end: int, args: dict[str, Any]
    ) -> None:
        """An op of a TensorFlow 1 timeline: as the host ran it, or, on a stream, as the device did."""
        path = str(args.get("name", ""))[:300]
        self.trains = self.trains or "gradients/" in path or bool(_OPTIMIZER.match(name))
        # What is copied between devices is named after the edge of the graph: the op that made it.
        launch = self.names.of(_EDGE.sub("edge_", path)) + 1
        if process["job"]:
            self._host(event, OP, name, start, end, {}, {})
            _, first, last = (self.marks["session"] or [(1, start, end)])[0]
            self.marks["session"] = [(1, min(first, start), max(last, end))]
            thread = self.thread((str(event.get("pid")), str(event.get("tid"))))
            self.launches.add(launch, start, end, thread, 0)
            self.launches.add(self.names.of(f"edge_{path}") + 1, end, end, thread, 0)
        elif process["stream"]:
            copied = name.upper().startswith("MEMCPY")
            called = self.names.of(f"Memcpy {name[6:]}" if copied else name)
            stream = int(process["stream"][:9])
            self.device.add(COPY if copied else KERNEL, start, end, 0, stream, launch, -1, called, -1, -1, -1)

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


def _of_rocprof(event: Mapping[str, Any], role: str) -> dict[str, Any]:
    """An event of rocprof, which writes numbers as text, as the PyTorch profiler would write it."""
    args = event["args"] if isinstance(event.get("args"), dict) else {}
    keys = ("dev-id", "queue-id", "BeginNs", "EndNs")
    device, stream, begin, end = (whole_number(str(args.get(key))) for key in keys)
    plain = {**event, "cat": role, "args": {"device": device, "stream": stream}}
    return plain if begin is None or end is None else plain | {"ts": begin / 1e3, "dur": (end - begin) / 1e3}


def _integer(args: Mapping[str, Any], *keys: str) -> int:
    for key in keys:
        value = args.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) < MAX_PS:
            return value
    return -1
