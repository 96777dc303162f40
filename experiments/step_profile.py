"""StepProfile: what one profiling session measured, as plain values.

XProf's converter (or a JSON export of it), a PyTorch trace or an Nsight Systems export is read into this once; the
Analyzer, the proposals and the pages only know this.  A quantity that was not measured is `None`, with the reason in
`StepProfile.not_measured`, and never 0.
Times in seconds, shares and efficiencies 0–1, rates per second and SI (XProf's GiB/s are converted on the way in).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from experiments.codec import Codec
from experiments.memory_profile import AllocatorCurve, HeapSchedule

#: How the profile came to be; shown wherever its numbers are.  `predicted`: nothing was measured.
PROVENANCES = ("measured", "reconstructed", "predicted")
#: Kinds of profile that are traces of a GPU's kernels and copies, not of a program's ops.
GPU_TRACES = ("kineto", "nsight")
#: Of programs that XLA compiled.
XLA_PROFILES = ("xplane", "xprof_json")
#: What is known of a step (`StepProfile.basis`): a profile, its time alone, or what the performance model says of it.
PROFILE, STEP_TIME, MODEL = "profile", "step_time", "model"

#: A kind of recording, or of program, that nothing tells.
UNDECIDED = "unknown"

#: `Op.bound_by` of launches too small to fill the device: neither its arithmetic nor its memory limits them.
LATENCY = "Latency"
#: Clocks vary: up to here an efficiency counts as the peak itself.
OVER_ROOF = 1.02
_ASYNCHRONOUS = re.compile(r"-(start|done)([.\d-]|$)")


@dataclass(frozen=True)
class SourceFile:
    """One uploaded file: its name as the user knows it, its host, its size and hash."""

    name: str
    host: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class Device:
    """The accelerators as the profile names them.

    kind: XProf's device type (``TPU v5p``, ``AMD GPU - gfx950``, ``CPU``).  chip: our key (``v5p``), None if not known.
    core_count: devices of the recorded hosts (JAX devices).  recorded_cores: those of them that recorded any op, over
    which totals are sums; None where that is all of them.  Peaks are per core as the profile states them, None where it
    does not.  memory_bytes: of one core, None where not stated.  world_size: devices of the whole run where the profile
    states it; may exceed core_count, the devices recorded.
    """

    kind: str
    chip: str | None
    core_count: int
    host_count: int
    peak_flops_per_s: float | None = None
    peak_hbm_bytes_per_s: float | None = None
    world_size: int | None = None
    recorded_cores: int | None = None
    memory_bytes: float | None = None

    @property
    def measured_cores(self) -> int:
        """Cores over which times, FLOPs and bytes of ops are sums."""
        return self.core_count if self.recorded_cores is None else self.recorded_cores


@dataclass(frozen=True)
class Step:
    """One training step, averaged over cores.

    breakdown_s: exclusive parts as XProf splits them, keys among `compute`, `collective`, `host_transfer` (waiting for
    copies between HBM and host memory), `device_to_device`, `input`, `output`, `host`, `launch`, `compile`, `idle`,
    `other`; a part that was not measured is absent.
    """

    number: int
    time_s: float
    breakdown_s: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Core:
    """One core's mean step, for stragglers.  Same keys as `Step.breakdown_s`.

    collective_s: merged time in which a collective ran on this core, per step; exposed_s: the part of it in which no
    other op ran.  host_transfer_s: merged time in which a copy between HBM and host memory was in flight, per step, so
    that the bytes of those copies per step and core over it is the rate of the host link.  None where the profile has
    no intervals.
    """

    name: str
    host: str
    breakdown_s: dict[str, float] = field(default_factory=dict)
    busy_s: float | None = None
    collective_s: float | None = None
    exposed_s: float | None = None
    host_transfer_s: float | None = None


@dataclass(frozen=True)
class Op:
    """One HLO op of one program, summed over all its occurrences on all cores in the profiled window.

    time_share: of the profiled device time, idle included, as XProf's tables state it, so that time_share × step time
    is the op's time per step and core.  flops and bytes: totals over the occurrences (None: not recorded).
    Efficiencies are relative to the chip's roofline, as the profile states them: above 1 where its cost model counts
    more than was computed or moved; `credible_efficiency` is what may be concluded from.  hlo: HLO text, op_name:
    framework path (``jit(step)/…/dot_general``), source: ``file.py:12``: text from the user's program, hence data, not
    markup.

    Of a collective, totals over the occurrences like self_time_s: in_flight_s, from its start to its end (of an
    asynchronous one: from its start op to its done op, stated at the done op), and exposed_s, the part of that in which
    no other op ran on the core: while its own op ran, and its part of the gaps in which nothing ran, so that exposed_s
    of all ops sums to `Core.exposed_s`.  Of an asynchronous copy (slice, update) in_flight_s alone, in the same way.
    host_bytes: what the op moved between HBM and host memory (memory space S(5) in its HLO), None where it moved none;
    an asynchronous one states it at its done op.  core_max_s, core_min_s: the op's time on the core where it took
    longest and shortest, over its occurrences there, among core_count cores that ran it; slowest_core: host and name of
    the former.  None without intervals.

    Of a collective without HLO, as the profile states it: groups, the ranks of each process group that ran it;
    group_name, what the program calls them; payload_bytes of one occurrence: the whole array as one group holds it
    (all-gather, reduce-scatter, all-reduce), or what one device holds (all-to-all, broadcast, send).  wait_s: the part
    of self_time_s in which devices that came early waited inside it for the last, None if unknown.
    """

    name: str
    category: str
    occurrences: int
    self_time_s: float
    total_time_s: float
    time_share: float
    program: str = ""
    rank: int = 0
    flops: float | None = None
    bytes_accessed: float | None = None
    hbm_bytes: float | None = None
    flops_per_s: float | None = None
    hbm_bytes_per_s: float | None = None
    operational_intensity: float | None = None
    bound_by: str | None = None
    roofline_efficiency: float | None = None
    compute_efficiency: float | None = None
    memory_bandwidth_utilization: float | None = None
    hlo: str = ""
    op_name: str = ""
    source: str = ""
    in_flight_s: float | None = None
    exposed_s: float | None = None
    core_max_s: float | None = None
    core_min_s: float | None = None
    core_count: int | None = None
    slowest_core: str = ""
    host_bytes: float | None = None
    groups: tuple[tuple[int, ...], ...] | None = None
    group_name: str = ""
    payload_bytes: float | None = None
    wait_s: float | None = None

    @property
    def is_asynchronous(self) -> bool:
        """Whether this only starts or awaits concurrent work, so that its time says nothing of its rate."""
        return bool(_ASYNCHRONOUS.search(self.name) or _ASYNCHRONOUS.search(self.category))

    @property
    def over_roof(self) -> tuple[str, ...]:
        """`compute`, `hbm`, where the op claims more of the peak than there is: its counts cannot be what it did."""
        claimed = {"compute": self.compute_efficiency, "hbm": self.memory_bandwidth_utilization}
        above = tuple(key for key, value in claimed.items() if value is not None and value > OVER_ROOF)
        whole = self.roofline_efficiency is not None and self.roofline_efficiency > OVER_ROOF
        return above or (("compute" if self.bound_by == "Compute" else "hbm",) if whole else ())

    @property
    def credible_efficiency(self) -> float | None:
        """`roofline_efficiency`, 0–1; None where it is not known, above the roof, or of an asynchronous op."""
        if self.roofline_efficiency is None or self.over_roof or self.is_asynchronous:
            return None
        return min(self.roofline_efficiency, 1.0)

    @property
    def key(self) -> str:
        return f"{self.program}/{self.name}" if self.program else self.name


@dataclass(frozen=True)
class Timeline:
    """Steps by cores, for a strip per core: at most a thousand cells, whatever was recorded.

    cores, hosts: names in the order of the rows; steps: numbers in the order of the columns.  durations_s[core][step],
    and parts_s[part][core][step] with the exclusive parts of `Step.breakdown_s`, which sum to the duration.
    cores_total, steps_total: how many there are; of more cores than fit, the slowest, the fastest and some between are
    shown, of more steps every n-th.
    """

    cores: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    steps: tuple[int, ...] = ()
    durations_s: tuple[tuple[float, ...], ...] = ()
    parts_s: dict[str, tuple[tuple[float, ...], ...]] = field(default_factory=dict)
    cores_total: int = 0
    steps_total: int = 0


@dataclass(frozen=True)
class Memory:
    """Peak device memory of the worst core, and its capacity, as profiled.

    schedule: the heap of the program that needs most, by its schedule; allocator: what a device's allocator handed out
    over time.  None where the profile does not say.
    """

    peak_bytes: float | None = None
    capacity_bytes: float | None = None
    schedule: HeapSchedule | None = None
    allocator: AllocatorCurve | None = None


@dataclass(frozen=True)
class Note:
    """A diagnostic of XProf or of our own reading.  severity: `info`, `warning` or `error`."""

    severity: str
    message: str


@dataclass(frozen=True)
class Recorded:
    """Hold what a trace of a GPU holds beside its device ops, as the reader saw it.

    has: of `launches`, `host ops`, `shapes`, `backward`, `optimizer`, `graph capture`, `input waits`,
    `lost device activity` (of most launches).
    context_requests, generation_requests: most that a serving engine states for one iteration, None where none does.
    gaps: shares 0–1 of the profiled time in which the device was idle, by what the next op waited for: the host, while
    it waited for `input`, was in a `synchronisation`, the `optimizer` or a `checkpoint`, or else until its late
    `launch`; `rare`: a module is loaded or compiled, or a few gaps hold half of the idle time; `queued`: launched in
    time; `unknown`: its launch is not in the trace.
    before_s: device time of ops that were launched before the recording began.
    start_up_s: length of the start-up, which no share counts.
    kind, program: what the engineer states it to be (`diagnosis.recording`), empty where nobody did.
    """

    has: tuple[str, ...] = ()
    context_requests: int | None = None
    generation_requests: int | None = None
    gaps: dict[str, float] = field(default_factory=dict)
    before_s: float = 0.0
    start_up_s: float = 0.0
    kind: str = ""
    program: str = ""


@dataclass(frozen=True)
class StepProfile:
    """One profiling session over all its hosts.

    kpis: shares 0–1 as XProf states them, keys among `duty_cycle`, `idle`, `communication`, `input`, `host`, `output`,
    `mxu_utilization`, `hbm_utilization`, `flops_utilization`, `goodput`; None where not measured.
    not_measured: reason by quantity name (the kpi's key, `step_time`, `flops`, `memory`, …).
    ops: by descending self time.  ops_dropped: rows the export left out (XProf caps; the paper prints five), None if
    unknown.  step_time_s and its spread are over the profiled steps, mean over cores.
    computed: how, by quantity name, a value was computed that XProf does not state.
    """

    provenance: str
    source_kind: str  # "xplane", "xprof_json", "kineto" or "nsight"; `step_time` or `model` without a profile
    device: Device
    files: tuple[SourceFile, ...] = ()
    step_time_s: float | None = None
    step_time_min_s: float | None = None
    step_time_max_s: float | None = None
    step_time_stdev_s: float | None = None
    steps: tuple[Step, ...] = ()
    cores: tuple[Core, ...] = ()
    kpis: dict[str, float | None] = field(default_factory=dict)
    not_measured: dict[str, str] = field(default_factory=dict)
    ops: tuple[Op, ...] = ()
    ops_dropped: int | None = 0
    memory: Memory = Memory()
    notes: tuple[Note, ...] = ()
    converter: str = ""  # e.g. "xprof 2.24.2"
    computed: dict[str, str] = field(default_factory=dict)
    label: str = ""  # e.g. "CPU recording", "reconstructed from the paper, experiment 3"
    timeline: Timeline = Timeline()
    recorded: Recorded = Recorded()

    @property
    def basis(self) -> str:
        """PROFILE, or STEP_TIME or MODEL where there is none (`experiments.without_profile`)."""
        return self.source_kind if self.source_kind in (STEP_TIME, MODEL) else PROFILE


STEP_PROFILE = Codec(StepProfile)
