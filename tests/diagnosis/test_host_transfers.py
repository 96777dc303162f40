"""Host transfers: what of them can be hidden, and what only fewer bytes spare."""

from __future__ import annotations

import pytest

from diagnosis import presentation
from diagnosis.analyzer import diagnose
from experiments.step_profile import Core
from tests.diagnosis.build import CORES, STEPS, config, find, matmul, op, profile

TEXT = "%copy-done.{0} = f32[1000,1000,1000]{{2,1,0{1}}} copy-done((f32[1000,1000,1000], f32[1000,1000,1000]) %c)"


def test_overlap_saves_no_more_than_the_link_allows() -> None:
    """6 GB each way in a step of 1 s: the 15 GB/s of a v5e's host link need 0.4 s, so that the 0.3 s of compute could
    hide 0.3 s of them, and 0.6 s is the most that perfect overlap saves, not the 0.7 s of waiting."""
    moved = 6e9 * CORES * STEPS
    away = op("copy-done.1", "copy-done", 0.4, hlo=TEXT.format(1, ":S(5)"), host_bytes=moved)
    back = op("copy-done.2", "copy-done", 0.3, hlo=TEXT.format(2, ""), host_bytes=moved)
    cores = [Core(f"TPU:{i}", "host", host_transfer_s=0.7) for i in range(CORES)]
    found = find(diagnose(profile(matmul("fusion.1", 0.3), away, back, cores=cores), config({"data": 16})),
                 "host_offload")  # fmt: skip
    assert "overlap the rest" in found.action
    assert found.saving_s == pytest.approx(1.0 - 6e9 / 15e9)
    assert {row.label: row.value for row in found.evidence}["time the host link needs per step"] == pytest.approx(0.4)


def test_transfers_shorter_than_the_work_can_be_hidden_altogether() -> None:
    """1.5 GB each way need 0.1 s beside 0.6 s of compute."""
    moved = 1.5e9 * CORES * STEPS
    away = op("copy-done.1", "copy-done", 0.2, hlo=TEXT.format(1, ":S(5)"), host_bytes=moved)
    back = op("copy-done.2", "copy-done", 0.2, hlo=TEXT.format(2, ""), host_bytes=moved)
    found = find(diagnose(profile(matmul("fusion.1", 0.6), away, back), config({"data": 16})), "host_offload")
    assert found.saving_share == pytest.approx(0.4) and "Only fewer bytes" not in found.impact


def test_a_copy_to_the_host_waits_for_the_host_link_and_one_within_the_device_for_hbm() -> None:
    """XProf counts the bytes of both at HBM."""
    away = op("copy-done.1", "copy-done", 0.4, hlo=TEXT.format(1, ":S(5)"), host_bytes=6e9, bound_by="HBM")
    within = op("copy-done.2", "copy-done", 0.2, hlo=TEXT.format(2, ""), bound_by="HBM", roofline_efficiency=0.5)
    ops = {item.name: item for item in diagnose(profile(matmul("fusion.1", 0.4), away, within)).ops}
    assert (ops["copy-done.1"].bound_by, ops["copy-done.1"].resource) == ("Host link", "host")
    assert ops["copy-done.1"].roofline_efficiency is None
    assert (ops["copy-done.2"].bound_by, ops["copy-done.2"].resource) == ("HBM", "hbm")
    assert (ops["copy-done.1"].resource_source, ops["copy-done.2"].resource_source) == ("host bytes", "roofline")


def test_collectives_that_ran_outside_the_steps_are_averaged_over_the_recording() -> None:
    """An op sum counts what no step contains, so its share is not said to be of the step."""
    seen = diagnose(
        profile(matmul("fusion.1", 0.9), op("all-reduce.1", "all-reduce", 0.1), kpis={"communication": 0.0})
    )
    notes = {tile.key: tile.note for tile in presentation.tiles(seen)}
    assert "averaged over the recording" in notes["communication_ops"]
    assert "of the step" not in notes["communication_ops"] and "of the step" in notes["communication"]
