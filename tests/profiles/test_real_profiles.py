"""Profiles that others recorded, where they are here: each reads, and differs from XProf only with a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from evaluation.real_profiles import BEGIN, DOCS, END, ORACLES, Source, compare, sources, write
from experiments.ingest import read_profile
from experiments.step_profile import Device, Memory, Op, StepProfile

pytestmark = pytest.mark.slow

SHARED = Path("/work/shared/profiles")
FOUND = sources()


@pytest.mark.skipif(not FOUND, reason="the profiles recorded by others are not here")
@pytest.mark.parametrize("source", FOUND, ids=lambda source: source.name)
def test_every_quantity_is_xprofs_or_says_why_not(source: Source) -> None:
    profile = read_profile(source.files)
    rows = compare(profile, ORACLES[source.kind](source.files))
    assert rows
    differ = [row for row in rows if row.stated is not None and not row.agrees]
    unexplained = [(row.quantity, row.stated, row.ours) for row in differ if not row.reason]
    assert unexplained == []
    assert all(len(note.message) <= 400 for note in profile.notes)


@pytest.mark.skipif(not FOUND, reason="the profiles recorded by others are not here")
def test_the_docs_hold_a_table_of_each() -> None:
    text = DOCS.read_text().partition(BEGIN)[2].partition(END)[0]
    for source in FOUND:
        assert f"## {source.name}" in text
        assert source.licence in text and source.origin in text


@pytest.mark.skipif(not (SHARED / "xprof_tpu_training").exists(), reason="the TPU training step is not here")
def test_tpu_training_step() -> None:
    """As an expert reads it: 120.1 ms, the fifth step cut off, collectives at 26 %, 3 to 5 % of memory used."""
    profile = read_profile(sorted((SHARED / "xprof_tpu_training").glob("*.json.gz")))
    assert profile.step_time_s == pytest.approx(0.1203, abs=3e-4)
    assert profile.step_time_stdev_s is not None and profile.step_time_stdev_s < 0.001
    assert len(profile.steps) == 4 and any("step 4" in note.message for note in profile.notes)
    assert profile.device.chip == "v5p" and profile.device.core_count == 8
    assert profile.kpis["duty_cycle"] == pytest.approx(0.9975, abs=1e-3)
    assert profile.kpis["mxu_utilization"] == pytest.approx(0.157)
    assert profile.kpis["communication"] == pytest.approx(0.265, abs=0.005)
    updates = sum(op.time_share for op in profile.ops if op.category == "dynamic-update-slice")
    assert updates == pytest.approx(0.142, abs=0.002)
    splash = [op for op in profile.ops if op.name.startswith("vmap_splash")]
    assert splash and all(op.roofline_efficiency and op.roofline_efficiency > 3 for op in splash)
    assert all(op.credible_efficiency is None for op in splash)
    assert profile.memory.peak_bytes is not None and profile.memory.capacity_bytes is not None
    assert 0.03 < profile.memory.peak_bytes / profile.memory.capacity_bytes < 0.06


@pytest.mark.skipif(not (SHARED / "xprof_tpu_training").exists(), reason="the TPU training step is not here")
@pytest.mark.parametrize("tool", ["memory_viewer", "framework_op_stats", "input_pipeline_analyzer", "memory_profile"])
def test_no_export_of_the_training_step_spoils_another(tool: str) -> None:
    folder = SHARED / "xprof_tpu_training"
    profile = read_profile([folder / "hlo_stats.json.gz", folder / f"{tool}.json.gz"])
    assert len(profile.ops) == 357
    assert (profile.memory.peak_bytes is not None) == tool.startswith("memory")
    assert (profile.step_time_s is not None) == (tool == "input_pipeline_analyzer")


@pytest.mark.skipif(not (SHARED / "xprof_tpu_training").exists(), reason="the TPU training step is not here")
def test_one_table_less_says_the_same() -> None:
    """Without the roofline, peaks follow from the op profile's counts and utilisations."""
    files = sorted((SHARED / "xprof_tpu_training").glob("*.json.gz"))
    whole, less = read_profile(files), read_profile([path for path in files if "roofline" not in path.name])
    assert less.device.peak_flops_per_s == pytest.approx(233.4e12)
    for key in ("flops_utilization", "hbm_utilization", "duty_cycle", "communication"):
        assert less.kpis[key] == pytest.approx(whole.kpis[key], rel=0.01)


@pytest.mark.skipif(not (SHARED / "xprof_tpu_v6e_host_offload").exists(), reason="the TPU v6e profile is not here")
def test_host_offload_is_bound_by_host_transfers() -> None:
    """Six copies of 5.37 GB per step between HBM and host memory, at 41 GB/s in both directions together."""
    profile = read_profile([SHARED / "xprof_tpu_v6e_host_offload" / "host.xplane.pb"])
    assert len(profile.steps) == 100 and "jit_f" in profile.computed["step_time"]
    moved = sum(op.host_bytes or 0.0 for op in profile.ops) / (100 * 4)
    assert moved == pytest.approx(6 * 5 * 1024 * 1024 * 256 * 4)
    core = profile.cores[0]
    assert core.host_transfer_s is not None and core.breakdown_s["host_transfer"] > 0.95 * 0.784
    assert moved / core.host_transfer_s == pytest.approx(41e9, rel=0.03)
    assert sum(op.time_share for op in profile.ops if op.category == "copy-done") == pytest.approx(0.965, abs=0.01)


def test_a_difference_without_a_reason_shows(tmp_path: Path) -> None:
    """The comparison itself: equal within rounding, explained, unexplained, absent on either side."""
    op = Op("fusion.1", "loop fusion", 1, 1.0, 1.0, 0.5)
    profile = StepProfile(
        "measured", "xplane", Device("TPU v5p", "v5p", 1, 1), step_time_s=0.1, ops=(op,), memory=Memory(8e9),
        kpis={"duty_cycle": 0.9004, "idle": 0.1, "mxu_utilization": None},
        not_measured={"mxu_utilization": "no counters"}, computed={"idle": "1 − duty cycle"},
    )  # fmt: skip
    stated = {"step_time": 0.12, "duty_cycle": 0.9, "idle": 0.2, "mxu_utilization": 0.0, "top_op": 0.5}
    rows = {row.quantity: row for row in compare(profile, stated)}
    assert rows["duty_cycle"].agrees and rows["top_op"].agrees
    assert not rows["step_time"].agrees and rows["step_time"].reason == ""
    assert rows["idle"].reason == "1 − duty cycle"
    assert not rows["mxu_utilization"].agrees and rows["mxu_utilization"].reason == "no counters"
    assert rows["peak_memory"].stated is None and "input" not in rows


def test_sources_that_are_not_here_are_left_out(tmp_path: Path) -> None:
    listed = tmp_path / "list.toml"
    listed.write_text(
        'folders = ["here"]\n'
        '[[profile]]\nname = "a"\nkind = "xplane"\nfiles = ["a.pb"]\norigin = "o"\nlicence = "MIT"\n'
        '[[profile]]\nname = "b"\nkind = "xplane"\nfiles = ["b.pb"]\norigin = "o"\nlicence = "MIT"\n'
    )
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "b.pb").write_bytes(b"")
    assert [source.name for source in sources(listed)] == ["b"]
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write(page, [])
    assert page.read_text() == f"before\n{BEGIN}\n{END}\nafter\n"
