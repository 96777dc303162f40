"""Checks on one host's profile before XProf sees it, and what it holds.

XProf dies on a cycle in the event metadata, takes an empty file for a profile of zeros, and fails for the whole session
when one host is broken, without naming it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from google.protobuf.message import DecodeError

from experiments.ingest import wire
from experiments.ingest.errors import IngestError
from experiments.ingest.formats import HEAD_BYTES, WHAT_IS_ACCEPTED, named_format, sniff, why_not
from experiments.ingest.marks import Annotations
from experiments.ingest.planes import base_ns, core_planes, op_lines, step_line
from experiments.ingest.steps import unix_span
from experiments.xplane import XPlane, XSpace
from formatting import plain

#: What XProf needs for each op event, and more for each op of each step of each core, of which it keeps a record;
#: beside what the process needs anyway.  Measured with xprof 2.24.2: 0.48 million events without steps 0.48 GB, 0.46
#: and 1.85 million ops × steps × cores 0.92 and 3.55 GB.
BYTES_PER_EVENT = 950
BYTES_PER_STEP_OP = 1_000
BASE_BYTES = 120_000_000

COPY_AGAIN = "Copy it again from the host, or continue without this host."


@dataclass(frozen=True)
class HostFacts:
    """What one host's profile holds.

    steps: marked steps, 0 if none.  step_ops: ops × steps × cores, at most the number of op events.  events: op events.
    converter_bytes: memory XProf is expected to need for it.  span_ns: from its first line to the last event, in Unix
    time; None where the lines are not.
    """

    host: str
    planes: int
    cores: int
    steps: int
    ops: int
    events: int
    step_ops: int
    is_cpu: bool
    has_host_threads: bool = False
    span_ns: tuple[int, int] | None = None

    @property
    def converter_bytes(self) -> int:
        return self.step_ops * BYTES_PER_STEP_OP + self.events * BYTES_PER_EVENT


def check_outline(data: memoryview, name: str) -> wire.Outline:
    """The outer levels of a profile, or an IngestError that says where it breaks."""
    if not len(data):
        raise IngestError(*why_not(name, "empty"), name, kind="empty")
    try:
        outline = wire.outline(data)
    except wire.WireError as error:
        raise _damaged(data, name, error) from error
    if not outline.planes:
        raise IngestError(
            f"{name} contains no planes: nothing was recorded.",
            "Profile again for at least one step.",
            name,
            kind="empty",
        )
    if not outline.named:
        raise IngestError(
            f"{name} is not a profile: it contains {outline.planes} unnamed planes.",
            WHAT_IS_ACCEPTED,
            name,
            kind="format",
        )
    return outline


def _damaged(data: memoryview, name: str, error: wire.WireError) -> IngestError:
    head = bytes(data[:HEAD_BYTES])
    if (kind := sniff(head)) in ("text", "json"):
        return IngestError(*(named_format(name, head) or why_not(name, kind)), name, kind="format")
    if isinstance(error, wire.TooManyPlanes):
        return IngestError(
            f"{name} is not a profile: {error.reason}; a host has a few per device.", WHAT_IS_ACCEPTED, name
        )
    if error.needs is not None and (error.offset > 0 or wire.looks_like_xspace(bytes(data[:HEAD_BYTES]))):
        missing = error.needs - len(data)
        return IngestError(
            f"{name} is incomplete: it ends after {plain(len(data), 'bytes')}, and its last record needs "
            f"{plain(missing, 'bytes')} more.",
            COPY_AGAIN,
            name,
            kind="truncated",
        )
    if error.offset == 0 or not wire.looks_like_xspace(bytes(data[:HEAD_BYTES])):
        return IngestError(f"{name} is not an XProf profile: it is not an XSpace.", WHAT_IS_ACCEPTED, name)
    return IngestError(
        f"{name} is damaged at byte {error.offset:,}: {error.reason}.", COPY_AGAIN, name, kind="truncated"
    )


def load(path: Path, name: str) -> tuple[XSpace, wire.Outline]:
    """The profile as an XSpace, checked; IngestError with the reason otherwise."""
    data = path.read_bytes()
    outline = check_outline(memoryview(data), name)
    space = XSpace()
    try:
        space.ParseFromString(data)
    except DecodeError as error:
        if "alloc" in str(error):
            raise MemoryError(str(error)) from error  # the limit's fault, not the file's
        raise IngestError(
            f"{name} is damaged: a plane in it cannot be decoded.",
            COPY_AGAIN,
            name,
            kind="truncated",
            detail=str(error),
        ) from error
    for plane in space.planes:
        check_no_cycle(plane, name)
    return space, outline


def check_no_cycle(plane: XPlane, name: str) -> None:
    """IngestError where event metadata are their own descendants: XProf follows child_id until its stack ends."""
    children = {key: list(meta.child_id) for key, meta in plane.event_metadata.items() if meta.child_id}
    done: set[int] = set()
    for root in children:
        if root in done:
            continue
        path: set[int] = {root}
        stack = [(root, iter(children[root]))]
        while stack:
            node, rest = stack[-1]
            for child in rest:
                if child in path:
                    raise IngestError(
                        f"{name} is damaged: in plane {plane.name or '(no name)'}, event kind {child} is a descendant "
                        "of itself.",
                        "Profile again; no profiler writes this.",
                        name,
                        kind="cycle",
                    )
                if child in children and child not in done:
                    path.add(child)
                    stack.append((child, iter(children[child])))
                    break
            else:
                stack.pop()
                path.discard(node)
                done.add(node)


def is_cpu_recording(space: XSpace) -> bool:
    """Whether ops ran on host threads only (XLA on CPU), so that there is no device plane."""
    if core_planes(space):
        return False
    for plane in space.planes:
        if plane.name.startswith("/host:") and any(
            meta.name == "device_ordinal" for meta in plane.stat_metadata.values()
        ):
            return any(meta.name == "hlo_op" for meta in plane.stat_metadata.values())
    return False


def facts(space: XSpace, host: str) -> HostFacts:
    """Counts of one host's profile, from its planes alone."""
    if is_cpu_recording(space):
        # Regrouped later; the events of the host bound what there can be.
        events = sum(len(line.events) for plane in space.planes for line in plane.lines)
        return HostFacts(host, len(space.planes), 0, 0, 0, events, 0, True, True)
    planes = core_planes(space)
    steps = events = step_ops = 0
    ops: set[str] = set()
    annotated: int | None = None
    for plane in planes:
        lines = op_lines(plane)
        count = sum(len(line.events) for line in lines)
        marked = step_line(plane)
        if marked is not None:
            plane_count = len(marked.events)
        else:
            if annotated is None:
                annotated = len(Annotations(space).steps(base_ns(lines)))
            plane_count = annotated
        kinds = len(plane.event_metadata)
        ops.update(meta.display_name or meta.name for meta in plane.event_metadata.values())
        events += count
        steps = max(steps, plane_count)
        step_ops += min(count, plane_count * kinds)
    threads = any(line.events for plane in space.planes if plane.name.startswith("/host:CPU") for line in plane.lines)
    lines = [line for plane in planes for line in plane.lines if line.events]
    ends = (line.timestamp_ns + (line.events[-1].offset_ps + line.events[-1].duration_ps) // 1000 for line in lines)
    span = unix_span(base_ns(lines), max(ends, default=0))
    return HostFacts(host, len(space.planes), len(planes), steps, len(ops), events, step_ops, False, threads, span)


def host_name(outline: wire.Outline, name: str) -> str:
    """The host a profile comes from: as written in it, else its file's name."""
    written = next((host.strip() for host in outline.hostnames if host.strip()), "")
    return written or file_host(name)


def file_host(name: str) -> str:
    """`t1v-n-0` of `run.zip: plugins/profile/a/t1v-n-0.xplane.pb.gz`."""
    base = name.replace("\\", "/").rpartition("/")[2].rpartition(": ")[2]
    for ending in (".gz", ".pb", ".xplane"):
        base = base.removesuffix(ending)
    return base or "host"
