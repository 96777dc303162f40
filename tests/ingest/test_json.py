"""JSON exports: XProf's full tables, its command line's, and reports as thin as the paper's agents read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from experiments.ingest import IngestError, read_profile
from experiments.step_profile import StepProfile
from tests.ingest.conftest import Save

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).resolve().parents[2]
TOOLS = ("overview_page", "hlo_stats", "roofline_model", "op_profile")

THIN = {
    "Device Type": "TPU v5e",
    "Step Time": "2,500.0 ms",
    "Device Duty Cycle": "99.5%",
    "Communication Overhead": "7.5%",
    "top_ops": [
        {
            "Operation": "all-reduce.1",
            "Category": "All-reduce",
            "Total Time (ps)": 2_000_000_000_000,
            "Occurrences": 100,
            "Avg Time (ps)": 20_000_000_000,
            "Roofline Analysis": {"% of Total Time": "5.0%", "Bottleneck": "HBM", "Roofline Efficiency": "11.0%"},
        },
        {
            "Operation": "custom-call.2",
            "Category": "Custom-call",
            "Avg Time (ps)": 10_000_000_000,
            "Occurrences": 100,
            "% of Total Time": "2.5%",
            "Bottleneck": "Unknown",
            "Roofline Efficiency": "0.0%",
        },
    ],
}


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """XProf's own JSON of the profile of conftest.OPS, two cores, four steps."""
    from tests.ingest.conftest import OPS
    from tests.ingest.xspaces import tpu_xspace

    folder = tmp_path_factory.mktemp("exports")
    (folder / "h.xplane.pb").write_bytes(tpu_xspace(OPS, cores=range(2), steps=4).SerializeToString())
    program = (
        "import sys; from pathlib import Path; from xprof.convert import _pywrap_profiler_plugin as xprof\n"
        "for tool in sys.argv[2:]:\n"
        "    data, ok = xprof.xspace_to_tools_data([sys.argv[1]], tool, {'use_saved_result': True})\n"
        "    Path(sys.argv[1]).with_name(tool + '.json').write_bytes(data)\n"
    )
    subprocess.run(
        [sys.executable, "-c", program, str(folder / "h.xplane.pb"), *TOOLS], check=True, capture_output=True
    )
    return {tool: folder / f"{tool}.json" for tool in TOOLS}


def read(tmp_path: Path, document: Any, name: str = "export.json") -> StepProfile:
    path = tmp_path / name
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return read_profile([path])


def refusal(tmp_path: Path, document: Any) -> IngestError:
    with pytest.raises(IngestError) as caught:
        read(tmp_path, document)
    assert caught.value.file == "export.json"
    assert "\n" not in caught.value.line
    return caught.value


def test_full_tables_agree_with_the_profile_they_were_made_from(exports: dict[str, Path], save: Save) -> None:
    whole = read_profile([save(cores=range(2), steps=4)])
    tables = read_profile([exports[tool] for tool in TOOLS])
    assert tables.source_kind == "xprof_json"
    assert tables.device.kind == whole.device.kind
    assert (tables.device.chip, tables.device.core_count) == ("v5p", 2)
    assert tables.device.peak_flops_per_s == pytest.approx(whole.device.peak_flops_per_s)
    assert tables.device.peak_hbm_bytes_per_s == pytest.approx(whole.device.peak_hbm_bytes_per_s, rel=1e-5)
    assert tables.step_time_s == pytest.approx(whole.step_time_s)
    assert len(tables.steps) == 4
    for key in ("duty_cycle", "idle", "flops_utilization", "hbm_utilization"):
        assert tables.kpis[key] == pytest.approx(whole.kpis[key], rel=1e-4)
    assert tables.kpis["mxu_utilization"] is None
    assert tables.ops_dropped == 0
    assert len(tables.ops) == len(whole.ops)
    for mine, theirs in zip(tables.ops, whole.ops, strict=True):
        assert (mine.name, mine.category, mine.occurrences) == (theirs.name, theirs.category, theirs.occurrences)
        assert (mine.bound_by, mine.hlo, mine.source) == (theirs.bound_by, theirs.hlo, theirs.source)
        for field in ("self_time_s", "time_share", "hbm_bytes_per_s", "roofline_efficiency", "compute_efficiency"):
            assert getattr(mine, field) == pytest.approx(getattr(theirs, field), rel=1e-4, abs=1e-12)
    assert tables.ops[0].flops == pytest.approx(whole.ops[0].flops)


@pytest.mark.parametrize("tool", ["hlo_stats", "roofline_model", "op_profile"])
def test_one_table_alone_gives_the_same_shares(exports: dict[str, Path], tool: str) -> None:
    profile = read_profile([exports[tool]])
    assert {op.name: op.time_share for op in profile.ops} == pytest.approx(
        {"fusion.1": 0.4, "all-reduce.2": 0.3, "copy.3": 0.2}
    )
    assert profile.step_time_s is None
    assert "step_time" in profile.not_measured


def test_thin_report(tmp_path: Path) -> None:
    profile = read(tmp_path, THIN)
    assert profile.device.chip == "v5e"
    assert profile.step_time_s == pytest.approx(2.5)
    assert profile.kpis["duty_cycle"] == pytest.approx(0.995)
    assert profile.kpis["communication"] == pytest.approx(0.075)
    first, second = profile.ops
    assert (first.name, first.occurrences, first.bound_by) == ("all-reduce.1", 100, "HBM")
    assert first.self_time_s == pytest.approx(2.0)
    assert first.time_share == pytest.approx(0.05)
    assert first.roofline_efficiency == pytest.approx(0.11)
    assert second.self_time_s == pytest.approx(1.0)  # average × occurrences
    assert second.roofline_efficiency is None  # XProf states 0 for what it cannot know
    assert profile.ops_dropped is None
    assert any("omitted is unknown" in note.message for note in profile.notes)
    for key in ("goodput", "input", "mxu_utilization", "memory", "flops", "steps"):
        assert profile.not_measured[key]


def test_the_same_report_with_keys_of_the_command_line(tmp_path: Path) -> None:
    kpis = {
        "step_time_ms": 100,
        "duty_cycle_percent": 90,
        "peak_hbm_gib": 12,
        "accelerator_info": {"device_type": "TPU v5p"},
    }
    ops = {
        "top_by_time": [{"name": "fusion.1", "category": "loop fusion", "total_self_time_ms": 40, "occurrences": 4,
                         "flops": 8e9, "source_file": "a.py", "source_line": 7}],
        "total_records": 31,
    }  # fmt: skip
    (tmp_path / "ops.json").write_text(json.dumps(ops))
    (tmp_path / "kpis.json").write_text(json.dumps(kpis))
    profile = read_profile([tmp_path / "ops.json", tmp_path / "kpis.json"])
    assert profile.ops_dropped == 30
    assert profile.memory.peak_bytes == 12 * 2**30
    assert profile.ops[0].source == "a.py:7"
    assert profile.ops[0].flops_per_s == pytest.approx(8e9 / 0.04)
    assert "listed ops only" in profile.computed["time_share"]


def test_exports_are_read_beside_the_trace_viewer_of_the_same_session(exports: dict[str, Path], tmp_path: Path) -> None:
    viewer = tmp_path / "host.trace.json"
    event = {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/device:TPU:0"}}
    viewer.write_text(
        json.dumps({"displayTimeUnit": "ns", "metadata": {"highres-ticks": True}, "traceEvents": [event]})
    )
    alone = read_profile([str(path) for path in exports.values()])
    assert read_profile([*map(str, exports.values()), str(viewer)]).step_time_s == alone.step_time_s
    with pytest.raises(IngestError, match="trace viewer"):
        read_profile([str(viewer)])


def test_tables_as_json_strings_inside_one_object(exports: dict[str, Path], tmp_path: Path) -> None:
    document = {tool: exports[tool].read_text() for tool in TOOLS}
    assert read(tmp_path, document).step_time_s == pytest.approx(100e-6)
    assert len(read(tmp_path, document).ops) == 3


def test_busy_and_all_reduce_times_give_shares_that_say_so(tmp_path: Path) -> None:
    profile = read(tmp_path, {"step_time_ms": 200, "tc_busy_time_ms": 190, "mean_all_reduce_us": 30_000})
    assert profile.kpis["duty_cycle"] == pytest.approx(0.95)
    assert profile.kpis["communication"] == pytest.approx(0.15)
    assert set(profile.computed) >= {"duty_cycle", "communication"}


def test_shares_only(tmp_path: Path) -> None:
    ops = [{"name": "a.1", "category": "x", "time_share": 0.6}, {"name": "b.2", "category": "y", "time_share": 0.2}]
    profile = read(tmp_path, {"kpis": {"step_time_s": 2}, "ops": ops})
    assert [op.self_time_s for op in profile.ops] == pytest.approx([1.2, 0.4])
    assert "op_times" in profile.computed
    assert "op_times" in read(tmp_path, {"ops": ops}).not_measured


def test_percent_scales(tmp_path: Path) -> None:
    """A bare column is 0–1 like XProf's roofline, unless one of its values cannot be."""
    ops = [
        {"name": n, "category": "c", "self_time_us": 5, "roofline_efficiency": e} for n, e in (("a", 0.8), ("b", 0.1))
    ]
    assert [op.roofline_efficiency for op in read(tmp_path, ops).ops] == [0.8, 0.1]
    ops[0]["roofline_efficiency"] = 80
    assert [op.roofline_efficiency for op in read(tmp_path, ops).ops] == [0.8, 0.001]


@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_rows_of_the_roofline_as_plain_objects(tmp_path: Path, scale: float) -> None:
    """XProf 2.24 calls a column of fractions `total_time_in_percentage`; reports made from it print percent."""
    rows = [
        {"operation": n, "category": "c", "bound_by": "HBM", "total_time_in_percentage": share * scale}
        for n, share in (("a.1", 0.0497), ("b.2", 0.0062))
    ]
    shares = [op.time_share for op in read(tmp_path, {"step_time_ms": 100, "top_operations": rows}).ops]
    assert shares == pytest.approx([0.0497, 0.0062])
    if scale == 1.0:
        for row in rows:
            row["total_self_time_percent"] = row["total_time_in_percentage"]
        assert [op.time_share for op in read(tmp_path, rows).ops] == pytest.approx(shares)


def test_small_percentages_are_told_from_fractions_by_their_sum(tmp_path: Path) -> None:
    """0.62 and 0.55 cannot both be shares of one: they are percent."""
    rows = [{"name": n, "category": "c", "time_share": share} for n, share in (("a", 0.62), ("b", 0.55))]
    assert [op.time_share for op in read(tmp_path, rows).ops] == pytest.approx([0.0062, 0.0055])


def test_units_by_the_name_of_the_key(tmp_path: Path) -> None:
    for key, value in (
        ("totalTimePs", 3e12),
        ("total_time_in_us", 3e6),
        ("Total Time (ms)", 3e3),
        ("total_time_seconds", 3),
        ("total_time_microseconds", 3e6),
        ("total_time", "3,000 ms"),
    ):
        op = read(tmp_path, [{"name": "a", "category": "x", key: value, "occurrences": 3}]).ops[0]
        assert op.total_time_s == pytest.approx(3.0), key


def test_export_of_an_empty_profile_is_no_measurement(tmp_path: Path) -> None:
    zero = {"device_duty_cycle_percent": "0.0%", "mxu_utilization_percent": "0.0%", "hbm_utilization_percent": "0.0%"}
    columns = [{"id": "selfTimePercent"}]
    document = [{"cols": columns, "rows": [], "p": zero}, {"cols": [], "rows": [], "p": {"steptime_ms_average": "0.0"}}]
    assert "contains no measurements" in refusal(tmp_path, document).message


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ('{"step_time_ms": NaN}', "NaN"),
        ('{"step_time_ms": 12,', "line 1"),
        ('{"step_time_ms": ' + "[" * 100_000, "nested too deeply"),
        ('{"step_time_ms": "fast"}', "step_time_ms is 'fast'"),
        ('{"step_time_ms": -3}', "at least 0"),
        ('{"duty_cycle_percent": 250, "step_time_ms": 1}', "at most 100 %"),
        ('{"step_time_ms": 1, "top_ops": "none"}', "top_ops is not a list of ops"),
        ('{"step_time_ms": 1, "top_ops": [1, 2]}', "top_ops is not a list of ops"),
        ('[{"name": "a", "category": "b", "self_time_ps": []}]', "op 1, self_time_ps is []"),
        ('[{"name": "a", "category": "b", "self_time": 4}]', "with its unit"),
        ('{"hello": "world"}', "no profile that is read"),
        ("[]", "no profile that is read"),
        ('{"hardware": {"chip": "v5e"}, "mesh": {"ici": {}}}', "configuration"),
        ('{"kpis": [1]}', "kpis is not an object"),
    ],
)
def test_bad_exports_are_refused_with_the_place(tmp_path: Path, document: str, expected: str) -> None:
    assert expected in refusal(tmp_path, document).message


def test_infinite_and_huge_numbers(tmp_path: Path) -> None:
    assert "Infinity" in refusal(tmp_path, '{"step_time_ms": Infinity}').message
    assert "1e999" in refusal(tmp_path, '{"step_time_ms": "1e999"}').message
    assert "number is too long" in refusal(tmp_path, '{"step_time_ms": ' + "9" * 5000 + "}").message


def test_markup_stays_text(tmp_path: Path) -> None:
    evil = "<img src=x onerror=alert(1)>"
    cell = f"<div class='source-info-cell' title='{evil}'>train.py:3</div>"
    row = {"name": evil, "category": evil, "self_time_us": 5, "hlo_op_expression": evil, "source_info": cell}
    op = read(tmp_path, [row]).ops[0]
    assert (op.name, op.hlo, op.source) == (evil, evil, "train.py:3")


def test_rows_without_names_are_counted_not_hidden(tmp_path: Path) -> None:
    rows = [{"name": "a", "category": "x", "self_time_us": 5}, {"name": "", "category": "x", "self_time_us": 5}]
    profile = read(tmp_path, rows)
    assert len(profile.ops) == 1
    assert any("1 rows without a name" in note.message for note in profile.notes)
