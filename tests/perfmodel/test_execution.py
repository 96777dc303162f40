"""Execution profiles: who runs a step decides what it costs, and how far a prediction is from what was measured."""

from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest

from evaluation.held_out import summarise
from perfmodel.config import ExperimentConfig, Hardware, Mesh, Training
from perfmodel.efficiency import DISTANCES, Efficiencies, distance_to
from perfmodel.execution import load_profiles, profile_named
from perfmodel.prediction import predict
from perfmodel.step_time import combine
from perfmodel.terms import step_terms
from perfmodel.workload import from_config
from tests.perfmodel.cases import LLAMA3_8B, tpu


def gpus(mesh, framework=None, nodes=1, chip="h100", shape=LLAMA3_8B, **training):
    extra = MappingProxyType({"software_framework": framework} if framework else {})
    values = {"global_batch": 256, "seq_len": 4096, "remat": "none", "weight_sharding": "zero1", "micro_batch": 1}
    return ExperimentConfig(
        Hardware(chip, (8, nodes)), Mesh(tuple(mesh.items())), shape, Training(**(values | training)), extra=extra
    )


def seconds(config, **efficiencies):
    """Under textbook efficiencies with these replaced."""
    return float(combine(step_terms(from_config(config)), Efficiencies(**efficiencies)).estimate_s[0])


@pytest.mark.parametrize(
    ("framework", "kind", "profile"),
    [
        (None, "tpu", "xla"),
        (None, "gpu", "megatron-core"),
        ("MaxText", "tpu", "xla"),
        ("MaxText", "gpu", "xla"),
        ("Megatron-Bridge 25.09", "gpu", "megatron-core"),
        ("Megatron-LM", "gpu", "megatron-lm"),
        ("Megatron-DeepSpeed", "gpu", "megatron-deepspeed"),
        ("nanotron", "gpu", "nanotron"),
        ("llm-foundry (Composer, FSDP)", "gpu", "fsdp"),
        ("PyTorch FSDP2", "gpu", "fsdp"),
        ("something of our own", "gpu", "fsdp"),
        ("something of our own", "tpu", "xla"),
    ],
)
def test_the_framework_names_the_profile(framework, kind, profile):
    assert profile_named(framework, kind).name == profile


def test_every_profile_has_a_source_and_no_framework_names_two():
    assert all(profile.source for profile in load_profiles().values())
    named = [part for profile in load_profiles().values() for part in profile.frameworks]
    assert len(named) == len(set(named))


def test_the_framework_is_said_where_it_was_taken_for_granted():
    warnings = predict(gpus({"data": 8})).warnings
    assert "(software.framework) is not given" in " ".join(warnings) and all(text.endswith(".") for text in warnings)
    assert "No runs of homemade" in " ".join(predict(gpus({"data": 8}, "homemade")).warnings)
    assert not [w for w in predict(gpus({"data": 8}, "nanotron")).warnings if "framework" in w or "No run" in w]


def test_unfused_attention_pays_for_the_square_of_the_sequence():
    """Scores through HBM: twice the length at the same tokens moves twice the bytes, a fused kernel none."""
    short = step_terms(from_config(gpus({"data": 8}, "Megatron-DeepSpeed", global_batch=256, seq_len=2048)))
    long = step_terms(from_config(gpus({"data": 8}, "Megatron-DeepSpeed", global_batch=128, seq_len=4096)))
    assert long.softmax_s[0] == pytest.approx(2 * short.softmax_s[0])
    assert step_terms(from_config(gpus({"data": 8}, "nanotron"))).softmax_s[0] == 0


def test_gradients_in_float32_take_twice_the_wire():
    """An all-reduce of 4-byte gradients against one of 2-byte ones, once per step."""
    full = step_terms(from_config(gpus({"data": 8}, "nanotron", weight_sharding="none"))).traffic["weights"]
    half = step_terms(from_config(gpus({"data": 8}, "Megatron-Bridge", weight_sharding="none"))).traffic["weights"]
    assert full.ici_s[0] == pytest.approx(2 * half.ici_s[0])


def test_a_slow_host_sets_the_pace_of_small_work_only():
    small = gpus({"data": 8}, "nanotron", seq_len=256)
    large = gpus({"data": 8}, "nanotron", micro_batch=8)
    for config, at_least, at_most in ((small, 3.0, 50.0), (large, 1.0, 1.2)):
        ratio = seconds(config, layer_s=2e-2) / seconds(config, layer_s=1e-6)
        assert at_least < ratio < at_most


def test_a_tensor_axis_over_nodes_is_slower_than_inside_one():
    inside = gpus({"data": 2, "model": 8}, "nanotron", nodes=2)
    across = gpus({"data": 1, "model": 16}, "nanotron", nodes=2)
    assert seconds(across) > 1.3 * seconds(inside)
    assert seconds(across, network=0.4) > seconds(across, network=0.8)
    assert seconds(inside, network_message_s=1e-3) == pytest.approx(seconds(inside, network_message_s=1e-6), rel=0.05)


def test_stages_filled_by_work_leave_the_last_one_room_for_the_head():
    """1B of nanotron's sweep: a head of four layers' work on the last of two stages of sixteen layers."""
    shape = replace(LLAMA3_8B, layers=16, d_model=2048, d_ff=8192, heads=32, kv_heads=32, head_dim=64, vocab=131_072)
    even = step_terms(from_config(gpus({"pipeline": 2, "data": 4}, "Megatron-LM", shape=shape)))
    filled = step_terms(from_config(gpus({"pipeline": 2, "data": 4}, "nanotron", shape=shape)))
    assert even.layer_passes[0] / even.work.training.micro_batches[0] == 8
    assert filled.layer_passes[0] / filled.work.training.micro_batches[0] == 10
    assert filled.head_s[0] < 0.1 * even.head_s[0]


def test_what_may_stall_has_a_range_that_holds_both():
    config = gpus({"pipeline": 4, "data": 16}, "nanotron", nodes=8)
    priced = combine(step_terms(from_config(config)), Efficiencies(stall_s=2.0, stall_per_host=0.03, full_at=100.0))
    chance = 1 - np.exp(-0.03 * 8)
    assert priced.stall_chance[0] == pytest.approx(chance)
    assert priced.stall_s[0] == pytest.approx(2.0 * 16 * 3 / 4)
    assert priced.low80_s[0] < priced.smooth_s[0] < priced.smooth_s[0] + priced.stall_s[0] < priced.high80_s[0]
    assert priced.estimate_s[0] == pytest.approx(priced.smooth_s[0], rel=0.01)
    often = combine(step_terms(from_config(config)), Efficiencies(stall_s=2.0, stall_per_host=0.5, full_at=100.0))
    assert often.estimate_s[0] == pytest.approx(priced.smooth_s[0] + priced.stall_s[0], rel=0.01)
    one_stage = combine(
        step_terms(from_config(gpus({"data": 64}, "nanotron", nodes=8))),
        Efficiencies(stall_s=2.0, stall_per_host=0.5, full_at=100.0),
    )
    assert one_stage.stall_chance[0] == 0


def test_a_pipeline_stalls_where_its_memory_is_full():
    """More tokens per micro-batch fill the memory: the chance rises, and without a pipeline there is none."""
    shape = replace(LLAMA3_8B, layers=16, d_model=2048, d_ff=8192, heads=32, kv_heads=32, head_dim=64)
    chances = []
    for micro in (1, 4, 16):
        config = gpus({"pipeline": 4, "data": 2}, "nanotron", shape=shape, micro_batch=micro)
        priced = combine(step_terms(from_config(config)), Efficiencies(stall_s=1.0, full_at=1.0))
        chances.append(float(priced.stall_chance[0]))
    assert chances == sorted(chances)
    assert chances[0] < 0.1 < 0.9 < chances[-1]
    flat = step_terms(from_config(gpus({"data": 8}, "nanotron", micro_batch=16)))
    assert combine(flat, Efficiencies(stall_s=1.0, full_at=1.0)).stall_chance[0] == 0


def test_distance_goes_from_the_same_configuration_to_an_unknown_framework():
    measured = tpu({"data": 8, "seq": 8, "model": 8})
    seen = {level: frozenset(keys) for level, keys in summarise([measured]).items()}
    other_shape = replace(LLAMA3_8B, layers=40)
    steps = [
        measured,
        replace(measured, mesh=Mesh((("data", 64), ("seq", 1), ("model", 8)))),
        replace(measured, training=replace(measured.training, global_batch=1024)),
        replace(measured, model=other_shape),
        replace(measured, model=replace(other_shape, experts=8, experts_per_token=2, d_ff_expert=4096)),
        replace(measured, hardware=replace(measured.hardware, chip="v4")),
        replace(measured, extra=MappingProxyType({"software_framework": "homemade"})),
    ]
    assert [distance_to(config, seen) for config in steps] == list(DISTANCES)


def test_a_profile_s_own_name_counts_as_measured():
    for name, profile in load_profiles().items():
        assert profile.has_measured(name)
    assert not load_profiles()["fsdp"].has_measured("PyTorch FSDP2")
