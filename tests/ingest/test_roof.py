"""Values above the roofline are kept, explained, and left out of what is concluded from them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.ingest import read_profile
from experiments.ingest.kpis import FORMULAS
from experiments.ingest.roof import notes_on_roof, notes_on_utilization, utilization
from experiments.step_profile import Op


def op(name: str, seconds: float, *, compute: float = 0.0, memory: float = 0.0, category: str = "custom-call") -> Op:
    """An op with these shares of peaks of 1 FLOP/s and 1 byte/s."""
    return Op(
        name, category, 1, seconds, seconds, seconds / 10, flops=compute * seconds, hbm_bytes=memory * seconds,
        bound_by="Compute" if compute > memory else "HBM", roofline_efficiency=max(compute, memory),
        compute_efficiency=compute, memory_bandwidth_utilization=memory,
    )  # fmt: skip


def test_what_an_op_above_the_peak_adds_is_not_utilisation() -> None:
    ops = [op("matmul.1", 6, compute=0.5), op("splash_mha", 2, compute=4.0)]
    assert ops[1].over_roof == ("compute",) and ops[1].credible_efficiency is None
    assert ops[0].over_roof == () and ops[0].credible_efficiency == 0.5
    used, why = utilization(1.1, ops, "compute")  # 11 FLOPs in 10 s
    assert used == pytest.approx(0.3)  # the matmul's 3
    assert "splash_mha above the peak" in why
    assert utilization(0.3, ops[:1], "compute") == (0.3, "")
    assert utilization(None, ops, "compute") == (None, "")


def test_bytes_of_asynchronous_copies_were_moved() -> None:
    ops = [op("fusion.1", 9, memory=0.4), op("copy-start.1", 0.001, memory=900.0, category="copy-start")]
    assert ops[1].is_asynchronous and ops[1].credible_efficiency is None
    assert utilization(0.45, ops, "hbm") == (0.45, "")
    notes = [note.message for note in notes_on_roof(ops)]
    assert len(notes) == 1 and "1 asynchronous op is above the roofline" in notes[0]


def test_a_rounded_peak_is_not_above_the_roof() -> None:
    assert op("fusion.1", 1, compute=1.01).over_roof == ()
    assert op("fusion.1", 1, compute=1.01).credible_efficiency == 1.0


def test_counter_below_the_cost_model_is_said() -> None:
    assert "disagree" in notes_on_utilization({"mxu_utilization": 0.157, "flops_utilization": 0.597})[0].message
    assert notes_on_utilization({"mxu_utilization": 0.6, "flops_utilization": 0.5}) == []
    assert notes_on_utilization({"mxu_utilization": None, "flops_utilization": 0.5}) == []


def test_no_export_is_refused_for_an_op_above_the_roof(tmp_path: Path) -> None:
    columns = (
        "step", "rank", "operation", "category", "occurrences", "total_self_time", "total_self_time_percent",
        "measured_flop_rate", "model_flop_rate", "hbm_bw", "bound_by", "roofline_efficiency", "compute_efficiency",
        "max_mem_bw_utilization", "include_infeed_outfeed",
    )  # fmt: skip
    rows = [
        ("Total", 0, "Program", "Program", 1, 0.0, 0.0, 110.0, 110.0, 1.0, "Compute", 1.1, 1.1, 0.1, True),
        ("Total", 1, "matmul.1", "convolution fusion", 4, 6e6, 0.6, 50.0, 50.0, 1.0, "Compute", 0.5, 0.5, 0.1, True),
        ("Total", 2, "mha.2", "custom-call", 4, 2e6, 0.2, 400.0, 400.0, 1.0, "Compute", 4.0, 4.0, 0.1, True),
        ("Total", 3, "copy-start.3", "copy-start", 4, 2e3, 0.0002, 0.0, 0.0, 9e3, "HBM", 900.0, 0.0, 900.0, True),
    ]
    table = {
        "cols": [{"id": name} for name in columns],
        "rows": [{"c": [{"v": value} for value in row]} for row in rows],
        "p": {"device_type": "TPU v5p", "peak_flop_rate": "100", "peak_hbm_bw": "10"},
    }
    path = tmp_path / "roofline_model.json"
    path.write_text(json.dumps([table]))
    profile = read_profile([path])
    found = {one.name: one for one in profile.ops}
    assert found["mha.2"].roofline_efficiency == 4.0  # as stated
    assert found["copy-start.3"].memory_bandwidth_utilization == 900.0
    assert found["matmul.1"].credible_efficiency == 0.5
    assert profile.kpis["flops_utilization"] == pytest.approx(1.1 * 300 / 1100, rel=1e-6)
    assert profile.computed["flops_utilization"].startswith(FORMULAS["flops_utilization"])
    assert "mha.2 above the peak" in profile.computed["flops_utilization"]
    assert any("up to 400\N{NO-BREAK SPACE}%" in note.message for note in profile.notes)


def test_utilisation_above_the_peak_is_not_shown_and_says_why(tmp_path: Path) -> None:
    path = tmp_path / "kpis.json"
    path.write_text(json.dumps({"step_time_ms": 10, "hbm_utilization_percent": 131.0}))
    profile = read_profile([path])
    assert profile.kpis["hbm_utilization"] is None
    assert profile.not_measured["hbm_utilization"] == (
        "XProf reports 131\N{NO-BREAK SPACE}% of peak, which exceeds the chip's limit."
    )
