"""What a trace says beside its ops: collectives by role, edges of steps, causes of gaps, formats of other tools.

Small traces after those of `shared/field/traces`, which others recorded."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from diagnosis.analyzer import diagnose
from experiments.ingest import IngestError, read_profile
from experiments.ingest.gpu import kernels
from experiments.step_profile import StepProfile
from tests.ingest.conftest import OPS, Save
from tests.ingest.kineto_traces import ADD, GEMM, Trace, collective, training
from tests.ingest.nsight_exports import iterations
from tests.ingest.xspaces import tpu_xspace

pytestmark = pytest.mark.slow

Read = Callable[[Trace], StepProfile]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    return lambda trace: read_profile([trace.save(tmp_path / "trace.json.gz")])


@pytest.mark.parametrize(
    "kernel",
    [
        "void deep_ep::intranode::dispatch<8, 768>(int4*, float*)",
        "void dpsk::ep::internode::combine<false, 8, __nv_bfloat16, 8>(void*)",
        "void dpsk::ep::internode::cached_notify<false>(int, int)",
        "void uccl::internode_ll::combine<true>(void*)",
        "_ZN11primus_turbo7deep_ep9internode15notify_dispatchILb0ELi8EEEvPKi",
        "void mori::moe::EpDispatchInterNodeKernel<__hip_bfloat16>(mori::moe::Args)",
    ],
)
def test_expert_parallel_kernels_are_all_to_alls_in_any_namespace(kernel: str) -> None:
    assert kernels.collective_kind(kernel) == "all-to-all"


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [
        ("void nvshmem::reduce_scatter_kernel<float>(int)", "reduce-scatter"),
        ("void mscclpp::allreduce7<__half>(int)", "all-reduce"),
        ("void tensorrt_llm::kernels::mnnvl::twoshot_allreduce_kernel<8>(int)", "all-reduce"),
        ("void two_shot_all_reduce_kernel_inplace<c10::BFloat16, 16, 8>(int)", "all-reduce"),
        ("rcclGenericKernel", "collective"),
    ],
)
def test_every_library_of_collectives_is_known(kernel: str, kind: str) -> None:
    assert kernels.collective_kind(kernel) == kind


@pytest.mark.parametrize(
    "kernel", ["void deep_ep::layout::get_dispatch_layout<256>(int)", "void moe::combine_topk_kernel<float>(int)"]
)
def test_work_on_the_device_alone_is_no_collective(kernel: str) -> None:
    assert kernels.collective_kind(kernel) is None


@pytest.mark.parametrize(
    "kernel",
    [
        "void fbgemm_gpu::permute_2D_data_kernel<true, int>(int)",
        "void bounds_check_indices_kernel<long>(int)",
        "void _block_bucketize_sparse_features_cuda_kernel1<long>(int)",
        "void fbgemm_gpu::_permute_indices_weights_kernel<true>(int)",
    ],
)
def test_a_prefix_of_a_library_says_nothing_of_its_kernels(kernel: str) -> None:
    assert kernels.category(kernel, "fbgemm::block_bucketize_sparse_features") == kernels.SCATTER


def test_a_kernel_of_unknown_name_is_a_collective_by_its_record(read: Read) -> None:
    trace = Trace(0, 8)
    for number in range(2):
        trace.step(number, 1000.0 * number, 1000)
        trace.kernel(GEMM, 1000.0 * number + 100, 400, launch=1000.0 * number + 2)
        arguments = collective("allreduce", 1000, 1000, range(8))
        trace.kernel("opaque_v2", 1000.0 * number + 500, 200, launch=1000.0 * number + 6, arguments=arguments)
    profile = read(trace)
    assert profile.kpis["communication"] == pytest.approx(0.2, rel=0.2)
    assert {op.category for op in profile.ops} == {kernels.GEMM, "all-reduce"}


def test_a_kernel_of_unknown_name_is_a_collective_by_its_stream(read: Read) -> None:
    trace = Trace(0, 8)
    for number in range(2):
        zero = 1000.0 * number
        trace.step(number, zero, 1000)
        trace.kernel(GEMM, zero + 100, 400, launch=zero + 2)
        trace.kernel("mystery_v2", zero + 100, 50, launch=zero + 3)
        trace.kernel("ncclDevKernel_AllReduce_Sum", zero + 500, 200, launch=zero + 6, stream=20)
        trace.kernel("opaque_v2", zero + 700, 100, launch=zero + 8, stream=20)
    profile = read(trace)
    assert {op.name: op.category for op in profile.ops}["collective: opaque_v2"] == "collective"
    assert profile.kpis["communication"] == pytest.approx(0.3, rel=0.2)
    assert next(op for op in profile.ops if "mystery" in op.name).category == kernels.OTHER


def test_work_launched_before_the_recording_is_in_no_step(read: Read) -> None:
    """An early copy on a stream of its own does not pull the first step back."""
    trace = Trace(None)
    for number in range(8):
        trace.kernel(ADD, 1000.0 + 18_000 * number, 12_000)
    trace.kernel("Memcpy HtoD (Pinned -> Device)", 3380, 2000, launch=2500, stream=20, category="gpu_memcpy")
    for number in range(5):
        trace.step(number, 216_000.0 * number, 216_000)
        for index in range(12):
            start = 151_000 + 216_000 * number + 18_000.0 * index
            trace.kernel(GEMM, start, 12_000, launch=216_000 * number + 6000 + 1000.0 * index)
    profile = read(trace)
    assert [step.time_s for step in profile.steps] == pytest.approx([0.216] * 4)
    assert any("launched before the recording began" in note.message for note in profile.notes)
    assert profile.recorded.before_s == pytest.approx(0.096)


def test_gaps_have_causes_without_step_markers(read: Read) -> None:
    """Of 1,000 µs: 300 until a late launch, of which 200 after a call that waited for the device; 100 queued."""
    trace = Trace(None)
    trace.kernel(GEMM, 0, 200, launch=-5)
    trace.host("cuda_runtime", "cudaStreamSynchronize", 10, 191, correlation=900)
    trace.kernel(GEMM, 400, 100, launch=395)
    trace.kernel(GEMM, 600, 200, launch=595)
    trace.kernel(GEMM, 900, 100, launch=610)
    profile = read(trace)
    gaps = profile.recorded.gaps
    assert gaps["synchronisation"] + gaps["launch"] == pytest.approx(0.3)
    assert gaps["synchronisation"] == pytest.approx(0.195) and gaps["queued"] == pytest.approx(0.1)
    assert profile.kpis["host"] == pytest.approx(0.3) and profile.kpis["input"] == 0.0
    assert "launches" in profile.recorded.has


def test_steps_of_a_host_alone_are_timed(read: Read) -> None:
    trace = Trace(0)
    trace.step(1009, 0, 75_473)
    trace.op("aten::mm", 10, 100)
    profile = read(trace)
    assert profile.step_time_s == pytest.approx(75.473e-3)
    assert "host" in profile.computed["step_time"] and "step_time" not in profile.not_measured


def test_iterations_of_a_serving_engine_are_steps(read: Read) -> None:
    """The device works on what was launched before the trace begins: that is no part of the iteration."""
    trace = Trace(None)
    trace.host("user_annotation", "execute_32_context_0(sq0sk0)_generation_32(sq32sk55086)", 0, 2400)
    trace.kernel("hipGraphNode", 8400, 5000, launch=1500)
    trace.kernel(GEMM, 13_400, 5000, launch=2000)
    profile = read(trace)
    assert profile.step_time_s == pytest.approx(0.01)
    assert (profile.recorded.context_requests, profile.recorded.generation_requests) == (0, 32)
    assert "serving engine" in profile.computed["steps"]


def test_a_file_of_the_capture_is_left_out_beside_that_of_the_replay(tmp_path: Path) -> None:
    capture, replay = Trace(0), Trace(0)
    capture.host("cuda_runtime", "cudaStreamBeginCapture", 5, 2)
    capture.kernel(GEMM, 20, 10, launch=15)
    replay.kernel(GEMM, 20, 500, launch=15)
    files = [tmp_path / "capture.json", tmp_path / "decode.json"]
    for path, trace in zip(files, (capture, replay), strict=True):
        path.write_text(json.dumps(trace.document()))
    profile = read_profile(files)
    assert sum(op.self_time_s for op in profile.ops) == pytest.approx(500e-6)
    assert any("capture.json" in note.message for note in profile.notes)


def test_of_files_that_were_recorded_apart_the_latest_run_is_read(tmp_path: Path) -> None:
    def saved(rank: int | None, begin_s: float, name: str) -> Path:
        trace = Trace(rank, 2 if rank is not None else 1)
        trace.step(0, 0, 1000)
        trace.kernel(GEMM, 10, 900, launch=5)
        document = {**trace.document(), "baseTimeNanoseconds": round(begin_s * 1e9)}
        (tmp_path / name).write_text(json.dumps(document))
        return tmp_path / name

    start = 1_700_000_000.0
    for later_s, rank, cores in ((0, 1, 2), (60, 1, 1), (0.3, 1, 2), (0.3, 0, 1), (0.3, None, 1)):
        files = [saved(None if rank is None else 0, start, "one.json"), saved(rank, start + later_s, "two.json")]
        profile = read_profile(files)
        assert profile.device.core_count == cores
        assert any("one.json" in note.message for note in profile.notes) == (cores == 1)


def test_of_xspaces_and_exports_recorded_apart_the_latest_run_is_read(tmp_path: Path, save: Save) -> None:
    def hosts(later_s: int) -> list[Path]:
        paths = []
        for number, begin_s in enumerate((0, later_s)):
            space = tpu_xspace(OPS, host=f"host-{number}")
            for plane in space.planes:
                for line in plane.lines:
                    line.timestamp_ns = (1_700_000_000 + begin_s) * 10**9
            paths.append(save(f"{later_s}/host-{number}.xplane.pb", space))
        return paths

    def exports(later_s: int) -> list[Path]:
        paths = [iterations(tmp_path / f"{number}-{later_s}.sqlite") for number in range(2)]
        for path, begin_s in zip(paths, (0, later_s), strict=True):
            with sqlite3.connect(path) as database:
                database.execute("CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER)")
                begin_ns = (1_700_000_000 + begin_s) * 10**9
                database.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (?)", (begin_ns,))
        return paths

    for files in (hosts, exports):
        assert [len(read_profile(files(later_s)).cores) for later_s in (0, 60)] == [2, 1]


def test_of_more_than_eight_ranks_the_late_one_is_named_with_the_step_without_it(tmp_path: Path) -> None:
    paths = []
    for rank in range(12):
        trace = training(rank, 12, late=100.0 if rank == 5 else 0.0)
        for event in trace.events:
            event["dur"] += 100 if rank == 5 and event["name"] == ADD else 0
        paths.append(trace.save(tmp_path / f"rank{rank}.json"))
    (found,) = (one for one in diagnose(read_profile(paths)).findings if one.rule == "stragglers")
    values = {row.label: row.value for row in found.evidence}
    assert "on host rank 5 " in found.insight and values["cores compared"] == 12
    assert found.saving_s == pytest.approx(100e-6) and values["step without this lag"] == pytest.approx(900e-6)


def test_loading_modules_happens_once(read: Read) -> None:
    trace = Trace(0)
    for index in range(30):
        trace.kernel(GEMM, 1000.0 * index, 100, launch=1000.0 * index - 5)
        trace.host("overhead", "Runtime Triggered Module Loading", 1000.0 * index - 800, 700)
    profile = read(trace)
    assert profile.recorded.gaps["rare"] == pytest.approx(29 * 700 / 29_100, rel=0.01)
    found = diagnose(profile)
    assert found.bottleneck.primary == "unknown"


def test_parts_of_an_older_pod_viewer(tmp_path: Path) -> None:
    def core(number: int) -> dict[str, object]:
        return {
            "hostName": f"host{number // 2}", "stepNum": 221, "totalDurationUs": 400_000, "highFlopsComputeUs": 200_000,
            "crsDurationUs": 16_000, "sendDurationUs": 20_000, "recvDurationUs": 40_000, "hostInfeedDurationUs": 2000,
            "hostOutfeedDurationUs": 0,
        }  # fmt: skip

    document = {
        "podStatsSequence": {"podStatsMap": [{"stepNum": 221, "podStatsPerCore": {str(n): core(n) for n in range(4)}}]},
        "runEnvironment": {"tpuType": "TPU v3", "tpuCoreCount": 4, "hostCount": 2},
    }
    path = tmp_path / "pod_viewer.json"
    path.write_text(json.dumps(document))
    profile = read_profile([path])
    assert (profile.device.kind, profile.device.core_count, profile.device.host_count) == ("TPU v3", 4, 2)
    assert profile.kpis["communication"] == pytest.approx(0.19) and profile.kpis["input"] == pytest.approx(0.005)
    assert len(profile.cores) == 4


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.json", '{"rocprofiler-sdk-tool": [{"metadata": {"pid": 1}}]}', "rocprofv3"),
        ("et.json", '{"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": []}', "Chakra execution trace"),
        ("m.json", '{"segments": [], "device_traces": [[]]}', "memory snapshot"),
        ("t.json", "[[1, 2, 3], [[0, 1]]]", "memory timeline"),
        ("raw.json", "[[-1, 1, 37888, 7], [-1, 1, 512, 7]]", "memory timeline"),
        ("log.txt", "==18148== NVPROF is profiling process 18148, command: python train.py", "nvprof"),
        ("e.json", '{"schemaVersion": 1, "traceEvents": [{"name": "t", "ph": "M", "pid": 1}]}', "no op, kernel"),
        ("h.json", '[{"name": "process_name", "args": {"start_time_since_epoch_in_micros":16334}}', "Horovod"),
        ("r.json", '[ {} ,{"name": "process_sort_index", "args":{"sort_index":"1000002"}}]', "rocmProfileData"),
        ("f.pfw", '[\n {"id":"0","name":"open","cat":"POSIX","ph":"X","ts":"1"}\n{"id":"1","ph":"X"}', "DFTracer"),
        ("b.json", '[{"attr": {"Power": "3"}, "name": "add_11 Prep", "ph": "B", "ts": 2.0}]', "another tool"),
        ("v.json", '{"displayTimeUnit": "ns", "traceEvents": [{"ph": "M", "name": "process_name", "pid": 3, "args": '
         '{"name": "/device:TPU:0"}}, {"ph": "X", "pid": 3, "tid": 1, "ts": 1, "dur": 1, "name": "f.1"}]}', "viewer"),
        ("l.json", '{"traceEvents": [{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": '
         '"/job:localhost/replica:0/task:0/device:GPU:0 Compute"}}, {"ph": "X", "cat": "Op", "name": "MatMul", "ts": 1,'
         ' "dur": 1, "pid": 1, "tid": 0}]}', "TensorFlow 1"),
        ("p.json", '{"traceEvents": [{}, {"ph": "M", "name": "process_name", "args": {"name": "CPU HIP API"}}, '
         '{"ph": "X", "name": "hipMemcpy", "pid": "2", "tid": "0", "ts": "1", "dur": "1"}]}', "rocprof"),
        ("c.0.et", "\x0c\n\x051.0.0", "execution trace"),
        ("g.json", '[{"Start(sec)": 3.9, "Duration(nsec)": 52031, "CorrId": 220}]', "nsys stats"),
        ("s.pickle", "\x80\x04\x95", "never unpickled"),
        ("h.html", "<!DOCTYPE html><html></html>", "web page"),
        ("k.ncu-rep", "NVR\x00 report", "Nsight Compute"),
        ("host.xplane.pb", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 847257792\n", "847 MB"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("compressed", [False, True])
def test_files_of_other_tools_are_named(
    tmp_path: Path, name: str, content: str, expected: str, compressed: bool
) -> None:
    data = content.encode("latin-1")
    path = tmp_path / (f"{name}.gz" if compressed else name)
    path.write_bytes(gzip.compress(data) if compressed else data)
    with pytest.raises(IngestError) as refused:
        read_profile([path], names=[name])
    assert expected in refused.value.message and refused.value.next_step and len(refused.value.line) <= 300


FIELD = Path(__file__).parents[3] / "shared" / "field" / "traces"


@pytest.mark.parametrize(
    ("case", "step_s", "kpis"),
    [
        ("01_expert_parallel_namespace", 0.1, {"communication": 0.65, "communication_exposed": None}),
        ("04_leftover_before_first_step", 0.216, {}),
        ("06_cpu_only_steps", 0.075473, {"idle": None}),
        ("08_no_markers_host_recorded", None, {"host": 0.252, "idle": 0.289}),
        ("14_pod_viewer_parts", 0.39787, {"communication": 0.186, "input": 0.0043}),
    ],
)
def test_field_traces(case: str, step_s: float | None, kpis: dict[str, float | None]) -> None:
    if not (FIELD / case).exists():
        pytest.skip("the field's traces are not here")
    path = next(path for path in sorted((FIELD / case).iterdir()) if path.suffix != ".md")
    profile = read_profile([path])
    assert profile.step_time_s == (None if step_s is None else pytest.approx(step_s, rel=2e-3))
    for key, value in kpis.items():
        assert profile.kpis.get(key) == (None if value is None else pytest.approx(value, rel=1e-2))


def test_five_readings_of_a_recording_are_identical(tmp_path: Path) -> None:
    """In processes of their own, whose hashes of texts differ."""
    path = training(0).save(tmp_path / "trace.json.gz")
    assert len({json.dumps(diagnose(read_profile([path])).to_json(), default=str) for _ in range(5)}) == 1
