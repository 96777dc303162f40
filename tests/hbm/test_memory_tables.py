"""HBM over a program and over time, as XProf's tables say it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments import hbm
from experiments.ingest import read_profile
from experiments.ingest.memory_tables import MIB, allocator_curve, heap_schedule, thin
from experiments.memory_profile import MOST_POINTS, Buffer
from experiments.step_profile import STEP_PROFILE, Memory, StepProfile

TRAINING = Path("/work/shared/profiles/xprof_tpu_training")

HEAP = {
    "moduleName": "jit_step",
    "heapSizes": [10.0, 40.0, 90.0, 30.0],
    "hloInstructionNames": ["a", "b", "c", "d"],
    "peakHeapSizePosition": 2,
    "peakHeapMib": 90.0,
    "maxHeapBySize": [
        {"groupName": "Parameter", "instructionName": "param.1", "logicalBufferSizeMib": 60, "unpaddedShapeMib": 50,
         "opCode": "parameter", "shapeString": "f32[8,8]",
         "tfOpName": "state.opt_state[0].nu['params']['decoder']['layers']['mlp']['wo']['kernel']"},
        {"groupName": "Temporary", "instructionName": "fusion.3", "logicalBufferSizeMib": 30, "opCode": "fusion",
         "tfOpName": "jit(step)/transpose(jvp(Model))/decoder/mlp/dot_general"},
    ],
}  # fmt: skip


def test_the_heap_and_its_buffers() -> None:
    found = heap_schedule(HEAP)
    assert found is not None
    assert (found.peak_position, found.peak_bytes, found.program) == (2, 90 * MIB, "jit_step")
    assert [buffer.kind for buffer in found.buffers] == ["parameter", "temporary"]
    assert found.buffers[0].padding_bytes == 10 * MIB and found.buffers[1].padding_bytes is None
    assert [hbm.module_of(buffer) for buffer in found.buffers] == [
        "second moment of decoder/layers/mlp/wo",
        "decoder/mlp",
    ]
    assert sum(group.size_bytes for group in hbm.by_module(found)) == found.peak_bytes
    assert [round(group.share, 3) for group in hbm.by_kind(found)] == [0.667, 0.333]


def test_a_table_without_a_heap_is_none() -> None:
    assert heap_schedule({}) is None and heap_schedule({"heapSizes": []}) is None and heap_schedule([]) is None
    assert allocator_curve({}) is None and allocator_curve({"host": {"memoryProfileSnapshots": [{}]}}) is None


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=5000), st.data())
def test_thinning_keeps_the_peak(values: list[float], data: st.DataObject) -> None:
    peak = max(range(len(values)), key=lambda place: values[place])
    kept = thin(values, peak)
    assert len(kept) <= MOST_POINTS and kept == sorted(set(kept)) and peak in kept


def test_it_comes_back_from_json_and_old_profiles_load() -> None:
    memory = Memory(1.0, 2.0, heap_schedule(HEAP), None)
    profile = StepProfile("measured", "xprof_json", device=_device(), memory=memory)
    again = STEP_PROFILE.read(json.loads(json.dumps(STEP_PROFILE.write(profile))))
    assert again.memory == memory
    old = STEP_PROFILE.write(profile) | {"memory": {"peak_bytes": 5.0, "capacity_bytes": None}}
    assert STEP_PROFILE.read(old).memory == Memory(5.0)


def _device():  # type: ignore[no-untyped-def]
    from experiments.step_profile import Device

    return Device("TPU v5p", "v5p", 8, 1)


def test_paths_of_buffers_that_have_none() -> None:
    assert hbm.module_of(Buffer("copy.1", "temporary", 1.0, opcode="copy")) == "copy"


@pytest.mark.skipif(not TRAINING.exists(), reason="the recorded profiles are not here")
def test_a_real_step_is_what_its_tables_say(tmp_path: Path) -> None:
    files = [TRAINING / name for name in ("overview_page.json.gz", "memory_profile.json.gz", "memory_viewer.json.gz")]
    stated = json.loads(gzip.decompress(files[2].read_bytes()))
    memory = read_profile(files).memory
    schedule, curve = memory.schedule, memory.allocator
    assert schedule is not None and curve is not None
    assert schedule.peak_bytes == pytest.approx(stated["peakHeapMib"] * MIB)
    assert schedule.steps == len(stated["heapSizes"]) == 827
    assert stated["peakHeapSizePosition"] == 451  # the instruction before the one that reaches the peak
    assert schedule.peak_position == 452 and stated["heapSizes"][452] == max(stated["heapSizes"])
    assert sum(b.size_bytes for b in schedule.buffers) == pytest.approx(schedule.peak_bytes, rel=0.01)
    kinds = {group.name: group.share for group in hbm.by_kind(schedule)}
    assert kinds["Parameters and optimizer state"] == pytest.approx(3159.8 / 5025.8, rel=0.01)
    assert curve.peak_bytes == 5307538688 and curve.capacity_bytes == 102803439616


@pytest.mark.skipif(not TRAINING.exists(), reason="the recorded profiles are not here")
def test_an_xspace_has_its_allocator_s_events() -> None:
    memory = read_profile([TRAINING.parent / "xprof_tpu_v6e_host_offload" / "host.xplane.pb"]).memory
    assert memory.allocator is not None
    assert memory.allocator.capacity_bytes == 33550237696
    assert memory.allocator.peak_bytes == 21492671104
