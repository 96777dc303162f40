"""One case by hand for every rule: the cost it should name, and a neighbour in which it should be silent."""

from __future__ import annotations

import pytest

from diagnosis.analyzer import diagnose
from diagnosis.analyzer.rules.matmuls import padding_waste
from experiments.step_profile import Core, Memory
from perfmodel.config import ExperimentConfig, Hardware, Mesh, ModelShape, Training
from tests.diagnosis.build import collective, config, find, matmul, op, profile, rules, stream

DATA_MODEL = config({"data": 4, "model": 4}, (4, 4))
OVER_MODEL = "replica_groups=[4,4]<=[16]"
OVER_DATA = "replica_groups=[4,4]<=[4,4]T(1,0)"
BACKWARD = "jit(step)/transpose(jvp(loss))/layer/mlp"


def test_tensor_parallel_communication() -> None:
    diagnosis = diagnose(profile(matmul("fusion.1", 0.6), collective("all-reduce", 0.4, OVER_MODEL)), DATA_MODEL)
    found = find(diagnosis, "tensor_parallel_communication")
    assert found.saving_share == pytest.approx(0.4) and found.saving_s == pytest.approx(0.4)
    assert found.mesh_axis == "model"
    assert diagnosis.bottleneck.primary == "communication"
    quiet = diagnose(profile(matmul("fusion.1", 0.6), collective("all-reduce", 0.4, OVER_DATA)), DATA_MODEL)
    assert "tensor_parallel_communication" not in rules(quiet)


def test_fsdp_gathers_with_too_few_tokens_per_chip() -> None:
    """v5e: 197 TFLOP/s ÷ (2 × 45 GB/s) = 2,189 tokens per chip hide a gather on one axis (scaling book 5.1)."""
    few = config({"data": 16}, (16,), global_batch=16, seq_len=1024)
    gather = collective("all-gather", 0.3, "replica_groups=[1,16]<=[16]", op_name="jit(s)/jvp(l)/mlp/all_gather")
    diagnosis = diagnose(profile(matmul("fusion.1", 0.6), gather), few)
    found = find(diagnosis, "fsdp_gathers_exposed")
    assert found.saving_share == pytest.approx(0.3) and found.mesh_axis == "data"
    values = {row.label: row.value for row in found.evidence}
    assert values["tokens per chip"] == 1024
    assert values["tokens per chip that hide an all-gather on these axes"] == pytest.approx(2188.9, rel=1e-3)
    assert "too short" in found.insight
    many = config({"data": 16}, (16,), global_batch=64, seq_len=1024)
    assert (
        "suffice to hide"
        in find(diagnose(profile(matmul("fusion.1", 0.6), gather), many), "fsdp_gathers_exposed").insight
    )


def test_gradient_all_reduce() -> None:
    reduce = collective("all-reduce", 0.2, OVER_DATA, op_name=f"{BACKWARD}/psum")
    replicated = config({"data": 4, "model": 4}, (4, 4), weight_sharding="none")
    found = find(diagnose(profile(matmul("fusion.1", 0.8), reduce), replicated), "gradient_reduction")
    assert found.saving_share == pytest.approx(0.2) and found.mesh_axis == "data"


def test_replicated_weights_and_optimizer() -> None:
    reduce = collective("all-reduce", 0.2, "replica_groups=[1,8]<=[8]", op_name=f"{BACKWARD}/psum")
    update = stream("fusion.2", 0.2, op_name="jit(step)/adamw/mul")
    ops = (matmul("fusion.1", 0.6), reduce, update)
    found = find(diagnose(profile(*ops), config({"data": 8, "model": 1}, weight_sharding="none")), "replicated_weights")
    assert found.saving_share == pytest.approx(0.2 * 7 / 8)  # the reduction stays, as reduce-scatter and gathers
    assert "replicated on all 8 chips" in found.insight
    only_reduced = profile(matmul("fusion.1", 0.8), reduce)
    assert "replicated_weights" not in rules(
        diagnose(only_reduced, config({"data": 8, "model": 1}, weight_sharding="none"))
    )
    split = config({"data": 2, "model": 4}, (2, 4), weight_sharding="none")
    assert "replicated_weights" not in rules(diagnose(profile(*ops), split))


def test_sequence_exchange() -> None:
    pairs = "source_target_pairs={" + ",".join(f"{{{i},{(i + 1) % 8}}}" for i in range(8)) + "}"
    ring = collective("collective-permute", 0.25, pairs, op_name="jit(s)/jvp(l)/attention/ppermute")
    kernel = op("flash_attention.1", "custom-call", 0.5, bound_by="Compute", roofline_efficiency=0.5, flops=1e12,
                op_name="jit(s)/jvp(l)/attention/pallas_call")  # fmt: skip
    found = find(diagnose(profile(kernel, ring), config({"seq": 8})), "sequence_parallel_exposed")
    assert found.mesh_axis == "seq" and found.saving_share == pytest.approx(0.25)
    assert "long enough to hide" in found.insight


def test_expert_all_to_all() -> None:
    dispatch = collective("all-to-all", 0.3, OVER_MODEL, op_name="jit(s)/jvp(l)/moe/dispatch/all_to_all")
    experts = config({"data": 4, "expert": 4}, (4, 4))
    found = find(diagnose(profile(matmul("fusion.1", 0.7), dispatch), experts), "expert_all_to_all")
    assert found.mesh_axis == "expert" and found.saving_share == pytest.approx(0.3)
    assert "resharding" not in rules(diagnose(profile(matmul("fusion.1", 0.7), dispatch), experts))


def test_exposed_dcn() -> None:
    two = config({"data": 4, "model": 4}, (4, 4), dcn={"replica": 2})
    across = collective("all-reduce", 0.35, "replica_groups=[16,2]<=[2,16]T(1,0)", op_name=f"{BACKWARD}/psum")
    diagnosis = diagnose(profile(matmul("fusion.1", 0.65), across), two)
    found = find(diagnosis, "exposed_dcn")
    assert found.mesh_axis == "dcn" and found.saving_share == pytest.approx(0.35)
    assert diagnosis.breakdown_share["dcn"] == pytest.approx(0.35)
    # 25 GB/s per host over 8 chips (scaling book 2.2)
    assert any(row.value == pytest.approx(25e9 / 8) for row in found.evidence)


def test_more_than_gradients_over_dcn() -> None:
    two = config({"data": 4, "model": 4}, (4, 4), dcn={"data": 2}, weight_sharding="fsdp")
    gather = collective(
        "all-gather", 0.35, "replica_groups=[16,2]<=[2,16]T(1,0)", op_name="jit(s)/jvp(l)/mlp/all_gather"
    )
    found = find(diagnose(profile(matmul("fusion.1", 0.65), gather), two), "exposed_dcn")
    assert "is not gradient traffic" in found.insight


def test_pipeline_bubble() -> None:
    """4 stages and 4 micro-batches: (4 − 1) ÷ (4 + 3) = 3/7 of the step."""
    four = config({"pipeline": 4, "model": 2}, (4, 2), grad_accum=4)
    diagnosis = diagnose(profile(matmul("fusion.1", 0.58), kpis={"duty_cycle": 0.58}), four)
    found = find(diagnosis, "pipeline_bubble")
    assert found.saving_share == pytest.approx(0.42) and found.mesh_axis == "pipeline"
    assert {row.label: row.value for row in found.evidence}["bubble of the schedule"] == pytest.approx(3 / 7)
    assert diagnosis.bottleneck.primary == "idle"


def test_axis_on_slow_links_of_a_torus() -> None:
    """16 × 16 v5e, model 4 as the major axis: every fourth chip of a ring, four groups share its links: 22.5 GB/s.

    As the minor axis it is a line of four neighbours: 4 shards over 3 hops of 45 GB/s are 60 GB/s (scaling book 3.2).
    """
    badly = config({"model": 4, "data": 64}, (16, 16))
    busy = collective("all-gather", 0.5, "replica_groups=[64,4]<=[4,64]T(1,0)", operand="bf16[256,4096]")
    found = find(diagnose(profile(matmul("fusion.1", 0.5), busy), badly), "axis_on_slow_links")
    assert found.mesh_axis == "model"
    assert found.saving_share == pytest.approx(0.5 * (1 - 22.5 / 60), rel=1e-3)
    assert "data, model" in found.action
    well = config({"data": 64, "model": 4}, (16, 16))
    best = collective("all-gather", 0.5, "replica_groups=[64,4]<=[256]", operand="bf16[256,4096]")
    assert "axis_on_slow_links" not in rules(diagnose(profile(matmul("fusion.1", 0.5), best), well))


def test_low_link_bandwidth() -> None:
    """Eight chips of v5e in a line; an all-gather that takes five times its least time leaves 80 % of the links empty.

    Line of 8 without wraparound: 7 hops of V/8 at 45 GB/s.
    """
    size = 1024 * 4096 * 2
    least = 500 * 7 * size / 8 / 45e9
    line = config({"data": 8})
    slow = collective("all-gather", 5 * least, "replica_groups=[1,8]<=[8]", operand="bf16[128,4096]", count=500)
    found = find(diagnose(profile(matmul("fusion.1", 1 - 5 * least), slow), line), "low_link_bandwidth")
    assert found.saving_share == pytest.approx(4 * least, rel=1e-3)
    assert "20.0 %" in found.insight and "large enough" in found.insight
    fast = collective("all-gather", 1.2 * least, "replica_groups=[1,8]<=[8]", operand="bf16[128,4096]", count=500)
    assert "low_link_bandwidth" not in rules(diagnose(profile(matmul("fusion.1", 0.9), fast), line))


def test_tensor_axis_outside_the_nvlink_domain() -> None:
    """Four domains of eight H100: NVLink 450 GB/s against a network card of 50 GB/s, nine to one."""
    badly = config({"model": 4, "data": 8}, (8, 4), chip="h100")
    busy = collective("all-gather", 0.5, "replica_groups=[8,4]<=[4,8]T(1,0)", operand="bf16[256,4096]")
    found = find(diagnose(profile(matmul("fusion.1", 0.5), busy), badly), "axis_on_slow_links")
    assert found.saving_share == pytest.approx(0.5 * (1 - 1 / 9), rel=1e-3)
    assert "NVLink" in found.insight


def test_open_rings() -> None:
    """Model 4 on 16 × 16 v5e is a line of four: 60 GB/s where a ring gives 2 × 45; a third of its time is at stake."""
    line = config({"data": 64, "model": 4}, (16, 16))
    ops = (
        matmul("fusion.1", 0.6),
        collective("all-gather", 0.4, "replica_groups=[64,4]<=[256]", operand="bf16[256,4096]"),
    )
    found = find(diagnose(profile(*ops), line), "open_rings")
    assert found.saving_share == pytest.approx(0.4 / 3, rel=1e-3) and found.mesh_axis == "model"
    ring = config({"data": 16, "model": 16}, (16, 16))
    ops = (
        matmul("fusion.1", 0.6),
        collective("all-gather", 0.4, "replica_groups=[16,16]<=[256]", operand="bf16[64,4096]"),
    )
    assert "open_rings" not in rules(diagnose(profile(*ops), ring))


def test_resharding_names_its_line() -> None:
    exchange = collective("all-to-all", 0.2, OVER_DATA, op_name="jit(step)/jvp(l)/layer/mlp/sharding_constraint",
                          source="/home/me/train/model.py:88")  # fmt: skip
    found = find(diagnose(profile(matmul("fusion.1", 0.8), exchange), DATA_MODEL), "resharding")
    assert "train/model.py:88" in found.insight
    assert found.saving_share == pytest.approx(0.2)


def test_async_waits() -> None:
    start = op(
        "all-gather-start.1",
        "all-gather-start",
        0.0,
        hlo=(f"%all-gather-start.1 = bf16[64,8]{{1,0}} all-gather-start(bf16[16,8]{{1,0}} %p), {OVER_DATA}"),
    )
    done = op("all-gather-done.1", "all-gather-done", 0.15,
              hlo="%all-gather-done.1 = bf16[64,8]{1,0} all-gather-done(bf16[64,8] %all-gather-start.1)")  # fmt: skip
    found = find(diagnose(profile(matmul("fusion.1", 0.85), start, done), DATA_MODEL), "async_collective_waits")
    assert found.saving_share == pytest.approx(0.15) and found.mesh_axis == "data"


def test_exposed_communication_of_all_axes_together() -> None:
    ops = (matmul("fusion.1", 0.5), collective("all-reduce", 0.3, OVER_MODEL, name="all-reduce.1"),
           collective("all-reduce", 0.2, OVER_DATA, name="all-reduce.2"))  # fmt: skip
    diagnosis = diagnose(profile(*ops), DATA_MODEL)
    assert find(diagnosis, "exposed_communication").saving_share == pytest.approx(0.5)
    assert diagnosis.breakdown_share["ici:model"] == pytest.approx(0.3)
    assert diagnosis.breakdown_share["ici:data"] == pytest.approx(0.2)


def test_elementwise_chain() -> None:
    diagnosis = diagnose(profile(matmul("fusion.1", 0.3), stream("fusion.2", 0.4), stream("fusion.3", 0.3)), DATA_MODEL)
    found = find(diagnosis, "hbm_bound_elementwise")
    assert found.saving_share == pytest.approx(0.7)
    assert "only moving fewer bytes" in found.insight
    assert diagnosis.bottleneck.primary == "memory"


def test_optimizer_update_and_data_shuffle() -> None:
    ops = (matmul("fusion.1", 0.7), stream("fusion.2", 0.15, op_name="jit(step)/adamw/mul"),
           stream("copy.1", 0.15, category="data formatting"))  # fmt: skip
    diagnosis = diagnose(profile(*ops), DATA_MODEL)
    assert find(diagnosis, "optimizer_update").saving_share == pytest.approx(0.15)
    assert find(diagnosis, "data_shuffle").saving_share == pytest.approx(0.15)


def test_memory_near_capacity() -> None:
    full = Memory(15.5e9, 16e9)
    found = find(diagnose(profile(matmul("fusion.1", 1.0), memory=full), DATA_MODEL), "memory_near_capacity")
    assert found.saving_share is None and "15.5 GB" in found.insight
    assert "memory_near_capacity" not in rules(
        diagnose(profile(matmul("fusion.1", 1.0), memory=Memory(8e9, 16e9)), DATA_MODEL)
    )


def test_low_matrix_efficiency() -> None:
    """A product at 25 % of the peak for 80 % of the step could save 60 % of it."""
    found = find(
        diagnose(profile(matmul("fusion.1", 0.8, 0.25), matmul("fusion.2", 0.2, 0.8)), DATA_MODEL),
        "low_matrix_efficiency",
    )
    assert found.saving_share == pytest.approx(0.6)


def test_padding_by_hand() -> None:
    """80 of 128 columns: 1 − 80/128 of the unit's work is on zeros; on a 256-wide unit twice as bad."""
    line = "%f = bf16[4096,80]{1,0} fusion(bf16[4096,1024]{1,0} %a, bf16[1024,80]{1,0} %b), kind=kOutput"
    assert padding_waste(line, 128) == (pytest.approx(1 - 80 / 128), (80,))
    assert padding_waste(line, 256) == (pytest.approx(1 - 80 / 256), (80,))
    even = "%f = bf16[4096,1024]{1,0} fusion(bf16[4096,1024]{1,0} %a, bf16[1024,1024]{1,0} %b), kind=kOutput"
    assert padding_waste(even, 256) == (0.0, ())


def test_unaligned_shapes() -> None:
    line = "%f = bf16[4096,80]{1,0} fusion(bf16[4096,1024]{1,0} %a, bf16[1024,80]{1,0} %b), kind=kOutput"
    found = find(diagnose(profile(matmul("fusion.1", 1.0, 0.5, hlo=line)), DATA_MODEL), "unaligned_shapes")
    assert found.saving_share == pytest.approx(48 / 128)
    assert "dimension of 80" in found.insight
    # At 70 % of the peak no 37.5 % of its FLOPs can be padding: the shapes are not what the MXU works on.
    refuted = diagnose(profile(matmul("fusion.1", 1.0, 0.7, hlo=line)), DATA_MODEL)
    assert "unaligned_shapes" not in rules(refuted)


def _model(seq_len: int) -> ExperimentConfig:
    shape = ModelShape(layers=32, d_model=4096, d_ff=14336, heads=32, kv_heads=8, head_dim=128, vocab=128256)
    return ExperimentConfig(
        Hardware("v5e", (8,)), Mesh((("seq", 8),)), shape, Training(global_batch=8, seq_len=seq_len)
    )


def test_attention_dominates_a_long_sequence() -> None:
    kernel = op("flash_attention.1", "custom-call", 0.6, bound_by="Compute", roofline_efficiency=0.5, flops=1e12,
                op_name="jit(s)/jvp(l)/attention/pallas_call")  # fmt: skip
    long = diagnose(profile(kernel, matmul("fusion.1", 0.4)), _model(131072))
    assert "inherent to the sequence length" in find(long, "attention_dominates").insight
    short = diagnose(profile(kernel, matmul("fusion.1", 0.4)), _model(2048))
    assert "the kernel is slow" in find(short, "attention_dominates").insight
    assert "already fused" in find(short, "attention_dominates").action
    plain = matmul("fusion.3", 0.6, op_name="jit(s)/jvp(l)/attention/dot_general")
    spread = diagnose(profile(plain, matmul("fusion.1", 0.4)), _model(2048))
    assert "Use a fused attention kernel" in find(spread, "attention_dominates").action


def test_recompute_beyond_need() -> None:
    again = matmul(
        "fusion.2", 0.25, op_name="jit(step)/transpose(jvp(l))/checkpoint/rematted_computation/mlp/dot_general"
    )
    roomy = diagnose(profile(matmul("fusion.1", 0.75), again, memory=Memory(6e9, 16e9)), DATA_MODEL)
    assert find(roomy, "recompute").saving_share == pytest.approx(0.25)
    tight = diagnose(profile(matmul("fusion.1", 0.75), again, memory=Memory(15e9, 16e9)), DATA_MODEL)
    assert "recompute" not in rules(tight)


def test_straggler_is_named() -> None:
    cores = [Core(f"TPU:{i}", "host-a", {"compute": 0.7, "collective": 0.3}) for i in range(7)]
    slow = Core("TPU:7", "host-b", {"compute": 0.95, "collective": 0.05})
    wait = collective("all-reduce", 0.25, OVER_DATA)
    found = find(diagnose(profile(matmul("fusion.1", 0.75), wait, cores=[*cores, slow]), DATA_MODEL), "stragglers")
    assert found.saving_s == pytest.approx(0.25)
    assert "TPU:7" in found.insight and "host-b" in found.insight
    even = diagnose(profile(matmul("fusion.1", 0.75), wait, cores=cores), DATA_MODEL)
    assert "stragglers" not in rules(even)


def test_input_bound() -> None:
    diagnosis = diagnose(profile(matmul("fusion.1", 0.7), kpis={"duty_cycle": 0.7, "input": 0.3}), DATA_MODEL)
    assert diagnosis.bottleneck.primary == "input"
    assert find(diagnosis, "input_pipeline").saving_share == pytest.approx(0.3)
    assert diagnosis.breakdown_share["input"] == pytest.approx(0.3)
    assert diagnosis.breakdown_share.get("idle", 0.0) == pytest.approx(0.0)


def test_infeed_as_an_op_on_the_device() -> None:
    infeed = op("infeed.1", "infeed", 0.3)
    diagnosis = diagnose(profile(matmul("fusion.1", 0.7), infeed, kpis={"duty_cycle": 1.0, "input": 0.3}), DATA_MODEL)
    assert diagnosis.bottleneck.primary == "input"
    assert find(diagnosis, "infeed_outfeed").saving_share == pytest.approx(0.3)
    assert diagnosis.breakdown_share["input"] == pytest.approx(0.3)
    assert diagnosis.breakdown_share["compute"] == pytest.approx(0.7)


def test_host_bound() -> None:
    parts = {"compute": 0.6, "host": 0.15, "launch": 0.25, "idle": 0.0}
    diagnosis = diagnose(profile(matmul("fusion.1", 0.6), kpis={"duty_cycle": 0.6}, parts=parts), DATA_MODEL)
    assert diagnosis.bottleneck.primary == "host"
    assert find(diagnosis, "host_gaps").saving_share == pytest.approx(0.4)


def test_idle_bound() -> None:
    diagnosis = diagnose(profile(matmul("fusion.1", 0.6), kpis={"duty_cycle": 0.6}), DATA_MODEL)
    assert diagnosis.bottleneck.primary == "idle"
    assert find(diagnosis, "idle_gaps").saving_share == pytest.approx(0.4)
    assert "unknown" in find(diagnosis, "idle_gaps").insight


def test_goodput_needs_input_or_host_time() -> None:
    """1 − idle alone would be the duty cycle under another name."""
    bare = diagnose(profile(matmul("fusion.1", 0.6), kpis={"duty_cycle": 0.6}), DATA_MODEL)
    assert bare.kpis["goodput"] is None and "goodput" in bare.not_measured
    told = {"duty_cycle": 0.6, "input": 0.1, "host": 0.0}
    split = diagnose(profile(matmul("fusion.1", 0.6), kpis=told), DATA_MODEL)
    assert split.kpis["goodput"] == pytest.approx(0.6)
    assert "neither input nor host time explains it" in find(split, "idle_gaps").insight


def test_uneven_steps() -> None:
    diagnosis = diagnose(
        profile(matmul("fusion.1", 1.0), step_time_stdev_s=0.2, step_time_min_s=0.8, step_time_max_s=1.4), DATA_MODEL
    )
    assert find(diagnosis, "uneven_steps").saving_share == pytest.approx(0.2)


def test_nothing_much_to_gain() -> None:
    diagnosis = diagnose(profile(matmul("fusion.1", 0.95, 0.8), stream("fusion.2", 0.05)), DATA_MODEL)
    assert "little_to_gain" in rules(diagnosis)
    assert diagnosis.bottleneck.primary == "compute"
    busy = diagnose(profile(matmul("fusion.1", 0.75, 0.8), collective("all-reduce", 0.25, OVER_MODEL)), DATA_MODEL)
    assert "little_to_gain" not in rules(busy)


def test_findings_are_ranked_by_what_they_save() -> None:
    ops = (matmul("fusion.1", 0.4, 0.3), stream("fusion.2", 0.2), collective("all-reduce", 0.4, OVER_MODEL))
    shares = [
        finding.saving_share
        for finding in diagnose(profile(*ops), DATA_MODEL).findings
        if finding.saving_share is not None
    ]
    assert shares == sorted(shares, reverse=True)
    assert all(0 <= share < 1 for share in shares)


def test_host_transfers_are_no_idle_time() -> None:
    """Copies of 8 GB to host memory and back, waited for 60 % of a step: 13.3 GB/s one way of the 15 GB/s of v5e."""
    text = "%copy-done.{0} = f32[1000,1000,1000]{{2,1,0{1}}} copy-done((f32[1000,1000,1000], f32[1000,1000,1000]) %c)"
    moved = 8e9 * 8 * 2  # both steps, eight cores
    away = op("copy-done.1", "copy-done", 0.3, count=2, hlo=text.format(1, ":S(5)"), host_bytes=moved)
    back = op("copy-done.2", "copy-done", 0.3, count=2, hlo=text.format(2, ""), host_bytes=moved)
    diagnosis = diagnose(profile(matmul("fusion.1", 0.4), away, back), DATA_MODEL)
    assert diagnosis.bottleneck.primary == "host"
    assert diagnosis.breakdown_share["host_transfer"] == pytest.approx(0.6) and "idle" not in diagnosis.breakdown_share
    found = find(diagnosis, "host_offload")
    assert found.saving_share == pytest.approx(0.6) and "data_shuffle" not in rules(diagnosis)
    values = {row.label: row.value for row in found.evidence}
    assert values["host transfers per core, busier direction"] == pytest.approx(8e9 / 0.6)
    assert values["host link per core, one way"] == 15e9
    assert "host link is saturated" in found.action


def test_stacked_gradients_of_scanned_layers() -> None:
    """A dynamic-update-slice per layer is neither the optimizer's update nor a change of layout."""
    path = "jit(train_step)/transpose(jvp(Transformer))/decoder/while/body/dynamic_update_slice"
    write = stream("dynamic-update-slice.33", 0.15, 0.03, "dynamic-update-slice", op_name=path)
    diagnosis = diagnose(profile(matmul("fusion.1", 0.85), write), DATA_MODEL)
    found = find(diagnosis, "stacked_layers")
    assert found.saving_share == pytest.approx(0.15) and "gradients in the backward pass" in found.insight
    assert "3.00 % of peak HBM bandwidth" in found.insight
    assert not {"optimizer_update", "data_shuffle"} & rules(diagnosis)
