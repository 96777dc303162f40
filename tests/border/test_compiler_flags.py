"""Flags of an uploaded configuration on their way to the server's compiler."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from history.seeds import records
from perfmodel.config import ExperimentConfig
from perfmodel.config_file import parse_config
from proposals.compiling import engine
from proposals.compiling.compiler_flags import refused_flag, words
from tests.border.test_canaries import CONFIG

WORKER = "tests.border.compiler_that_tells"


def with_flags(*flags: str) -> ExperimentConfig:
    config, _ = parse_config(CONFIG)
    return dataclasses.replace(config, training=dataclasses.replace(config.training, xla_flags=flags))


@pytest.mark.parametrize(
    "flag",
    [
        "--xla_dump_to=/tmp/x", "--xla_gpu_dump_llvmir", "/etc/passwd", "--flagfile=/etc/passwd", "--", "",
        "--xla_enable_async_all_gather=/tmp/x", "--xla_enable_async_all_gather=$(id)",
        "--xla_enable_async_all_gather=true --xla_dump_to=x", "--xla_enable_async_all_gather=true\t--xla_dump_to=x",
        "xla_dump_hlo_as_text", "--xla_gpu_enable_triton_gemm=false", "--xla_gpu_cuda_data_dir=/tmp",
        "--xla_enable_async_all_gather=true\x00--xla_dump_to=x",
    ],
)  # fmt: skip
def test_flag_that_is_not_documented_is_refused(flag: str, tmp_path: Path) -> None:
    checked = engine.check(with_flags(flag), worker=WORKER, hlo=tmp_path / "seen")
    if flag.strip():
        assert checked.outcome == "refused" and "training.xla_flags" in checked.message
        assert not (tmp_path / "seen").exists()
    else:
        assert json.loads((tmp_path / "seen").read_text()).get("LIBTPU_INIT_ARGS") is None


def test_documented_flags_reach_the_compiler(tmp_path: Path) -> None:
    flags = ("--xla_enable_async_all_gather=true", "xla_tpu_scoped_vmem_limit_kib=98304")
    assert engine.check(with_flags(*flags), worker=WORKER, hlo=tmp_path / "seen").outcome == "fits"
    seen = json.loads((tmp_path / "seen").read_text())
    assert seen["LIBTPU_INIT_ARGS"] == "--xla_enable_async_all_gather=true --xla_tpu_scoped_vmem_limit_kib=98304"
    assert "XLA_FLAGS" not in seen and seen["HOME"] != str(Path.home())


def test_flags_pass_at_home(tmp_path: Path) -> None:
    config = with_flags("--xla_dump_to=x")
    assert engine.check(config, worker=WORKER, hlo=tmp_path / "seen", any_flags=True).outcome == "fits"
    assert json.loads((tmp_path / "seen").read_text())["LIBTPU_INIT_ARGS"] == "--xla_dump_to=x"


def test_every_flag_that_was_measured_is_admitted() -> None:
    trial = next(record for record in records() if record.id == "trial-jx-l3-0426-e12")
    assert refused_flag(trial.after.training["xla_flags"], "tpu") is None
    assert words(("xla_a=1 --xla_b",)) == ("--xla_a=1", "--xla_b")
