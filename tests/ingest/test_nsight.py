"""Nsight Systems exports: what they say is read from their tables, and what they try is refused."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from experiments.ingest import IngestError, read_profile
from tests.ingest.nsight_exports import PROCESS, Export, iterations

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("old", [False, True])
def test_iterations_ops_and_overlap_are_read_from_the_tables(tmp_path: Path, old: bool) -> None:
    profile = read_profile([iterations(tmp_path / "run.sqlite", old=old)])
    assert profile.step_time_s == pytest.approx(1e-3)
    assert [step.number for step in profile.steps] == [0, 1, 2]
    parts = profile.steps[1].breakdown_s
    assert parts["compute"] == pytest.approx(400e-6)
    assert parts["collective"] == pytest.approx(200e-6)
    assert parts["host_transfer"] == pytest.approx(100e-6)
    ops = {op.category: op for op in profile.ops}
    assert ops["gemm"].name.startswith("aten::mm[4096x1024, 1024x512]")
    assert ops["gemm"].flops == 3 * 2 * 4096 * 1024 * 512
    assert ops["gemm"].op_name == "layer.#/aten::mm"
    assert ops["copy host to device"].host_bytes == 3_000_000
    assert ops["all-reduce"].exposed_s == pytest.approx(3 * 200e-6)
    assert profile.device.chip == "h100"
    assert profile.converter == "Nsight Systems 2025.3.1"


def test_devices_of_several_processes_are_cores_of_their_own(tmp_path: Path) -> None:
    export = Export(tmp_path / "run.sqlite")
    other = PROCESS + (1 << 24)
    for number in range(2):
        # Correlation ids count from one in each process.
        for device, process in ((0, PROCESS), (1, other)):
            export.correlation = 2 * number
            export.range(f"iteration {number}", 1_000_000 * number, 1_000_000, process)
            export.kernel(
                "gemm_a", 1_000_000 * number + 10_000, 100_000 * (1 + device), 1_000_000 * number, device, process
            )
    profile = read_profile([export.save()])
    assert [core.name for core in profile.cores] == ["GPU 0", "GPU 1"]
    assert [core.busy_s for core in profile.cores] == pytest.approx([100e-6, 200e-6])
    assert profile.ops[0].slowest_core.endswith("GPU 1")


def test_without_iterations_the_reason_names_the_range_to_push(tmp_path: Path) -> None:
    export = Export(tmp_path / "run.sqlite")
    export.kernel("gemm_a", 10_000, 100_000, 0)
    profile = read_profile([export.save()])
    assert profile.step_time_s is None
    assert "range_push" in profile.not_measured["step_time"]


def test_an_export_without_gpu_activity_measures_nothing(tmp_path: Path) -> None:
    profile = read_profile([Export(tmp_path / "run.sqlite").save()])
    assert profile.kpis["duty_cycle"] is None
    assert "--trace=cuda" in profile.not_measured["ops"]


def _refused(path: Path, words: str) -> None:
    with pytest.raises(IngestError, match=words) as refused:
        read_profile([path])
    assert len(refused.value.line) <= 300


def test_a_report_is_refused_with_the_command_that_exports_it(tmp_path: Path) -> None:
    path = tmp_path / "report1.nsys-rep"
    path.write_bytes(b"\x00\x01QuadD\xff" * 100)
    _refused(path, "nsys export --type sqlite|only its own programs")


def test_another_database_is_refused(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "notes.sqlite")
    database.execute("CREATE TABLE notes (text TEXT)")
    database.commit()
    database.close()
    _refused(tmp_path / "notes.sqlite", "no export of Nsight Systems")


@pytest.mark.parametrize("cut", [3_000, 9_000])
def test_a_cut_off_database_is_refused(tmp_path: Path, cut: int) -> None:
    path = iterations(tmp_path / "run.sqlite", count=200)
    path.write_bytes(path.read_bytes()[:-cut])
    _refused(path, "truncated")


def test_overwritten_pages_are_refused(tmp_path: Path) -> None:
    path = iterations(tmp_path / "run.sqlite", count=200)
    data = bytearray(path.read_bytes())
    data[5000:9000] = b"\xa5" * 4000
    path.write_bytes(bytes(data))
    _refused(path, "corrupt SQLite file")


def test_a_view_in_place_of_a_table_is_never_run(tmp_path: Path) -> None:
    """A view that never ends, under the name of the kernels' table."""
    path = iterations(tmp_path / "run.sqlite")
    database = sqlite3.connect(path)
    database.execute("DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL")
    database.execute(
        "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS WITH RECURSIVE n(start) AS "
        "(SELECT 1 UNION ALL SELECT start + 1 FROM n) SELECT start, start + 1 AS end, 0 AS deviceId FROM n"
    )
    database.commit()
    database.close()
    profile = read_profile([path])
    assert {op.category for op in profile.ops} == {"copy host to device"}


def test_a_graph_that_is_recorded_as_a_whole_is_work_of_the_device(tmp_path: Path) -> None:
    export = Export(tmp_path / "run.sqlite")
    export.kernel("fill", 0, 1_000, 0)
    export.run(
        "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, "
        "correlationId INTEGER, globalPid INTEGER, graphId INTEGER)"
    )
    for number in range(3):
        row = (1_000 + 100_000 * number, 98_000 + 100_000 * number, 0, 7, 90 + number, PROCESS, 4)
        export.run("INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (?, ?, ?, ?, ?, ?, ?)", *row)
    profile = read_profile([export.save()])
    assert profile.kpis["duty_cycle"] == pytest.approx(292 / 298, abs=1e-3)
    assert max(profile.ops, key=lambda op: op.self_time_s).name == "CUDA graph 4, recorded as a whole"


def passes(export: Export, first: int, count: int, period: int) -> None:
    """Forward passes of two layers: every kernel launched as the one before ends, after 0.2 ms of nothing."""
    for number in range(count):
        for place, kernel in enumerate(("embed", "gemm_a", "gemm_b", "gemm_a", "gemm_b", "head")):
            start = first + number * period + place * 100_000
            export.kernel(kernel, start + 10_000, 90_000, start)


def test_the_measured_range_is_the_recording_and_what_repeats_in_it_its_steps(tmp_path: Path) -> None:
    export = Export(tmp_path / "run.sqlite")
    for kernel in range(5):
        export.kernel(f"warm_{kernel}", 40_000_000 * kernel, 10_000, 40_000_000 * kernel)
    export.range("benchmark_loop", 200_000_000, 3 * 2_000_000)
    passes(export, 200_000_000, 3, 2_000_000)
    for number in range(3):
        export.range("computing softmax", 200_300_000 + 2_000_000 * number, 50_000)
    profile = read_profile([export.save()])
    assert [step.time_s for step in profile.steps] == pytest.approx([2e-3] * 3)
    assert profile.kpis["duty_cycle"] == pytest.approx(0.27)


def test_ranges_that_repeat_and_hold_the_kernels_are_steps(tmp_path: Path) -> None:
    export = Export(tmp_path / "run.sqlite")
    for number in range(3):
        export.range("generate", 2_000_000 * number, 1_500_000)
        for layer in range(2):
            export.range("DecoderLayer", 2_000_000 * number + 700_000 * layer, 600_000)
        passes(export, 2_000_000 * number, 1, 0)
        export.kernel(f"other_{number}", 2_000_000 * number + 700_000, 10_000, 2_000_000 * number + 700_000)
    profile = read_profile([export.save()])
    assert [step.time_s for step in profile.steps] == pytest.approx([1.5e-3] * 3)


@pytest.mark.parametrize(("runs", "steps"), [(1, 0), (2, 0), (4, 4)])
def test_a_sequence_that_repeats_is_a_step_and_the_layers_of_one_pass_are_none(
    tmp_path: Path, runs: int, steps: int
) -> None:
    export = Export(tmp_path / "run.sqlite")
    passes(export, 0, runs, 2_000_000)
    assert len(read_profile([export.save()]).steps) == steps


def test_a_cold_first_run_of_the_sequence_is_excluded(tmp_path: Path) -> None:
    export = Export(tmp_path / "run.sqlite")
    export.kernel("embed", 10_000, 90_000, 0)
    for place, kernel in enumerate(("gemm_a", "gemm_b", "gemm_a", "gemm_b", "head")):
        start = 50_000_000 + place * 100_000
        export.kernel(kernel, start + 10_000, 90_000, start)
    passes(export, 51_000_000, 4, 2_000_000)
    profile = read_profile([export.save()])
    assert [step.number for step in profile.steps] == [2, 3, 4, 5]
    assert any("Step 1 is excluded: " in note.message for note in profile.notes)


@pytest.mark.parametrize(
    ("kernels", "kernel_ns", "duty"), [(30, 60, 181.8 / 1090), (30, 30_000, 1.0), (1, 900_000, 1080 / 1090)]
)
def test_copies_around_the_kernels_are_set_up_unless_they_are_most_of_the_work(
    tmp_path: Path, kernels: int, kernel_ns: int, duty: float
) -> None:
    export = Export(tmp_path / "run.sqlite")
    export.copy(1, 0, 90_000, 0, 1_000_000)
    for index in range(kernels):
        export.kernel("gather", 100_000 + index * kernel_ns, kernel_ns, 100_000 + index)
    export.copy(2, 1_000_000, 90_000, 1_000_000, 1_000_000)
    assert read_profile([export.save()]).kpis["duty_cycle"] == pytest.approx(duty, rel=1e-3)


def test_generated_columns_and_wrong_types_are_passed_over(tmp_path: Path) -> None:
    path = iterations(tmp_path / "run.sqlite")
    database = sqlite3.connect(path)
    database.execute("DROP TABLE TARGET_INFO_GPU")
    database.execute(
        "CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT GENERATED ALWAYS AS (hex(zeroblob(400000000))) VIRTUAL)"
    )
    database.execute("INSERT INTO TARGET_INFO_GPU (id) VALUES (0)")
    database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId) VALUES ('now', x'00', 'a')")
    database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, end) VALUES (9223372036854775807, 1)")
    database.execute("INSERT INTO NVTX_EVENTS (start, end, text, globalTid) VALUES (1, 2, x'ff', 'x')")
    database.commit()
    database.close()
    profile = read_profile([path])
    assert len(profile.steps) == 3
    assert profile.device.kind == "GPU"
