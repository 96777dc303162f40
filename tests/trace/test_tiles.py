"""Tiles and sums against the events themselves, one by one."""

from __future__ import annotations

import gzip
import json
import struct
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.trace import OPS, Trace, perfetto, sums, tiles
from tests.trace.stores import drawn, of

SEEDS = st.integers(0, 2**32 - 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tiles")


def classes(trace: Trace) -> np.ndarray:
    return trace.kinds


def brute(trace: Trace, t0: int, t1: int, track: int) -> dict[int, int]:
    """ps by class, event by event."""
    found: dict[int, int] = defaultdict(int)
    rows = zip(*(c.tolist() for c in (trace.starts(track), trace.durations(track), trace.name_ids(track))), strict=True)
    for start, duration, name in rows:
        found[int(classes(trace)[name])] += max(min(start + duration, t1) - max(start, t0), 0)
    return found


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, level=st.integers(12, 26), nested=st.booleans())
def test_what_tiles_hold_sums_to_the_events(folder: Path, seed: int, level: int, nested: bool) -> None:
    trace = drawn(folder / "t", seed, events=150, nested=nested)
    for track in range(len(trace.tracks)):
        ends = trace.starts(track) + trace.durations(track)
        count = (int(ends.max()) >> level) + 1
        if count > 300:
            continue
        total = sum(int(tiles.row(trace, track, level, i, classes(trace)).time_ps.sum()) for i in range(count))
        assert total == int(trace.durations(track).sum())


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, level=st.integers(12, 24), index=st.integers(0, 40))
def test_a_tile_is_what_its_events_say(folder: Path, seed: int, level: int, index: int) -> None:
    trace = drawn(folder / "t", seed, events=200)
    t0, t1 = index << level, (index + 1) << level
    bin_ps = (t1 - t0) // tiles.BINS
    drawn_row = tiles.row(trace, 0, level, index, classes(trace))
    columns = (trace.starts(0), trace.durations(0), trace.name_ids(0))
    wide, cells = [], defaultdict(lambda: defaultdict(int))
    for start, duration, name in zip(*(c.tolist() for c in columns), strict=True):
        begin, end = max(start, t0) - t0, min(start + duration, t1) - t0
        if end < begin or (end == begin and not (duration == 0 and t0 <= start < t1)):
            continue
        if duration >= bin_ps:
            wide.append((begin, end - begin, name))
        else:
            cells[begin // bin_ps][int(classes(trace)[name])] += end - begin
    merged = drawn_row.names == tiles.CELL
    got = zip(*(c[~merged].tolist() for c in (drawn_row.starts, drawn_row.widths, drawn_row.names)), strict=True)
    assert sorted(got) == sorted(wide)
    assert (drawn_row.starts[merged] // bin_ps).tolist() == sorted(cells)
    for at, kind, time in zip(
        (drawn_row.starts[merged] // bin_ps).tolist(),
        drawn_row.classes[merged].tolist(),
        drawn_row.time_ps[merged].tolist(),
        strict=True,
    ):
        assert time == sum(cells[at].values())
        assert cells[at][kind] == max(cells[at].values())


def test_a_packed_tile_reads_back(folder: Path) -> None:
    trace = of(folder / "p", [(0, 1 << 19, "fusion.1", "compute"), (1 << 19, 100, "all-reduce.2", "collective")])
    data = tiles.tile(trace, [0], 20, 0, classes(trace))
    rows, items, text, _ = struct.unpack_from("<IIII", data)
    assert (rows, items) == (1, 2) and struct.unpack_from("<I", data, 16) == (2,)
    names = np.frombuffer(data, "<u4", items, 20).tolist()
    x = np.frombuffer(data, "<u2", items, 20 + 4 * items).tolist()
    width = np.frombuffer(data, "<u2", items, 20 + 6 * items).tolist()
    kinds = list(data[20 + 8 * items : 20 + 9 * items])
    filled = list(data[20 + 9 * items : 20 + 10 * items])
    assert names == [tiles.CELL, 0] and kinds == [1, 0]
    assert [value / tiles.PARTS for value in x] == [256, 0] and [value / tiles.PARTS for value in width] == [1, 256]
    assert filled == [13, 255]  # 100 of 2048 ps
    assert json.loads(data[-text:]) == {"0": "fusion.1"}


def test_only_some_names_are_drawn(folder: Path) -> None:
    trace = drawn(folder / "o", 7)
    only = np.zeros(len(trace.names), bool)
    only[3] = True
    level = 30
    part = tiles.row(trace, 0, level, 0, classes(trace), only)
    assert int(part.time_ps.sum()) == int(trace.durations(0)[trace.name_ids(0) == 3].sum()) > 0


def test_there_is_no_tile_outside(folder: Path) -> None:
    trace = drawn(folder / "x", 1)
    for level, index in ((3, 0), (70, 0), (20, -1), (20, 1 << 60)):
        with pytest.raises(ValueError, match="no tile"):
            tiles.tile(trace, [0], level, index, classes(trace))


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, cut=st.tuples(st.floats(0, 1), st.floats(0, 1)))
def test_sums_of_a_selection_are_the_events(folder: Path, seed: int, cut: tuple[float, float]) -> None:
    trace = drawn(folder / "s", seed, events=120)
    t0, t1 = sorted(int(part * trace.span[1]) for part in cut)
    found = sums.sums(trace, t0, t1, classes(trace), 8)
    expected: dict[int, int] = defaultdict(int)
    for track in trace.tracks_of([OPS]):
        for kind, time in brute(trace, t0, t1, track).items():
            expected[kind] += time
    assert {kind: time for kind, time in enumerate(found.by_class) if time} == {k: t for k, t in expected.items() if t}
    assert sum(time for _, time, _ in found.by_name) == sum(found.by_class)
    for core in found.cores:  # these events do not overlap: a core is busy as long as its ops run
        assert core.busy_ps == sum(core.by_class)
        idle = sum(
            gap.duration
            for gap in sums.sums(trace, t0, t1, classes(trace), 8, most=10**6).gaps
            if gap.core == core.core
        )
        assert idle == t1 - t0 - core.busy_ps


def test_overlapping_streams_are_busy_once(tmp_path: Path) -> None:
    trace = of(tmp_path / "t", [(0, 100, "a", "compute"), (50, 100, "b", "collective"), (300, 50, "c", "compute")])
    found = sums.sums(trace, 0, 400, classes(trace), 8)
    assert found.cores[0].busy_ps == 200 and found.by_class[:2] == (150, 100)
    longest = found.gaps[0]
    assert (longest.start, longest.duration, trace.names[longest.after or 0].text) == (150, 150, "b")
    assert trace.names[longest.before or 0].text == "c"
    assert [(span.start, span.duration) for span in found.longest] == [(0, 100), (50, 100), (300, 50)]


def test_the_event_under_the_pointer(tmp_path: Path) -> None:
    trace = of(tmp_path / "t", [(0, 1000, "outer", "compute"), (200, 100, "inner", "copy"), (5000, 10, "far", "copy")])
    assert [trace.names[found.name].text for t in (10, 250, 400) if (found := sums.at(trace, 0, t))] == [
        "outer", "inner", "outer",
    ]  # fmt: skip
    assert sums.at(trace, 0, 3000) is None
    near = sums.at(trace, 0, 4990, slack=20)
    assert near is not None and near.start == 5000


def test_spans_of_an_op_in_a_range(tmp_path: Path) -> None:
    trace = of(tmp_path / "t", [(i * 100, 50, f"op.{i % 3}", "compute") for i in range(30)])
    found = sums.spans_of(trace, trace.names_like("op.1"), 1000, 2000)
    assert [span.start for span in found] == [1000, 1300, 1600, 1900]
    assert len(sums.spans_of(trace, trace.names_like("op"), 0, 3000, most=7)) == 7


def test_perfetto_reads_the_export(folder: Path) -> None:
    trace = drawn(folder / "e", 3, nested=True)
    data = b"".join(perfetto.gzipped(perfetto.events(trace)))
    document = json.loads(gzip.decompress(data))
    spans = [event for event in document["traceEvents"] if event["ph"] == "X" and event["cat"] != "step"]
    assert len(spans) == trace.event_count
    by_kind: dict[str, float] = defaultdict(float)
    for event in spans:
        by_kind[event["cat"]] += event["dur"]
    for kind in by_kind:
        expected = sum(
            int(trace.durations(t)[[trace.names[n].kind == kind for n in trace.name_ids(t).tolist()]].sum())
            for t in range(len(trace.tracks))
        )
        assert by_kind[kind] == pytest.approx(expected * 1e-6, rel=1e-9)
    names = {event["args"]["name"] for event in document["traceEvents"] if event["name"] == "process_name"}
    assert names == {"TPU:0 host-0", "TPU:1 host-0", "TPU:2 host-0"}
    steps = [event for event in document["traceEvents"] if event.get("cat") == "step"]
    assert len(steps) == 6 and {event["name"] for event in steps} == {"step 0", "step 1"}
