"""Profiles of GPUs whose kernels belong to no HLO op."""

from __future__ import annotations

import pytest

from experiments.ingest import read_profile
from tests.ingest.conftest import Save
from tests.ingest.gpu_xspaces import Kernel, gpu_xspace

pytestmark = pytest.mark.slow

GEMM = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_32x3_tn_align8>(Params)"
REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def test_tensorflow_without_hlo_has_its_ops_and_collectives(save: Save) -> None:
    """Eight GPUs: MatMul for 600 µs, an all-reduce for 300 µs beside 100 µs of it, by TensorFlow's op in the event."""
    kernels = (
        Kernel(GEMM, 0, 600, tf_op="model/dense/MatMul:MatMul"),
        Kernel(REDUCE, 500, 300, tf_op="CollectiveReduceV2:CollectiveReduceV2", stream="Stream #20(Compute)"),
    )
    profile = read_profile([save(space=gpu_xspace(kernels, devices=range(8)))])
    found = {op.category: op for op in profile.ops}
    assert len(profile.ops) == 2
    assert found["MatMul"].self_time_s == pytest.approx(8 * 3 * 600e-6)
    assert found["all-reduce"].self_time_s == pytest.approx(8 * 3 * 300e-6)
    assert found["MatMul"].flops is None
    # Of the 2.8 ms from first to last, 3 × 0.8 ms are busy and 3 × 0.3 ms in collectives.
    assert profile.kpis["duty_cycle"] == pytest.approx(2.4 / 2.8, abs=1e-3)
    assert profile.kpis["communication"] == pytest.approx(0.9 / 2.8, abs=1e-3)
    assert profile.device.core_count == 8


def test_ops_of_a_program_whose_hlo_was_not_recorded(save: Save) -> None:
    kernels = (
        Kernel("loop_add_fusion", 0, 500, hlo_op="loop_add_fusion.3"),
        Kernel(REDUCE, 500, 200, hlo_op="all-reduce-start.1"),
        Kernel("MemcpyH2D", 700, 100, details="kind:H2D size:4000000 dest:0 async:1", stream="Stream #30(MemcpyH2D)"),
    )
    profile = read_profile([save(space=gpu_xspace(kernels, runs=4))])
    found = {op.name: op for op in profile.ops}
    assert found["loop_add_fusion.3"].program == "jit_step"
    assert found["loop_add_fusion.3"].occurrences == 4
    assert found["loop_add_fusion.3"].category == "loop_add_fusion"
    assert found["all-reduce-start.1"].category == "all-reduce"
    assert found["all-reduce-start.1"].exposed_s == pytest.approx(4 * 200e-6)
    copy = found["MemcpyH2D"]
    assert (copy.category, copy.host_bytes) == ("copy host to device", 16_000_000)
    assert any("no recorded HLO op" in note.message for note in profile.notes)


@pytest.mark.parametrize("how", ["stat of the kernels", "launch on the host"])
def test_command_buffers_are_named_with_the_flag_to_record_without(save: Save, how: str) -> None:
    kernels = (
        Kernel(GEMM, 0, 600, graph=3 if how.startswith("stat") else 0),
        Kernel("input_reduce_fusion_2", 600, 200, graph=3 if how.startswith("stat") else 0),
    )
    events = () if how.startswith("stat") else ("cuGraphLaunch",)
    profile = read_profile([save(space=gpu_xspace(kernels, host_events=events))])
    assert [(op.name, op.occurrences) for op in profile.ops][1] == ("input_reduce_fusion_2", 3)
    assert profile.ops[0].category == "gemm"
    assert any("XLA_FLAGS=--xla_gpu_enable_command_buffer=" in note.message for note in profile.notes)


def test_devices_that_recorded_nothing_are_no_cores(save: Save) -> None:
    kernels = (Kernel(GEMM, 0, 600, hlo_op="gemm_fusion.1"),)
    profile = read_profile([save(space=gpu_xspace(kernels, devices=(0,), empty=range(1, 8)))])
    assert (profile.device.core_count, profile.device.recorded_cores, profile.device.measured_cores) == (8, 1, 1)
    assert [core.name for core in profile.cores] == ["GPU:0"]
    assert any("only 1 of 8 devices recorded" in note.message for note in profile.notes)
    assert profile.kpis["communication"] is None
    assert profile.device.chip == "h100"  # of the parts called Hopper, the one with 80 GB


def test_executions_stand_for_steps_that_were_not_marked(save: Save) -> None:
    """Two ops of a loop run three times per execution, one op once: the period is that of the latter."""
    loop = [Kernel(f"fusion_{i}", 100 + 200 * i + 50 * j, 40, hlo_op=f"fusion.{j}") for i in range(3) for j in range(2)]
    kernels = (Kernel(GEMM, 0, 90, hlo_op="gemm_fusion.1"), *loop)
    profile = read_profile([save(space=gpu_xspace(kernels, runs=6, period_us=1000))])
    assert len(profile.steps) == 6
    assert [step.time_s for step in profile.steps[:5]] == pytest.approx([1e-3] * 5)
    assert "execution of jit_step" in profile.computed["step_time"]
    assert any("6 executions of jit_step" in note.message for note in profile.notes)
    # 90 + 6 × 40 µs of each ms; the last step ends with its last kernel.
    assert profile.steps[0].breakdown_s["compute"] == pytest.approx(330e-6)


def test_two_executions_say_nothing_about_a_period(save: Save) -> None:
    profile = read_profile([save(space=gpu_xspace((Kernel(GEMM, 0, 90, hlo_op="gemm_fusion.1"),), runs=2))])
    assert profile.steps == () and profile.step_time_s is None
    assert "no step markers" in profile.not_measured["step_time"]


@pytest.mark.parametrize("events", [(), ("PjitFunction(step)",)])
def test_threads_of_the_host_are_known_to_be_there(save: Save, events: tuple[str, ...]) -> None:
    kernels = (Kernel(GEMM, 0, 90, hlo_op="gemm_fusion.1"),)
    profile = read_profile([save(space=gpu_xspace(kernels, host_events=events))])
    assert ("host ops" in profile.recorded.has) == bool(events)


def test_programs_of_one_name_are_no_steps_of_one_program(save: Save) -> None:
    kernels = [Kernel(GEMM, 300 * n, 90, hlo_op="gemm_fusion.1", program=n + 1) for n in range(3)]
    assert read_profile([save(space=gpu_xspace(kernels, runs=6))]).steps == ()


def test_executions_at_uneven_intervals_are_no_steps(save: Save) -> None:
    kernels = [Kernel(GEMM, start, 90, hlo_op="gemm_fusion.1") for start in (0, 100, 200)]
    assert read_profile([save(space=gpu_xspace(kernels, runs=3, period_us=10_000))]).steps == ()


def test_streams_by_any_name_are_read_and_derived_lines_are_not(save: Save) -> None:
    kernels = (
        Kernel(GEMM, 0, 600, stream="[7] compute"),
        Kernel("model/dense/MatMul", 0, 600, stream="TensorFlow Ops"),
    )
    profile = read_profile([save(space=gpu_xspace(kernels))])
    assert [(op.category, op.occurrences) for op in profile.ops] == [("gemm", 3)]
    assert profile.kpis["duty_cycle"] == pytest.approx(1.8 / 2.6, abs=1e-3)
