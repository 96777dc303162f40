"""Columns of a recording → one `DeviceTrace` per device."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from experiments.ingest.gpu import kernels
from experiments.ingest.gpu.columns import KERNEL, OP, Collected
from experiments.ingest.gpu.contexts import NOWHERE, Context, contexts
from experiments.ingest.gpu.device import UNKNOWN, DeviceTrace
from experiments.ingest.gpu.kinds import read_kinds, with_roles_of_streams
from experiments.ingest.marks import NO_STEPS, Steps
from experiments.step_profile import Recorded

#: Calls of serving engines and programs that capture a graph of kernels.
_CAPTURE = re.compile(r"capture_(model|graph|one_batch|cuda_?graph)|_capture_\w*graph|graph_?capture", re.I)


@dataclass(frozen=True)
class DeviceFacts:
    """What a recording says of one device.  name: of the core; kind: the driver's name, empty where not stated."""

    name: str
    host: str
    kind: str
    rank: int | None = None
    steps: Steps = NO_STEPS
    capacity_bytes: float | None = None


def device_traces(collected: Collected, describe: Callable[[int], DeviceFacts]) -> list[DeviceTrace]:
    """The devices on which anything ran, by id.  describe: facts of the device with this id."""
    rows = collected.device
    if not len(rows):
        return []
    devices, starts, ends, streams = (rows[name] for name in ("device", "start", "end", "stream"))
    place, launched, issued = _launches(collected)
    placed = contexts(collected, place, np.where(launched == UNKNOWN, 0, launched))
    placed = [context if thread >= 0 else NOWHERE for context, thread in zip(placed, place.tolist(), strict=True)]
    # The collective call that an event belongs to: its own, else its launch's.
    comms = [own if own >= 0 else context.comm for own, context in zip(rows["comm"].tolist(), placed, strict=True)]
    flops, moved, products = _amounts(collected, placed, (ends - starts).tolist())
    kinds, kind = read_kinds(collected, placed, products, comms)
    kinds = with_roles_of_streams(kinds, kind, streams, ends - starts)
    groups: dict[tuple[int, ...], int] = {}
    ranks = np.full(len(placed), -1, np.int64)
    for row, comm in enumerate(comms):
        members = collected.comms[comm].ranks if comm >= 0 else ()
        if members and kinds[int(kind[row])].exchange is not None:
            ranks[row] = groups.setdefault(members, len(groups))
    waits = {cause: np.array(times, np.int64) for cause, times in collected.host_waits.items()}
    peaks = collected.memory
    if len(active := np.unique(devices)) == 1 and peaks:
        # ROCm counts the host's processors among its agents, the allocator does not: one device is the same by any id.
        peaks = {int(active[0]): max(peaks.values())}
    traces: list[DeviceTrace] = []
    for device in np.unique(devices).tolist():
        mask, facts = devices == device, describe(device)
        traces.append(
            DeviceTrace(
                name=facts.name,
                rank=facts.rank,
                host=facts.host,
                device_name=facts.kind,
                kinds=kinds,
                kind=kind[mask],
                starts=starts[mask],
                ends=ends[mask],
                launched=launched[mask],
                issued=issued[mask],
                flops=flops[mask],
                moved_bytes=moved[mask],
                ranks=ranks[mask],
                streams=streams[mask],
                rank_groups=list(groups),
                steps=facts.steps,
                host_waits=waits,
                memory_peak_bytes=peaks.get(device),
                memory_capacity_bytes=facts.capacity_bytes,
            )
        )
    return traces


def recorded(collected: Collected) -> Recorded:
    """Return what a recording holds beside its device activity."""
    held = {
        "launches": len(collected.launches),
        "host ops": any(OP in rows["what"] for rows in collected.threads.values()),
        "shapes": collected.works,
        "backward": collected.trains,
        "products": collected.computes,
        "optimizer": collected.marks["optimizer"],
        "graph capture": collected.captures or any(_CAPTURE.search(name) for name in collected.names.texts),
        "input waits": collected.host_waits.get("input"),
    }
    context, generation = (
        (max(column) for column in zip(*collected.requests, strict=True)) if collected.requests else (None, None)
    )
    return Recorded(tuple(key for key, is_held in held.items() if is_held), context, generation)


def _launches(collected: Collected) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """(thread, start, end) of the call that launched each device event: by correlation id, else by the op's id.

    thread: -1 where none is known.  Of calls with one id (a driver call inside a runtime call) the first counts.
    """
    rows = collected.device
    calls = collected.launches
    wanted = rows["correlation"]
    thread = np.full(len(wanted), -1, np.int64)
    start, end = np.full(len(wanted), UNKNOWN, np.int64), np.full(len(wanted), UNKNOWN, np.int64)
    if len(calls):
        ids, call_starts = calls["correlation"], calls["start"]
        order = np.lexsort((call_starts, ids))
        at = np.minimum(np.searchsorted(ids[order], wanted), len(ids) - 1)
        index = order[at]
        known = (ids[index] == wanted) & (wanted > 0)
        # Damaged correlations would let an op run before it was launched.
        known &= call_starts[index] <= rows["start"]
        thread[known] = calls["thread"][index[known]]
        start[known] = call_starts[index[known]]
        end[known] = calls["end"][index[known]]
    externals = rows["external"]
    missing = np.flatnonzero((thread < 0) & (externals > 0))
    if len(missing):
        ops: dict[int, tuple[int, int]] = {}
        for key, host in collected.threads.items():
            for external, begun in zip(host["external"].tolist(), host["start"].tolist(), strict=True):
                if external > 0:
                    ops[external] = (collected.thread_ids[key], begun)
        for row in missing.tolist():
            if (op := ops.get(int(externals[row]))) is not None:
                thread[row], start[row] = op
    return thread, start, end


def _amounts(
    collected: Collected, placed: list[Context], times: list[int]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """(FLOPs, bytes, index of the product each kernel computes or -1) of each device event.

    What an op computes is divided among the kernels that do it, by their time; an op whose kernels are none of matmuls
    or attention (it called others that are) gives none.
    """
    rows, names = collected.device, collected.names.texts
    size = len(placed)
    flops, moved = np.full(size, np.nan), np.where(rows["moved"] < 0, np.nan, rows["moved"])
    products = np.full(size, -1, np.int64)
    by_call: dict[int, list[int]] = defaultdict(list)
    by_op: dict[int, list[int]] = defaultdict(list)
    for row, (context, what, name) in enumerate(zip(placed, rows["what"].tolist(), rows["name"].tolist(), strict=True)):
        if what != KERNEL or kernels.collective_kind(names[name]):
            continue
        if context.work >= 0 and kernels.category(names[name], context.op) in kernels.PRODUCTS:
            by_call[context.work_event].append(row)
        elif context.traffic >= 0:
            by_op[context.op_event].append(row)
    for members in by_call.values():
        work, _ = collected.works[placed[members[0]].work]
        assert work is not None  # only calls with a formula are contexts' work
        for row, part in _parts(times, members):
            flops[row], products[row] = work.flops * part, placed[row].work
            if work.moved_bytes is not None:
                moved[row] = work.moved_bytes * part
    for members in by_op.values():
        _, traffic = collected.works[placed[members[0]].traffic]
        for row, part in _parts(times, members):
            moved[row] = (traffic or 0.0) * part
    return flops, moved, products


def _parts(times: list[int], members: list[int]) -> list[tuple[int, float]]:
    total = sum(max(times[row], 1) for row in members)
    return [(row, max(times[row], 1) / total) for row in members]
