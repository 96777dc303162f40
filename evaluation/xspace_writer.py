"""A small builder for XSpaces that XProf's converter reads.

Metadata ids are handed out in order of first use, so equal input gives equal bytes.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from pathlib import Path

from experiments.xplane.xplane_pb2 import XEventMetadata, XLine, XPlane, XSpace, XStat

#: A stat's value: `float` is written as double, `int` as uint64, `str` and `bytes` as they are.
StatValue = float | int | str | bytes

STEPS_LINE = "Steps"
MODULES_LINE = "XLA Modules"
OPS_LINE = "XLA Ops"


class LineWriter:
    """One row of a plane's timeline.  Events are written in the order in which they are added."""

    def __init__(self, line: XLine, plane: PlaneWriter) -> None:
        self._line, self._plane = line, plane

    def add_event(
        self, metadata_id: int, offset_ps: int, duration_ps: int, stats: Mapping[str, StatValue] | None = None
    ) -> None:
        """Add an event that starts `offset_ps` after the line's start and lasts `duration_ps`.

        Raises ValueError for a negative time.
        """
        if offset_ps < 0 or duration_ps < 0:
            raise ValueError(f"an event needs times of at least 0, got {offset_ps} ps and {duration_ps} ps")
        event = self._line.events.add()
        event.metadata_id = metadata_id
        event.offset_ps = offset_ps
        event.duration_ps = duration_ps
        for name, value in (stats or {}).items():
            self._plane.fill(event.stats.add(), name, value)


class PlaneWriter:
    """One device or host of an XSpace."""

    def __init__(self, plane: XPlane) -> None:
        self._plane = plane
        self._stat_ids: dict[str, int] = {}

    def stat_id(self, name: str) -> int:
        if name not in self._stat_ids:
            self._stat_ids[name] = len(self._stat_ids) + 1
            entry = self._plane.stat_metadata[self._stat_ids[name]]
            entry.id = self._stat_ids[name]
            entry.name = name
        return self._stat_ids[name]

    def fill(self, stat: XStat, name: str, value: StatValue) -> None:
        """Set a stat to a value under a name of this plane."""
        stat.metadata_id = self.stat_id(name)
        if isinstance(value, float):
            stat.double_value = value
        elif isinstance(value, int):
            stat.uint64_value = value
        elif isinstance(value, str):
            stat.str_value = value
        else:
            stat.bytes_value = value

    def add_stats(self, stats: Mapping[str, StatValue]) -> None:
        """Facts about the plane, e.g. `peak_teraflops_per_second`."""
        for name, value in stats.items():
            self.fill(self._plane.stats.add(), name, value)

    def add_line(self, name: str, timestamp_ns: int = 0) -> LineWriter:
        line = self._plane.lines.add()
        line.id = len(self._plane.lines)
        line.name = name
        line.timestamp_ns = timestamp_ns
        return LineWriter(line, self)

    def add_event_metadata(
        self, name: str, display_name: str = "", stats: Mapping[str, StatValue] | None = None
    ) -> int:
        """The id of a new kind of event.  For an HLO op `name` is its HLO text and `display_name` the op's name."""
        metadata_id = len(self._plane.event_metadata) + 1
        entry: XEventMetadata = self._plane.event_metadata[metadata_id]
        entry.id = metadata_id
        entry.name = name
        entry.display_name = display_name
        for stat_name, value in (stats or {}).items():
            self.fill(entry.stats.add(), stat_name, value)
        return metadata_id


class SpaceWriter:
    """What one host recorded, written plane by plane."""

    def __init__(self, host: str) -> None:
        self.space = XSpace(hostnames=[host])

    def add_plane(self, name: str) -> PlaneWriter:
        plane = self.space.planes.add()
        plane.id = len(self.space.planes)
        plane.name = name
        return PlaneWriter(plane)

    def to_bytes(self) -> bytes:
        data: bytes = self.space.SerializeToString(deterministic=True)
        return data

    def write(self, path: Path) -> None:
        """Writes the file; a name that ends in `.gz` is compressed (without a time stamp: equal input, equal file)."""
        data = self.to_bytes()
        path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
