"""Memory per chip against measurements, limits and hand-derived cases."""

from dataclasses import replace

import numpy as np
import pytest

from evaluation.memory_rows import of_first_stage
from evaluation.published import load_published
from evaluation.sweeps import load_sweeps
from perfmodel import accounting
from perfmodel.catalogue import get_model
from perfmodel.config_file import parse_config
from perfmodel.legality import MemoryPosterior, check
from perfmodel.memory import per_chip
from perfmodel.prediction import predict
from perfmodel.search import search
from perfmodel.space import SearchBounds
from perfmodel.workload import from_config, stack
from tests.perfmodel.cases import LLAMA3_8B, a100, tpu

#: OptiCo (arXiv), Figure 5: expert tuning of Llama3-8B on eight A100 80 GB, fp16, sequence 8192.
#: (tensor, stages, global batch, micro-batch, TFLOP/s per GPU, highest memory in MiB); None where it ran out of memory.
OPTICO = [
    (1, 1, 512, 1, None, None),
    (1, 2, 512, 1, 210.86, 77291.52),
    (1, 4, 512, 1, 187.81, 73717.76),
    (1, 8, 512, 1, None, None),
    (2, 1, 512, 1, 209.13, 57026.56),
    (2, 2, 512, 1, 198.04, 54865.92),
    (2, 4, 512, 1, 177.71, 44533.76),
    (4, 1, 512, 1, 186.98, 39526.4),
    (4, 2, 512, 1, 182.6, 36894.72),
    (8, 1, 512, 1, 152.44, 29962.24),
    (2, 1, 256, 1, 198.15, 66191.36),
    (2, 1, 1024, 1, 208.5, 57128.96),
    (1, 1, 512, 1, None, None),
    (2, 1, 512, 2, None, None),
    (8, 1, 512, 1, 152.44, 29962.24),
    (8, 1, 512, 2, 165.09, 40744.96),
]


def total_mib(row):
    return float(per_chip(from_config(a100(*row[:4]))).total[0]) / 2**20


def test_optico_peaks_within_ten_percent():
    """One of twelve rows is further off, by a little: that of two tensor ranks and four stages."""
    errors = [abs(total_mib(row) / row[5] - 1) for row in OPTICO if row[5]]
    assert np.median(errors) < 0.05
    assert sum(error <= 0.1 for error in errors) >= len(errors) - 1
    assert max(errors) < 0.12


def test_optico_out_of_memory_is_recognised_with_at_most_one_false_alarm():
    fits = {row: predict(a100(*row[:4])).fits for row in OPTICO}
    assert not any(fits[row] for row in OPTICO if row[5] is None)
    assert sum(not fits[row] for row in OPTICO if row[5]) <= 1


def test_states_of_a_replicated_gpu_are_18_bytes_per_parameter():
    """Megatron in fp16: weights 2, gradients 4, master copy and two moments 12; a recipe of today halves the
    gradients."""
    for precision, bytes_each in (("fp16", 18), ("fp8", 16)):
        config = a100(8, 1)
        used = per_chip(from_config(replace(config, training=replace(config.training, precision=precision))))
        states = float((used.params + used.optimizer + used.gradients)[0])
        assert states == pytest.approx(bytes_each * accounting.parameters(LLAMA3_8B).total / 8, rel=1e-3)


def test_fsdp_divides_the_states_by_all_batch_and_sequence_shards():
    whole = per_chip(from_config(tpu({"data": 512}, weight_sharding="none")))
    sharded = per_chip(from_config(tpu({"data": 64, "seq": 8}, weight_sharding="fsdp")))
    for part in ("params", "optimizer", "gradients"):
        assert getattr(whole, part)[0] == pytest.approx(512 * getattr(sharded, part)[0])


def test_zero1_divides_the_optimizer_and_what_xla_reduces_for_it():
    """The gradient of a sharded update is reduce-scattered; the weights stay whole."""
    whole = per_chip(from_config(tpu({"data": 512}, weight_sharding="none")))
    first = per_chip(from_config(tpu({"data": 512}, weight_sharding="zero1")))
    assert first.params[0] == whole.params[0]
    assert first.optimizer[0] == pytest.approx(whole.optimizer[0] / 512)
    assert first.gradients[0] == pytest.approx(whole.gradients[0] / 512)


def test_zero1_gathers_new_weights_beside_the_old_once_the_activations_are_gone():
    small, large = (per_chip(from_config(tpu({"data": 512}, weight_sharding="zero1", batch=b))) for b in (512, 8192))
    assert small.activations[0] == pytest.approx(small.params[0])
    assert large.activations[0] > large.params[0]


def test_a_tensor_axis_leaves_the_inputs_of_the_layer_at_work_whole():
    """The gathered inputs of attention and MLP, and at most two gradients before their reduce-scatter; the rest is
    divided by the axis."""
    one, eight = (per_chip(from_config(tpu({"data": 8, "model": n}, batch=512))).activations[0] for n in (1, 8))
    input_bytes = 512 * 4096 / 8 * LLAMA3_8B.d_model * 2
    assert 2 * 7 / 8 * input_bytes <= eight - one / 8 <= 4 * 7 / 8 * input_bytes


def test_recomputing_more_keeps_less():
    kept = [
        float(per_chip(from_config(tpu(remat=r, batch=4096))).activations[0])
        for r in ("none", "minimal", "full", "offload")
    ]
    assert kept == sorted(kept, reverse=True)
    assert kept[0] > 2 * kept[2]


def test_selective_recomputation_without_sequence_parallelism_keeps_what_is_as_wide_as_the_model_whole():
    """GPT-3 on 8 tensor ranks and 8 stages (Korthikanti et al., 2022, table 2): s·b·h·(8 + 24/t) bytes per layer, and
    dropout masks that nobody uses any more; the first stage holds as many layers as the model has."""
    data = {
        "hardware": {"chip": "a100-80gb", "topology": [8, 8]},
        "mesh": {"ici": {"pipeline": 8, "data": 1, "model": 8}},
        "model": {"name": "gpt3-175b"},
        "training": {
            "global_batch": 64, "seq_len": 2048, "micro_batch": 1, "remat": "minimal", "sequence_parallel": False,
            "weight_sharding": "zero1",
        },
        "software": {"framework": "Megatron-LM"},
    }  # fmt: skip
    kept = per_chip(from_config(parse_config(data)[0])).activations[0]
    assert kept == pytest.approx(2048 * 12288 * (8 + 24 / 8) * 96, rel=0.1)


def test_replica_axis_shards_nothing():
    sharded = per_chip(from_config(tpu({"data": 512})))
    replicated = per_chip(from_config(tpu({"replica": 512})))
    assert replicated.params[0] == pytest.approx(512 * sharded.params[0])
    assert replicated.activations[0] == pytest.approx(sharded.activations[0])


def test_windows_of_the_heads_weight_gradient_hold_the_gradient_of_the_logits_beside_them():
    """1 sequence of 4096 tokens on a chip, 16 bits per logit, over a reduce-scatter of 32 chips; replicas need an
    all-reduce, which has no windows, nor has a group of many chips, nor chips that shard no weights."""
    logits = 4096 * LLAMA3_8B.vocab

    def activations(mesh, topology, sharding="fsdp"):
        chips = np.prod(topology)
        config = tpu(mesh, topology=topology, batch=int(chips), weight_sharding=sharding)
        return per_chip(from_config(config)).activations[0]

    scattered = activations({"data": 32}, (4, 4, 2))
    assert scattered - activations({"replica": 2, "data": 16}, (4, 4, 2)) == pytest.approx(2 * logits)
    assert scattered - activations({"data": 512}, (8, 8, 8)) == pytest.approx(2 * logits)
    assert activations({"data": 32}, (4, 4, 2), "none") < scattered


def test_micro_batches_on_a_tpu_hold_their_gradients_beside_the_sum():
    """4 bytes per parameter each; one micro-batch needs no sum."""
    one = tpu({"data": 512}, batch=2048)
    four = replace(one, training=replace(one.training, grad_accum=4))
    once, summed = (per_chip(from_config(config)).gradients[0] for config in (one, four))
    assert once == pytest.approx(4 * accounting.parameters(LLAMA3_8B).total / 512, rel=1e-3)
    assert summed == pytest.approx(2 * once)


def test_sequence_parallelism_divides_what_is_as_wide_as_the_model():
    config = a100(8, 1)
    whole = per_chip(from_config(config)).activations[0]
    split = per_chip(from_config(replace(config, training=replace(config.training, sequence_parallel=True))))
    tokens, layers, norms = 8192, LLAMA3_8B.layers, 4
    expected = tokens * layers * norms * LLAMA3_8B.d_model * 2 * (1 - 1 / 8)
    assert whole - split.activations[0] == pytest.approx(expected)


def test_a_loss_on_whole_logits_takes_16_bytes_each_on_every_tensor_rank():
    """8192 tokens, vocabulary 128,256: the logits are all that changes, and a tensor axis does not shard them."""
    config = a100(8, 1)
    split, whole = (
        per_chip(from_config(replace(config, training=replace(config.training, loss_parallel=parallel))))
        for parallel in (True, False)
    )
    logits = 8192 * LLAMA3_8B.vocab
    assert whole.activations[0] - split.activations[0] == pytest.approx(logits * (16 - 6 / 8))
    assert whole.params[0] == split.params[0]
    tpus = tpu({"data": 16, "model": 32})
    asked = replace(tpus, training=replace(tpus.training, loss_parallel=False))
    assert per_chip(from_config(asked)).total[0] == per_chip(from_config(tpus)).total[0]


@pytest.mark.slow
def test_few_meshes_of_a_sweep_that_ran_are_refused_and_most_that_failed_are():
    """nanotron on H100, where crashes are not distinguished from running out of memory.  On workloads that the fit has
    not seen: test_memory_fit.py."""
    runs = [run for run in load_sweeps("ultrascale") if run.status != "unclear" and run.consistent]
    refused = [(run.status == "ran", not bool(predict(run.config).fits)) for run in runs]
    assert np.mean([no for ran, no in refused if ran]) < 0.05
    assert np.mean([no for ran, no in refused if not ran]) > 0.7


def test_the_loss_is_formed_before_a_layer_is_recomputed():
    """Logits and the layer at work do not lie in memory together: the larger of both counts."""

    def peak(vocab, width):
        shape = replace(LLAMA3_8B, vocab=vocab, d_ff=width)
        return float(per_chip(from_config(tpu({"data": 512}, shape=shape, batch=512))).activations[0])

    huge = 2_000_000
    # The gathered weights of the layer at work grow with its width; the activations, 4096 tokens of it, must not show.
    gathered = 3 * LLAMA3_8B.d_model * 1024 * 2
    assert peak(huge, 2048) - peak(huge, 1024) == pytest.approx(gathered)
    assert peak(2 * huge, 1024) - peak(huge, 1024) == pytest.approx(4096 * huge * 2)


def h100s(**training):
    """Llama3-70B in FP8 on 64 H100: far too large for a chip that keeps every activation."""
    data = {
        "hardware": {"chip": "h100", "topology": [8, 8]},
        "mesh": {"ici": {"fsdp": 64}},
        "model": "llama3-70b",
        "training": {"global_batch": 128, "seq_len": 8192, "precision": "fp8", "micro_batch": 2} | training,
    }
    return parse_config(data)[0]


def test_a_gpu_run_that_says_nothing_of_recomputation_recomputes_what_it_must():
    found = predict(h100s())
    used = found.hbm_per_chip_bytes
    assert found.fits is True
    assert used["total"] <= used["capacity"]
    assert any("training.remat" in warning for warning in found.warnings)
    assert not any(violation.rule == "memory" for violation in found.violations)
    stated = predict(h100s(remat="none"))
    assert stated.fits is False
    assert not any("remat" in warning for warning in stated.warnings)
    assert stated.step_time_s["estimate"] < found.step_time_s["estimate"]  # what memory is spared costs time


def test_recomputing_everything_is_not_always_enough():
    """More tokens per micro-batch than even the inputs of the layers leave room for."""
    assert predict(h100s(global_batch=8192, micro_batch=128)).fits is False


def test_a_search_says_of_an_unstated_policy_what_a_prediction_says():
    found = search(h100s(), top=200)
    assert found.candidates
    for candidate in found.candidates:
        assert candidate.prediction.fits is True
    stated = search(h100s(), top=200, constraints=SearchBounds(changes=({"remat": "none"},)))
    assert len(stated.candidates) < len(found.candidates)


def test_overridden_capacity_decides():
    small = tpu(overrides={"hbm_bytes": 1e9})
    assert predict(small).fits is False
    assert any(v.rule == "memory" for v in predict(small).violations)
    assert predict(tpu(batch=64)).fits is True


LLAMA_1B = {"layers": 16, "d_model": 2048, "d_ff": 8192, "heads": 32, "kv_heads": 32, "head_dim": 64, "vocab": 131072}


def nanotron(mesh, micro=1, batch=256, zero="none", framework="nanotron", model=None, **training):
    """Llama-like 1B with tied embeddings on H100, as in the sweep."""
    gpus = int(np.prod(list(mesh.values())))
    data = {
        "hardware": {"chip": "h100", "topology": [min(8, gpus), max(1, gpus // 8)]},
        "mesh": {"ici": mesh},
        "model": model or LLAMA_1B | {"tied_embeddings": True},
        "training": {
            "global_batch": batch,
            "seq_len": 4096,
            "weight_sharding": zero,
            "micro_batch": micro,
            "remat": "none",
        }
        | training,
        "software": {"framework": framework},
    }
    return parse_config(data)[0]


def used(*args, **kwargs):
    return per_chip(from_config(nanotron(*args, **kwargs)))


#: Layers of 1B by parameters, norms left out; its head is worth four.
LAYER = 4 * 2048**2 + 3 * 2048 * 8192
VOCABULARY = 131072 * 2048


def test_nanotron_sums_gradients_in_float32_and_buckets_them_only_with_replicas_at_zero_0():
    """Weights 2, sum 4, master and moments 12 bytes per parameter; DistributedDataParallel's buckets 2 more."""
    count = 16 * LAYER + VOCABULARY
    for replicas, zero, each in ((1, "none", 4), (8, "none", 6), (8, "zero1", 4)):
        found = used({"data": replicas}, zero=zero)
        assert found.gradients[0] / count == pytest.approx(each, rel=1e-3)
        assert found.params[0] / count == pytest.approx(2, rel=1e-3)


def test_sharing_out_by_cost_gives_the_first_stage_more_layers():
    """16 layers and a head worth 4: two stages take 10 layers and 6 with the head, four take 5, 5, 5 and 1."""
    for stages, layers in ((2, 10), (4, 5), (8, 3)):
        found = of_first_stage(from_config(nanotron({"pipeline": stages})))
        assert found.params[0] / 2 == pytest.approx(layers * LAYER + VOCABULARY, rel=1e-3)


def test_a_pipeline_keeps_as_many_micro_batches_as_stages_but_no_more_than_there_are():
    def growth(stages, micro_batches):
        one, two = (
            of_first_stage(from_config(nanotron({"pipeline": stages}, micro=m, batch=m * micro_batches)))
            for m in (1, 2)
        )
        return float((two.activations - one.activations)[0])

    assert growth(4, 64) == pytest.approx(4 * growth(4, 1), rel=0.2)
    assert growth(4, 64) == growth(4, 4)


def test_the_head_makes_the_last_stage_the_fullest_where_the_first_holds_little():
    """One micro-batch: both stages hold it, and the logits of 131,072 words lie in the last."""
    work = from_config(nanotron({"pipeline": 2}, micro=16, batch=16))
    assert per_chip(work).total[0] > 1.1 * of_first_stage(work).total[0]


def test_a_tensor_axis_holds_outputs_that_the_allocator_gives_back():
    small = used({"model": 8}, micro=1)
    assert small.held[0] > 0
    assert small.wanted[0] == pytest.approx(small.total[0])
    assert small.pressure[0] < 1 and small.fits[0]
    assert used({"data": 8}).held[0] == 0
    full = used({"model": 8}, micro=32)
    assert full.fits[0]
    assert full.pressure[0] > 1
    assert full.needed[0] < full.total[0]


def test_a_program_without_these_terms_needs_less():
    eager = used({"model": 8}, micro=4).total[0]
    assert used({"model": 8}, micro=4, framework="Megatron-Bridge").total[0] < eager


def test_megatron_lm_in_bf16_sums_gradients_in_float32_and_megatron_bridge_does_not():
    own, recipe = (used({"model": 8}, framework=name) for name in ("Megatron-LM", "Megatron-Bridge"))
    assert own.gradients[0] == pytest.approx(2 * recipe.gradients[0])
    assert own.params[0] == recipe.params[0]


def test_unfused_attention_keeps_scores_that_grow_with_the_square_of_the_sequence():
    def scores(length):
        found = [
            used({"data": 8}, framework=name, batch=8, seq_len=length, model=LLAMA_1B).activations[0]
            for name in ("megatron-deepspeed", "megatron-lm")
        ]
        return found[0] - found[1]

    # They differ in bytes per token, too, which twice the half takes out.
    growth = scores(16384) - 2 * scores(8192)
    assert growth == pytest.approx(16 * 32 * 5 * (16384**2 - 2 * 8192**2), rel=0.05)


def test_megatron_lm_before_flash_attention_keeps_what_its_authors_counted():
    """arXiv 2205.05198, 4.1: s b h (10 + 24/t + 5 a s / (h t)) bytes per layer, here less 2 for masks of dropout; with
    32 GB of scores the 22B model does not fit where nothing is recomputed, as the paper says."""
    config = next(run.config for run in load_published().runs if run.id == "b395")
    config = replace(config, training=replace(config.training, remat="none"))
    s, b, h, t, a, layers = 2048, 4, 6144, 8, 64, 48
    kept = layers * s * b * h * (8 + 24 / t + 5 * a * s / (h * t))
    found = per_chip(from_config(config))
    assert found.activations[0] - found.runtime[0] == pytest.approx(kept, rel=0.05)
    assert not found.fits[0]
    fused = replace(config, extra={**config.extra, "software_year": 2024.0})
    scores = found.activations[0] - per_chip(from_config(fused)).activations[0]
    assert scores == pytest.approx(5 * layers * a / t * s * s * b)


def test_probability_of_fitting_falls_as_micro_batches_grow():
    chances = [float(MemoryPosterior().probability_fits(used({"data": 8}, micro=m))[0]) for m in (1, 2, 3, 4, 8)]
    assert chances == sorted(chances, reverse=True)
    assert chances[0] > 0.99
    assert chances[-1] < 0.05


def test_recomputation_that_memory_assumes_is_charged_in_time():
    """Nobody said what is recomputed, and all activations do not fit: what is spared is recomputed, for its time."""
    open_, none, full = h100s(), h100s(remat="none"), h100s(remat="full")
    found = per_chip(from_config(open_))
    assert found.spared[0] > 0 and 0 < found.recomputed[0] <= 1
    steps = [predict(each).step_time_s["estimate"] for each in (none, open_, full)]
    assert steps[0] < steps[1] <= steps[2] * 1.001
    assert MemoryPosterior().probability_fits(per_chip(from_config(none)))[0] < 0.05


@pytest.mark.parametrize(
    ("mesh", "micro", "says"),
    [({"pipeline": 8}, 64, "needs 7 micro-batches or more; there are 4"), ({"pipeline": 16}, 1, "three of 16 stages")],
)
def test_pipelines_that_nanotron_cannot_run_break_the_rule_schedule(mesh, micro, says):
    (broken,) = (v for v in check(nanotron(mesh, micro)) if v.rule == "schedule")
    assert says in broken.message
    assert not [v for v in check(nanotron(mesh, micro, framework="Megatron-LM")) if v.rule == "schedule"]


def test_arrays_agree_with_single_candidates():
    """First and last stage, profiles and shardings side by side in one array."""
    configs = [
        nanotron({"pipeline": 2, "data": 4}, micro=4),
        nanotron({"model": 8}, micro=8, zero="zero1"),
        nanotron({"data": 2, "model": 4}, zero="zero1", framework="Megatron-LM"),
    ]
    together = per_chip(stack([from_config(config) for config in configs]))
    for i, config in enumerate(configs):
        assert together.total[i] == pytest.approx(per_chip(from_config(config)).total[0])


def test_maxtext_has_room_for_all_tokens_of_a_group_at_one_shard_of_experts():
    """Llama 4 Scout, one expert of sixteen a token: with sixteen expert shards a chip has room for sixteen times its
    tokens, so fifteen times more inputs and outputs of experts (5,120 wide) and branches (8,192), in 16 bits."""
    shape = get_model("llama4-scout")
    config = tpu({"fsdp": 32, "expert": 16}, shape=shape, batch=512, seq=8192, remat="none")
    used = [
        per_chip(from_config(replace(config, extra={"software_framework": name}))).activations.item()
        for name in ("JAX", "MaxText")
    ]
    tokens, layers = 8192, 48
    assert used[1] - used[0] == pytest.approx(15 * tokens * layers * 2 * (2 * 5120 + 2 * 8192), rel=1e-6)
