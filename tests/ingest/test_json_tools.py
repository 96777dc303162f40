"""XProf's tools beside its op tables: used where they add something, never a reason to refuse."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from experiments.ingest import IngestError, read_profile
from experiments.step_profile import StepProfile

pytestmark = pytest.mark.slow


def table(columns: Sequence[str], *rows: Sequence[Any]) -> dict[str, Any]:
    return {
        "cols": [{"id": name} for name in columns],
        "rows": [{"c": [{"v": value} for value in row]} for row in rows],
    }


FRAMEWORK = table(
    ("rank", "host_or_device", "type", "operation", "occurrences", "total_time", "avg_time", "total_self_time",
     "avg_self_time", "device_total_self_time_percent", "measured_flop_rate", "bound_by"),
    (1, "Device", "IDLE", "IDLE", 0, 200.0, 0, 200.0, 0, 0.2, 0, "Unknown"),
    (2, "Device", "MatMul", "model/dense/MatMul", 6, 600.0, 100.0, 600.0, 100.0, 0.6, 5.0, "Compute"),
    (3, "Device", "CollectiveReduceV2", "CollectiveReduceV2", 6, 200.0, 33.0, 200.0, 33.0, 0.2, 0, "Unknown"),
    (4, "Host", "Iterator", "IteratorGetNext", 6, 900.0, 150.0, 900.0, 150.0, 0, 0, "Unknown"),
)  # fmt: skip
HLO = table(
    ("hlo_op_name", "category", "occurrences", "total_self_time", "total_self_time_percent"),
    ("fusion.1", "loop fusion", 6, 500.0, 50.0),
)
POD = {
    "stepBreakdownEvents": [{"id": 1, "name": "Device compute"}, {"id": 3, "name": "Device collective communication"}],
    "podStatsSequence": {
        "podStatsMap": [
            {
                "stepNum": step,
                "podStatsPerCore": {
                    str(core): {
                        "hostName": "h", "stepNum": step, "totalDurationUs": 100.0 + core,
                        "stepBreakdownUs": {"1": 80.0, "3": 20.0 + core},
                    }
                    for core in range(2)
                },
            }
            for step in (4, 5)
        ]
    },
}  # fmt: skip


def read(tmp_path: Path, **documents: Any) -> StepProfile:
    paths: list[Path] = []
    for name, document in documents.items():
        paths.append(tmp_path / f"{name}.json")
        paths[-1].write_text(json.dumps(document))
    return read_profile(paths)


def test_framework_ops_alone(tmp_path: Path) -> None:
    """Shares are fractions of the device's time, idle included; what ran on the host is no op of the device."""
    profile = read(tmp_path, framework_op_stats=[FRAMEWORK, FRAMEWORK])
    assert [(op.name, op.category, op.time_share) for op in profile.ops] == [
        ("model/dense/MatMul", "MatMul", 0.6),
        ("CollectiveReduceV2", "all-reduce", 0.2),
    ]
    assert profile.ops[0].self_time_s == pytest.approx(600e-6)
    assert profile.step_time_s is None


def test_hlo_ops_stand_above_framework_ops(tmp_path: Path) -> None:
    profile = read(tmp_path, framework_op_stats=[FRAMEWORK], hlo_stats=HLO)
    assert [op.name for op in profile.ops] == ["fusion.1"]


def test_steps_and_cores_of_the_pod_viewer(tmp_path: Path) -> None:
    profile = read(tmp_path, pod_viewer=POD)
    assert [step.number for step in profile.steps] == [4, 5]
    assert profile.step_time_s == pytest.approx(100.5e-6)
    assert profile.steps[0].breakdown_s == pytest.approx({"compute": 80e-6, "collective": 20.5e-6})
    assert [core.breakdown_s["collective"] for core in profile.cores] == pytest.approx([20e-6, 21e-6])


def test_memory_as_compiled_where_nothing_was_measured(tmp_path: Path) -> None:
    viewer = {"moduleName": "jit_step", "totalBufferAllocationMib": 2048.0, "maxHeap": [], "peakHeapMib": 2000.0}
    profile = read(tmp_path, hlo_stats=HLO, memory_viewer=viewer)
    assert profile.memory.peak_bytes == 2 * 2**30
    assert "as compiled" in profile.computed["memory"]
    alone = read(tmp_path, memory_viewer=viewer)
    assert alone.memory == profile.memory and alone.ops == ()
    assert any("only memory: add overview_page" in note.message for note in alone.notes)
    with pytest.raises(IngestError) as caught:
        read(tmp_path, memory_viewer={"maxHeap": []})
    assert "It is XProf's memory_viewer" in caught.value.message and "hlo_stats" in caught.value.next_step


def test_unknown_exports_beside_known_ones_are_named(tmp_path: Path) -> None:
    profile = read(tmp_path, hlo_stats=HLO, megascale_stats={"slices": []})
    assert any("megascale_stats.json contains neither KPIs nor ops" in note.message for note in profile.notes)


def test_hostile_shapes_of_tools(tmp_path: Path) -> None:
    for document in (
        {"podStatsSequence": {"podStatsMap": [{"podStatsPerCore": {"0": {"stepNum": "x", "totalDurationUs": []}}}]}},
        {"podStatsSequence": {"podStatsMap": "none"}},
        {"maxHeap": {}, "totalBufferAllocationMib": "much"},
        {"byProgram": {"metrics": {"rawTime": 5}, "children": [{"name": "IDLE", "metrics": []}]}},
        [table(("host_or_device", "operation"), ("Device", None))],
    ):
        with pytest.raises(IngestError) as caught:
            read(tmp_path, export=document)
        assert len(str(caught.value)) < 400
