"""Checks on one host's profile before XProf sees it, and what it holds.

XProf takes an empty file for a profile of zeros, and fails for the whole session when one host is broken, without
naming it.
"""

from __future__ import annotations

from pathlib import Path

from google.protobuf.message import DecodeError

from experiments.ingest.errors import COPY_AGAIN, IngestError
from experiments.ingest.formats import HEAD_BYTES, WHAT_IS_ACCEPTED, named_format, sniff, why_not
from experiments.ingest.planes import base_ns, core_planes
from experiments.ingest.steps import unix_span
from experiments.xplane import XSpace


def load(path: Path, name: str) -> XSpace:
    """The profile; IngestError where it is none, or damaged."""
    data = path.read_bytes()
    space = XSpace()
    try:
        space.ParseFromString(data)
    except DecodeError as error:
        if "alloc" in str(error):
            raise MemoryError(str(error)) from error  # the limit's fault, not the file's
        raise _undecodable(data[:HEAD_BYTES], name, str(error)) from error
    if not any(plane.name for plane in space.planes):
        raise IngestError(
            f"{name} contains no named planes: nothing was recorded.",
            "Profile again for at least one step.",
            name,
            kind="empty",
        )
    return space


def _undecodable(head: bytes, name: str, detail: str) -> IngestError:
    kind = sniff(head)
    if kind in ("text", "json"):
        return IngestError(*(named_format(name, head) or why_not(name, kind)), name)
    if kind != "xplane":
        return IngestError(f"{name} is not an XProf profile: it is not an XSpace.", WHAT_IS_ACCEPTED, name)
    return IngestError(
        f"{name} is incomplete or damaged: it cannot be decoded.", COPY_AGAIN, name, kind="truncated", detail=detail
    )


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


def span_ns(space: XSpace) -> tuple[int, int] | None:
    """From the first line of any core to the last event, in Unix time; None where the lines are not."""
    lines = [line for plane in core_planes(space) for line in plane.lines if line.events]
    ends = (line.timestamp_ns + (line.events[-1].offset_ps + line.events[-1].duration_ps) // 1000 for line in lines)
    return unix_span(base_ns(lines), max(ends, default=0))


def host_name(space: XSpace, name: str) -> str:
    """The host a profile comes from: as written in it, else its file's name."""
    written = next((host.strip() for host in space.hostnames if host.strip()), "")
    return written or file_host(name)


def file_host(name: str) -> str:
    """`t1v-n-0` of `run.zip: plugins/profile/a/t1v-n-0.xplane.pb.gz`."""
    base = name.replace("\\", "/").rpartition("/")[2].rpartition(": ")[2]
    for ending in (".gz", ".pb", ".xplane"):
        base = base.removesuffix(ending)
    return base or "host"
