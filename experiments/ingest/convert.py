"""XProf's converter: one session's files in, its tables out.  Runs in the sandbox only."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from experiments.ingest.errors import IngestError

#: XProf's cache of the op statistics, written next to its input.
OP_STATS_CACHE = "ALL_HOSTS.op_stats_v2.pb"
_PROTO = ".hlo_proto.pb"
#: Programs whose heap is looked at, to find the one that needs most.
MOST_PROGRAMS = 8


@dataclass(frozen=True)
class Tables:
    """What XProf says about one session.

    overview: list of gviz tables.  roofline: list of gviz tables.  op_stats: its OpStats message.  allocators: of its
    memory profile; heap: its memory viewer's table of the program that needs most; empty where it has none.
    """

    overview: list[Any]
    roofline: list[Any]
    op_stats: Any
    converter: str
    allocators: dict[str, Any] = field(default_factory=dict)
    heap: dict[str, Any] = field(default_factory=dict)


def session_file(folder: Path, host: str, taken: set[str]) -> Path:
    """A path in the session's folder, named after the host as far as a file name can be."""
    base = re.sub(r"[^A-Za-z0-9._-]", "_", host)[:100].lstrip(".") or "host"
    name, number = base, 1
    while name in taken:
        number += 1
        name = f"{base}_{number}"
    taken.add(name)
    return folder / f"{name}.xplane.pb"


def convert(paths: list[Path], subject: str) -> Tables:
    """All tables of one session; IngestError with XProf's own words as detail where it refuses.

    paths: one file per host in a fresh folder; XProf keeps its cache there and would believe a stale one.
    """
    # Imported here: it loads a 90 MB library, which only this process should.
    from xprof.convert import _pywrap_profiler_plugin as xprof
    from xprof.protobuf import op_stats_pb2

    def tool(name: str) -> Any:
        data, ok = xprof.xspace_to_tools_data([str(path) for path in paths], name, {"use_saved_result": True})
        if not ok or not data:
            text = data.decode("utf-8", "replace") if isinstance(data, bytes) else str(data)
            raise IngestError(
                f"XProf could not convert {subject}.",
                "Check that the files are complete and from one session, or profile again.",
                kind="converter",
                detail=text,
            )
        return json.loads(data)

    overview = tool("overview_page")
    roofline = tool("roofline_model")
    op_stats = op_stats_pb2.OpStats()
    op_stats.ParseFromString((paths[0].parent / OP_STATS_CACHE).read_bytes())
    allocators, heap = _memory(paths)
    return Tables(overview, roofline, op_stats, f"xprof {version('xprof')}", allocators, heap)


def _memory(paths: list[Path]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(allocators of the first host, heap of the program that needs most); empty where XProf has no such table.

    XProf writes the program of each HLO proto in a profile beside it when it lists the tools.
    """
    from xprof.convert import _pywrap_profiler_plugin as xprof

    def table(name: str, **options: str) -> dict[str, Any]:
        try:
            data, ok = xprof.xspace_to_tools_data([str(paths[0])], name, {"use_saved_result": True, **options})
            parsed = json.loads(data) if ok and data else {}
        except (ValueError, RuntimeError):
            return {}  # XProf's words for a profile without one
        return parsed if isinstance(parsed, dict) else {}

    table("tool_names")
    programs = sorted(path.name.removesuffix(_PROTO) for path in paths[0].parent.glob(f"*{_PROTO}"))
    allocators = table("memory_profile").get("memoryProfilePerAllocator")
    heaps = [table("memory_viewer", module_name=name, memory_space="0") for name in programs[:MOST_PROGRAMS]]
    largest = max(heaps, key=lambda heap: heap.get("peakHeapMib") or 0.0, default={})
    return allocators if isinstance(allocators, dict) else {}, largest
