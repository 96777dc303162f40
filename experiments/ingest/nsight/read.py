"""One Nsight Systems export → `TraceFile`, from the tables themselves.

Kernels, copies and fills (`CUPTI_ACTIVITY_KIND_*`), the calls that launched them (`…_RUNTIME`, by process and
correlation id), and NVTX ranges of the launching thread: framework ops (`torch.autograd.profiler.emit_nvtx`,
`nsys --pytorch=autograd-nvtx`), modules (`FSDP::pre_forward (layer.3)`) and iterations.
Source: https://docs.nvidia.com/nsight-systems/UserGuide (SQLite schema reference).
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from experiments.ingest.errors import IngestError
from experiments.ingest.gpu.assemble import LOST_DEVICE, device_traces, recorded
from experiments.ingest.gpu.columns import ANNOTATION, COPY, FILL, KERNEL, MAX_PS, OP, WORKS, Collected
from experiments.ingest.gpu.device import TraceFile
from experiments.ingest.gpu.marks import host_steps, host_wait, mark, trains
from experiments.ingest.marks import NO_STEPS, Steps
from experiments.ingest.nsight.database import EXPORT_AGAIN, Database
from experiments.ingest.steps import unix_span
from experiments.ingest.values import text

WHY_NO_STEPS = (
    'The recording has no step markers. Put torch.cuda.nvtx.range_push(f"iteration {i}") and range_pop() around each '
    "training step and record again."
)
NO_DEVICE = "The recording contains no GPU activity. Record with nsys profile --trace=cuda,nvtx."
#: Kinds of copies; the last two move pages of unified memory (cudaMallocManaged) as they are touched.
_COPIES = {
    1: "Memcpy HtoD",
    2: "Memcpy DtoH",
    8: "Memcpy DtoD",
    10: "Memcpy PtoP",
    11: "Page migration HtoD",
    12: "Page migration DtoH",
}
#: Correlation ids are counted per process.
_CORRELATION_BITS = 40
#: A thread id carries its process's in the upper bits.
_THREAD_BITS = 24
_OP_ID = re.compile(r", (?:op_id|seq|seq_ids?|input_op_ids|input_seq_ids) = ")
_SEQUENCE = re.compile(r", seq = (\d{1,15})")
_SIZES = re.compile(r", sizes = (\[.*\])")
_FRAMEWORK = re.compile(r"^[\w.]+::|Backward\d*$|^autograd::")
#: (start, end, text, process and thread) of a range.
_Range = tuple[Any, Any, str, Any]


def read(path: Path, name: str) -> TraceFile:
    """Everything an export holds.  Raises IngestError where it is damaged, or none of Nsight Systems."""
    database = Database(path, name)
    try:
        return _read(database, name)
    finally:
        database.close()


def _read(database: Database, name: str) -> TraceFile:
    known = {"StringIds", "TARGET_INFO_GPU", "META_DATA_EXPORT", "ANALYSIS_DETAILS"}
    if not any(table.startswith("CUPTI_ACTIVITY_KIND_") for table in database.tables) and not (known & database.tables):
        if any(table.startswith("rocpd") for table in database.tables):
            remedy = "Record the step with the PyTorch profiler or jax.profiler, and upload its trace."
            raise IngestError(f"{name} is a database of ROCm's profiler, which is not read.", remedy, name)
        raise IngestError(
            f"{name} is a SQLite database, but no export of Nsight Systems: it has none of its tables.",
            EXPORT_AGAIN,
            name,
        )
    collected = Collected()
    processes = _device_activity(database, collected)
    _launches(database, collected)
    marks = _ranges(_nvtx(database), collected)
    facts = _gpus(database)
    host = next((text(value, 100) for key, value in database.rows("TARGET_INFO_SYSTEM_ENV", ("name", "value"))
                 if key == "Hostname"), "")  # fmt: skip

    def describe(device: int) -> dict[str, Any]:
        kind, capacity = facts.get(device, facts[min(facts)] if len({*facts.values()}) == 1 else ("", None))
        return {
            "name": f"GPU {device}" if device >= 0 else "GPU",
            "host": host,
            "device_name": kind,
            "steps": marks.get(processes.get(device, -1), NO_STEPS),
            "memory_capacity_bytes": capacity,
        }

    devices = device_traces(collected, describe)
    version = next((text(value, 40) for key, value in database.rows("META_DATA_EXPORT", ("name", "value"))
                    if key == "EXPORT_PRODUCT_VERSION"), "")  # fmt: skip
    return TraceFile(
        file=name,
        devices=tuple(devices),
        host_name=host,
        recorder=f"Nsight Systems {version}".strip(),
        device_names=tuple(kind for kind, _ in facts.values() if kind),
        why_no_device="" if devices else LOST_DEVICE if len(collected.launches) else NO_DEVICE,
        recorded=recorded(collected),
        span_ns=_span_ns(database, collected),
    )


def _span_ns(database: Database, collected: Collected) -> tuple[int, int] | None:
    """The recording's first and last device event in Unix time; None where the export does not state when it began."""
    begun = next((row[0] for row in database.rows("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",))), None)
    if not isinstance(begun, int) or not len(collected.device):
        return None
    first, last = (int(times) // 1000 for times in (collected.device["start"].min(), collected.device["end"].max()))
    return unix_span(begun + first, begun + last)


def _times(start: object, end: object) -> tuple[int, int] | None:
    """Nanoseconds as ps; None for what is no time."""
    if not isinstance(start, int) or not isinstance(end, int) or not -MAX_PS < 1000 * start <= 1000 * end < MAX_PS:
        return None
    return 1000 * start, 1000 * end


def _correlation(process: object, correlation: object) -> int:
    if not isinstance(correlation, int) or correlation <= 0 or correlation >= 1 << _CORRELATION_BITS:
        return -1
    number = (process >> _THREAD_BITS) & 0x7FFFFF if isinstance(process, int) else 0
    return (number << _CORRELATION_BITS) | correlation


def _device_activity(database: Database, collected: Collected) -> dict[int, int]:
    """Kernels, copies and fills into the columns; the process that launched most on each device."""
    strings = {key: str(value) for key, value in database.rows("StringIds", ("id", "value"))}
    rows, names = collected.device, collected.names
    launched: dict[int, Counter[int]] = defaultdict(Counter)
    common = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid")
    tables = (
        ("CUPTI_ACTIVITY_KIND_KERNEL", KERNEL, ("demangledName", "shortName", "gridX", "gridY", "gridZ")),
        ("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", KERNEL, ("graphId", "graphId")),  # without --cuda-graph-trace=node
        ("CUPTI_ACTIVITY_KIND_MEMCPY", COPY, ("copyKind", "bytes")),
        ("CUPTI_ACTIVITY_KIND_MEMSET", FILL, ("bytes", "bytes")),
    )
    for table, what, own in tables:
        for start, end, device, stream, correlation, process, first, second, *grid in database.rows(
            table, (*common, *own), needed=("start", "end")
        ):
            times = _times(start, end)
            if times is None:
                continue
            moved, blocks = -1, -1
            if table == "CUPTI_ACTIVITY_KIND_GRAPH_TRACE":
                called = f"CUDA graph {first}, recorded as a whole"
            elif what == KERNEL:
                called = strings.get(first) or strings.get(second) or "unnamed kernel"
                blocks = prod(grid) if all(isinstance(size, int) and 0 < size < 1 << 32 for size in grid) else -1
                blocks = min(blocks, MAX_PS)
            else:
                called = _COPIES.get(first, "Memcpy") if what == COPY else "Memset"
                moved = int(second) if isinstance(second, int | float) and 0 <= second < MAX_PS else -1
            device = device if isinstance(device, int) and 0 <= device < 1 << 31 else -1
            stream = stream if isinstance(stream, int) and abs(stream) < MAX_PS else -1
            launch = _correlation(process, correlation)
            rows.add(what, *times, device, stream, launch, -1, names.of(called), -1, moved, blocks)
            launched[device][process >> _THREAD_BITS if isinstance(process, int) else -1] += 1
    collected.events += len(rows)
    return {device: counts.most_common(1)[0][0] for device, counts in launched.items()}


def _launches(database: Database, collected: Collected) -> None:
    strings = {key: str(value) for key, value in database.rows("StringIds", ("id", "value"))}
    for table in ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_DRIVER"):
        for start, end, correlation, thread, name in database.rows(
            table, ("start", "end", "correlationId", "globalTid", "nameId"), needed=("start", "end", "correlationId")
        ):
            times, key = _times(start, end), _correlation(thread, correlation)
            if times is None or key < 0:
                continue
            called = strings.get(name, "")
            works = bool(WORKS.search(called))
            if cause := host_wait(called):
                collected.host_waits[cause].append(times)
            collected.launches.add(key, *times, collected.thread(("", str(thread))), works)


def _nvtx(database: Database) -> Iterator[_Range]:
    strings: dict[object, str] = {}
    if "textId" in database.columns("NVTX_EVENTS"):
        strings = {key: str(value) for key, value in database.rows("StringIds", ("id", "value"))}
    for start, end, words, text_id, thread in database.rows(
        "NVTX_EVENTS", ("start", "end", "text", "textId", "globalTid"), needed=("start", "end", "globalTid")
    ):
        yield start, end, words if isinstance(words, str) else strings.get(text_id, ""), thread


def _ranges(ranges: Iterable[_Range], collected: Collected) -> dict[int, Steps]:
    """Ranges of a program into the columns of their threads; the steps that each process marks."""
    marks: dict[int, Collected] = defaultdict(Collected)
    for start, end, called, thread in ranges:
        times = _times(start, end)
        if times is None or not called or not isinstance(thread, int):
            continue
        plain = _OP_ID.split(called, maxsplit=1)[0][:300]
        is_op = bool(_FRAMEWORK.search(plain)) and not plain.startswith("FSDP::")
        collected.trains = collected.trains or trains(plain)
        if not is_op:
            of_process = marks[thread >> _THREAD_BITS]
            mark(of_process, plain, *times)
            of_process.marks["range"].append((of_process.names.of(plain), *times))
        if cause := host_wait(plain):
            collected.host_waits[cause].append(times)
        match = _SEQUENCE.search(called)
        sequence = int(match.group(1)) if match else -1
        work = collected.work(plain, _sizes(called), None, None) if is_op else -1
        name = collected.names.of(plain)
        collected.host(("", str(thread))).add(OP if is_op else ANNOTATION, *times, name, sequence, 1, work, -1, -1)
    calls, steps = collected.launches, {}
    threads, starts, works = calls["thread"], calls["start"], calls["works"] > 0
    for process, of_process in marks.items():
        own = [index for (_, thread), index in collected.thread_ids.items() if int(thread) >> _THREAD_BITS == process]
        steps[process] = host_steps(of_process, starts[works & np.isin(threads, own)])
    return steps


def _sizes(called: str) -> object:
    """Operand shapes where emit_nvtx(record_shapes=True) wrote them."""
    match = _SIZES.search(called)
    if match is None:
        return None
    try:
        return json.loads(match.group(1))
    except (ValueError, RecursionError):
        return None


def _gpus(database: Database) -> dict[int, tuple[str, float | None]]:
    """(name, bytes of memory) by CUDA device id."""
    ids: dict[object, int] = {}
    for gpu, cuda in database.rows("TARGET_INFO_CUDA_DEVICE", ("gpuId", "cudaId"), needed=("gpuId", "cudaId")):
        if isinstance(cuda, int):
            ids.setdefault(gpu, cuda)
    by_device: dict[int, tuple[str, float | None]] = {}
    for gpu, name, memory in database.rows("TARGET_INFO_GPU", ("id", "name", "totalMemory"), needed=("id", "name")):
        device = ids.get(gpu, gpu)
        if isinstance(device, int):
            capacity = float(memory) if isinstance(memory, int) and memory > 0 else None
            by_device[device] = (text(name, 100).strip(), capacity)
    return by_device
