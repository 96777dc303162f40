"""Launch files keep the rules of the tool they are for: on chosen cases by hand, and on legal ones by chance."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax._src import mesh_utils

from perfmodel.config import ExperimentConfig
from perfmodel.config_file import read_config
from proposals import launch
from proposals.candidate import Candidate
from proposals.launch import LaunchFile
from proposals.launch.maxtext import per_device_batch
from proposals.launch.placement import must_split
from tests.launch import rules
from tests.launch.configs import config, legal_configs, llama_on_8
from tests.launch.fake_axlearn import mesh_of
from tests.launch.scripts import run_script, script_words


def files(given_config: ExperimentConfig, **changes: Any) -> dict[str, LaunchFile]:
    found = launch.files(given_config, Candidate(given_config.mesh.to_json(), changes), "Some title")
    assert tuple(file.kind for file in found) == launch.KINDS
    return {file.kind: file for file in found}


def maxtext(given_config: ExperimentConfig) -> dict[str, str]:
    return rules.parse_maxtext(script_words(files(given_config)["maxtext"].text, "FLAGS"))


def megatron(given_config: ExperimentConfig) -> dict[str, Any]:
    return rules.parse_megatron(script_words(files(given_config)["megatron"].text, "ARGUMENTS"))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(legal_configs())
def test_what_is_written_keeps_the_rules_of_its_tool(drawn: ExperimentConfig) -> None:
    for kind, file in files(drawn).items():
        assert file.produced or file.notes, f"{kind} says nothing"
        if not file.produced:
            continue
        if kind == "maxtext":
            rules.check_maxtext(rules.parse_maxtext(script_words(file.text, "FLAGS")), drawn)
        elif kind == "megatron":
            one = "export CUDA_DEVICE_MAX_CONNECTIONS=1" in file.text
            exported = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"} if one else {}
            rules.check_megatron(rules.parse_megatron(script_words(file.text, "ARGUMENTS")), drawn, exported)
        elif kind == "jax":
            compile(file.text, file.name, "exec")
        elif kind == "axlearn":
            mesh_of(file.text, drawn)
        elif kind == "yaml":
            again, warnings = read_config(file.text)
            assert again == drawn and warnings == []


def test_maxtext_flags_of_a_known_mesh() -> None:
    """8 chips in 2 x 2 x 2 with fsdp: weights over `data`; 64 sequences on 8 devices are 8 each."""
    flags = maxtext(llama_on_8(remat="minimal", xla_flags=["--xla_a=1"]))
    assert {flags[f"ici_{axis}_parallelism"] for axis in ("fsdp", "context", "tensor")} == {"2"}
    assert flags["per_device_batch_size"] == "8" and flags["max_target_length"] == "8192"
    assert flags["model_name"] == "llama3.1-8b" and flags["remat_policy"] == "minimal"
    assert flags["ici_data_parallelism"] == "1" and "quantization" not in flags


def test_recomputation_is_written_as_the_program_obeys_it() -> None:
    """MaxText's own `none` recomputes every scanned layer; `offload` is of layer inputs, which are computed from."""
    kept, moved = maxtext(llama_on_8(remat="none")), maxtext(llama_on_8(remat="offload"))
    assert kept["remat_policy"] == "minimal_with_context"
    assert (moved["remat_policy"], moved["decoder_layer_input"]) == ("custom", "offload")


def test_weight_sharding_decides_between_the_axes_of_maxtext() -> None:
    whole = maxtext(llama_on_8(weight_sharding="none"))
    assert whole["ici_data_parallelism"] == "2" and whole["ici_fsdp_parallelism"] == "1"
    assert "shard_optimizer_over_data" not in whole
    assert maxtext(llama_on_8(weight_sharding="zero1"))["shard_optimizer_over_data"] == "true"


def test_slices_hold_copies_of_the_weights_unless_an_fsdp_axis_spans_them() -> None:
    copies = maxtext(config("v5e", [4, 4], {"data": 16}, {"data": 2}))
    assert (copies["dcn_data_parallelism"], copies["dcn_fsdp_parallelism"]) == ("2", "1")
    spans = maxtext(config("v5e", [4, 4], {"data": 16}, {"fsdp": 2}))
    assert (spans["dcn_data_parallelism"], spans["dcn_fsdp_parallelism"]) == ("1", "2")


def test_an_ironwood_chip_is_two_devices() -> None:
    found = files(config("tpu7x", [4, 4, 4], {"data": 16, "model": 4}, global_batch=256))
    flags = rules.parse_maxtext(script_words(found["maxtext"].text, "FLAGS"))
    assert flags["ici_fsdp_parallelism"] == "32" and flags["per_device_batch_size"] == "2"
    assert any("two JAX devices" in note for note in found["maxtext"].notes)
    # 16 sequences over 16 shards leave none for a second device, so the sequence axis takes it.
    full = maxtext(config("tpu7x", [4, 4, 4], {"data": 16, "seq": 4}, global_batch=16))
    assert full["ici_context_parallelism"] == "8"


@given(st.integers(1, 100_000), st.integers(1, 20_000))
def test_maxtext_gets_back_the_batch_it_was_given(batch: int, devices: int) -> None:
    assert int(devices * float(repr(per_device_batch(batch, devices)))) == batch


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from([1, 2, 3, 4, 8, 16]), min_size=1, max_size=3), st.data())
def test_an_axis_must_be_split_exactly_when_jax_says_so(dims: list[int], data: st.DataObject) -> None:
    sizes, left = [], int(np.prod(dims))
    while left > 1:
        sizes.append(data.draw(st.sampled_from([n for n in range(2, left + 1) if left % n == 0])))
        left //= sizes[-1]
    sizes = sizes or [1]
    physical = np.arange(int(np.prod(dims))).reshape(dims)
    try:
        mesh_utils._create_device_mesh_for_nd_torus(physical, sizes)
        refused = False
    except NotImplementedError:
        refused = True
    assert must_split(sizes, dims) == refused
    if refused:
        mesh_utils._create_device_mesh_for_nd_torus(physical, sizes, allow_split_physical_axes=True)


def test_megatron_arguments_of_a_known_mesh() -> None:
    """512 GPUs: 8 groups share 1,024 sequences in 32 micro-batches, so 4 each; 80 layers in 4 stages of 2 parts."""
    ici = {"pipeline": 4, "data": 8, "seq": 2, "model": 8}
    batch = {"global_batch": 1024, "grad_accum": 32, "virtual_stages": 2}
    args = megatron(config("h100", [8, 64], ici, model="llama3.1-70b", **batch))
    assert args["num-layers-per-virtual-pipeline-stage"] == 10
    assert (args["micro-batch-size"], args["global-batch-size"]) == (4, 1024)
    assert args["use-distributed-optimizer"] and args["sequence-parallel"] and args["bf16"]
    assert "recompute-granularity" not in args


def test_layers_that_do_not_divide_give_a_place_to_embedding_and_loss() -> None:
    """Llama 3.1 405B has 126 layers: 16 stages hold 128 with embedding and loss, as its authors ran it."""
    ici = {"pipeline": 16, "data": 8, "model": 8}
    args = megatron(config("h100", [8, 128], ici, model="llama3.1-405b", global_batch=256, grad_accum=32))
    assert args["account-for-embedding-in-pipeline-split"] and args["account-for-loss-in-pipeline-split"]
    deep = {"pipeline": 24, "model": 8}
    uneven = config("h100", [8, 24], deep, model="llama3.1-405b", global_batch=24, grad_accum=24)
    assert "do not fill 24 stages" in files(uneven)["megatron"].notes[0]


def test_the_order_of_ranks_is_said_or_set() -> None:
    outside = {"data": 2, "pipeline": 2, "model": 8}
    assert megatron(config("h100", [8, 4], outside, grad_accum=2))["use-tp-pp-dp-mapping"]
    inside_out = files(config("h100", [8, 4], {"model": 8, "data": 4}))["megatron"]
    assert any("from major to minor" in note for note in inside_out.notes)


def test_tpus_have_no_megatron_and_say_so() -> None:
    file = files(llama_on_8())["megatron"]
    assert file.text == "" and file.notes == ("Megatron-LM runs on GPUs, but these chips are TPU v5e.",)


def test_what_a_tool_cannot_do_is_not_written() -> None:
    on_gpu = files(config("h100", [8, 1], {"data": 8}, precision="int8"))
    assert not on_gpu["megatron"].produced and "int8" in on_gpu["megatron"].notes[0]
    on_tpu = files(llama_on_8(precision="nvfp4"))
    assert not on_tpu["maxtext"].produced and "nvfp4" in on_tpu["maxtext"].notes[0]
    narrow = {"layers": 4, "d_model": 64, "d_ff": 256, "heads": 12, "kv_heads": 12, "head_dim": 8, "vocab": 512}
    lion = files(config("h100", [8, 1], {"data": 8}, model=narrow, optimizer="lion", weight_sharding="fsdp"))
    assert "Megatron-FSDP takes Adam or SGD" in lion["megatron"].notes[0]


def test_a_script_asks_for_what_the_configuration_does_not_say(tmp_path: Path) -> None:
    text = files(llama_on_8(global_batch=None, seq_len=None))["maxtext"].text
    refused = run_script(text, tmp_path)
    assert refused.code != 0 and "PER_DEVICE_BATCH_SIZE" in refused.error and refused.argv == []
    told = run_script(text, tmp_path, PER_DEVICE_BATCH_SIZE="4", MAX_TARGET_LENGTH="1024")
    assert told.code == 0 and "per_device_batch_size=4" in told.argv and "max_target_length=1024" in told.argv


def test_scripts_run_as_they_stand_and_pass_more_arguments_on(tmp_path: Path) -> None:
    found = files(llama_on_8(xla_flags=["--xla_a=1", "xla_b=2"]))
    run = run_script(found["maxtext"].text, tmp_path, LIBTPU_INIT_ARGS="--mine")
    assert run.argv[:2] == ["-m", "maxtext.trainers.pre_train.train"]
    assert run.env["LIBTPU_INIT_ARGS"].split() == ["--mine", "--xla_a=1", "--xla_b=2"]
    gpu = run_script(files(config("h100", [8, 2], {"data": 8, "model": 2}))["megatron"].text, tmp_path)
    assert gpu.argv[:4] == ["--nproc-per-node", "8", "--nnodes", "2"] and "pretrain_gpt.py" in gpu.argv


HOSTILE = 'x\n`touch pwned`$(touch pwned)\';touch pwned;\'"""\nimport os; os.abort() #\\'


def test_nothing_that_a_user_typed_is_run(tmp_path: Path) -> None:
    flags = ["--xla_a=$(touch pwned)", "'; touch pwned; '", '\n"""', "\\"]
    found = files(replace(llama_on_8(xla_flags=flags), name=HOSTILE))
    assert run_script(found["maxtext"].text, tmp_path).code == 0
    compile(found["jax"].text, "plain_jax.py", "exec")
    compile(found["axlearn"].text, "axlearn_mesh.py", "exec")
    assert read_config(found["yaml"].text)[0].name == HOSTILE
    done = subprocess.run(
        [sys.executable, "-c", _write(tmp_path, found["jax"].text)], capture_output=True, text=True, cwd=tmp_path
    )
    assert "os.abort" in done.stdout
    assert not (tmp_path / "pwned").exists()


def _write(folder: Path, text: str) -> str:
    """A program that reads the file as Python does and prints its docstring."""
    (folder / "plain_jax.py").write_text(text)
    return "import ast; print(ast.get_docstring(ast.parse(open('plain_jax.py').read())))"
