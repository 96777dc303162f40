"""Time and peak memory of reading PyTorch traces: 8 ranks × 100 MB, made by repeating the events of a recorded trace.

    python -m bench.kineto TRACE.json.gz [RANKS] [MEGABYTES]

Each repetition is moved in time, with launches, ops and autograd nodes of its own and the steps numbered on; each rank
says its own rank.  The memory is that of the sandboxed process, where all of the reading happens.
"""

from __future__ import annotations

import gzip
import json
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from experiments.ingest import Limits, read_profile

_IDS = ("correlation", "External id", "Sequence number", "Python id", "Python parent id")
_STEP = "ProfilerStep#"


def main() -> None:
    source = Path(sys.argv[1])
    ranks = int(sys.argv[2]) if len(sys.argv) > 2 else 8
    size_bytes = int(float(sys.argv[3]) * 1e6) if len(sys.argv) > 3 else 100_000_000
    with tempfile.TemporaryDirectory() as folder:
        trace = json.loads(gzip.decompress(source.read_bytes()) if source.suffix == ".gz" else source.read_bytes())
        paths = [Path(folder) / f"rank{rank}.pt.trace.json" for rank in range(ranks)]
        for rank, path in enumerate(paths):
            events = repeat(trace, path, rank, ranks, size_bytes)
        total = sum(path.stat().st_size for path in paths)
        print(f"{ranks} ranks × {total / ranks / 1e6:.0f} MB, {events:,} events each, from {source.name}")
        before = time.perf_counter()
        profile = read_profile(paths, limits=Limits.from_environment())
        wall_s = time.perf_counter() - before
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        print(
            f"{wall_s:.1f} s, {used.ru_utime + used.ru_stime:.1f} s of processor time, "
            f"peak {used.ru_maxrss / 1e3:.0f} MB: "
            f"{profile.device.core_count} devices, {len(profile.steps)} steps, {len(profile.ops)} ops, step time "
            f"{profile.step_time_s or 0:.6f} s"
        )


def repeat(trace: dict[str, Any], path: Path, rank: int, ranks: int, size_bytes: int) -> int:
    """Write `trace` over and over until the file has size_bytes; the number of events."""
    events = [event for event in trace["traceEvents"] if event.get("ph") != "M"]
    timed = [event for event in events if isinstance(event.get("ts"), int | float)]
    first = min(event["ts"] for event in timed)
    period = max(event["ts"] + event.get("dur", 0) for event in timed) - first
    marks = {event["name"] for event in events if str(event.get("name")).startswith(_STEP)}
    step = 10_000_000
    head = {key: value for key, value in trace.items() if key != "traceEvents"}
    distributed = trace.get("distributedInfo")
    head["distributedInfo"] = {
        **(distributed if isinstance(distributed, dict) else {}),
        "rank": rank,
        "world_size": ranks,
    }
    count = copy = 0
    with path.open("w") as target:
        target.write(json.dumps(head)[:-1] + ', "traceEvents": [\n')
        while target.tell() < size_bytes:
            for event in events:
                target.write(
                    (",\n" if count else "") + json.dumps(_moved(event, copy, copy * period, step, len(marks)))
                )
                count += 1
            copy += 1
        target.write("\n]}\n")
    return count


def _moved(event: dict[str, Any], copy: int, shift: float, step: int, steps: int) -> dict[str, Any]:
    moved = dict(event)
    if isinstance(event.get("ts"), int | float):
        moved["ts"] = event["ts"] + shift
    if str(event.get("name")).startswith(_STEP):
        moved["name"] = f"{_STEP}{int(event['name'].removeprefix(_STEP)) + copy * steps}"
    if isinstance(event.get("id"), int):
        moved["id"] = event["id"] + copy * step
    args = event.get("args")
    if isinstance(args, dict):
        moved["args"] = {
            key: value + copy * step if key in _IDS and isinstance(value, int) else value for key, value in args.items()
        }
    return moved


if __name__ == "__main__":
    main()
