"""The JSON of XProf's trace viewer → the XSpace that it was made from, as far as it holds it: start with `as_xspace`.

XProf writes the lines of each device and host with the arguments of their events, which name an op's HLO, category,
FLOPs and bytes.  Lost are the device's type and peaks, which memory an op accessed, and, of a large profile, events.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from experiments.ingest.gpu.columns import MAX_PS
from experiments.ingest.kineto.stream import events
from experiments.ingest.validate import file_host
from experiments.xplane.writer import MODULES_LINE, PlaneWriter, SpaceWriter, StatValue
from formatting.numbers import whole_number

#: A plane as the viewer names its process, with the host in front of it where there are several.
_PLANE = re.compile(r"(/(?:device|host):\S+)")
_PROGRAM = re.compile(r"\((\d{1,18})\d*\)$")
#: Arguments that say what an op is; those of a kind of event, and those of one event.
_OF_KIND = ("hlo_category", "model_flops", "flops", "bytes_accessed", "tf_op", "source", "program_id")
_OF_EVENT = (
    "hlo_op", "hlo_module", "program_id", "tf_op", "device_ordinal", "step_num", "group_id", "correlation_id",
    "memcpy_details", "kernel_details", "occupancy_pct", "run_id", "name", "cuda_graph_id",
)  # fmt: skip
_Event = tuple[int, int, str, Mapping[str, Any]]
_Thread = tuple[object, object]


def as_xspace(path: Path, name: str, target: Path) -> bool:
    """Write the XSpace of a trace viewer's JSON to `target`; return False where it has no plane of XProf's.

    Raises IngestError where it is cut off.
    """
    lines, names = _read(path, name)
    space = SpaceWriter(file_host(name.removesuffix(".gz").removesuffix(".json").removesuffix(".trace")))
    planes = {process: match[1] for (process, thread), text in names.items()
              if thread is None and (match := _PLANE.search(text))}  # fmt: skip
    zero = min((start for rows in lines.values() for start, *_ in rows), default=0)
    for process, plane in planes.items():
        writer = space.add_plane(plane)
        if ":TPU:" in plane:
            writer.add_stats({"device_type_string": "TPU"})
        own = {thread: sorted(rows, key=lambda row: (row[0], -row[1])) for (of, thread), rows in lines.items()
               if of == process}  # fmt: skip
        programs = [row for thread, rows in own.items() if names.get((process, thread)) == MODULES_LINE for row in rows]
        kinds: dict[tuple[object, ...], int] = {}
        for thread, rows in own.items():
            _add_line(writer, names.get((process, thread), str(thread)), rows, programs, kinds, zero)
    space.write(target)
    return bool(planes)


def _read(path: Path, name: str) -> tuple[dict[_Thread, list[_Event]], dict[_Thread, str]]:
    """(events by process and thread, names of processes (thread None) and of threads)."""
    lines: dict[_Thread, list[_Event]] = defaultdict(list)
    names: dict[_Thread, str] = {}
    for event in events(path, name, cleaned=True):
        args = event.get("args")
        args = args if isinstance(args, dict) else {}
        place, called = (event.get("pid"), event.get("tid")), event.get("name")
        if not all(isinstance(each, int | str | None) for each in place):
            continue
        if event.get("ph") == "M" and called in ("process_name", "thread_name"):
            names[place[0], place[1] if called == "thread_name" else None] = str(args.get("name"))[:200]
        start, duration = event.get("ts"), event.get("dur", 0)
        if event.get("ph") != "X" or not isinstance(start, int | float) or not isinstance(duration, int | float):
            continue
        if isfinite(start) and isfinite(duration) and 0 <= start * 1e6 < MAX_PS and 0 <= duration * 1e6 < MAX_PS:
            lines[place].append((round(start * 1e6), round(duration * 1e6), str(called)[:10_000], args))
    return lines, names


def _add_line(
    writer: PlaneWriter,
    name: str,
    rows: list[_Event],
    programs: list[_Event],
    kinds: dict[tuple[object, ...], int],
    zero: int,
) -> None:
    """Write one line.  programs: executions on its plane, by which its ops belong to one.  kinds: written so far."""
    line = writer.add_line(name)
    begins = np.array([start for start, *_ in programs], np.int64)
    for start, duration, called, args in rows:
        key: tuple[object, ...] = (called,)
        text, own, of_event = called, {}, _values(args, _OF_EVENT)
        if "hlo_category" in args:
            at = int(np.searchsorted(begins, start, side="right")) - 1
            match = _PROGRAM.search(programs[at][2]) if at >= 0 else None
            own, of_event = {"program_id": whole_number(match[1]) or 0 if match else 0, **_values(args, _OF_KIND)}, {}
            own.setdefault("flops", own.get("model_flops", 0))
            key, text = (called, own["program_id"]), str(args.get("long_name", called))
        if key not in kinds:
            own |= {"symbol_id": len(kinds) + 1} if own else {}
            kinds[key] = writer.add_event_metadata(text, called if own else "", own)
        line.add_event(kinds[key], start - zero, duration, of_event)


def _values(args: Mapping[str, Any], keys: Sequence[str]) -> dict[str, StatValue]:
    """Return the arguments of these keys; the viewer writes every value as text."""
    values: dict[str, StatValue] = {}
    for key in keys:
        if isinstance(value := args.get(key), str | int | float) and (text := str(value)[:10_000]):
            number = whole_number(text)
            values[key] = text if number is None else number
    return values
