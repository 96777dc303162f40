"""Columns of a recording → one `DeviceTrace` per device."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.ingest.gpu import kernels
from experiments.ingest.gpu.columns import KERNEL, OP, Collected
from experiments.ingest.gpu.contexts import NOWHERE, Context, contexts
from experiments.ingest.gpu.device import UNKNOWN, DeviceTrace
from experiments.ingest.gpu.kinds import read_kinds, with_roles_of_streams
from experiments.ingest.gpu.marks import host_wait
from experiments.step_profile import Recorded

#: With device activity of fewer of its launches, a recording has lost most of it; calls that copy nothing have none.
SERVED = 0.5
LOST_DEVICE = (
    "The recording contains launches of kernels, but no GPU activity. Check that CUPTI may record on that machine "
    "(rights, driver, no second profiler; not under WSL), and record again."
)
#: The host's own processor, among devices, and the first correlation id of its work.
HOST, _OWN = -1, 1 << 50
#: Ops that run on a GPU alone: of its libraries, of PyTorch for Apple's (MPS).
_ON_DEVICE = re.compile(
    r"aten::_?(cudnn|miopen|mps|flash_attention|efficient_attention)|_for_mps|linear_backward$|nccl:"
)
#: Calls of serving engines and programs that capture a graph of kernels.
_CAPTURE = re.compile(r"capture_(model|graph|one_batch|cuda_?graph)|_capture_\w*graph|graph_?capture", re.I)


def device_traces(collected: Collected, describe: Callable[[int], Mapping[str, Any]]) -> list[DeviceTrace]:
    """The devices on which anything ran, by id.  describe: fields of `DeviceTrace` that a recording says of the device
    with this id."""
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
    peaks, unserved = collected.memory, _unserved(collected)
    if len(active := np.unique(devices)) == 1 and peaks:
        # ROCm counts the host's processors among its agents, the allocator does not: one device is the same by any id.
        peaks = {int(active[0]): max(peaks.values())}
    traces: list[DeviceTrace] = []
    for device in np.unique(devices).tolist():
        mask = devices == device
        traces.append(
            DeviceTrace(
                **describe(device),
                kinds=kinds,
                kind=kind[mask],
                starts=starts[mask],
                ends=ends[mask],
                launched=launched[mask],
                issued=issued[mask],
                flops=flops[mask],
                moved_bytes=moved[mask],
                blocks=rows["blocks"][mask],
                ranks=ranks[mask],
                streams=streams[mask],
                rank_groups=list(groups),
                host_waits=waits,
                unserved=unserved,
                memory_peak_bytes=peaks.get(device),
            )
        )
    return traces


def add_host_work(collected: Collected) -> bool:
    """Take ops and collectives of the host for the device's work; return whether its own processor did it.

    For a recording in which the host launches nothing and no device was recorded, unless something says that the work
    was done on one that was not recorded.
    """
    if len(collected.device) or (len(collected.launches) and collected.launches["works"].any()):
        return False
    if collected.memory or any(_ON_DEVICE.search(name) for name in collected.names.texts):
        return False
    loads = np.array([host_wait(name) == "input" for name in collected.names.texts], np.bool_)
    talks = np.array([bool(kernels.collective_kind(name)) for name in collected.names.texts], np.bool_)
    for key, rows in collected.threads.items():
        starts, ends, names, thread = rows["start"], rows["end"], rows["name"], collected.thread(key)
        ops = np.flatnonzero(((rows["what"] == OP) & ~loads[names]) | talks[names])
        ops = ops[np.lexsort((-ends[ops], starts[ops]))]
        for row in ops[_doing(starts[ops].tolist(), ends[ops].tolist())].tolist():
            launch, start, end, name = _OWN + len(collected.launches), int(starts[row]), int(ends[row]), int(names[row])
            stream = HOST - thread if talks[name] else thread
            collected.device.add(KERNEL, start, end, HOST, stream, launch, -1, name, -1, -1, -1)
            collected.launches.add(launch, start, start, thread, 1)
    return len(collected.device) > 0


def _doing(starts: list[int], ends: list[int]) -> list[int]:
    """Return the indices of the calls of one thread that do the work: the outermost that spend half of their time or
    more outside the calls that they make.  starts, ends: in order of time, a call before those within it.
    """
    own = [end - start for start, end in zip(starts, ends, strict=True)]
    outer: list[int] = []
    for index, (start, end) in enumerate(zip(starts, ends, strict=True)):
        while outer and ends[outer[-1]] <= start:
            outer.pop()
        if outer:
            own[outer[-1]] -= end - start
        outer.append(index)
    chosen, until = [], starts[0] if starts else 0
    for index, (start, end) in enumerate(zip(starts, ends, strict=True)):
        if start >= until and 2 * own[index] >= end - start:
            chosen.append(index)
            until = end
    return chosen


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
        "lost device activity": _lost(collected),
    }
    context, generation = (
        (max(column) for column in zip(*collected.requests, strict=True)) if collected.requests else (None, None)
    )
    return Recorded(tuple(key for key, is_held in held.items() if is_held), context, generation)


def _unserved(collected: Collected) -> int:
    """Return how many launches follow that of the last recorded op, without any activity."""
    calls = collected.launches
    if collected.captures or not len(calls):
        return 0
    served = np.isin(calls["correlation"], collected.device["correlation"])
    begun = calls["start"]
    return int(((calls["works"] > 0) & (begun > begun[served].max())).sum()) if served.any() else 0


def _lost(collected: Collected) -> bool:
    """Return whether most of what the host launched was not recorded on the device, though it ran.

    What was launched while the last recorded op ran or waited may run after the end of the recording.
    """
    calls = collected.launches
    launched = calls["correlation"][calls["works"] > 0] if len(calls) else np.zeros(0, np.int64)
    if collected.captures or not len(launched) or not len(collected.device):
        return False
    served = np.isin(launched, collected.device["correlation"])
    begun = calls["start"][calls["works"] > 0]
    counts = (begun <= begun[served].max(initial=begun.min())) | (begun > collected.device["end"].max())
    return bool(served[counts].mean() < SERVED)


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
    # One that repeats the correlation of a kernel launched before the recording is no op's.
    told = (externals != wanted) | np.isin(wanted, calls["correlation"] if len(calls) else wanted)
    missing = np.flatnonzero((thread < 0) & (externals > 0) & told)
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
