"""A database of rocprofv3 → `TraceFile`.  Source: the tables of rocprofiler-sdk's rocpd output."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import Any

from experiments.ingest.gpu.assemble import device_traces, recorded
from experiments.ingest.gpu.columns import COPY, FILL, KERNEL, MAX_PS, Collected
from experiments.ingest.gpu.device import TraceFile
from experiments.ingest.marks import NO_STEPS, Steps
from experiments.ingest.nsight.database import Database
from experiments.ingest.values import text

#: A thread id carries its process's in the upper bits.
THREAD_BITS = 24
WHY_NOTHING = "The database holds no op of a GPU. Trace the processes that launch the kernels."
_KERNELS = re.compile(r"rocpd_kernel_dispatch(|_[0-9a-f_]+)")
#: Ops in a queue that wait or mark.
_NO_WORK = re.compile(r"barrier|marker", re.I)
#: (id of its call, start, end, device, stream, kind, name, bytes of a copy, blocks of threads) of an op.
_Op = tuple[Any, Any, Any, Any, Any, str, str, Any, int]
#: (start, end, text, process and thread) of a call or a range.
Range = tuple[Any, Any, str, Any]
#: Ops, their calls by id, ranges of the program, and kinds of devices, of one process or of all.
_Part = tuple[Iterable[_Op], Mapping[Any, Range], Sequence[Range], Mapping[int, str]]
Times = Callable[[Any, Any], tuple[int, int] | None]
Ranges = Callable[[Iterable[Range], Collected], Mapping[int, Steps]]


def read(database: Database, name: str, ranges: Ranges, times: Times) -> TraceFile:
    """Return what a database holds.  ranges: reads a program's ranges and the steps that each process marks; times: ps
    of nanoseconds, None for what is no time."""
    # Tables of their own, with ids of their own, for each process.
    suffixes = sorted({match[1] for table in database.tables if (match := _KERNELS.fullmatch(table))})
    parts = [_of_rocprof(database, suffix) for suffix in suffixes]
    collected = Collected()
    processes: dict[int, int] = {}
    for ops, calls, _, _ in parts:
        for launch, start, end, device, queue, kind, called, moved, blocks in ops:
            span, index = times(start, end), len(collected.device) + 1
            if span is None or not isinstance(device, int) or _NO_WORK.search(kind):
                continue
            what = COPY if "copy" in kind.lower() else FILL if "fill" in kind.lower() or "memset" in called else KERNEL
            moved = int(moved) if isinstance(moved, int) and 0 <= moved < MAX_PS else -1
            stream = queue if isinstance(queue, int) else -1
            name_id = collected.names.of(called or kind)
            collected.device.add(what, *span, device, stream, index, -1, name_id, -1, moved, blocks)
            if (call := calls.get(launch)) and (begun := times(*call[:2])):
                processes[device] = call[3] >> THREAD_BITS
                collected.launches.add(index, *begun, collected.thread(("", str(call[3]))), 1)
    steps = ranges([mark for _, _, marks, _ in parts for mark in marks], collected)
    kinds = {device: kind for *_, kinds in parts for device, kind in kinds.items()}
    devices = device_traces(collected, lambda device: {
        "name": f"GPU {device}", "host": "", "device_name": kinds.get(device, "AMD GPU"),
        "steps": steps.get(processes.get(device, -1), NO_STEPS),
    })  # fmt: skip
    return TraceFile(name, tuple(devices), recorder="rocprofv3", why_no_device="" if devices else WHY_NOTHING,
                     recorded=recorded(collected))  # fmt: skip


def _thread(process: object, thread: object) -> int:
    whole = isinstance(process, int) and isinstance(thread, int)
    return process << THREAD_BITS | thread & (1 << THREAD_BITS) - 1 if whole else 0  # type: ignore[operator]


def _of_rocprof(database: Database, suffix: str) -> _Part:
    def rows(table: str, *columns: str) -> Iterable[tuple[Any, ...]]:
        return database.rows(f"rocpd_{table}{suffix}", columns)

    strings = {key: str(value) for key, value in rows("string", "id", "string")}
    symbols = {key: str(shown or symbol) for key, shown, symbol in
               rows("info_kernel_symbol", "id", "display_name", "kernel_name")}  # fmt: skip
    kinds = {key: text(product or name, 100) for key, kind, product, name in
             rows("info_agent", "id", "type", "product_name", "name") if kind == "GPU"}  # fmt: skip
    events = rows("event", "id", "stack_id", "category_id")
    stacks = {event: (stack, strings.get(category, "")) for event, stack, category in events}
    regions = [(start, end, strings.get(of, ""), _thread(process, thread), *stacks.get(event, (None, "")))
               for start, end, of, process, thread, event in
               rows("region", "start", "end", "name_id", "pid", "tid", "event_id")]  # fmt: skip
    sizes = [f"{what}_size_{axis}" for what in ("grid", "workgroup") for axis in "xyz"]
    ops: list[_Op] = []
    for start, end, device, stream, kernel, event, *size in rows(
        "kernel_dispatch", "start", "end", "agent_id", "stream_id", "kernel_id", "event_id", *sizes
    ):
        known = all(isinstance(each, int) and 0 < each < 1 << 32 for each in size)
        blocks = max(1, prod(size[:3]) // prod(size[3:])) if known else -1
        called = symbols.get(kernel, "unnamed kernel")
        ops.append((stacks.get(event, (None, ""))[0], start, end, device, stream, "kernel", called, None, blocks))
    for start, end, to, source, of, stream, moved, event in rows(
        "memory_copy", "start", "end", "dst_agent_id", "src_agent_id", "name_id", "stream_id", "size", "event_id"
    ):
        words = strings.get(of, "").removeprefix("MEMORY_COPY_").split("_")  # HOST_TO_DEVICE
        called = f"Memcpy {''.join(word.title() for word in words)}"
        device = to if to in kinds else source
        if device not in kinds:  # from host to host
            continue
        ops.append((stacks.get(event, (None, ""))[0], start, end, device, stream, "copy", called, moved, -1))
    calls = {stack: (start, end, called, thread) for start, end, called, thread, stack, _ in regions if stack}
    marks = [(start, end, called, thread) for start, end, called, thread, _, of in regions if "MARKER" in of]
    return ops, calls, marks, kinds
