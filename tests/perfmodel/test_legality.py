"""One rule per way a mesh can be wrong, by its name."""

from dataclasses import replace

import pytest

from perfmodel import legality, memory
from perfmodel.config import ModelShape
from perfmodel.workload import from_config
from tests.perfmodel.cases import LLAMA3_8B, MIXTRAL, tpu


def rules(config):
    return [violation.rule for violation in legality.check(config)]


def test_a_sound_mesh_breaks_no_rule():
    assert rules(tpu()) == []


@pytest.mark.parametrize(("mesh", "batch"), [({"data": 8, "model": 8}, 16), ({"data": 16, "model": 4}, 16)])
def test_the_second_device_of_a_chip_takes_half_of_a_batch_or_tensor_shard(mesh, batch):
    assert "devices" not in rules(tpu(mesh, chip="tpu7x", topology=(4, 4, 4), batch=batch))


def test_devices_of_a_chip_each_hold_what_is_not_sharded():
    """Float32 weights of 8.03 billion parameters on both devices where each has its own sequences, else halves."""
    held = {}
    for batch in (64, 128):
        of = tpu({"data": 64}, chip="tpu7x", topology=(4, 4, 4), batch=batch, weight_sharding="zero1")
        held[batch] = memory.per_chip(from_config(of)).params.item()
    assert held == {64: pytest.approx(32.1e9, rel=0.01), 128: pytest.approx(64.2e9, rel=0.01)}


@pytest.mark.parametrize(
    ("config", "rule"),
    [
        (tpu({"data": 8}), "chips"),
        (tpu(slices=2), "chips"),
        (tpu({"data": 128, "model": 4}, batch=130), "batch"),
        (tpu({"data": 128, "model": 4}, batch=128, grad_accum=3), "batch"),
        (tpu({"data": 128, "model": 4}, batch=640, micro_batch=3), "batch"),
        (tpu({"data": 64, "seq": 8}, seq=4100), "sequence"),
        # Two devices a chip: one sequence for each group, and 8 KV heads, leave nothing for the second.
        (tpu({"data": 8, "model": 8}, chip="tpu7x", topology=(4, 4, 4), batch=8), "devices"),
        (tpu({"data": 8, "model": 64}), "heads"),
        (tpu({"data": 32, "model": 16}), "kv_heads"),
        (tpu({"data": 64, "model": 8}, shape=replace(LLAMA3_8B, d_ff=14_337)), "d_ff"),
        (tpu({"data": 32, "expert": 16}, shape=MIXTRAL), "experts"),
        (tpu({"data": 64, "expert": 8}), "experts"),
        # 2,880 = 64 · 45: 128 weight shards would hold 22.5 rows each, which JAX refuses; FSDP of PyTorch pads.
        (tpu({"fsdp": 128, "model": 4}, shape=replace(LLAMA3_8B, d_model=2880, head_dim=90)), "weights"),
        (tpu({"pipeline": 64, "data": 8}, batch=512), "layers"),
        (tpu({"pipeline": 8, "data": 64}, batch=768, grad_accum=12, virtual_stages=2), "schedule"),
        (tpu({"data": 2240, "model": 4}, topology=(16, 20, 28), batch=8960), "topology"),
        (tpu(batch=512 * 1024), "memory"),
    ],
)
def test_each_rule_has_its_name(config, rule):
    if rule == "topology":
        config = replace(config, mesh=replace(config.mesh, ici=(("data", 1120), ("model", 8))))
    assert rule in rules(config)


def test_unknown_axis_role():
    config = tpu({"banana": 512})
    assert rules(config)[0] == "axis_role"


def test_layers_may_leave_slots_for_embedding_and_head():
    """126 layers in 8 stages of 16 slots, as LLaMA 3.1 405B is trained."""
    shape = ModelShape(126, 16_384, 53_248, 128, 8, 128, 128_256)
    config = tpu({"pipeline": 8, "data": 8, "model": 8}, shape=shape, batch=64, grad_accum=8, virtual_stages=16)
    assert "layers" not in rules(config)
    assert "layers" in rules(replace(config, training=replace(config.training, virtual_stages=17)))


def test_latent_attention_has_no_kv_heads_to_divide():
    shape = ModelShape(
        4, 2048, 8192, 16, 1, 128, 1000, attention="mla",
        kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128,
    )  # fmt: skip
    assert "kv_heads" not in rules(tpu({"data": 64, "model": 8}, shape=shape))


def test_every_sentence_says_both_numbers():
    (violation,) = (v for v in legality.check(tpu({"data": 32, "model": 16})) if v.rule == "kv_heads")
    assert "8 KV heads" in violation.message
    assert "16" in violation.message


def test_rules_that_need_missing_facts_are_left_out():
    config = tpu({"data": 8, "model": 64})
    bare = replace(config, model=None, training=replace(config.training, global_batch=None, seq_len=None))
    assert rules(bare) == []
