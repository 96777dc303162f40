"""What only the recorded intervals tell: exposure of single collectives, spread over cores, stages, hosts, strips."""

from __future__ import annotations

from dataclasses import replace

import pytest

from diagnosis.analyzer import diagnose
from experiments.step_profile import STEP_PROFILE, Core, Op, Timeline
from tests.diagnosis.build import CORES, STEPS, collective, config, find, matmul, op, profile, rules

OVER_MODEL = "replica_groups=[2,4]<=[8]"
MESH = config({"data": 2, "model": 4}, (2, 4))
PER_CORE = STEPS  # seconds over the profile of what takes one second per step on one core
WHOLE = CORES * STEPS


def pair(share: float, flight_s: float, exposed_s: float) -> tuple[Op, Op]:
    """An asynchronous all-gather: its wait as a share, its time in flight and exposed per step and core."""
    start = collective("all-gather-start", 0.0, OVER_MODEL, name="all-gather-start.1")
    line = "%all-gather-done.1 = bf16[1024,4096]{1,0} all-gather-done((bf16[8]{0}, bf16[8]{0}) %all-gather-start.1)"
    done = op(
        "all-gather-done.1",
        "all-gather-done",
        share,
        hlo=line,
        in_flight_s=flight_s * WHOLE,
        exposed_s=exposed_s * WHOLE,
    )
    return start, done


def test_exposure_per_op_and_axis() -> None:
    diagnosis = diagnose(profile(matmul("fusion.1", 0.8), *pair(0.2, 0.5, 0.2)), MESH)
    done = next(item for item in diagnosis.ops if item.name == "all-gather-done.1")
    assert done.mesh_axis == "model" and (done.in_flight_s, done.exposed_s) == pytest.approx((0.5, 0.2))
    row = next(row for row in diagnosis.collectives if row.axis == "model" and row.exposed_s is not None)
    assert (row.in_flight_s, row.exposed_s, row.hidden_share) == pytest.approx((0.5, 0.2, 0.6))
    text = find(diagnosis, "async_collective_waits").insight
    assert "hide 60.0 % of the time they are in flight" in text


def test_what_other_streams_hide_is_no_cost() -> None:
    """On a GPU a kernel of 40 % of the step runs beside the products: its own time is no waiting."""
    kernel = collective("all-reduce", 0.4, OVER_MODEL, in_flight_s=0.4 * WHOLE, exposed_s=0.04 * WHOLE)
    diagnosis = diagnose(profile(matmul("fusion.1", 0.96), kernel), MESH)
    assert diagnosis.bottleneck.primary == "compute"
    assert diagnosis.breakdown_share["ici:model"] == pytest.approx(0.04, rel=0.01)
    assert sum(diagnosis.breakdown_share.values()) == pytest.approx(1.0)


def test_exposed_communication_is_one_number_where_streams_overlap() -> None:
    """Compute for 0.7 s beside an all-reduce of 0.6 s, of which 0.3 s is exposed: KPI, bars, table and op agree."""
    kernel = collective("all-reduce", 0.6, OVER_MODEL, in_flight_s=0.6 * WHOLE, exposed_s=0.3 * WHOLE)
    core = Core("GPU 0", "host-a", busy_s=1.0, collective_s=0.6, exposed_s=0.3)
    recorded = replace(profile(matmul("fusion.1", 0.7), kernel), cores=(core,))
    diagnosis = diagnose(recorded, MESH)
    (row,) = diagnosis.collectives
    done = next(item for item in diagnosis.ops if item.collective)
    assert diagnosis.kpis["communication_exposed"] == pytest.approx(0.3)
    assert diagnosis.breakdown_s["ici:model"] == pytest.approx(0.3)
    assert (row.time_s, row.exposed_s) == pytest.approx((0.6, 0.3))
    assert (done.time_s, done.exposed_s) == pytest.approx((0.6, 0.3))
    assert diagnosis.breakdown_s["compute"] == pytest.approx(0.7)


def expert(name: str, share: float, most: float) -> Op:
    """An expert's product; most: time on the fullest core over the mean."""
    mean = share * STEPS
    path = "jit(step)/jvp(loss)/moe/experts/dot_general"
    spread = {"core_max_s": mean * most, "core_min_s": mean * 0.5, "core_count": CORES, "slowest_core": "host-a TPU:3"}
    return matmul(name, share, op_name=path, **spread)


def test_uneven_experts() -> None:
    exchange = collective("all-to-all", 0.3, OVER_MODEL, op_name="jit(step)/jvp(loss)/moe/dispatch/all_to_all")
    even = matmul("fusion.9", 0.3, core_max_s=0.3 * STEPS, core_min_s=0.3 * STEPS, core_count=CORES)
    mesh = config({"data": 2, "expert": 4}, (2, 4))
    diagnosis = diagnose(profile(expert("fusion.1", 0.4, 1.5), even, exchange), mesh)
    found = find(diagnosis, "expert_imbalance")
    assert found.saving_share == pytest.approx(0.2) and found.mesh_axis == "expert"
    assert "1.50× as long on the most loaded core" in found.insight and "host-a TPU:3" in found.insight
    assert "expert_imbalance" not in rules(diagnose(profile(expert("fusion.1", 0.4, 1.02), even, exchange), mesh))


def test_a_spread_that_its_own_mean_lies_outside_of_is_not_shown() -> None:
    spread = {"core_max_s": 0.27 * STEPS, "core_min_s": 0.25 * STEPS, "core_count": CORES, "slowest_core": "h TPU:2"}
    ops = diagnose(profile(matmul("fusion.9", 0.3, **spread), matmul("fusion.1", 0.7)), MESH).ops
    shown = next(op for op in ops if op.name == "fusion.9")
    assert (shown.core_max_s, shown.core_min_s, shown.slowest_core) == (None, None, "")


def test_a_core_slow_in_everything_is_a_straggler() -> None:
    spread = {"core_max_s": 0.3 * STEPS * 1.5, "core_min_s": 0.3 * STEPS, "core_count": CORES}
    diagnosis = diagnose(profile(expert("fusion.1", 0.4, 1.5), matmul("fusion.9", 0.3, **spread)), MESH)
    assert "expert_imbalance" not in rules(diagnosis)


def cores(times: list[float], hosts: list[str] | None = None) -> list[Core]:
    return [
        Core(f"TPU:{i}", (hosts or ["h"] * len(times))[i], {"compute": own, "collective": 1.0 - own})
        for i, own in enumerate(times)
    ]


def test_a_heavy_stage() -> None:
    """Two stages of four chips each, major axis first: the second works 0.8 s where the first works 0.5 s."""
    mesh = config({"pipeline": 2, "data": 4}, (2, 4), grad_accum=8)
    made = profile(matmul("fusion.1", 0.7), kpis={"duty_cycle": 0.7, "idle": 0.3}, cores=cores([0.5] * 4 + [0.8] * 4))
    found = find(diagnose(made, mesh), "pipeline_bubble")
    values = {row.label: row.value for row in found.evidence}
    assert values["the heaviest stage"] == 2
    assert values["busy time of the heaviest stage per step"] == pytest.approx(0.8)
    assert values["mean busy time of a stage per step"] == pytest.approx(0.65)
    assert "the others wait for it" in found.insight


def test_a_slow_host_is_told_from_a_slow_core() -> None:
    hosts = ["host-a"] * 4 + ["host-b"] * 4
    made = profile(matmul("fusion.1", 0.9), cores=cores([0.6] * 4 + [0.9] * 4, hosts))
    found = find(diagnose(made, MESH), "stragglers")
    assert found.title == "Straggling host" and "All 4 cores of that host lag" in found.insight
    one = profile(matmul("fusion.1", 0.9), cores=cores([0.6] * 7 + [0.9], hosts))
    assert find(diagnose(one, MESH), "stragglers").title == "Straggling core"


def test_strips_go_through() -> None:
    strip = Timeline(("TPU:0",), ("h",), (1, 2), ((1.0, 1.1),), {"compute": ((0.9, 1.0),), "idle": ((0.1, 0.1),)}, 1, 2)
    made = replace(profile(matmul("fusion.1", 0.6)), timeline=strip)
    assert STEP_PROFILE.read(STEP_PROFILE.write(made)).timeline == strip
    answer = diagnose(made, MESH).to_json()
    assert answer["timeline"]["parts_s"]["compute"][0][1] == 1.0


def test_a_bubble_that_shows_as_communication() -> None:
    """Four stages, four micro-batches: a bubble of 3/7 of the step.  The permutes' bytes need next to nothing of it."""
    mesh = config({"pipeline": 4, "data": 2}, (4, 2), grad_accum=4)
    pairs = "source_target_pairs={{0,2},{1,3},{2,4},{3,5},{4,6},{5,7}}"
    wait = collective("collective-permute", 0.4, pairs, "bf16[64,64]", op_name="jit(s)/jvp(l)/ppermute")
    diagnosis = diagnose(profile(matmul("fusion.1", 0.6), wait), mesh)
    assert diagnosis.bottleneck.primary == "idle"
    assert "shows as communication" in diagnosis.bottleneck.statement
    assert find(diagnosis, "pipeline_bubble").saving_share == pytest.approx(0.4, abs=0.01)
    # The same permutes at work: a tensor that takes the link bandwidth for all of that time is communication.
    large = collective("collective-permute", 0.4, pairs, "bf16[900000,1024]", op_name="jit(s)/jvp(l)/ppermute")
    assert diagnose(profile(matmul("fusion.1", 0.6), large), mesh).bottleneck.primary == "communication"
