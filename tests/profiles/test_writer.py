"""The writer's files are read back as written, by us and by XProf."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from xprof_tables import rows, xprof_tables

from evaluation.xspace_writer import MODULES_LINE, OPS_LINE, STEPS_LINE, SpaceWriter
from experiments.xplane import XSpace

STEP_PS = 10**10


def space() -> SpaceWriter:
    """One TPU core, two steps of 10 ms: 4 ms of a matmul at half of 100 TFLOP/s, 2 ms of an all-reduce."""
    writer = SpaceWriter("host-a")
    plane = writer.add_plane("/device:TPU:0")
    plane.add_stats({"peak_teraflops_per_second": 100.0, "peak_hbm_bw_gigabytes_per_second": 1000.0})
    steps, modules, ops = (plane.add_line(name) for name in (STEPS_LINE, MODULES_LINE, OPS_LINE))
    module = plane.add_event_metadata("jit_f(1)")
    dot = plane.add_event_metadata(
        "%dot.1 = f32[8]{0} fusion(f32[8]{0} %a)", "dot.1",
        {"program_id": 1, "symbol_id": 1, "hlo_category": "convolution fusion", "tf_op": "f/dot", "source": "f.py:3",
         "flops": 2 * 10**11, "model_flops": 2 * 10**11, "bytes_accessed": 10**6},
    )  # fmt: skip
    reduce = plane.add_event_metadata(
        "%all-reduce.2 = f32[8]{0} all-reduce(f32[8]{0} %dot.1), replica_groups={{0,1}}", "all-reduce.2",
        {"program_id": 1, "symbol_id": 2, "hlo_category": "all-reduce", "bytes_accessed": 10**9},
    )  # fmt: skip
    for number in range(2):
        start = number * STEP_PS
        steps.add_event(plane.add_event_metadata(str(number)), start, STEP_PS)
        modules.add_event(module, start, STEP_PS)
        ops.add_event(dot, start + 1000, 4 * 10**9)
        ops.add_event(reduce, start + 1000 + 4 * 10**9, 2 * 10**9)
    return writer


def test_what_was_written_is_read_back() -> None:
    read = XSpace.FromString(space().to_bytes())
    (plane,) = read.planes
    assert list(read.hostnames) == ["host-a"]
    assert [line.name for line in plane.lines] == ["Steps", "XLA Modules", "XLA Ops"]
    names = {key: meta.name for key, meta in plane.stat_metadata.items()}
    facts = {names[stat.metadata_id]: stat.double_value for stat in plane.stats}
    assert facts == {"peak_teraflops_per_second": 100.0, "peak_hbm_bw_gigabytes_per_second": 1000.0}
    first = plane.lines[2].events[0]
    meta = plane.event_metadata[first.metadata_id]
    assert (meta.display_name, first.offset_ps, first.duration_ps) == ("dot.1", 1000, 4 * 10**9)
    stats = {names[stat.metadata_id]: stat for stat in meta.stats}
    assert stats["flops"].uint64_value == 2 * 10**11
    assert stats["source"].str_value == "f.py:3"


def test_files_are_equal_for_equal_input_and_gz_holds_the_same(tmp_path: Path) -> None:
    plain, packed, again = tmp_path / "a.xplane.pb", tmp_path / "a.xplane.pb.gz", tmp_path / "b.xplane.pb.gz"
    for path in (plain, packed, again):
        space().write(path)
    assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()
    assert packed.read_bytes() == again.read_bytes()


def test_xprof_reads_times_flops_and_text(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    space().write(source / "host-a.xplane.pb")
    target = tmp_path / "out"
    target.mkdir()
    tables = xprof_tables([source / "host-a.xplane.pb"], target)
    assert float(tables["overview_page"][1]["p"]["steptime_ms_average"]) == 10.0
    by_name = {row["hlo_op_name"]: row for row in rows(tables["hlo_stats"])}
    dot = by_name["dot.1"]
    assert (dot["occurrences"], dot["total_self_time"]) == (2, 8000.0)
    assert dot["model_flop_rate"] == pytest.approx(50_000.0)  # GFLOP/s: half of the peak
    assert dot["bound_by"] == "Compute"
    assert "replica_groups={{0,1}}" in by_name["all-reduce.2"]["hlo_op_expression"]
    assert by_name["all-reduce.2"]["bound_by"] == "HBM"


@pytest.mark.parametrize(("offset", "duration"), [(-1, 1), (1, -1)])
def test_negative_times_are_refused(offset: int, duration: int) -> None:
    line = SpaceWriter("h").add_plane("/device:TPU:0").add_line(OPS_LINE)
    with pytest.raises(ValueError, match="at least 0"):
        line.add_event(1, offset, duration)
