"""Profiles that hold little: what can be said is said, what cannot is None with a reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

from diagnosis.analyzer import diagnose
from experiments.step_profile import STEP_PROFILE, Core, Device, StepProfile
from tests.diagnosis.build import collective, config, find, matmul, op, profile, stream


def test_empty_profile() -> None:
    diagnosis = diagnose(StepProfile("measured", "xplane", Device("TPU v5e", "v5e", 0, 1)))
    assert diagnosis.bottleneck.primary == "unknown" and diagnosis.bottleneck.confidence == 0
    assert all(value is None for key, value in diagnosis.kpis.items())
    assert all(diagnosis.not_measured[key] for key in diagnosis.kpis)
    assert diagnosis.breakdown_s == {} and diagnosis.report


def test_kpis_only_still_find_the_input() -> None:
    bare = profile(kpis={"duty_cycle": 0.5, "input": 0.45})
    diagnosis = diagnose(bare)
    assert diagnosis.bottleneck.primary == "input"
    assert sum(diagnosis.breakdown_s.values()) == pytest.approx(1.0)


def test_no_steps() -> None:
    diagnosis = diagnose(profile(matmul("fusion.1", 0.3), stream("fusion.2", 0.7), step_s=None))
    assert diagnosis.kpis["step_time_s"] is None and diagnosis.breakdown_s == {}
    assert diagnosis.bottleneck.primary == "memory"
    assert all(entry.time_s is None for entry in diagnosis.ops)
    assert "StepTraceAnnotation" in find(diagnosis, "record_more").action
    assert "device time" in diagnosis.bottleneck.statement


def test_cpu_without_flops_says_so() -> None:
    ops = (op("dot.1", "dot", 0.5), op("all-reduce.1", "all-reduce", 0.45, hlo=(
        "%all-reduce.1 = f32[64]{0} all-reduce(f32[64]{0} %p), replica_groups={{0,1,2,3,4,5,6,7}}")))  # fmt: skip
    diagnosis = diagnose(profile(*ops, kind="CPU", kpis={}), config({"data": 8}))
    assert diagnosis.bottleneck.primary == "communication"
    assert diagnosis.bottleneck.confidence < 0.8
    assert any("No op reports FLOPs" in text for text in diagnosis.bottleneck.contradictions)
    assert diagnosis.ops[1].mesh_axis == "data" and diagnosis.ops[1].possible_bytes_per_s is None
    assert diagnosis.kpis["mfu"] is None and "CPU" in diagnosis.not_measured["mfu"]


def test_labels_without_flops_are_not_believed() -> None:
    """Without FLOPs XProf calls every op HBM-bound; a profile of products is not memory-bound for that.  What limits
    them depends on their rows, which nothing tells."""
    ops = tuple(op(f"fusion.{i}", "convolution fusion", 0.2, bound_by="HBM") for i in range(5))
    assert diagnose(profile(*ops)).bottleneck.primary == "unknown"


def test_opaque_profile_is_unknown() -> None:
    assert (
        diagnose(profile(op("custom-call.1", "custom-call", 1.0, bound_by="Unknown"))).bottleneck.primary == "unknown"
    )


def test_shares_never_exceed_the_step() -> None:
    """Streams of a GPU run beside each other: op time adds up to more than the step."""
    ops = (matmul("gemm.1", 0.9), collective("all-reduce", 0.6, "replica_groups=[1,8]<=[8]"))
    cores = [Core(f"GPU:{i}", "h", {}, busy_s=0.95, collective_s=0.6, exposed_s=0.05) for i in range(8)]
    diagnosis = diagnose(
        profile(*ops, kpis={"duty_cycle": 0.95, "communication": 0.6}, cores=cores), config({"data": 8})
    )
    assert diagnosis.kpis["communication_exposed"] == pytest.approx(0.05)
    assert diagnosis.kpis["communication_overlapped"] == pytest.approx(0.55)
    assert sum(diagnosis.breakdown_share.values()) == pytest.approx(1.0)
    assert diagnosis.breakdown_share["ici:data"] < 0.1
    assert diagnosis.bottleneck.primary == "compute"


def test_configuration_of_other_hardware_is_said() -> None:
    diagnosis = diagnose(profile(matmul("fusion.1", 1.0)), config({"data": 8}, chip="v6e"))
    assert any("v6e" in text for text in diagnosis.warnings)


def test_hostile_names_are_only_data() -> None:
    name = "<script>alert(1)</script>{{0,1}} replica_groups={{"
    diagnosis = diagnose(
        profile(op(name, "all-reduce", 0.5, hlo=name * 200, op_name=name, source=name)), config({"data": 8})
    )
    assert diagnosis.ops[0].name == name


def test_round_trip_through_json() -> None:
    whole = profile(matmul("fusion.1", 0.6), stream("fusion.2", 0.4))
    again = STEP_PROFILE.read(STEP_PROFILE.write(whole))
    assert diagnose(again).to_json() == diagnose(whole).to_json()


def test_top_is_respected_and_sorted() -> None:
    ops = tuple(matmul(f"fusion.{i}", 0.01 * (i + 1)) for i in range(12))
    answer = diagnose(profile(*ops)).to_json(top=5)
    shares = [row["time_share"] for row in answer["top_ops"]]
    assert len(shares) == 5 and shares == sorted(shares, reverse=True) and shares[0] == pytest.approx(0.12)


def test_nan_and_negative_values_do_not_spread() -> None:
    odd = replace(matmul("fusion.1", 0.5), roofline_efficiency=1.7)
    diagnosis = diagnose(profile(odd, stream("fusion.2", 0.5)))
    assert 0 <= diagnosis.bottleneck.confidence <= 1
