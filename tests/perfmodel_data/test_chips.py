"""Chips as data: sources, fallbacks, wraparound, and finding a chip from a profile's device type."""

import copy

import pytest

from perfmodel.chips import (
    chip_from_device_type,
    chip_of_device,
    chips_of_device,
    get_chip,
    load_chips,
    parse_chips,
)
from perfmodel.reading import DataError, shipped

CONTRACT = [
    "v3", "v4", "v5e", "v5p", "v6e", "tpu7x", "v100-16gb", "a100-40gb", "a100-80gb", "h100", "h200", "b200", "b300",
    "gb200", "gb300", "mi300x", "mi325x", "mi350x", "mi355x",
]  # fmt: skip


@pytest.fixture
def rows():
    return copy.deepcopy(shipped("chips.toml"))


def test_every_chip_of_the_contract_loads_with_a_source_for_every_number():
    assert list(load_chips()) == CONTRACT
    for chip in load_chips().values():
        numbers = [f"peak.{precision}" for precision in chip.peak_flops_per_s] + ["hbm_bytes", "hbm_bytes_per_s"]
        assert all(chip.sources[number] for number in numbers)
        assert 0 < chip.hbm_usable_bytes <= chip.hbm_bytes


def test_a_number_or_a_row_without_source_does_not_load(rows):
    rows["v5e"]["hbm_bytes"] = 16e9
    with pytest.raises(DataError, match=r"v5e\.hbm_bytes.*source"):
        parse_chips(rows)


@pytest.mark.parametrize(
    ("key", "value", "word"),
    [
        ("hbm_bytes", [16e9, "rumour"], "one of"),
        ("hbm_bytes", [-16e9, "book"], "greater than 0"),
        ("hbm_bytes", [float("nan"), "book"], "v5e.hbm_bytes"),
        ("hbm_bytes", [float("inf"), "book"], "v5e.hbm_bytes"),
        ("colour", ["green", "book"], "Unexpected keyword"),
    ],
)
def test_wrong_rows_do_not_load(rows, key, value, word):
    rows["v5e"][key] = value
    with pytest.raises(DataError, match=word):
        parse_chips(rows)


def test_a_missing_number_does_not_load(rows):
    del rows["v5e"]["hbm_bytes_per_s"]
    with pytest.raises(DataError, match="Field required"):
        parse_chips(rows)


def test_the_books_tables():
    """Scaling book 2.3."""
    v5p = get_chip("V5P")
    assert v5p.peak("bf16") == 4.59e14
    assert v5p.peak("int8") == 2 * 4.59e14
    assert v5p.ici_link_bytes_per_s == 9e10
    assert v5p.ici_axes == 3
    assert get_chip("v5e").dcn_bytes_per_s_per_chip == pytest.approx(3.1e9, rel=0.01)


def test_a_vm_of_v5e_and_v6e_drives_half_of_its_hosts_chips():
    """Book 2.1: a host has two trays of four, and each is a VM of its own, so a pod of 256 chips is 64 processes."""
    for name in ("v5e", "v6e"):
        chip = get_chip(name)
        assert (chip.chips_per_host, chip.chips_per_vm) == (8, 4)
    assert all(get_chip(name).chips_per_vm == get_chip(name).chips_per_host == 4 for name in ("v4", "v5p", "tpu7x"))


def test_wraparound_rules_of_the_book():
    """2.2: v5e closes axes of 16, v5p whole cubes of four."""
    assert get_chip("v5e").wraps((8, 16)) == (False, True)
    assert get_chip("v5p").wraps((4, 4, 8)) == (True, True, True)
    assert get_chip("v5p").wraps((2, 2, 4)) == (False, False, False)
    assert get_chip("v6e").wraps((1, 16)) == (False, True)


def test_a_precision_without_units_runs_in_the_next_one():
    assert get_chip("v6e").peak("fp8") == get_chip("v6e").peak("bf16")
    assert get_chip("v6e").runs_as("fp8") == "bf16"
    assert get_chip("h100").peak("nvfp4") == get_chip("h100").peak("fp8")
    assert get_chip("v5p").peak("fp32") < get_chip("v5p").peak("bf16")
    for chip in load_chips().values():
        for precision in ("bf16", "fp16", "fp8", "mxfp8", "nvfp4", "int8", "fp32"):
            assert chip.peak(precision) > 0


@pytest.mark.parametrize(
    ("device_type", "chip"),
    [
        ("TPU v5 lite", "v5e"),
        ("TPU v5", "v5p"),
        ("TPU v5p", "v5p"),
        ("TPU v6 lite", "v6e"),
        ("TPU v4", "v4"),
        ("TPU7x", "tpu7x"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA A100-SXM4-80GB", "a100-80gb"),
        ("NVIDIA GB200", "gb200"),
        ("TPU v4 lite", None),
        ("Nvidia GPU (Hopper)", None),
        ("CPU", None),
        ("", None),
    ],
)
def test_chip_from_the_name_xprof_uses(device_type, chip):
    assert chip_from_device_type(device_type) == chip


@pytest.mark.parametrize(
    ("device_type", "stated", "chip"),
    [
        # As recorded: real planes of MI355X and MI300X, whose memory bandwidth is stated once per clock.
        ("AMD GPU - gfx950", {"peak_flops_per_s": 2516.58e12, "hbm_bytes_per_s": 4096e9}, "mi355x"),
        ("AMD GPU - gfx942", {"peak_flops_per_s": 1307.44e12, "hbm_bytes_per_s": 2662.4e9}, "mi300x"),
        ("AMD GPU - gfx942", {"memory_bytes": 206141652992}, "mi300x"),
        ("AMD GPU - gfx942", {"memory_bytes": 274.8e9}, "mi325x"),
        ("AMD GPU - gfx950", {"memory_bytes": 309220868096, "peak_flops_per_s": 2306.9e12}, "mi350x"),
        ("NVIDIA A100-PG509-200", {"memory_bytes": 42297524224}, "a100-40gb"),
        ("Tesla V100-SXM2-32GB", {"memory_bytes": 34079637504}, None),  # none of ours has 32 GB
        ("Nvidia GPU (Hopper)", {"memory_bytes": 84.9e9}, "h100"),
        ("Nvidia GPU (Hopper)", {"memory_bytes": 149.2e9}, "h200"),
        ("NVIDIA H100 PCIe", {"memory_bytes": 84.9e9}, None),
        ("AMD GPU - gfx90a", {}, None),
    ],
)
def test_a_name_that_parts_share_is_told_by_what_the_device_states(device_type, stated, chip):
    assert chip_of_device(device_type, **stated) == chip


def test_parts_that_cannot_be_told_apart_are_all_named():
    assert chips_of_device("AMD GPU - gfx942") == ("mi300x", "mi325x")
    assert chips_of_device("AMD GPU - gfx942", peak_flops_per_s=1307.4e12) == ("mi300x", "mi325x")
    assert chip_of_device("AMD GPU - gfx942") is None


def test_an_unknown_chip_is_answered_with_the_nearest():
    with pytest.raises(KeyError, match="did you mean h100"):
        get_chip("h10")
