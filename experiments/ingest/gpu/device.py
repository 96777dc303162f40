"""What one GPU did, as its profiler recorded it: the common form of Kineto's and Nsight Systems' traces."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from experiments.ingest.intervals import Ps
from experiments.ingest.marks import NO_STEPS, Steps
from experiments.step_profile import Recorded

#: Kind of a device that is the host's own processor.
CPU = "CPU"
#: Launched at an unknown time.
UNKNOWN = np.iinfo(np.int64).min


@dataclass(frozen=True)
class Exchange:
    """A collective as the trace states it.  kind: `all-reduce`, …  group_name: the process group's description.

    pattern: distances of its ranks from the first, equal for the groups of one axis.  payload_bytes: of one occurrence,
    as `Op.payload_bytes`.
    """

    kind: str
    group_name: str = ""
    pattern: tuple[int, ...] = ()
    payload_bytes: float | None = None


@dataclass(frozen=True)
class Kind:
    """What occurrences of one op have in common; equal on all ranks.

    name: framework op, shapes and kernel.  path: phase, modules and framework ops.  dtype: of a matmul.
    """

    name: str
    category: str
    path: str = ""
    source: str = ""
    dtype: str = ""
    exchange: Exchange | None = None


@dataclass
class DeviceTrace:
    """One device's activity, times in ps from the trace's own zero.

    kind: index into kinds.  launched, issued: start and end of the host's call that launched it, UNKNOWN where not
    recorded.  flops, moved_bytes: per event, NaN where not known.  blocks: of threads in a launch, -1 where not known.
    ranks: of each event's process group, by index into rank_groups, -1 for none.  streams: of each event.  host_waits:
    [n, 2] by cause, when the host waited or worked for something that holds up its launches (`marks.host_wait`).
    unserved: launches after the last recorded op's that have no activity: the device's recording ends before.
    """

    name: str
    host: str
    device_name: str
    kinds: list[Kind]
    kind: NDArray[np.int64]
    starts: Ps
    ends: Ps
    launched: Ps
    issued: Ps
    flops: NDArray[np.float64]
    moved_bytes: NDArray[np.float64]
    blocks: NDArray[np.int64]
    ranks: NDArray[np.int64]
    streams: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    rank_groups: list[tuple[int, ...]] = field(default_factory=list)
    steps: Steps = NO_STEPS
    host_waits: dict[str, Ps] = field(default_factory=dict)
    rank: int | None = None
    unserved: int = 0
    memory_peak_bytes: float | None = None
    memory_capacity_bytes: float | None = None
    chip: str | None = None

    @property
    def label(self) -> str:
        return f"{self.host} {self.name}".strip()


@dataclass(frozen=True)
class TraceFile:
    """Everything one file holds.  file: its name as the user knows it.

    world_size: ranks of the whole run, None where not stated.  notes: what was odd, as sentences.  why_no_device: why
    no device activity is known, where there is none.  recorded: what else it holds, without gaps.  steps: as the host
    marks them.  span_ns: from the first event to the last, in Unix time, None where not stated.
    """

    file: str
    devices: tuple[DeviceTrace, ...]
    rank: int | None = None
    world_size: int | None = None
    host_name: str = ""
    recorder: str = ""
    device_names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    why_no_device: str = ""
    recorded: Recorded = field(default_factory=Recorded)
    steps: Steps = NO_STEPS
    span_ns: tuple[int, int] | None = None
