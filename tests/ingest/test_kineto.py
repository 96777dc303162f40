"""PyTorch traces: steps on the device, exposed communication, why the device idles, and what the ops are."""

from __future__ import annotations

import gzip
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from diagnosis.analyzer import diagnose
from experiments.ingest import IngestError, read_profile
from experiments.step_profile import Op, StepProfile
from experiments.trace import Trace as Events
from tests.ingest.kineto_traces import ADD, AUTOGRAD, GEMM, Trace, collective, training

pytestmark = pytest.mark.slow

Read = Callable[..., StepProfile]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def of(*traces: Trace, name: str = "rank{}.pt.trace.json.gz") -> StepProfile:
        return read_profile([trace.save(tmp_path / name.format(n)) for n, trace in enumerate(traces)])

    return of


def by_category(profile: StepProfile, category: str) -> Op:
    return next(op for op in profile.ops if op.category == category)


def test_steps_are_whole_and_the_one_without_work_is_left_out_by_name(read: Read) -> None:
    profile = read(training())
    assert [step.number for step in profile.steps] == [0, 1, 2]
    assert profile.step_time_s == pytest.approx(1e-3)
    assert any("Step 3 is excluded: no device activity" in note.message for note in profile.notes)
    assert profile.device.chip == "h100"
    assert profile.device.world_size == 8


def test_a_collective_is_exposed_where_no_other_kernel_runs(read: Read) -> None:
    profile = read(training())
    parts = profile.steps[1].breakdown_s
    assert parts["compute"] == pytest.approx(500e-6)
    assert parts["collective"] == pytest.approx(200e-6)
    assert sum(parts.values()) == pytest.approx(profile.steps[1].time_s)
    assert profile.cores[0].collective_s == pytest.approx(400e-6)
    assert profile.cores[0].exposed_s == pytest.approx(200e-6)
    assert profile.kpis["communication"] == pytest.approx(0.4)
    op = by_category(profile, "all-reduce")
    assert op.in_flight_s == pytest.approx(3 * 400e-6)
    assert op.exposed_s == pytest.approx(3 * 200e-6)


def test_a_collective_knows_its_ranks_and_message(read: Read) -> None:
    op = by_category(read(training()), "all-reduce")
    assert op.groups == (tuple(range(8)),)
    assert op.group_name == "default_pg"
    assert op.payload_bytes == 2_000_000


@pytest.mark.parametrize(
    ("name", "into", "out", "category", "payload"),
    [
        ("_allgather_base", 1000, 4000, "all-gather", 8000),
        ("allgather_into_tensor_coalesced", 1000, 1000, "all-gather", 8000),
        ("_reduce_scatter_base", 4000, 1000, "reduce-scatter", 8000),
        ("all_to_allv", 4000, 3000, "all-to-all", 8000),
        ("broadcast", 4000, 4000, "collective-broadcast", 8000),
        ("send", 4000, 0, "send/recv", 8000),
    ],
)
def test_message_sizes_follow_the_kind(
    read: Read, name: str, into: int, out: int, category: str, payload: float
) -> None:
    trace = training(steps=1)
    trace.kernel(
        "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
        820,
        10,
        launch=30,
        stream=21,
        arguments=collective(name, into, out, [0, 2, 4, 6], "mesh_tp"),
    )
    op = by_category(read(trace), category)
    assert op.payload_bytes == payload
    assert op.groups == ((0, 2, 4, 6),)


def test_waiting_for_a_late_rank_is_told_from_moving_data(read: Read) -> None:
    profile = read(training(0, 2), training(1, 2, late=300.0))
    assert profile.device.core_count == 2
    op = by_category(profile, "all-reduce")
    assert op.self_time_s == pytest.approx(3 * (400e-6 + 100e-6))
    assert op.wait_s == pytest.approx(3 * 300e-6)
    assert not any("ranks were uploaded" in note.message for note in profile.notes)


def test_one_rank_of_several_says_that_waits_cannot_be_told(read: Read) -> None:
    profile = read(training())
    assert by_category(profile, "all-reduce").wait_s is None
    assert any("1 of 8 ranks" in note.message for note in profile.notes)


def test_a_device_behind_its_host_has_its_own_steps(read: Read) -> None:
    """The host runs two steps ahead: 100 µs of its time each, 500 µs of the device's."""
    trace = Trace(None)
    trace.kernel(GEMM, 0, 400)  # of the step before the first, launched before anything was recorded
    for number in range(3):
        trace.step(number, 100.0 * number, 100)
        trace.kernel(GEMM, 400 + 500.0 * number, 500, launch=100.0 * number + 5)
    profile = read(trace)
    assert [step.time_s for step in profile.steps] == pytest.approx([500e-6] * 3)
    assert profile.kpis["idle"] == pytest.approx(0.0, abs=1e-9)


def test_idle_time_is_divided_by_what_the_device_waited_for(read: Read) -> None:
    trace = Trace(None)
    trace.step(0, 0, 1000)
    trace.host("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 300)
    trace.kernel(GEMM, 410, 90, launch=400)  # 300 µs for the loader, then 110 until it was launched and began
    trace.kernel(GEMM, 600, 400, launch=450)  # launched in time: it waited for something else
    parts = read(trace).steps[0].breakdown_s
    assert parts["input"] == pytest.approx(300e-6)
    assert parts["launch"] == pytest.approx(110e-6)
    assert parts["idle"] == pytest.approx(100e-6)
    assert parts["compute"] == pytest.approx(490e-6)


def test_copies_between_host_and_device_are_transfers_with_their_bytes(read: Read) -> None:
    trace = training(steps=1)
    copy = {"bytes": 5_000_000}
    trace.kernel("Memcpy HtoD (Pinned -> Device)", 500, 400, launch=31, category="gpu_memcpy", stream=9, arguments=copy)
    profile = read(trace)
    op = by_category(profile, "copy host to device")
    assert op.host_bytes == 5_000_000
    assert op.exposed_s == pytest.approx(100e-6)
    assert profile.steps[0].breakdown_s["host_transfer"] == pytest.approx(100e-6)


def test_flops_come_from_the_shapes_of_the_launching_op(read: Read) -> None:
    op = by_category(read(training()), "gemm")
    assert op.name.startswith("aten::mm[4096x1024, 1024x512]: nvjet")
    assert op.flops == 3 * 2 * 4096 * 1024 * 512
    assert op.bytes_accessed == 3 * 2 * (4096 * 1024 + 1024 * 512 + 4096 * 512)
    assert op.compute_efficiency == pytest.approx(op.flops / 900e-6 / 989e12, rel=0.01)


def test_ops_of_the_backward_pass_belong_to_the_modules_of_their_forward_op(read: Read) -> None:
    trace = Trace(None)
    trace.step(0, 0, 1000)
    trace.module("Llama_0", 1, 90)
    trace.module("MLP_3", 2, 50)
    trace.op("aten::mm", 5, 10, Sequence_number=7)
    trace.kernel(GEMM, 20, 20, launch=6)
    trace.op("autograd::engine::evaluate_function: MmBackward0", 200, 50, AUTOGRAD, Sequence_number=7, Fwd_thread_id=1)
    trace.op("MmBackward0", 201, 40, AUTOGRAD, Sequence_number=7, Fwd_thread_id=1)
    trace.op("aten::mm", 205, 10, AUTOGRAD)
    trace.kernel(GEMM, 230, 20, launch=206, thread=AUTOGRAD)
    trace.op("autograd::engine::evaluate_function: AddBackward0", 300, 90, AUTOGRAD, Sequence_number=6, Fwd_thread_id=1)
    trace.op("aten::relu", 310, 20, AUTOGRAD, Sequence_number=9, Fwd_thread_id=0)
    trace.kernel(ADD, 330, 20, launch=312, thread=AUTOGRAD)
    trace.host("user_annotation", "Optimizer.step#AdamW.step", 500, 50)
    trace.kernel(
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<4> >(int)",
        520,
        20,
        launch=510,
    )
    paths = {op.op_name: op.category for op in read(trace).ops}
    assert paths["forward/Llama/MLP/aten::mm"] == "gemm"
    assert paths["backward/Llama/MLP/aten::mm"] == "gemm"
    assert any(path.startswith("recompute/") for path in paths)
    assert paths["optimizer/AdamW.step"] == "optimizer elementwise"


def test_kernels_of_a_cuda_graph_are_listed_by_their_own_names(read: Read) -> None:
    trace = Trace(None)
    trace.step(0, 0, 1000)
    trace.host("cuda_runtime", "cudaGraphLaunch", 10, 5, correlation=900)
    for start in (100, 300):
        trace.kernel(GEMM, start, 100, arguments={"correlation": 900})
    profile = read(trace)
    assert by_category(profile, "gemm").occurrences == 2
    assert profile.steps[0].breakdown_s["compute"] == pytest.approx(200e-6)
    assert by_category(profile, "gemm").flops is None


def test_peak_memory_is_the_allocators(read: Read) -> None:
    trace = training()
    for time, allocated in ((10, 1_000), (50, 40_000_000_000), (900, 2_000)):
        trace.memory(time, allocated)
    trace.memory(60, 90_000_000_000, device_type=0)
    memory = read(trace).memory
    assert memory.peak_bytes == 40_000_000_000
    assert memory.capacity_bytes == 85018279936


def test_the_allocators_device_is_the_only_one_whatever_its_number(read: Read) -> None:
    """ROCm's tracer numbers GPUs after the host's processors."""
    trace = training()
    for event in trace.events:
        if event["cat"] == "kernel":
            event["args"]["device"] = 2
    trace.memory(50, 40_000_000_000)
    assert read(trace).memory.peak_bytes == 40_000_000_000


def test_steps_are_inferred_from_the_optimizer_where_none_are_marked(read: Read) -> None:
    trace = Trace(None)
    for number in range(4):
        trace.kernel(GEMM, 1000.0 * number + 10, 500, launch=1000.0 * number)
        trace.host("user_annotation", "Optimizer.step#AdamW.step", 1000.0 * number + 600, 100)
    profile = read(trace)
    assert len(profile.steps) == 3
    assert profile.step_time_s == pytest.approx(1e-3)
    assert profile.computed["steps"] == "marked by optimizer steps"


def test_without_marks_there_is_no_step_time_and_the_reason_says_what_to_do(read: Read) -> None:
    trace = Trace(None)
    trace.kernel(GEMM, 10, 500, launch=5)
    profile = read(trace)
    assert profile.step_time_s is None
    assert "prof.step()" in profile.not_measured["step_time"]
    assert profile.kpis["duty_cycle"] == pytest.approx(1.0)


def test_a_host_without_devices_does_the_work_itself(read: Read) -> None:
    """Ops count once, by the call that does the work; no quantity of a device is stated."""
    trace = Trace(0)
    trace.step(0, 0, 1000)
    trace.op("aten::convolution", 20, 752)
    trace.op("aten::mkldnn_convolution", 21, 750)
    trace.op("aten::empty", 30, 5)
    trace.host("user_annotation", "gloo:all_reduce", 900, 100)
    profile = read(trace)
    assert profile.device.kind == "CPU" and profile.step_time_s == pytest.approx(1e-3)
    times = {op.name: op.self_time_s for op in profile.ops}
    assert times == {
        "aten::mkldnn_convolution: mkldnn_convolution": pytest.approx(750e-6),
        "all-reduce: gloo:all_reduce": pytest.approx(100e-6),
    }
    assert all(value is None for value in profile.kpis.values())
    assert "ProfilerActivity.CUDA" in profile.not_measured["idle"]
    found = diagnose(profile)
    assert found.bottleneck.primary == "compute"
    parts = {bar: found.breakdown_share[bar] for bar in ("compute", "ici", "host")}
    assert parts == pytest.approx({"compute": 0.75, "ici": 0.1, "host": 0.15}, abs=0.01)


@pytest.mark.parametrize("name", ["aten::cudnn_convolution", "aten::linear_backward"])
def test_a_host_that_ran_ops_of_a_device_did_not_do_the_work(read: Read, name: str) -> None:
    trace = Trace(None)
    trace.op("aten::convolution", 20, 752)
    trace.op(name, 21, 750)
    profile = read(trace)
    assert not profile.ops and profile.device.kind != "CPU"
    assert diagnose(profile).bottleneck.primary == "unknown"


def test_launches_without_kernels_are_said_to_be_lost(read: Read) -> None:
    trace = Trace(None)
    trace.host("cuda_runtime", "cudaLaunchKernel", 20, 5, correlation=7)
    assert "CUPTI" in read(trace).not_measured["ops"]


def test_one_long_gap_among_many_is_no_dispatch(read: Read) -> None:
    """Thirty kernels 20 µs apart, and 5 ms of loading before one of them: what may not come back is no launch latency,
    and before most of the work it is a start-up that no share counts."""
    for late, start_up_s in ((5, 5.17e-3), (15, 0.0)):
        trace, at = Trace(0), 0.0
        for index in range(30):
            at += 5000 if index == late else 20
            trace.kernel(GEMM, at, 10, launch=at - 5)
            at += 10
        profile = read(trace)
        assert profile.recorded.start_up_s == pytest.approx(start_up_s, rel=0.02)
        found = diagnose(profile)
        if start_up_s:
            assert profile.kpis["idle"] == pytest.approx(24 * 20 / (24 * 30 + 10), rel=1e-2)
        else:
            assert found.bottleneck.primary == "unknown"
            assert all((finding.saving_share or 0.0) < 0.2 for finding in found.findings)


def test_a_device_that_lost_most_launches_is_not_idle(read: Read) -> None:
    trace = Trace(0)
    for index in range(10):
        trace.kernel(GEMM, 1000 * index, 50, launch=1000 * index - 5)
    for event in [event for event in trace.events if event["cat"] == "kernel"][4:]:
        trace.events.remove(event)
    profile = read(trace)
    assert profile.kpis["idle"] is None and profile.kpis["host"] is None and not profile.recorded.gaps
    assert diagnose(profile).bottleneck.primary not in ("host", "idle")


def test_two_files_of_one_rank_are_refused_by_name(read: Read) -> None:
    with pytest.raises(IngestError, match=r"Two files are of rank 1: rank0.* and rank1") as refused:
        read(training(1), training(1))
    assert refused.value.excludable


def test_ranks_in_a_zip_are_one_session(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "run.zip", "w") as archive:
        for rank in range(3):
            archive.writestr(
                f"traces/rank{rank}.json.gz", gzip.compress(json.dumps(training(rank).document()).encode())
            )
    profile = read_profile([tmp_path / "run.zip"])
    assert profile.device.core_count == 3
    assert [core.host for core in profile.cores] == ["rank 0", "rank 1", "rank 2"]


def test_what_stands_before_the_events_does_not_hide_them(tmp_path: Path) -> None:
    document = {"metadata": {"system": "x" * 30_000}, **training().document()}
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(document))
    assert len(read_profile([path]).steps) == 3


def test_a_bare_list_of_events_is_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(training().events))
    assert len(read_profile([path]).steps) == 3


def test_what_kineto_writes_beyond_json_is_read(tmp_path: Path) -> None:
    text = json.dumps(training().document())
    text = text.replace('"stream": 20', '"est. achieved occupancy %": nan, "Addr": 18446744073709551615, "stream": 20')
    path = tmp_path / "trace.json"
    text = text.replace('"schemaVersion"', '"Call stack": "torch\\profiler\\.py", "schemaVersion"')
    path.write_bytes(text.encode().replace(b"aten::add", b"aten::add\xff"))
    assert by_category(read_profile([path]), "all-reduce").occurrences == 3


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (json.dumps(training().document())[:-200], "truncated"),
        ('{"schemaVersion": 1, "traceEvents": [{"ph": "X", "name": "a"b"}]}', "not valid JSON"),
        (
            '{"schemaVersion": 1, "traceEvents": [{"ph": "X", "name": "GC", "ts": 1, "dur": 2}]}',
            "another tool",
        ),
        ('{"schemaVersion": 1, "traceEvents": []}', "no op, kernel or step"),
    ],
)
def test_what_is_no_whole_trace_is_refused_in_a_sentence(tmp_path: Path, content: str, expected: str) -> None:
    path = tmp_path / "trace.json"
    path.write_text(content)
    with pytest.raises(IngestError, match=expected) as refused:
        read_profile([path])
    assert len(refused.value.line) <= 300


def test_events_without_sense_are_passed_over(tmp_path: Path) -> None:
    trace = training()
    trace.events += [
        {"ph": "X", "cat": "kernel", "name": "k", "ts": "now", "dur": 3},
        {"ph": "X", "cat": "kernel", "name": 5, "ts": 1, "dur": 3},
        {"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": -3},
        {"ph": "X", "cat": "kernel", "name": "k", "ts": 1e300, "dur": 3},
        {"ph": "X", "cat": ["kernel"], "name": "k", "ts": 1, "dur": 3, "args": []},
        {"ph": "i", "name": "[memory]", "args": {"Device Type": 1, "Total Allocated": "much"}},
    ]
    assert len(read_profile([trace.save(tmp_path / "t.json")]).steps) == 3


def test_every_kernel_is_in_the_timeline_in_the_track_of_its_stream(tmp_path: Path) -> None:
    stored = tmp_path / "events.trace"
    paths = [training(rank, 2).save(tmp_path / f"rank{rank}.json") for rank in range(2)]
    profile = read_profile(paths, trace_to=stored)
    events = Events(stored)
    assert [core.host for core in events.cores] == ["rank 0", "rank 1"]
    assert {track.name for track in events.tracks} == {"stream 7", "stream 20"}
    assert {op.key for op in profile.ops} == {name.op for name in events.names}
    assert events.step_numbers == (0, 1, 2)
