"""Kernels of GPUs that belong to no op of XProf's table: TensorFlow outside XLA, command buffers, missing HLO."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import formatting
from experiments.ingest.gpu.kernels import (
    HOST_COPIES,
    MEMSET,
    base_name,
    category,
    collective_kind,
    copy_category,
)
from experiments.ingest.planes import core_planes, in_range, op_lines, stat_ids, stat_value
from experiments.ingest.values import text
from experiments.step_profile import Note, Op
from experiments.xplane import XPlane, XSpace, XStat

#: XProf's table is left as it is where it names the ops of this part of the kernels' time.
ENOUGH = 0.9
_COPY = re.compile(r"^(memcpy|memset|copy(host|device|peer))|copybuffer|fillbuffer", re.I)
_SIZE = re.compile(r"\bsize:(\d+)")
_GRAPH_LAUNCH = re.compile(r"(cu|cuda|hip)GraphLaunch", re.I)
_GRAPHS = ("cuda_graph_id", "cuda_graph_exec_id")
_STATS = ("hlo_op", "hlo_module", "program_id", "tf_op", "name", "memcpy_details", *_GRAPHS)


@dataclass
class _Sum:
    count: int = 0
    time_ps: int = 0
    bytes: int = 0
    path: str = ""


@dataclass
class Kernels:
    """Kernels by (program id, program, HLO op, kernel), and the time in those launched as graphs, in ps."""

    sums: dict[tuple[str, str, str, str], _Sum] = field(default_factory=dict)
    graph_ps: int = 0
    launches_graphs: bool = False

    def add(self, space: XSpace, named: set[tuple[str, str]]) -> None:
        """Add one host's kernels that are not among named, the (program id, op) of XProf's table."""
        for plane in core_planes(space):
            if ":GPU:" in plane.name:
                self._add_plane(plane, named)
        self.launches_graphs |= any(
            _GRAPH_LAUNCH.search(meta.name) for plane in space.planes for meta in plane.event_metadata.values()
        )

    def _add_plane(self, plane: XPlane, named: set[tuple[str, str]]) -> None:
        ids = {key: name for name, key in stat_ids(plane, *_STATS).items()}
        for line in op_lines(plane):
            for event in line.events:
                if not in_range(event) or event.metadata_id not in plane.event_metadata:
                    continue
                said = {ids[stat.metadata_id]: stat for stat in event.stats if stat.metadata_id in ids}
                op = _stat_text(plane, said, "hlo_op").rpartition("::")[2]
                program = _stat_text(plane, said, "program_id")
                # XProf lists ops of programs whose HLO it has, and ops of TensorFlow.
                if (program, op) in named if op else _stat_text(plane, said, "tf_op"):
                    continue
                if any(_stat_text(plane, said, key) not in ("", "0") for key in _GRAPHS):
                    self.graph_ps += event.duration_ps
                kernel = plane.event_metadata[event.metadata_id].name
                key = (program, _stat_text(plane, said, "hlo_module"), op, "" if op else kernel)
                total = self.sums.setdefault(key, _Sum())
                total.count += 1
                total.time_ps += event.duration_ps
                total.path = total.path or _stat_text(plane, said, "name")
                size = _SIZE.search(_stat_text(plane, said, "memcpy_details"))
                total.bytes += int(size.group(1)) if size else 0

    @property
    def time_s(self) -> float:
        return sum(total.time_ps for total in self.sums.values()) * 1e-12

    def ops(self, total_s: float) -> list[tuple[Op, str]]:
        """(op, program id) of each; total_s: profiled time over all cores.  Kernels keep their whole names."""
        return [
            (_op(program, op, kernel, total, total_s), program_id)
            for (program_id, program, op, kernel), total in self.sums.items()
            if total.time_ps > 0
        ]

    def note(self, share: float) -> Note:
        """Why there are kernels in place of ops.  share: of all kernels' time."""
        if self.graph_ps or self.launches_graphs:
            return Note(
                "warning",
                f"{formatting.share(share, 2)} of kernel time has no HLO op: it ran in command buffers (CUDA graphs). "
                "Kernels are listed instead. Record with XLA_FLAGS=--xla_gpu_enable_command_buffer= to see HLO ops, "
                "FLOPs and the roofline.",
            )
        return Note(
            "warning",
            f"{formatting.share(share, 2)} of kernel time has no recorded HLO op: kernels are listed instead, without "
            "FLOPs, bytes or a roofline.",
        )


def _stat_text(plane: XPlane, said: dict[str, XStat], name: str) -> str:
    return str(stat_value(plane, said[name]) or "") if name in said else ""


def _op(program: str, op: str, kernel: str, total: _Sum, total_s: float) -> Op:
    seconds = total.time_ps * 1e-12
    kind = kernel_category(kernel, total.path) if kernel else hlo_category(op)
    return Op(
        name=text(op or kernel, 500),
        category=kind,
        occurrences=total.count,
        self_time_s=seconds,
        total_time_s=seconds,
        time_share=seconds / total_s if total_s > 0 else 0.0,
        program=text(program, 200),
        op_name=text(total.path, 1000),
        host_bytes=float(total.bytes) if total.bytes and kind in HOST_COPIES else None,
    )


def kernel_category(kernel: str, op: str = "") -> str:
    """Category of a kernel or copy by CUPTI's or ROCm's name."""
    if _COPY.search(kernel):
        if "memset" in kernel.lower() or "fillbuffer" in kernel.lower():
            return MEMSET
        return copy_category(re.sub(r"([HDP])2([HDP])", r"\1to\2", kernel))
    return collective_kind(kernel) or category(kernel, op)


_FRAMEWORK_COLLECTIVE = re.compile(
    r"^(collective|nccl|crossreplica|psum|ppermute|all_gather|all_to_all|reduce_scatter)", re.I
)
_FRAMEWORK_KINDS = (
    ("reduce-scatter", re.compile(r"reduce_?scatter", re.I)),
    ("all-gather", re.compile(r"gather", re.I)),
    ("all-to-all", re.compile(r"all_?to_?all", re.I)),
    ("collective-permute", re.compile(r"permute", re.I)),
    ("collective-broadcast", re.compile(r"bcast|broadcast", re.I)),
)


def framework_category(kind: str) -> str:
    """The type of a framework's op (`MatMul`), a collective by what it does: `all-reduce` of `CollectiveReduceV2`."""
    if not _FRAMEWORK_COLLECTIVE.search(kind):
        return kind
    return next((name for name, pattern in _FRAMEWORK_KINDS if pattern.search(kind)), "all-reduce")


def hlo_category(op: str) -> str:
    """What an HLO op is named after: `all-reduce` of `all-reduce-start.3`, `loop_fusion` of `loop_fusion.12`."""
    return re.sub(r"(-(start|done))?[.\d]*$", "", op) or "unknown"


def with_collectives_named(ops: Sequence[Op]) -> list[Op]:
    """TensorFlow's ops, named `op/kernel` by XProf, with the category of the collective that their kernel is."""
    named: list[Op] = []
    for op in ops:
        if op.hlo:
            named.append(op)
            continue
        kind = collective_kind(op.name.rpartition("/")[2]) or framework_category(op.category)
        named.append(replace(op, category=kind))
    return named


def shortened(ops: Iterable[Op]) -> list[Op]:
    """The ops with kernels by their function's name; of several with one name, all but the first are numbered."""
    taken: Counter[tuple[str, str]] = Counter()
    result: list[Op] = []
    for op in ops:
        name = op.name if op.hlo or op.program else base_name(op.name)
        taken[op.program, name] += 1
        count = taken[op.program, name]
        result.append(replace(op, name=name if count == 1 else f"{name} #{count}"))
    return result


def named_ops(stats: Any) -> set[tuple[str, str]]:
    """(program id, op) of XProf's table."""
    return {(str(metric.hlo_module_id), metric.name) for metric in stats.device_op_metrics_db.metrics_db}
