"""Profiles made by hand, whose numbers are derived on paper."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.ingest import IngestError, read_profile
from experiments.step_profile import STEP_PROFILE
from experiments.xplane import XSpace
from tests.ingest.conftest import OPS, Save
from tests.ingest.xspaces import OpSpec, PlaneWriter, tpu_xspace

pytestmark = pytest.mark.slow

US = 1e-6
SHARED = Path("/work/shared/profiles/934987a2fc2f.xplane.pb")


def test_a_step_of_three_ops(save: Save) -> None:
    """100 µs: 40 µs of product, 30 µs of all-reduce, 20 µs of copy, 10 µs of nothing."""
    profile = read_profile([save(cores=range(2), steps=4)])
    assert profile.source_kind == "xplane"
    assert profile.provenance == "measured"
    assert (profile.device.kind, profile.device.chip, profile.device.core_count) == ("TPU v5p", "v5p", 2)
    assert profile.device.peak_flops_per_s == pytest.approx(100e12)
    assert profile.device.peak_hbm_bytes_per_s == pytest.approx(1000e9)
    assert profile.step_time_s == pytest.approx(100 * US)
    assert profile.step_time_stdev_s == pytest.approx(0, abs=1e-12)
    assert len(profile.steps) == 4
    for step in profile.steps:
        assert step.breakdown_s == pytest.approx({"compute": 60 * US, "collective": 30 * US, "idle": 10 * US})
    assert profile.kpis["communication"] == pytest.approx(0.30)
    assert profile.kpis["idle"] == pytest.approx(0.10)
    assert profile.kpis["goodput"] == pytest.approx(0.90)
    # 2e9 FLOPs and 39e6 bytes in 100 µs, against 100e12 FLOP/s and 1e12 bytes/s.
    assert profile.kpis["flops_utilization"] == pytest.approx(0.2)
    assert profile.kpis["hbm_utilization"] == pytest.approx(0.39, rel=1e-5)
    assert profile.kpis["mxu_utilization"] is None
    assert "counters" in profile.not_measured["mxu_utilization"]


def test_ops_in_si_units(save: Save) -> None:
    profile = read_profile([save(cores=range(2), steps=4)])
    product, reduce, copy = profile.ops
    assert (product.name, product.category, product.rank) == ("fusion.1", "convolution fusion", 1)
    assert product.occurrences == 8
    assert product.self_time_s == pytest.approx(8 * 40 * US)
    assert product.time_share == pytest.approx(0.40)
    assert product.flops == pytest.approx(8 * 2e9)
    assert product.flops_per_s == pytest.approx(50e12)
    assert product.hbm_bytes_per_s == pytest.approx(0.5e12)
    assert product.operational_intensity == pytest.approx(100)
    assert (product.roofline_efficiency, product.compute_efficiency) == pytest.approx((0.5, 0.5))
    assert product.op_name == "jit(step)/fusion.1"
    assert product.source == "train.py:12"
    assert reduce.bound_by == "HBM"
    assert "replica_groups={{0,1}}" in reduce.hlo
    assert copy.memory_bandwidth_utilization == pytest.approx(0.9)
    assert profile.ops_dropped == 0


def test_exposed_communication_is_what_compute_does_not_cover(save: Save) -> None:
    """An all-gather in flight from 10 to 60 µs; compute runs 11–31 and 36–50 µs; its done op waits 50–60 µs.

    The start op (10–11) runs alone, then 20 µs are hidden, 31–36 nothing else runs, 14 µs hidden, 10 µs waited.
    """
    start = "%all-gather-start.5 = (f32[8], f32[16]) all-gather-start(f32[8] %p)"
    done = "%all-gather-done.7 = f32[16] all-gather-done((f32[8], f32[16]) %all-gather-start.5)"
    ops = (
        OpSpec("all-gather-start.5", "all-gather", 10, 1, hlo=start),
        OpSpec("fusion.1", "loop fusion", 11, 20),
        OpSpec("fusion.2", "loop fusion", 36, 14),
        OpSpec("all-gather-done.7", "all-gather", 50, 10, hlo=done),
    )
    profile = read_profile([save(space=tpu_xspace(ops))])
    core = profile.cores[0]
    assert core.busy_s == pytest.approx(45 * US)
    assert core.collective_s == pytest.approx(50 * US)
    assert core.exposed_s == pytest.approx((1 + 5 + 10) * US)
    assert core.breakdown_s == pytest.approx({"compute": 34 * US, "collective": 11 * US, "idle": 55 * US})


def test_in_flight_line_counts_for_overlap_only(save: Save) -> None:
    ops = (
        OpSpec("fusion.1", "loop fusion", 10, 40),
        OpSpec("all-reduce.9", "all-reduce", 30, 40, line="Async XLA Ops"),
    )
    space = tpu_xspace(ops)
    core = read_profile([save(space=space)]).cores[0]
    assert core.collective_s == pytest.approx(40 * US)
    assert core.exposed_s == pytest.approx(20 * US)
    assert core.busy_s == pytest.approx(40 * US)


def test_loops_do_not_count_twice(save: Save) -> None:
    ops = (
        OpSpec("while.1", "while", 1, 80),
        OpSpec("fusion.1", "loop fusion", 10, 20),
        OpSpec("all-reduce.2", "all-reduce", 40, 30),
    )
    core = read_profile([save(space=tpu_xspace(ops))]).cores[0]
    assert core.busy_s == pytest.approx(50 * US)
    assert core.exposed_s == pytest.approx(30 * US)


def test_matmul_fused_with_a_collective_is_compute(save: Save) -> None:
    ops = (
        OpSpec("all-gather-matmul.1", "convolution fusion", 1, 40),
        OpSpec("async-collective-done.2", "custom fusion", 50, 10),
    )
    profile = read_profile([save(space=tpu_xspace(ops))])
    assert profile.cores[0].breakdown_s["compute"] == pytest.approx(40 * US)
    assert profile.kpis["communication"] == pytest.approx(0.10)


def test_infeed_is_input(save: Save) -> None:
    ops = (OpSpec("fusion.1", "loop fusion", 30, 60), OpSpec("infeed.2", "infeed", 5, 25))
    step = read_profile([save(space=tpu_xspace(ops))]).steps[0]
    assert step.breakdown_s == pytest.approx({"compute": 60 * US, "input": 25 * US, "idle": 15 * US})


def test_straggling_core_shows_and_the_step_time_is_the_mean(save: Save) -> None:
    profile = read_profile([save(cores=range(4), slow_core=3)])
    # Three cores take 100 µs, one 200: XProf's own step time would be the slowest core's.
    assert profile.step_time_s == pytest.approx(125 * US)
    busy = {core.name: core.busy_s for core in profile.cores}
    assert busy["TPU:3"] == pytest.approx(2 * (busy["TPU:0"] or 0))


def test_hosts_are_one_session(save: Save) -> None:
    paths = [save(f"host-{n}.xplane.pb", host=f"host-{n}", cores=range(2)) for n in range(3)]
    seen: list[tuple[str, float | None, str]] = []
    profile = read_profile(paths, on_progress=lambda *report: seen.append(report))
    assert (profile.device.host_count, profile.device.core_count) == (3, 6)
    assert {core.host for core in profile.cores} == {"host-0", "host-1", "host-2"}
    assert profile.ops[0].occurrences == 3 * 2 * 2
    # Merged hosts without performance counters state 0 for them.
    assert profile.kpis["mxu_utilization"] is None
    assert profile.kpis["hbm_utilization"] == pytest.approx(0.39, rel=1e-5)
    assert any("host 2 of 3" in text for _, _, text in seen)
    fractions = [fraction for _, fraction, _ in seen if fraction is not None]
    assert fractions == sorted(fractions)


def test_leaving_out_a_host_by_name(save: Save) -> None:
    paths = [save(f"f{n}.xplane.pb", host=f"host-{n}") for n in range(2)]
    assert {core.host for core in read_profile(paths, exclude=["host-1"]).cores} == {"host-0"}


def test_value_survives_json(save: Save) -> None:
    profile = read_profile([save()])
    assert STEP_PROFILE.read(STEP_PROFILE.write(profile)) == profile


def test_profile_of_the_host_only_measures_nothing_and_says_so(save: Save) -> None:
    space = XSpace(hostnames=["h"])
    writer = PlaneWriter(space.planes.add(id=1, name="/host:CPU"))
    writer.event("python", writer.event_id("train_step"), 0, 100)
    profile = read_profile([save(space=space)])
    assert profile.ops == ()
    assert profile.step_time_s is None
    assert all(value is None for value in profile.kpis.values())
    assert set(profile.kpis) <= set(profile.not_measured)
    assert {"ops", "steps", "step_time"} <= set(profile.not_measured)


def test_without_flops_and_peaks_nothing_is_called_zero(save: Save) -> None:
    space = tpu_xspace((OpSpec("fusion.1", "loop fusion", 1, 50),))
    del space.planes[0].stats[:]
    profile = read_profile([save(space=space)])
    op = profile.ops[0]
    assert (op.flops, op.flops_per_s, op.compute_efficiency) == (None, None, None)
    assert profile.kpis["flops_utilization"] is None
    assert {"flops", "peak_flops", "peak_hbm"} <= set(profile.not_measured)


def test_peak_memory_comes_from_the_allocator(save: Save) -> None:
    space = tpu_xspace(OPS)
    writer = PlaneWriter(space.planes.add(id=99, name="/host:CPU"))
    for number, (peak, free) in enumerate(((40_000, 60_000), (90_000, 10_000), (90_000, 50_000))):
        kind = writer.event_id("MemoryAllocation")
        event = writer.event("python", kind, number, 1)
        for name, value in (
            ("peak_bytes_in_use", peak),
            ("bytes_allocated", 100_000 - free),
            ("bytes_available", free),
            ("bytes_reserved", 0),
            ("allocator_name", "TPU_0_bfc"),
        ):
            writer.set_stat(event.stats, name, value)  # type: ignore[attr-defined]
    memory = read_profile([save(space=space)]).memory
    assert (memory.peak_bytes, memory.capacity_bytes) == (90_000, 100_000)


def test_generated_profiles_say_that_they_are_reconstructed(save: Save) -> None:
    space = tpu_xspace(OPS)
    space.warnings.append("reconstructed from the paper, experiment 9")
    profile = read_profile([save(space=space)])
    assert (profile.provenance, profile.label) == ("reconstructed", "reconstructed from the paper, experiment 9")
    assert profile.notes == ()


def test_warnings_written_in_a_file_are_passed_on_once(save: Save) -> None:
    space = tpu_xspace(OPS)
    space.warnings.append("dropped 3 events")
    notes = read_profile([save(space=space)]).notes
    assert [(note.severity, note.message) for note in notes] == [("warning", "host-0: dropped 3 events")]


def test_cpu_recording(save: Save) -> None:
    """Two devices, three steps of 100 µs; per step a product of 50 µs on one thread and, beside its second half on
    another thread, an all-reduce of 50 µs: 25 µs of it are exposed."""
    space = XSpace(hostnames=["laptop"])
    writer = PlaneWriter(space.planes.add(id=1, name="/host:CPU"))
    marker = writer.event_id("train")
    for step in range(3):
        event = writer.event("python", marker, step * 100, 100)
        writer.set_stat(event.stats, "step_num", step)  # type: ignore[attr-defined]
        for device in range(2):
            for thread, name, start, length in (
                (f"pool/{device}a", "dot.1", 0, 50),
                (f"pool/{device}b", "all-reduce.2", 25, 50),
                (f"pool/{device}a", "while.3", 0, 80),
            ):
                event = writer.event(thread, writer.event_id(name), step * 100 + start, length)
                for stat, value in (
                    ("hlo_op", name),
                    ("hlo_module", "jit_step"),
                    ("program_id", 3),
                    ("device_ordinal", device + 1),
                ):
                    writer.set_stat(event.stats, stat, value)  # type: ignore[attr-defined]
    profile = read_profile([save(space=space)])
    assert (profile.device.kind, profile.device.core_count, profile.label) == ("CPU", 2, "CPU recording")
    assert profile.step_time_s == pytest.approx(100 * US)
    core = profile.cores[0]
    assert (core.busy_s, core.collective_s, core.exposed_s) == pytest.approx((75 * US, 50 * US, 25 * US))
    assert profile.kpis["communication"] == pytest.approx(0.5)
    assert profile.kpis["duty_cycle"] == pytest.approx(0.75)
    assert "CPU" in profile.not_measured["hbm_utilization"]


def test_tens_of_thousands_of_ops(save: Save) -> None:
    ops = tuple(
        OpSpec(f"fusion.{n}", "loop fusion", 1 + n * 0.01, 0.009, bytes_accessed=100, hlo=f"%fusion.{n} = " + "x" * 900)
        for n in range(22_000)
    )
    profile = read_profile([save(space=tpu_xspace(ops, steps=1, step_us=230))])
    assert len(profile.ops) == 22_000
    assert sum(op.time_share for op in profile.ops) == pytest.approx(198 / 230, rel=0.05)
    assert len(profile.ops[-1].hlo) < 700


def test_collective_groups_survive_a_long_operand_list(save: Save) -> None:
    operands = ", ".join(f"f32[4096,4096]{{1,0}} %fusion.{n}" for n in range(2_000))
    groups = "replica_groups={" + ",".join(f"{{{n},{n + 1}}}" for n in range(0, 512, 2)) + "}"
    op = OpSpec("all-reduce.1", "all-reduce", 1, 9, hlo=f"%all-reduce.1 = (f32[]) all-reduce({operands}), {groups}")
    text = read_profile([save(space=tpu_xspace((op,)))]).ops[0].hlo
    assert groups in text
    assert len(text) < 30_000


def test_a_file_that_was_cut_off_is_refused_by_its_name(save: Save) -> None:
    path = save(cores=range(4), steps=10)
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(IngestError, match=r"upload\.pb is incomplete") as refused:
        read_profile([path], names=["upload.pb"])
    assert refused.value.next_step


@pytest.mark.skipif(not SHARED.exists(), reason="the profile recorded by others is not here")
def test_real_gpu_profile() -> None:
    """Values as XProf 2.24.2 reports them for this file, less its HBM peak, which is half of what the chip moves."""
    profile = read_profile([SHARED])
    assert profile.device.kind == "AMD GPU - gfx950"
    assert (profile.device.core_count, profile.device.host_count) == (8, 1)
    assert len(profile.ops) == 20
    top = profile.ops[0]
    assert (top.name, top.category, top.bound_by) == ("te_fused_attn_backward_ffi.18", "custom-call", "Unknown")
    assert top.time_share == pytest.approx(0.1799, abs=1e-4)
    assert (profile.device.chip, profile.device.recorded_cores) == ("mi355x", 1)
    gemms = [op for op in profile.ops if op.bound_by == "Compute" and (op.flops or 0) > 1e11]
    assert len(gemms) >= 4
    assert all(1300 * 2**30 < (op.hbm_bytes_per_s or 0) < 1720 * 2**30 for op in gemms)
    assert profile.kpis["flops_utilization"] == pytest.approx(0.079, abs=1e-3)
    assert profile.kpis["hbm_utilization"] == pytest.approx(0.2252 / 2, abs=1e-3)
    assert "XProf's 22.5\N{NO-BREAK SPACE}%" in profile.computed["hbm_utilization"]
    assert not any(op.over_roof for op in profile.ops)
    assert profile.device.peak_flops_per_s == pytest.approx(2516.58e12, rel=1e-4)
    assert profile.device.peak_hbm_bytes_per_s == pytest.approx(2 * 3814.7 * 2**30, rel=1e-4)
    assert profile.step_time_s == pytest.approx(2.59e-3, rel=0.01)
    assert "execution of jit_loss_fn" in profile.computed["step_time"]
    assert any("5 executions of jit_loss_fn" in note.message for note in profile.notes)
    assert any("only 1 of 8 devices recorded" in note.message for note in profile.notes)
    assert profile.memory.peak_bytes == 663_228_416
