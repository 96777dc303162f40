"""Events of GPU traces for the timeline: every kernel, copy and fill in the track of its stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from experiments.ingest.gpu import kernels
from experiments.ingest.gpu.device import DeviceTrace, Kind
from experiments.ingest.marks import Steps
from experiments.trace import OPS, TraceBuilder

_COPIES = (kernels.ON_DEVICE, kernels.TO_PEER, kernels.MEMSET)


def add_devices(
    builder: TraceBuilder, traces: Sequence[DeviceTrace], steps: Sequence[Steps], names: Mapping[Kind, str]
) -> None:
    """One core per device with its steps; names: of the ops, as in the StepProfile."""
    for trace, marked in zip(traces, steps, strict=True):
        core = builder.add_core(trace.name, host=trace.host)
        if len(marked):
            builder.add_steps(core, marked.numbers, marked.starts, marked.ends)
        indices = np.array([builder.name(names.get(kind, kind.name), _kind(kind)) for kind in trace.kinds], np.uint32)
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


def _kind(kind: Kind) -> str:
    if kind.exchange is not None:
        return "collective"
    if kind.category in kernels.HOST_COPIES:
        return "host_transfer"
    return "copy" if kind.category in _COPIES else "compute"
