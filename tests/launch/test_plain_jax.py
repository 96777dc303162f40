"""The plain JAX file, run as a user runs it: on CPU devices that stand for the chips."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perfmodel.config import ExperimentConfig
from proposals.launch import plain_jax
from proposals.launch.file import Header
from tests.launch.configs import config, llama_on_8

#: Imports each folder's file as a training program does and reports what JAX makes of it, placing arrays of a model cut
#: to size.
REPORT = """
import importlib.util, json, sys
import jax, ml_dtypes, numpy
def report(path):
    spec = importlib.util.spec_from_file_location("launch", path)
    launch = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(launch)
    mesh = launch.make_mesh()
    found = {"axes": dict(mesh.shape), "ids": mesh.device_ids.ravel().tolist(), "local": {}, "state": {}, "held": {}}
    for name, (kind, shape, spec) in launch.ARRAYS.items():
        found["local"][name] = launch.sharding(mesh, name).shard_shape(shape)
        found["state"][name] = launch.sharding(mesh, name, optimizer_state=True).shard_shape(shape)
        sample = numpy.zeros([min(n, 64) for n in shape], ml_dtypes.bfloat16)
        sample = jax.device_put(sample, launch.sharding(mesh, name))
        assert len(sample.addressable_shards) == jax.device_count()
        found["held"][name] = sample.addressable_shards[-1].data.shape
    return found
json.dump([report(f"{folder}/plain_jax.py") for folder in sys.argv[1:]], sys.stdout)
"""
ON_EIGHT_DEVICES = {
    "sharded": llama_on_8(),
    "optimizer sharded": llama_on_8(weight_sharding="zero1"),
    "slices": config("v5e", [2, 2], {"data": 2, "model": 2}, {"data": 2}),
    "experts": config("h100", [8, 1], {"data": 2, "expert": 4}, model="mixtral-8x7b", weight_sharding="fsdp"),
}


def write(given: ExperimentConfig, folder: Path) -> None:
    file = plain_jax.file(given, Header(given, "title"))
    assert file.produced
    (folder / "plain_jax.py").write_text(file.text)


def python(folder: Path, *arguments: str, devices: int = 1) -> subprocess.CompletedProcess[str]:
    flags = f"--xla_force_host_platform_device_count={devices}"
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, timeout=200)


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Of each of these configurations, by one process."""
    folder = tmp_path_factory.mktemp("plain")
    for name, given in ON_EIGHT_DEVICES.items():
        (folder / name).mkdir()
        write(given, folder / name)
    done = python(folder, "-c", REPORT, *ON_EIGHT_DEVICES, devices=8)
    assert done.returncode == 0, done.stderr
    return dict(zip(ON_EIGHT_DEVICES, json.loads(done.stdout), strict=True))


@pytest.mark.slow
def test_fully_sharded_weights_on_eight_devices(reports: dict[str, Any]) -> None:
    """Llama 3.1 8B on data 2, seq 2, model 2: weights over data, seq and model; tokens over data and seq."""
    found = reports["sharded"]
    assert found["axes"] == {"data": 2, "seq": 2, "model": 2} and sorted(found["ids"]) == list(range(8))
    local = found["local"]
    assert local["tokens"] == [32, 4096]
    assert local["wq"] == [32, 1024, 16, 128] and local["wk"] == [32, 1024, 4, 128]
    assert local["w_down"] == [32, 7168, 1024] and local["embedding"] == [64128, 1024]
    assert local["residual"] == [32, 4096, 2048]
    assert found["state"] == local
    assert found["held"]["w_gate"] == [32, 16, 32] and found["held"]["tokens"] == [32, 32]


@pytest.mark.slow
def test_sharding_of_the_optimizer_alone_leaves_weights_whole(reports: dict[str, Any]) -> None:
    found = reports["optimizer sharded"]
    assert found["local"]["wq"] == [32, 4096, 16, 128]
    assert found["state"]["wq"] == [32, 1024, 16, 128]


@pytest.mark.slow
def test_slices_are_an_axis_of_their_own_that_copies_weights(reports: dict[str, Any]) -> None:
    """Two slices of four chips: the batch is split over both, each slice holds all weights."""
    found = reports["slices"]
    assert found["axes"] == {"dcn_data": 2, "data": 2, "model": 2}
    assert found["local"]["tokens"] == [16, 8192]
    assert found["local"]["w_up"] == [32, 2048, 7168]


@pytest.mark.slow
def test_experts_lie_on_their_axis_and_share_the_batch(reports: dict[str, Any]) -> None:
    found = reports["experts"]
    assert found["local"]["expert_gate"] == [32, 2, 2048, 14336]  # of 8 experts; only `data` shards them further
    assert found["local"]["wq"] == [32, 512, 32, 128]  # other weights over both
    assert found["local"]["tokens"] == [8, 8192]


@pytest.mark.slow
def test_the_file_checks_itself_without_the_chips(tmp_path: Path) -> None:
    """5 KV heads are not divisible by 2, so they stay whole and the notes say it; the check needs no environment."""
    shape = {"layers": 2, "d_model": 64, "d_ff": 128, "heads": 10, "kv_heads": 5, "head_dim": 8, "vocab": 255}
    given = config("v6e", [2, 4], {"data": 4, "model": 2}, model=shape, xla_flags=["--xla_tpu_no_such_flag=1"])
    assert any("wk" in note for note in plain_jax.file(given, Header(given)).notes)
    write(given, tmp_path)
    done = python(tmp_path, "plain_jax.py", "--check")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("OK\n") and "(2, 64, 5, 8)" in done.stdout


@pytest.mark.slow
def test_thousands_of_chips_are_checked_as_shapes(tmp_path: Path) -> None:
    given = config("v5p", [16, 20, 28], {"data": 560, "model": 16}, model=None, global_batch=5600)
    write(given, tmp_path)
    done = python(tmp_path, "plain_jax.py", "--check")
    assert done.returncode == 0 and done.stdout.endswith("OK\n"), done.stderr
    assert "(10, 8192)" in done.stdout


@pytest.mark.slow
def test_too_few_devices_are_refused_in_one_sentence(tmp_path: Path) -> None:
    write(llama_on_8(), tmp_path)
    done = python(tmp_path, "plain_jax.py", devices=2)
    assert done.returncode == 1 and "needs 8 devices, and there are 2" in done.stderr
