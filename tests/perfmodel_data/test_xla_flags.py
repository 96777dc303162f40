"""XLA flags as data: nothing without a source, each for a chip and the exposed transfer it overlaps."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from perfmodel import known_flags
from perfmodel.chips import load_chips
from perfmodel.reading import DataError

RAW = tomllib.loads((Path(known_flags.__file__).parent / "xla_flags.toml").read_text())


def test_every_set_is_of_known_chips_of_one_platform_and_has_an_address() -> None:
    chips = load_chips()
    for found in known_flags.read(known_flags.FlagSet, RAW["set"], RAW["sources"]):
        kinds = {chips[chip].kind for chip in found.chips}
        assert len(kinds) == 1
        other = "--xla_gpu_" if kinds == {"tpu"} else "--xla_tpu_"
        assert not any(flag.startswith(other) for flag in found.flags)
        assert found.sources and all(url.startswith("https://") for _, url in found.sources)


def test_a_chip_has_at_most_one_set_per_cause() -> None:
    seen = [
        (chip, found.cause)
        for found in known_flags.read(known_flags.FlagSet, RAW["set"], RAW["sources"])
        for chip in found.chips
    ]
    assert len(seen) == len(set(seen))


def test_dcn_and_a_slice_have_different_flags() -> None:
    inside, across = (known_flags.flag_set("v5p", cause) for cause in ("ici_all_reduce", "dcn_all_reduce"))
    assert inside and across and not set(inside.flags) & set(across.flags)
    assert known_flags.cause_of("all-reduce", True) == "dcn_all_reduce"
    assert known_flags.cause_of("all-reduce", False) == "ici_all_reduce"


def test_what_a_run_chose_stands() -> None:
    found = known_flags.flag_set("v6e", "ici_all_gather")
    assert found is not None
    chosen = ("--xla_tpu_enable_async_collective_fusion_fuse_all_gather=false",)
    left = known_flags.missing(found, chosen)
    assert len(left) == len(found.flags) - 1
    assert not any("fuse_all_gather" in flag for flag in left)


@pytest.mark.parametrize(
    "broken",
    [{"sources": []}, {"sources": ["hearsay"]}, {"cause": "magic"}, {"chips": []}, {"flags": ["xla_no_dashes"]},
     {"note": ""}],
)  # fmt: skip
def test_a_set_without_a_source_does_not_load(broken: dict[str, Any]) -> None:
    with pytest.raises(DataError):
        known_flags.read(known_flags.FlagSet, [{**RAW["set"][0], **broken}], RAW["sources"])


def test_what_acts_by_default_on_a_chip_is_not_offered_there() -> None:
    for chip in load_chips():
        for cause in known_flags.CAUSES:
            found = known_flags.flag_set(chip, cause)
            offered = known_flags.flag_values(found.flags) if found is not None else {}
            assert not offered.items() & known_flags.defaults(chip).items()
    assert known_flags.flag_set("v5e", "ici_all_gather") is None
    reduced = known_flags.flag_set("v5e", "ici_all_reduce")
    assert reduced is not None and "--xla_tpu_enable_async_collective_fusion=true" not in reduced.flags
    for cause in ("ici_all_gather", "ici_reduce_scatter", "ici_all_reduce"):
        assert known_flags.flag_set("tpu7x", cause) is None
        assert cause == "ici_reduce_scatter" or known_flags.flag_set("v5p", cause) is not None


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("--xla_a --xla_b=1 --xla_c=False", {"xla_a": "true", "xla_b": "true", "xla_c": "false"}),
        ('XLA_FLAGS="--xla_a=kEnabled,--xla_l=x,y"', {"xla_a": "true", "xla_l": "x,y"}),
        (["--xla_a", "--xla_a=false"], {"xla_a": "false"}),
        ({"xla_a": True, "--xla_n": 3}, {"xla_a": "true", "xla_n": "3"}),
        ("--xla_a = false; xla_n 5", {"xla_a": "false", "xla_n": "5"}),
        ("a pre-trained run, none set", {}), (None, {}), (7, {}), ([None, 7, b"x"], {}),
    ],
)  # fmt: skip
def test_flags_are_read_however_they_are_written(written: object, read: dict[str, str]) -> None:
    assert known_flags.flag_values(written) == read


def test_a_change_of_flags_is_what_acts_otherwise() -> None:
    changed = known_flags.changed
    assert changed(["--xla_a=1"], "--xla_a", "v5p") == frozenset()
    assert changed((), "--xla_a=auto", "v5p") == frozenset()  # the compiler chooses, as before
    assert changed("--xla_n=3", "--xla_n=4", "v5p") == {"--xla_n=4"}
    assert changed("--xla_n=3", (), "v5p") == {"--xla_n=auto"}
    fused = "--xla_tpu_enable_async_collective_fusion"
    assert changed((), f"{fused}=true", "v5e") == frozenset() == changed(f"{fused}=true", (), "v5e")
    assert changed((), f"{fused}=false", "v5e") == {f"{fused}=false"}
