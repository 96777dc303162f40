"""Flags as data: nothing without a source; how they are read, and what is a change of them."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from perfmodel import known_flags
from perfmodel.reading import DataError

RAW = tomllib.loads((Path(known_flags.__file__).parent / "flags.toml").read_text())


@pytest.mark.parametrize(
    "broken", [{"sources": []}, {"sources": ["hearsay"]}, {"chips": []}, {"flags": ["xla_no_dashes"]}]
)
def test_defaults_without_a_source_do_not_load(broken: dict[str, Any]) -> None:
    with pytest.raises(DataError):
        known_flags.read(known_flags.DefaultFlags, [{**RAW["default"][0], **broken}], RAW["sources"])


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
    assert changed("--xla_n=3", "--xla_n=4", "v5p") == {("xla_n", "4")}
    assert changed("--xla_n=3", (), "v5p") == {("xla_n", "")}
    fused = "--xla_tpu_enable_async_collective_fusion"
    assert changed((), f"{fused}=true", "v5e") == frozenset() == changed(f"{fused}=true", (), "v5e")
    assert changed((), f"{fused}=false", "v5e") == {(fused.lstrip("-"), "false")}
