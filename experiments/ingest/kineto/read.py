"""One PyTorch trace → `Recording`."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.ingest.errors import IngestError, megabytes
from experiments.ingest.gpu import kernels
from experiments.ingest.gpu.device import UNKNOWN, DeviceTrace, Exchange, HostSteps, Kind, Recording
from experiments.ingest.kineto.collect import COPY, FILL, Collected
from experiments.ingest.kineto.comms import groups_of
from experiments.ingest.kineto.contexts import NOWHERE, Context, contexts, phase_name
from experiments.ingest.kineto.stream import NotStrict, events, header
from experiments.ingest.values import text

NO_STEPS = (
    "The trace marks no steps. Call prof.step() after each training step (torch.profiler.profile with a schedule) and "
    "record again."
)
NO_DEVICE = "The trace holds no activity of a GPU. Record with ProfilerActivity.CUDA among the activities."
#: Whose FLOPs these are, where an op launches several kernels.
_PRODUCTS = (kernels.GEMM, kernels.CONVOLUTION, kernels.ATTENTION)
_RANK = re.compile(r"rank[-_ ]?(\d{1,6})", re.I)
_NAMELESS_AMD = {(9, 0): "AMD GPU - gfx90a", (9, 4): "AMD GPU - gfx942", (9, 5): "AMD GPU - gfx950"}


def read(path: Path, name: str) -> Recording:
    """Everything a trace holds.  Raises IngestError where it is cut off, or no trace of the PyTorch profiler."""
    head = header(path)
    groups = groups_of(head.get("distributedInfo"))
    collected = Collected()
    try:
        collected.add(events(path, name), groups)
    except NotStrict:
        collected = Collected()
        collected.add(events(path, name, cleaned=True), groups)
    if not collected.events:
        raise IngestError(
            f"{name} is a trace without any event of the PyTorch profiler (cpu_op, kernel, …).",
            "Upload what prof.export_chrome_trace or tensorboard_trace_handler wrote, or XProf's *.xplane.pb file.",
            name,
        )
    return _recording(collected, head, name)


def _recording(collected: Collected, head: dict[str, Any], name: str) -> Recording:
    distributed = head.get("distributedInfo")
    distributed = distributed if isinstance(distributed, dict) else {}
    rank, world = distributed.get("rank"), distributed.get("world_size")
    rank = rank if isinstance(rank, int) and rank >= 0 else collected.rank
    if rank is None and (match := _RANK.search(name.replace("\\", "/").rpartition("/")[2])):
        rank = int(match.group(1))
    properties = [item for item in head.get("deviceProperties") or [] if isinstance(item, dict)]
    steps = _steps(collected)
    devices = _devices(collected, rank, _host_name(head), properties, steps)
    return Recording(
        file=name,
        devices=tuple(devices),
        rank=rank,
        world_size=world if isinstance(world, int) and world > 0 else None,
        host_name=_host_name(head),
        recorder="PyTorch profiler",
        device_names=tuple(_device_name(item) for item in properties if _device_name(item)),
        why_no_device="" if devices else NO_DEVICE,
        trains=collected.trains,
        memory_stated=bool(collected.memory),
    )


def _host_name(head: dict[str, Any]) -> str:
    return text(head.get("host_name"), 100).strip()


def _device_name(properties: dict[str, Any]) -> str:
    """The driver's name; of a nameless AMD part its architecture, as XProf would say it."""
    named = text(properties.get("name"), 100).strip()
    if named or properties.get("warpSize") != 64:
        return named
    return _NAMELESS_AMD.get((properties.get("computeMajor", 0), properties.get("computeMinor", 0)), "AMD GPU")


def _steps(collected: Collected) -> HostSteps:
    """ProfilerStep marks; else the program's own (`iteration 12`); else from one optimizer step to the next."""
    for key, how in (("step", "ProfilerStep"), ("iteration", "annotations of the program")):
        marks = sorted({number: (number, start, end) for number, start, end in collected.steps[key]}.values())
        if key == "iteration" and len(marks) < 2:
            continue
        if marks:
            marks.sort(key=lambda mark: mark[1])
            return HostSteps(*zip(*marks, strict=True), how)
    by_name: dict[int, list[int]] = defaultdict(list)
    for optimizer, _, end in collected.steps["optimizer"]:
        by_name[optimizer].append(end)
    counts = {len(ends) for ends in by_name.values()}
    if len(counts) != 1 or counts == {1}:
        return HostSteps()
    # Several optimizers step one after the other: the last of them ends the step.
    ends = [max(group) for group in zip(*(sorted(ends) for ends in by_name.values()), strict=True)]
    return HostSteps(tuple(range(1, len(ends))), tuple(ends[:-1]), tuple(ends[1:]), "optimizer steps")


def _devices(
    collected: Collected, rank: int | None, host: str, properties: list[dict[str, Any]], steps: HostSteps
) -> list[DeviceTrace]:
    rows = collected.device
    if not len(rows.start):
        return []
    devices = np.frombuffer(rows.device, np.int64)
    place, launched, issued = _launches(collected)
    found = contexts(collected, place.tolist(), np.where(launched == UNKNOWN, 0, launched))
    found = [context if thread >= 0 else NOWHERE for context, thread in zip(found, place.tolist(), strict=True)]
    flops, moved, products = _amounts(collected, found)
    kinds, kind = _kinds(collected, found, products)
    groups: dict[tuple[int, ...], int] = {}
    comms = np.array([_comm(collected, row, found[row]) for row in range(len(found))], np.int64)
    ranks = np.full(len(found), -1, np.int64)
    for row in np.flatnonzero(comms >= 0).tolist():
        members = collected.comms[int(comms[row])].ranks
        if members and kinds[int(kind[row])].exchange is not None:
            ranks[row] = groups.setdefault(members, len(groups))
    starts, ends = np.frombuffer(rows.start, np.int64), np.frombuffer(rows.end, np.int64)
    waits = np.array(collected.input_waits, np.int64).reshape(-1, 2)
    by_id = {item.get("id"): item for item in properties}
    traces: list[DeviceTrace] = []
    for device in np.unique(devices).tolist():
        mask = devices == device
        facts = by_id.get(device, properties[0] if len({_device_name(item) for item in properties}) == 1 else {})
        capacity = facts.get("totalGlobalMem")
        traces.append(
            DeviceTrace(
                name=f"GPU {device}" if device >= 0 else "GPU",
                rank=rank,
                host=f"rank {rank}" if rank is not None else host,
                device_name=_device_name(facts),
                kinds=kinds,
                kind=kind[mask],
                starts=starts[mask],
                ends=ends[mask],
                launched=launched[mask],
                issued=issued[mask],
                flops=flops[mask],
                moved_bytes=moved[mask],
                ranks=ranks[mask],
                rank_groups=list(groups),
                streams=np.frombuffer(rows.stream, np.int64)[mask],
                steps=steps,
                input_waits=waits,
                memory_peak_bytes=collected.memory.get(device),
                memory_capacity_bytes=float(capacity) if isinstance(capacity, int) and capacity > 0 else None,
            )
        )
    return traces


def _launches(collected: Collected) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """(thread, start, end) of the call that launched each device event: by correlation id, else by the op's id.

    thread: -1 where none is known.  Of calls with one id (a driver call inside a runtime call) the first counts.
    """
    rows = collected.device
    calls = collected.launches
    wanted = np.frombuffer(rows.correlation, np.int64)
    thread = np.full(len(wanted), -1, np.int64)
    start, end = np.full(len(wanted), UNKNOWN, np.int64), np.full(len(wanted), UNKNOWN, np.int64)
    if len(calls.correlation):
        ids = np.frombuffer(calls.correlation, np.int64)
        call_starts = np.frombuffer(calls.start, np.int64)
        order = np.lexsort((call_starts, ids))
        at = np.minimum(np.searchsorted(ids[order], wanted), len(ids) - 1)
        index = order[at]
        known = (ids[index] == wanted) & (wanted > 0)
        # Damaged correlations would let an op run before it was launched.
        known &= call_starts[index] <= np.frombuffer(rows.start, np.int64)
        thread[known] = np.frombuffer(calls.thread, np.int64)[index[known]]
        start[known] = call_starts[index[known]]
        end[known] = np.frombuffer(calls.end, np.int64)[index[known]]
    externals = np.frombuffer(rows.external, np.int64)
    missing = np.flatnonzero((thread < 0) & (externals > 0))
    if len(missing):
        ops: dict[int, tuple[int, int]] = {}
        for key, host in collected.threads.items():
            for row, external in enumerate(host.external):
                if external > 0:
                    ops[external] = (collected.thread_ids[key], host.start[row])
        for row in missing.tolist():
            if (op := ops.get(int(externals[row]))) is not None:
                thread[row], start[row] = op
    return thread, start, end


def _comm(collected: Collected, row: int, context: Context) -> int:
    stated = collected.device.comm[row]
    return stated if stated >= 0 else context.comm


def _amounts(
    collected: Collected, found: list[Context]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """(FLOPs, bytes, index of the product each kernel computes or -1) of each device event.

    What an op computes is divided among the kernels that do it, by their time; an op whose kernels are none of matrix
    products or attention (it called others that are) gives none.
    """
    rows, names = collected.device, collected.names.texts
    size = len(found)
    flops, moved = np.full(size, np.nan), np.array(rows.moved, np.float64)
    products = np.full(size, -1, np.int64)
    by_call: dict[int, list[int]] = defaultdict(list)
    by_op: dict[int, list[int]] = defaultdict(list)
    for row, context in enumerate(found):
        if rows.what[row] != 0 or kernels.collective_kind(names[rows.name[row]]):
            continue
        if context.work >= 0 and kernels.category(names[rows.name[row]], context.op) in _PRODUCTS:
            by_call[context.work_event].append(row)
        elif context.traffic >= 0:
            by_op[context.op_event].append(row)
    for members in by_call.values():
        work, _ = collected.works[found[members[0]].work]
        assert work is not None  # only calls with a formula are contexts' work
        for row, part in _parts(rows, members):
            flops[row], products[row] = work.flops * part, found[row].work
            if work.moved_bytes is not None:
                moved[row] = work.moved_bytes * part
    for members in by_op.values():
        _, traffic = collected.works[found[members[0]].traffic]
        for row, part in _parts(rows, members):
            moved[row] = (traffic or 0.0) * part
    return flops, moved, products


def _parts(rows: Any, members: list[int]) -> list[tuple[int, float]]:
    times = [max(rows.end[row] - rows.start[row], 1) for row in members]
    total = sum(times)
    return [(row, time / total) for row, time in zip(members, times, strict=True)]


def _kinds(
    collected: Collected, found: list[Context], products: NDArray[np.int64]
) -> tuple[list[Kind], NDArray[np.int64]]:
    """The kinds of op of a trace, and which each device event is."""
    rows, names = collected.device, collected.names.texts
    index: dict[Kind, int] = {}
    known: dict[tuple[object, ...], int] = {}
    kind = np.zeros(len(found), np.int64)
    for row, context in enumerate(found):
        comm = _comm(collected, row, context)
        product = int(products[row])
        key = (rows.what[row], rows.name[row], context.op, context.phase, context.path, context.source, product, comm)
        place = known.get(key)
        if place is None:
            made = _kind(collected, names[rows.name[row]], rows.what[row], context, product, comm)
            place = known[key] = index.setdefault(made, len(index))
        kind[row] = place
    return list(index), kind


def _kind(collected: Collected, kernel: str, what: int, context: Context, product: int, comm: int) -> Kind:
    path = "/".join(part for part in (phase_name(context, collected.trains), *context.path, context.op) if part)
    path, source = text(path, 1000), text(context.source, 500)
    base = text(kernels.base_name(kernel), 160)
    if what == COPY:
        return Kind(_launched(context.op, text(kernel, 80)), kernels.copy_category(kernel), path, source)
    if what == FILL:
        return Kind(_launched(context.op, "Memset"), kernels.MEMSET, path, source)
    stated = collected.comms[comm] if comm >= 0 else None
    talks = kernels.collective_kind(kernel, stated.name if stated else "")
    if talks:
        exchange = stated.exchange if stated else Exchange(talks)
        size = f" {megabytes(exchange.payload_bytes)}" if exchange.payload_bytes else ""
        group = f" {exchange.group_name}" if exchange.group_name else ""
        return Kind(f"{exchange.kind}{group}{size}: {base}", exchange.kind, path, source, exchange=exchange)
    work = collected.works[product][0] if product >= 0 else None
    op = f"{context.op}[{work.shapes}]" if work else context.op
    dtype = work.dtype if work else ""
    return Kind(_launched(op, base), kernels.category(kernel, context.op), path, source, dtype)


def _launched(op: str, kernel: str) -> str:
    """`aten::mm[8x4, 4x2]: nvjet_…`.  An op of a process group that copies is no collective: its kernel says so."""
    if not op or op == kernel or kernels.stated_kind(op) != "collective":
        return kernel
    return f"{text(op, 200)}: {kernel}"
