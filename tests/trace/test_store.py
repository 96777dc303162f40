"""What is put into an event store comes out of it again, in bounds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.trace import ASYNC, HOST, OPS, Trace, TraceBuilder, TraceError

TIMES = st.integers(-(10**15), 10**15)
PIECES = st.lists(st.lists(st.tuples(TIMES, st.integers(0, 10**12), st.integers(0, 4)), max_size=20), max_size=6)


@settings(max_examples=60, deadline=None)
@given(pieces=PIECES)
def test_every_event_comes_back_in_order(tmp_path_factory: pytest.TempPathFactory, pieces: list) -> None:
    path = tmp_path_factory.mktemp("store") / "events.trace"
    builder = TraceBuilder()
    core = builder.add_core("TPU:0", "a")
    names = [builder.name(f"op.{i}", "compute") for i in range(5)]
    for piece in pieces:
        starts, durations, ids = ([row[i] for row in piece] for i in range(3))
        builder.add_events(core, OPS, starts, durations, np.array([names[i] for i in ids], np.uint32))
    expected = sorted((row for piece in pieces for row in piece), key=lambda row: row[0])
    if not expected:
        assert builder.write(path) == 0 and not path.exists()
        return
    assert builder.write(path) == len(expected)
    trace = Trace(path)
    first = expected[0][0]
    assert trace.starts(0).tolist() == [row[0] - first for row in expected]
    assert sorted(
        zip(trace.starts(0).tolist(), trace.durations(0).tolist(), trace.name_ids(0).tolist(), strict=True)
    ) == (sorted((start - first, duration, name) for start, duration, name in expected))


def test_names_carry_kind_and_op(tmp_path: Path) -> None:
    builder = TraceBuilder(tmp_path)
    core = builder.add_core("GPU:0", "a")
    kernel = builder.name("ncclDevKernel_AllReduce", "collective", program="7", op="all-reduce.1")
    assert builder.name("ncclDevKernel_AllReduce", "collective", program="7", op="all-reduce.1") == kernel
    call = builder.name("cudaLaunchKernel", "host", op=None)
    builder.add_events(core, OPS, [5], [10], [kernel], track="stream 7")
    builder.add_events(core, HOST, [0], [3], [call], track="thread 1")
    builder.write(tmp_path / "t", programs={"7": "jit_step"})
    trace = Trace(tmp_path / "t")
    assert [(track.lane, track.name) for track in trace.tracks] == [("ops", "stream 7"), ("host", "thread 1")]
    name = trace.names[int(trace.name_ids(0)[0])]
    assert (name.text, name.kind, name.op) == ("ncclDevKernel_AllReduce", "collective", "jit_step/all-reduce.1")
    assert trace.names[int(trace.name_ids(1)[0])].op == ""
    assert trace.names_of_op("jit_step/all-reduce.1") == trace.names_of_op("other/all-reduce.1") == [0]
    assert trace.names_like("nccl ALLREDUCE") == [0] and trace.names_like("gather") == []


def test_of_too_many_events_whole_steps_are_kept(tmp_path: Path) -> None:
    builder = TraceBuilder(tmp_path, most_events=100)
    name = builder.name("fusion", "compute")
    for index in range(2):
        core = builder.add_core(f"TPU:{index}", "a")
        builder.add_steps(core, range(10), np.arange(10) * 1000, np.arange(1, 11) * 1000)
        builder.add_events(core, OPS, np.arange(80) * 125, np.full(80, 100), np.full(80, name))
    assert builder.write(tmp_path / "t") == 96
    trace = Trace(tmp_path / "t")
    assert trace.step_numbers == tuple(range(6)) and trace.span == (0, 6000)
    assert trace.notes == ("The first 6 of 10 steps were stored: the profile has 160 events, and 100 are stored.",)


def test_without_steps_the_earliest_are_kept(tmp_path: Path) -> None:
    builder = TraceBuilder(tmp_path, most_events=50)
    core = builder.add_core("GPU:0")
    name = builder.name("kernel", "compute")
    builder.add_events(core, OPS, np.arange(90)[::-1] * 10, np.full(90, 5), np.full(90, name))
    assert builder.write(tmp_path / "t") == 50
    trace = Trace(tmp_path / "t")
    assert trace.starts(0).tolist() == list(range(0, 500, 10))
    assert "earliest" in trace.notes[0]


def test_hosts_start_their_first_common_step_together(tmp_path: Path) -> None:
    builder = TraceBuilder(tmp_path)
    name = builder.name("fusion", "compute")
    for host, zero in (("a", 1_000_000), ("b", 77_000_000)):
        for lag in (0, 30):
            core = builder.add_core(f"TPU:{lag}", host)
            builder.add_steps(core, [4, 5], [zero + lag, zero + 500 + lag], [zero + 500 + lag, zero + 1000 + lag])
            builder.add_events(core, OPS, [zero + lag, zero + 600], [400, 100], [name, name])
    builder.write(tmp_path / "t")
    trace = Trace(tmp_path / "t")
    assert [trace.steps(core)[1].tolist() for core in range(4)] == [[0, 500], [30, 530], [0, 500], [30, 530]]
    assert [trace.starts(track).tolist() for track in range(4)] == [[0, 600], [30, 600], [0, 600], [30, 600]]
    assert "aligned at the start of step 4" in trace.notes[0]
    assert [trace.steps(core)[2].tolist()[-1] for core in range(4)] == [1000, 1030, 1000, 1030]


def test_between_finds_what_overlaps_also_when_nested(tmp_path: Path) -> None:
    builder = TraceBuilder(tmp_path)
    core = builder.add_core("TPU:0")
    name = builder.name("fusion", "compute")
    builder.add_events(core, ASYNC, [0, 10, 20, 100], [90, 5, 5, 10], [name] * 4)
    builder.write(tmp_path / "t")
    trace = Trace(tmp_path / "t")
    assert trace.starts(0)[trace.between(0, 50, 60)].tolist()[0] == 0  # the long one that began before
    assert trace.starts(0)[trace.between(0, 95, 101)].tolist() == [100]
    assert trace.starts(0)[trace.between(0, 110, 200)].tolist() == []


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("Unknown event kind", lambda b: b.name("x", "matmul")),
        ("Unknown lane", lambda b: b.add_events(0, "gpu", [1], [1], [0])),
        ("Lengths differ", lambda b: b.add_events(0, OPS, [1, 2], [1], [0])),
        ("never given", lambda b: b.add_events(0, OPS, [1], [1], [9])),
    ],
)
def test_wrong_input_is_refused_with_a_sentence(text: str, call: object) -> None:
    builder = TraceBuilder()
    builder.add_core("TPU:0")
    with pytest.raises(TraceError, match=text):
        call(builder)  # type: ignore[operator]


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(b"PK\x03\x04" + bytes(40))
    with pytest.raises(TraceError, match="not an event store"):
        Trace(path)
    builder = TraceBuilder()
    core = builder.add_core("TPU:0")
    builder.add_events(core, OPS, range(100), [1] * 100, [builder.name("x", "compute")] * 100)
    builder.write(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-200])
    with pytest.raises(TraceError, match="damaged"):
        Trace(path)
    path.write_bytes(whole.replace(b'"count": 100', b'"count": 900'))
    with pytest.raises(TraceError, match="damaged"):
        Trace(path)


def test_impossible_times_are_left_out(tmp_path: Path) -> None:
    builder = TraceBuilder()
    core = builder.add_core("TPU:0")
    builder.add_events(core, OPS, [0, 1 << 62, 5], [10, 10, -3], [builder.name("x", "compute")] * 3)
    assert builder.write(tmp_path / "t") == 1
