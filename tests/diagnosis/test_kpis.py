"""KPIs by hand."""

from __future__ import annotations

import pytest

from diagnosis.analyzer import diagnose
from experiments.step_profile import Core, Memory
from perfmodel.config import ExperimentConfig, Hardware, Mesh, ModelShape, Training
from tests.diagnosis.build import config, matmul, op, profile, stream


def test_mfu_by_hand() -> None:
    """One layer, d 1024, ff 4096 plain, 8 heads of 128, vocabulary 1000, 8 sequences of 512 tokens in 1 s on 8 v5e.

    Weights a token meets: 4·1024² attention + 2·1024·4096 MLP + 1000·1024 head = 13,606,912; 6 FLOPs each.  Scores:
    forward 2·2·1024·256 per token with causal attention at half the square, times 3 for the training step.
    """
    shape = ModelShape(1, 1024, 4096, 8, 8, 128, 1000, mlp="plain")
    training = Training(global_batch=8, seq_len=512)
    setup = ExperimentConfig(Hardware("v5e", (8,)), Mesh((("data", 8),)), shape, training)
    diagnosis = diagnose(profile(matmul("fusion.1", 1.0)), setup)
    per_token = 6 * 13_606_912 + 3 * 2 * 2 * 1024 * 256
    assert diagnosis.kpis["mfu"] == pytest.approx(per_token * 8 * 512 / (1.0 * 8 * 1.97e14), rel=1e-6)
    assert "recompute excluded" in diagnosis.mfu_convention and "bf16" in diagnosis.mfu_convention
    # v5e multiplies 8-bit integers twice as fast, whatever precision the configuration names.
    dot = "%dot.1 = s32[4096,1024]{1,0} dot(s8[4096,512]{1,0} %a, s8[512,1024]{1,0} %b)"
    measured = diagnose(profile(matmul("dot.1", 1.0, hlo=dot)), setup)
    assert measured.kpis["mfu"] == pytest.approx(diagnosis.kpis["mfu"] / 2, rel=1e-6)
    assert "dense int8 peak" in measured.mfu_convention


def test_more_than_the_chips_can_do_is_a_wrong_configuration() -> None:
    """A model a thousand times too large for the measured step is no utilisation of 1,000 %."""
    shape = ModelShape(80, 8192, 28672, 64, 8, 128, 128256)
    setup = ExperimentConfig(
        Hardware("v5e", (2, 4)), Mesh((("data", 8),)), shape, Training(global_batch=512, seq_len=8192)
    )
    diagnosis = diagnose(profile(matmul("m", 1.0)), setup)
    assert diagnosis.kpis["mfu"] is None
    assert "× the chips' peak" in diagnosis.not_measured["mfu"]


def test_mfu_says_what_it_lacks() -> None:
    diagnosis = diagnose(profile(matmul("fusion.1", 1.0)), config({"data": 8}, global_batch=8))
    assert diagnosis.kpis["mfu"] is None
    assert "model shape" in diagnosis.not_measured["mfu"] and "sequence length" in diagnosis.not_measured["mfu"]
    assert "batch" not in diagnosis.not_measured["mfu"]


def test_utilisation_summed_over_ops() -> None:
    """Half of the step products at 60 % of the peak, half streams at 80 % of HBM."""
    diagnosis = diagnose(profile(matmul("fusion.1", 0.5, 0.6, hbm_bytes=0.0), stream("fusion.2", 0.5, 0.8)))
    assert diagnosis.kpis["flops_utilization"] == pytest.approx(0.3, rel=1e-6)
    assert diagnosis.kpis["hbm_utilization"] == pytest.approx(0.4, rel=1e-6)


def test_stated_utilisation_stands() -> None:
    kpis = {"duty_cycle": 1.0, "flops_utilization": 0.31, "hbm_utilization": 0.42}
    diagnosis = diagnose(profile(matmul("fusion.1", 1.0), kpis=kpis))
    assert diagnosis.kpis["flops_utilization"] == 0.31 and diagnosis.kpis["hbm_utilization"] == 0.42


def test_duty_cycle_and_idle_complete_each_other() -> None:
    assert diagnose(profile(kpis={"duty_cycle": 0.9})).kpis["idle"] == pytest.approx(0.1)
    assert diagnose(profile(kpis={"idle": 0.2})).kpis["duty_cycle"] == pytest.approx(0.8)
    bare = diagnose(profile(kpis={}))
    assert bare.kpis["idle"] is None and bare.kpis["duty_cycle"] is None and bare.kpis["goodput"] is None


def test_goodput_is_time_of_the_program() -> None:
    kpis = {"duty_cycle": 0.8, "input": 0.15, "host": 0.05}
    assert diagnose(profile(matmul("fusion.1", 0.8), kpis=kpis)).kpis["goodput"] == pytest.approx(0.8)


def test_communication_summed_where_not_stated() -> None:
    diagnosis = diagnose(profile(matmul("fusion.1", 0.7), op("all-reduce.1", "all-reduce", 0.3)))
    assert diagnosis.kpis["communication"] == pytest.approx(0.3)


def test_memory_share_and_lag() -> None:
    cores = [Core(f"TPU:{i}", "h", {"compute": 0.5 + 0.1 * (i == 3), "collective": 0.5}) for i in range(4)]
    diagnosis = diagnose(profile(matmul("fusion.1", 1.0), cores=cores, memory=Memory(12e9, 16e9)))
    assert diagnosis.kpis["memory_peak_share"] == pytest.approx(0.75)
    assert diagnosis.kpis["stragglers"] == pytest.approx(0.1)


def test_lag_from_intervals_ignores_hidden_transfers() -> None:
    """Every core has transfers in flight nearly always; what counts is the time in which nothing else ran."""
    cores = [Core(f"TPU:{i}", "h", {}, busy_s=1.0, collective_s=0.95, exposed_s=0.4 - 0.2 * (i == 0)) for i in range(4)]
    assert diagnose(profile(matmul("fusion.1", 1.0), cores=cores)).kpis["stragglers"] == pytest.approx(0.2)
