"""A launch file is a whole run: data, steps, output and a profile that comes back, by the environment of its bundle."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from proposals import launch
from proposals.candidate import Candidate
from tests.launch.configs import config, llama_on_8
from tests.launch.fake_axlearn import installed
from tests.launch.scripts import run_script

GPUS = config("h100", [8, 2], {"data": 4, "model": 4})


def text_of(kind: str, given=None) -> str:
    given = given or llama_on_8()
    return next(file.text for file in launch.files(given, Candidate(given.mesh.to_json())) if file.kind == kind)


def test_maxtext_trains_on_synthetic_data_and_records_every_host(tmp_path: Path) -> None:
    told = run_script(text_of("maxtext"), tmp_path, STEPS="25", OUTPUT="/shared/out", PROFILE_AFTER="7").argv
    assert told[:2] == ["-m", "maxtext.trainers.pre_train.train"]
    flags = dict(word.split("=", 1) for word in told[2:])
    assert (flags["steps"], flags["base_output_directory"]) == ("25", "/shared/out")
    assert (flags["dataset_type"], flags["enable_checkpointing"]) == ("synthetic", "false")
    assert (flags["profiler"], flags["skip_first_n_steps_for_profiler"], flags["profiler_steps"]) == (
        "xplane",
        "7",
        "3",
    )
    assert flags["upload_all_profiler_results"] == "true"


def test_a_repeat_that_is_only_timed_records_nothing(tmp_path: Path) -> None:
    told = run_script(text_of("maxtext"), tmp_path, PROFILE="").argv
    assert not any(word.startswith("profiler=") for word in told) and "steps=30" in told
    told = run_script(text_of("megatron", GPUS), tmp_path, PROFILE="").argv
    assert "--profile" not in told and "--mock-data" in told


def test_further_arguments_are_passed_on(tmp_path: Path) -> None:
    told = run_script(text_of("maxtext"), tmp_path, DATASET_TYPE="tfds").argv
    assert "dataset_type=tfds" in told


def test_megatron_trains_on_mock_data_and_rank_0_records(tmp_path: Path) -> None:
    told = run_script(text_of("megatron", GPUS), tmp_path, STEPS="25", OUTPUT="/shared/out").argv
    words = told[told.index("pretrain_gpt.py") + 1 :]
    expected = {
        "--train-iters": "25", "--log-interval": "1", "--profile-ranks": "0", "--profile-step-start": "10",
        "--profile-step-end": "13", "--eval-iters": "0", "--tensorboard-dir": "/shared/out/tensorboard",
        "--tokenizer-type": "NullTokenizer",
    }  # fmt: skip
    for name, value in expected.items():
        assert words[words.index(name) + 1] == value, name
    assert {"--mock-data", "--profile", "--use-pytorch-profiler"} <= set(words)
    assert len([word for word in words if word.startswith("--")]) == len({w for w in words if w.startswith("--")})


def test_megatron_takes_a_data_set_with_its_tokenizer(tmp_path: Path) -> None:
    own = {"DATA_PATH": "/data/c4_text", "TOKENIZER_TYPE": "HuggingFaceTokenizer", "TOKENIZER_MODEL": "/data/llama"}
    told = run_script(text_of("megatron", GPUS), tmp_path, **own).argv
    assert "--mock-data" not in told and told[told.index("--data-path") + 1] == "/data/c4_text"
    asked = run_script(text_of("megatron", GPUS), tmp_path, DATA_PATH="/data/c4_text")
    assert asked.code != 0 and "give the tokenizer of the data" in asked.error
    unknown = config("h100", [8, 2], {"data": 16}, model=None)
    asked = run_script(text_of("megatron", unknown), tmp_path)
    assert asked.code != 0 and "vocabulary" in asked.error


def test_axlearn_sets_steps_output_and_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPS", "25")
    monkeypatch.setenv("OUTPUT", "/shared/out")
    space: dict = {}
    with installed():
        exec(compile(text_of("axlearn"), "axlearn_mesh.py", "exec"), space)
    trainer = space["run"](SimpleNamespace(start_trace_steps=[]))
    assert (trainer.max_step, trainer.dir, trainer.start_trace_steps) == (25, "/shared/out", [10])
    monkeypatch.setenv("PROFILE", "")
    assert space["run"](SimpleNamespace(start_trace_steps=[])).start_trace_steps == []


@pytest.mark.slow
def test_plain_jax_times_its_steps_and_leaves_a_profile(tmp_path: Path) -> None:
    (tmp_path / "plain_jax.py").write_text(text_of("jax"))
    (tmp_path / "mine.py").write_text(
        "import itertools, jax, jax.numpy as jnp, plain_jax\n"
        "step = jax.jit(lambda state, batch: (state + batch, state.sum()))\n"
        "state = plain_jax.train(step, jnp.zeros(8), itertools.repeat(jnp.ones(8)))\n"
        "assert float(state[0]) == 14.0\n"
    )
    given = {"STEPS": "14", "OUTPUT": str(tmp_path / "out"), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "mine.py"], cwd=tmp_path, env={**os.environ, **given}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("asap_step_time_s=") == 14
    assert len(list((tmp_path / "out").glob("plugins/profile/*/*.xplane.pb"))) == 1


@pytest.mark.parametrize("kind", ["maxtext", "megatron"])
def test_bash_reads_every_script(kind: str, tmp_path: Path) -> None:
    given = GPUS if kind == "megatron" else config("v5e", [4, 4], {"data": 16})
    (tmp_path / "script.sh").write_text(text_of(kind, given))
    assert subprocess.run(["bash", "-n", str(tmp_path / "script.sh")]).returncode == 0
