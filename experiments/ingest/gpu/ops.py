"""Ops of a recording: occurrences of one kind on all devices, summed over the profiled window, and their events."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from experiments.ingest.gpu import kernels
from experiments.ingest.gpu.device import DeviceTrace, Kind
from experiments.ingest.gpu.measure import exposed_copies, window
from experiments.ingest.gpu.waits import RankWaits
from experiments.ingest.marks import Steps
from experiments.ingest.roof import efficiencies
from experiments.step_profile import LATENCY, Op
from experiments.trace import OPS, TraceBuilder
from perfmodel.chips import Chip

_COPIES = (kernels.ON_DEVICE, kernels.TO_PEER, kernels.MEMSET)
#: Ops beyond this rank are left out: the tail of a recording without shapes weighs nothing.
MOST_OPS = 20_000
#: A launch of fewer blocks of threads leaves most of any accelerator's multiprocessors (28 on an RTX 3060) idle.
FEW_BLOCKS = 16
#: Matmuls in 32 bit run on tensor cores as TF32, at half the rate of bf16 on every part that has it.
#: Source: NVIDIA A100, H100 and B200 data sheets, AMD Instinct MI300X data sheet.
_TF32 = re.compile(r"tf32|tensorop|s1688|_s168|wgmma|nvjet_sss", re.I)
_TF32_OF_BF16 = 0.5


@dataclass
class _Sum:
    count: int = 0
    time_ps: int = 0
    flops: float | None = None
    moved_bytes: float | None = None
    exposed_copy_s: float | None = None
    blocks: float | None = None  # mean over its time
    groups: set[tuple[int, ...]] = field(default_factory=set)


def unique_names(traces: Sequence[DeviceTrace]) -> dict[Kind, str]:
    """A name of its own for each kind: its name, numbered where several share it, in order of time."""
    times: dict[Kind, int] = defaultdict(int)
    for trace in traces:
        totals = np.bincount(trace.kind, trace.ends - trace.starts, len(trace.kinds))
        for kind, total in zip(trace.kinds, totals.tolist(), strict=True):
            times[kind] += int(total)
    taken: dict[str, int] = defaultdict(int)
    names: dict[Kind, str] = {}
    for kind in sorted(times, key=lambda kind: (-times[kind], kind.name, kind.path)):
        taken[kind.name] += 1
        names[kind] = kind.name if taken[kind.name] == 1 else f"{kind.name}.{taken[kind.name]}"
    return names


def read_ops(
    traces: Sequence[DeviceTrace],
    steps: Sequence[Steps],
    names: dict[Kind, str],
    waited: RankWaits,
    chip: Chip | None,
) -> tuple[list[Op], int]:
    """(ops by descending time, how many were left out)."""
    sums: dict[Kind, _Sum] = defaultdict(_Sum)
    window_ps = 0
    for trace, marked in zip(traces, steps, strict=True):
        profiled = window(trace, marked)
        window_ps += profiled.total
        _add(sums, trace, profiled.within(trace.starts, trace.ends) > 0)
        for kind, exposed in exposed_copies(trace, profiled).items():
            total = sums[trace.kinds[kind]]
            total.exposed_copy_s = (total.exposed_copy_s or 0.0) + exposed
    ordered = sorted(sums.items(), key=lambda item: (-item[1].time_ps, names[item[0]]))
    ordered = [(kind, total) for kind, total in ordered if total.time_ps > 0]
    ops = [
        _op(kind, total, names[kind], rank, window_ps, waited, chip)
        for rank, (kind, total) in enumerate(ordered[:MOST_OPS], 1)
    ]
    return ops, max(0, len(ordered) - MOST_OPS)


def _add(sums: dict[Kind, _Sum], trace: DeviceTrace, inside: np.ndarray) -> None:
    size = len(trace.kinds)
    kind, durations = trace.kind[inside], (trace.ends - trace.starts)[inside]
    counts, times = np.bincount(kind, minlength=size), np.bincount(kind, durations, size)
    for index in np.flatnonzero(counts).tolist():
        total = sums[trace.kinds[index]]
        total.count += int(counts[index])
        total.time_ps += int(times[index])
    for amount, column in (("flops", trace.flops[inside]), ("moved_bytes", trace.moved_bytes[inside])):
        known = ~np.isnan(column)
        amounts = np.bincount(kind[known], column[known], size)
        for index in np.unique(kind[known]).tolist():
            total = sums[trace.kinds[index]]
            setattr(total, amount, (getattr(total, amount) or 0.0) + float(amounts[index]))
    sized = inside & (trace.blocks >= 0)
    weights = (trace.ends - trace.starts)[sized]
    totals, spent = (np.bincount(trace.kind[sized], each, size) for each in (trace.blocks[sized] * weights, weights))
    for index in np.flatnonzero(spent).tolist():
        sums[trace.kinds[index]].blocks = float(totals[index] / spent[index])
    with_group = inside & (trace.ranks >= 0)
    for index, group in {*zip(trace.kind[with_group].tolist(), trace.ranks[with_group].tolist(), strict=True)}:
        sums[trace.kinds[index]].groups.add(trace.rank_groups[group])


def _op(kind: Kind, total: _Sum, name: str, rank: int, window_ps: int, waited: RankWaits, chip: Chip | None) -> Op:
    seconds = total.time_ps * 1e-12
    flops, moved, exchange = total.flops, total.moved_bytes, kind.exchange
    peak, bandwidth = _peak(kind, chip), chip.hbm_bytes_per_s / chip.devices_per_chip if chip else None
    on_hbm = kind.category not in kernels.HOST_COPIES and exchange is None
    # Without FLOPs and traffic nothing is known of an op's place under the roofline; with one of them, that one.
    flops_rate, byte_rate = flops / seconds if flops else None, moved / seconds if moved and on_hbm else None
    roofline, compute, memory = efficiencies(flops_rate, byte_rate, peak, bandwidth)
    # Of work at an unknown peak, nothing says that its bytes are what takes the time.
    roofline = None if flops and peak is None else roofline
    bound = None if roofline is None else "Compute" if compute == roofline else "HBM"
    if total.blocks is not None and total.blocks < FEW_BLOCKS and exchange is None:
        bound = LATENCY
    return Op(
        name=name,
        category=kind.category,
        occurrences=total.count,
        self_time_s=seconds,
        total_time_s=seconds,
        time_share=total.time_ps / window_ps if window_ps else 0.0,
        rank=rank,
        flops=flops,
        bytes_accessed=moved if on_hbm else None,
        flops_per_s=flops / seconds if flops is not None else None,
        operational_intensity=flops / moved if flops is not None and moved else None,
        bound_by=bound,
        roofline_efficiency=roofline,
        compute_efficiency=compute,
        memory_bandwidth_utilization=memory,
        op_name=kind.path,
        source=kind.source,
        host_bytes=moved if kind.category in kernels.HOST_COPIES else None,
        exposed_s=total.exposed_copy_s,
        groups=tuple(sorted(total.groups)) if total.groups else None,
        group_name=exchange.group_name if exchange else "",
        payload_bytes=exchange.payload_bytes if exchange else None,
        wait_s=_waited(kind, seconds, waited),
    )


def _waited(kind: Kind, seconds: float, waited: RankWaits) -> float | None:
    """The wait in all occurrences, from those that could be compared; None where too few could."""
    longer, compared = waited.get(kind, (0.0, 0.0))
    if compared < 0.5 * seconds:
        return None
    return min(1.0, longer / compared) * seconds


def _peak(kind: Kind, chip: Chip | None) -> float | None:
    """Peak rate of the kind's matmuls on this chip; None where its precision has no known peak."""
    if chip is None:
        return None
    if kind.dtype in ("bf16", "fp16", "fp8", "int8") and chip.runs_as(kind.dtype) == kind.dtype:
        return chip.peak(kind.dtype) / chip.devices_per_chip
    if kind.dtype != "fp32" or chip.kind != "gpu":
        return None
    on_tensor_cores = _TF32.search(kind.name)
    return (chip.peak("bf16") * _TF32_OF_BF16 if on_tensor_cores else chip.peak("fp32")) / chip.devices_per_chip


def add_devices(
    builder: TraceBuilder, traces: Sequence[DeviceTrace], steps: Sequence[Steps], names: Mapping[Kind, str]
) -> None:
    """One core per device with its steps; names: of the ops, as in the StepProfile."""
    for trace, marked in zip(traces, steps, strict=True):
        core = builder.add_core(trace.name, host=trace.host)
        if len(marked):
            builder.add_steps(core, marked.numbers, marked.starts, marked.ends)
        indices = np.array(
            [builder.name(names.get(kind, kind.name), _device_kind(kind)) for kind in trace.kinds], np.uint32
        )
        for stream in np.unique(trace.streams).tolist():
            mask = trace.streams == stream
            builder.add_events(
                core,
                OPS,
                trace.starts[mask],
                (trace.ends - trace.starts)[mask],
                indices[trace.kind[mask]],
                track=f"stream {stream}" if stream >= 0 else "",
            )


def _device_kind(kind: Kind) -> str:
    if kind.exchange is not None:
        return "collective"
    if kind.category in kernels.HOST_COPIES:
        return "host_transfer"
    return "copy" if kind.category in _COPIES else "compute"
