"""XLA flags as data: nothing without a source, each for a chip and the exposed transfer it overlaps."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from perfmodel import xla_flags
from perfmodel.chips import load_chips
from perfmodel.data_file import DataError

RAW = tomllib.loads((Path(xla_flags.__file__).parent / "xla_flags.toml").read_text())


def test_every_set_is_of_known_chips_of_one_platform_and_has_an_address() -> None:
    chips = load_chips()
    for found in xla_flags.read(RAW):
        kinds = {chips[chip].kind for chip in found.chips}
        assert len(kinds) == 1
        other = "--xla_gpu_" if kinds == {"tpu"} else "--xla_tpu_"
        assert not any(flag.startswith(other) for flag in found.flags)
        assert found.sources and all(url.startswith("https://") for _, url in found.sources)


def test_a_chip_has_at_most_one_set_per_cause() -> None:
    seen = [(chip, found.cause) for found in xla_flags.read(RAW) for chip in found.chips]
    assert len(seen) == len(set(seen))


def test_dcn_and_a_slice_have_different_flags() -> None:
    inside, across = (xla_flags.flag_set("v5p", cause) for cause in ("ici_all_reduce", "dcn_all_reduce"))
    assert inside and across and not set(inside.flags) & set(across.flags)
    assert xla_flags.cause_of("all-reduce", True) == "dcn_all_reduce"
    assert xla_flags.cause_of("all-reduce", False) == "ici_all_reduce"


def test_what_a_run_chose_stands() -> None:
    found = xla_flags.flag_set("v6e", "ici_all_gather")
    assert found is not None
    chosen = ("--xla_tpu_enable_async_collective_fusion_fuse_all_gather=false",)
    left = xla_flags.missing(found, chosen)
    assert len(left) == len(found.flags) - 1
    assert not any("fuse_all_gather" in flag for flag in left)


@pytest.mark.parametrize(
    "broken",
    [{"sources": []}, {"sources": ["hearsay"]}, {"cause": "magic"}, {"chips": []}, {"flags": ["xla_no_dashes"]},
     {"note": ""}],
)  # fmt: skip
def test_a_set_without_a_source_does_not_load(broken: dict[str, Any]) -> None:
    with pytest.raises(DataError):
        xla_flags.read({**RAW, "set": [{**RAW["set"][0], **broken}]})
