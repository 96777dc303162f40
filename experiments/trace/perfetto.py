"""An event store as Trace Event JSON, which Perfetto and chrome://tracing open; written piece by piece."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator

from experiments.trace.layout import LANES
from experiments.trace.trace import Trace

_LANE_WORDS = {"ops": "Ops", "async": "Async", "host": "Host"}
_CHUNK = 2_000


def events(trace: Trace) -> Iterator[str]:
    """The JSON text: a process per core, a thread per track, complete events in µs, and the steps of each core."""
    yield '{"displayTimeUnit":"ns","traceEvents":['
    head = []
    for core, row in enumerate(trace.cores):
        name = f"{row.name} {row.host}".strip()
        head.append(_meta(core, 0, "process_name", name))
        head.append(_meta(core, 0, "thread_name", "Steps"))
        numbers, starts, ends = (column.tolist() for column in trace.steps(core))
        head += [
            _event(f"step {number}", "step", start, end - start, core, 0)
            for number, start, end in zip(numbers, starts, ends, strict=True)
        ]
    threads: dict[int, int] = {}
    for track, at in enumerate(trace.tracks):
        threads[track] = sum(other.core == at.core for other in trace.tracks[:track]) + 1
        words = f"{_LANE_WORDS[at.lane]} {at.name}".strip()
        head.append(_meta(at.core, threads[track], "thread_name", words))
        head.append(_meta(at.core, threads[track], "thread_sort_index", LANES.index(at.lane) * 1000 + threads[track]))
    yield ",".join(head)
    quoted = [(json.dumps(name.text), name.kind, json.dumps(name.op)) for name in trace.names]
    for track, row_ in enumerate(trace.tracks):
        columns = trace.starts(track), trace.durations(track), trace.name_ids(track)
        for first in range(0, row_.count, _CHUNK):
            part = (column[first : first + _CHUNK].tolist() for column in columns)
            yield "".join(
                f',{{"ph":"X","name":{quoted[name][0]},"cat":"{quoted[name][1]}","ts":{_us(start)},'
                f'"dur":{_us(duration)},"pid":{row_.core},"tid":{threads[track]},"args":{{"op":{quoted[name][2]}}}}}'
                for start, duration, name in zip(*part, strict=True)
            )
    yield "]}"


def gzipped(text: Iterable[str]) -> Iterator[bytes]:
    """The text as gzip, in pieces of some size."""
    packer = zlib.compressobj(5, wbits=31)
    waiting = bytearray()
    for piece in text:
        waiting += packer.compress(piece.encode())
        if len(waiting) > 1 << 16:
            yield bytes(waiting)
            waiting.clear()
    yield bytes(waiting) + packer.flush()  # never empty: the end of a gzip file is eight bytes


def _us(ps: int) -> str:
    """Microseconds to the picosecond; exact, where a float would round."""
    sign, ps = ("-", -ps) if ps < 0 else ("", ps)
    return f"{sign}{ps // 1_000_000}.{ps % 1_000_000:06d}"


def _meta(pid: int, tid: int, name: str, value: str | int) -> str:
    key = "sort_index" if name.endswith("index") else "name"
    return json.dumps({"ph": "M", "name": name, "pid": pid, "tid": tid, "args": {key: value}})


def _event(name: str, kind: str, start: int, duration: int, pid: int, tid: int) -> str:
    return (
        f'{{"ph":"X","name":{json.dumps(name)},"cat":"{kind}","ts":{_us(start)},"dur":{_us(duration)},'
        f'"pid":{pid},"tid":{tid}}}'
    )
