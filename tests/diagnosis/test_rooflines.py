"""Rooflines from FLOPs, bytes and peaks, and what a FLOPs utilisation is without some of the FLOPs."""

from __future__ import annotations

import pytest

from diagnosis.analyzer import diagnose
from tests.diagnosis.build import BANDWIDTH, CORES, PEAK, STEPS, config, matmul, op, profile

SECONDS = 0.5 * CORES * STEPS


@pytest.mark.parametrize(("kind", "bound"), [("AMD GPU - gfx942", "HBM"), ("TPU v5e", "Compute")])
def test_a_convolution_left_of_the_ridge_is_bound_by_hbm(kind: str, bound: str) -> None:
    """56 FLOP per byte accessed, where the ridge stands at 243: 68 % of the HBM roof, not 16 % of the compute roof.
    On a TPU, whose bytes are distinguished by memory, few of them go to HBM."""
    moved = 0.68 * BANDWIDTH * SECONDS
    conv = op("cudnn-conv.1", "custom-call", 0.5, flops=56 * moved, bytes_accessed=moved, hbm_bytes=0.01 * moved,
              bound_by="Compute", roofline_efficiency=56 * moved / PEAK / SECONDS)  # fmt: skip
    found = next(item for item in diagnose(profile(conv, matmul("fusion.1", 0.5), kind=kind), config({"data": 8})).ops
                 if item.name == "cudnn-conv.1")  # fmt: skip
    assert found.bound_by == bound
    if bound == "HBM":
        assert found.roofline_efficiency == pytest.approx(0.68) and found.resource == "hbm"


def test_flops_utilisation_without_some_flops_is_a_lower_bound() -> None:
    kernel = op("fused_attn.1", "custom-call", 0.5)
    found = diagnose(profile(matmul("fusion.1", 0.5, 0.6), kernel), config({"data": 8}))
    assert found.kpis["flops_utilization"] is None
    reason = found.not_measured["flops_utilization"]
    assert "at least 30.0\N{NO-BREAK SPACE}%" in reason and "50.0\N{NO-BREAK SPACE}% of the time" in reason
    whole = diagnose(profile(matmul("fusion.1", 0.5, 0.6), matmul("fusion.2", 0.5, 0.6)), config({"data": 8}))
    assert whole.kpis["flops_utilization"] == pytest.approx(0.6)
