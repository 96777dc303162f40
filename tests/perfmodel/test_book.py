"""The worked problems of "How to Scale Your Model", chapters 1 to 6, against the solutions of its chapter 12.

Inputs and answers are the book's; the tolerance is its own rounding.
"""

import numpy as np
import pytest

from perfmodel import accounting, memory, roofline, topology
from perfmodel.catalogue import get_model
from perfmodel.chips import get_chip
from perfmodel.config import ExperimentConfig, Hardware, Mesh, ModelShape, Training
from perfmodel.topology import group_links, lay_out, network_links
from perfmodel.workload import from_config

LLAMA2_13B = ModelShape(40, 5120, 13824, 40, 40, 128, 32_000)
LLAMA3_70B = ModelShape(80, 8192, 28_672, 64, 8, 128, 128_256)
V5P_FLOPS, V5P_ICI = 4.59e14, 1.8e11


def links_of(chip_name, topology, axes, members):
    chip = get_chip(chip_name)
    layout = lay_out(np.array([axes]), topology)
    return group_links(chip, layout, members, chip.wraps(topology))


# Chapter 1


@pytest.mark.parametrize(("chip", "rows"), [("v5e", 240), ("h100", 298)])
def test_1_1_rows_from_which_a_product_is_bound_by_compute(chip, rows):
    assert roofline.hbm_tokens(get_chip(chip)) == pytest.approx(rows, rel=0.03)


# Chapter 2


def test_exercise_2_2_pods():
    v5e, v5p = get_chip("v5e"), get_chip("v5p")
    assert np.prod(v5e.pod) / v5e.chips_per_host == 32
    assert np.prod(v5e.pod) * v5e.peak("bf16") == pytest.approx(5.1e16, rel=0.02)
    assert np.prod(v5p.pod) == 8960
    assert np.prod(v5p.pod) / v5p.chips_per_host == 2240
    assert np.prod(v5p.pod) * v5p.peak("bf16") == pytest.approx(4e18, rel=0.05)


def test_exercise_2_6_gathering_16_gb_over_two_axes_takes_about_167_ms():
    """The book bounds the ICI copy by 15 GB over two one-way links and says a gather takes roughly as long."""
    links = links_of("v5e", (4, 4), [4, 4], [0, 1])
    assert float(topology.collective_s("all-gather", links, 16e9)[0]) == pytest.approx(0.167, rel=0.25)


# Chapter 3


def test_3_2_quiz_2_gather_on_a_line_of_four():
    """No wraparound on an axis of 4 on v5e: three hops of 8.4 MB one way."""
    links = links_of("v5e", (8, 4), [8, 4], [1])
    assert float(topology.collective_s("all-gather", links, 2 * 2048 * 8192)[0]) == pytest.approx(560e-6, rel=0.01)
    assert float(topology.collective_s("all-gather", links, 2 * 256 * 256)[0]) == pytest.approx(3e-6, rel=0.05)


def test_exercise_3_2_gathers_and_all_reduce_on_a_cube():
    array = 2 * 1024 * 4096
    one = links_of("v4", (4, 4, 4), [4, 4, 4], [0])
    two = links_of("v4", (4, 4, 4), [4, 4, 4], [0, 1])
    assert float(topology.collective_s("all-gather", one, array / 4)[0]) == pytest.approx(23e-6, rel=0.02)
    assert float(topology.collective_s("all-gather", two, array)[0]) == pytest.approx(46e-6, rel=0.02)
    assert float(topology.collective_s("all-reduce", one, array / 16)[0]) == pytest.approx(11.6e-6, rel=0.02)


def test_exercise_3_3_tiny_gather_waits_two_hops():
    one = links_of("v4", (4, 4, 4), [4, 4, 4], [0])
    assert float(topology.collective_s("all-gather", one, 256)[0]) == pytest.approx(2e-6)


def test_exercise_3_4_strategies_cross_where_the_book_says():
    """Gathering the weights costs 2DF/W, reducing the result 4BF/W: the latter is cheaper when D > 2B."""
    links = links_of("v5p", (4, 4, 4), [4, 4, 4], [0])
    d, f = 8192, 32_768
    for b in (1024, 4000):
        assert (
            topology.collective_s("all-reduce", links, 2 * b * f)[0]
            < topology.collective_s("all-gather", links, 2 * d * f)[0]
        )
    assert (
        topology.collective_s("all-reduce", links, 2 * 4200 * f)[0]
        > topology.collective_s("all-gather", links, 2 * d * f)[0]
    )


def test_exercise_3_10_all_to_all_is_a_quarter_of_a_gather_on_a_ring():
    links = links_of("v5e", (16, 16), [16, 16], [1])
    array = 1e9
    assert topology.collective_s("all-to-all", links, array / 16)[0] == pytest.approx(
        topology.collective_s("all-gather", links, array)[0] / 4
    )


# Chapter 4


def test_exercise_4_1_16b_parameters_a_quarter_in_attention():
    shape = ModelShape(64, 4096, 4 * 4096, 32, 32, 128, 32_000)
    count = accounting.parameters(shape)
    assert count.total == pytest.approx(16e9, rel=0.1)
    attention = count.layer_attention
    assert attention / (attention + count.layer_dense_mlp) == pytest.approx(1 / 4, rel=0.01)
    assert 2 * shape.layers * shape.kv_heads * shape.head_dim == 512 * 1024


def test_4_3_training_flops_of_a_layer():
    """18 BTDF + 24 BTDNH of products, 12 BT²NH of uncausal attention, 6 BTDV of the head."""
    shape = ModelShape(1, 4096, 16_384, 32, 32, 128, 32_000)
    t = 2048
    d, f, nh = shape.d_model, shape.d_ff, shape.heads * shape.head_dim
    expected = 18 * d * f + 24 * d * nh + 12 * t * nh + 6 * d * shape.vocab
    masked = 3 * accounting.forward_flops(shape, t).attention_scores
    assert accounting.model_flops_per_token(shape, t) + masked == pytest.approx(expected)


def test_exercise_4_5_attention_equals_projections_at_twice_the_width():
    shape = ModelShape(1, 4096, 16_384, 32, 32, 128, 32_000)
    flops = accounting.forward_flops(shape, 2 * shape.d_model)
    assert 2 * flops.attention_scores == pytest.approx(flops.attention_projections)


def test_exercise_4_6_saving_the_seven_products_leaves_the_scores_to_recompute():
    """4 BT²NH: two products of 2 BT²NH each, forward."""
    shape = ModelShape(1, 4096, 16_384, 32, 32, 128, 32_000)
    t = 8192
    flops = accounting.forward_flops(shape, t)
    assert 2 * flops.attention_scores == pytest.approx(4 * t * shape.heads * shape.head_dim)


def test_4_4_2_block_remat_saves_4_2_tb():
    """4M tokens, 64 layers, D = 8192: one checkpoint per layer is 4.2 TB."""
    shape = ModelShape(64, 8192, 32_768, 64, 64, 128, 32_000)
    config = ExperimentConfig(
        Hardware("v5p", (4, 4, 4)), Mesh((("data", 64),)), shape, Training(1024, 4096, remat="full", grad_accum=1)
    )
    used = memory.per_chip(from_config(config))
    saved = float(used.activations[0]) * 64
    assert saved > 1024 * 4096 * 64 * 2 * 8192
    # Beside the checkpoints lies the layer at work and the logits, not another model's worth.
    assert saved < 3 * 1024 * 4096 * 64 * 2 * 8192


def test_exercise_4_7_deepseek_v3_reached_21_7_percent():
    active = accounting.parameters(get_model("deepseek-v3")).active
    assert active == pytest.approx(37e9, rel=0.02)
    assert 6 * active * 14.8e12 / (2.79e6 * 3600 * 1.513e15) == pytest.approx(0.217, rel=0.02)


# Chapter 5


def test_5_1_2_fsdp_gather_and_products_cross_at_the_critical_rows():
    """T_math = 4 B D F / (X C) against T_comm = 4 D F / W, with the model's own links of one full axis."""
    links = links_of("v5p", (16, 20, 28), [16, 560], [0])
    d, f = 8192, 28_672
    gather = float(topology.collective_s("all-gather", links, 2 * 2 * d * f)[0])
    rows = 2550  # tokens per chip below which FSDP waits for one axis
    assert gather == pytest.approx(4 * rows * d * f / V5P_FLOPS, rel=0.01)


def test_5_1_6_a_gather_over_dcn_takes_its_bytes_over_the_network_of_a_chip():
    v5p = get_chip("v5p")
    per_chip = v5p.dcn_bytes_per_s_per_chip
    links = network_links(10_000, per_chip)
    assert float(topology.collective_s("all-gather", links, 1e9)[0]) == pytest.approx(1e9 / per_chip, rel=1e-3)


def test_exercise_5_1_llama2_13b_counts():
    count = accounting.parameters(LLAMA2_13B)
    assert LLAMA2_13B.layers * count.layer_dense_mlp == pytest.approx(8.5e9, rel=0.01)
    assert LLAMA2_13B.layers * count.layer_attention == pytest.approx(4.2e9, rel=0.01)
    assert count.vocabulary == pytest.approx(0.3e9, rel=0.1)
    assert count.total == pytest.approx(13.1e9, rel=0.01)


def test_exercise_5_2_states_130_gb_checkpoints_42_tb():
    count = accounting.parameters(LLAMA2_13B)
    assert (2 + 4 + 4) * count.total == pytest.approx(130e9, rel=0.01)
    # Checkpoints after the three large products: D + 2F per token and layer.
    assert 2 * 40 * 16e6 * (5120 + 2 * LLAMA2_13B.d_ff) == pytest.approx(4.2e13, rel=0.02)


# Chapter 6


def test_6_2_llama3_70b_counts():
    count = accounting.parameters(LLAMA3_70B)
    assert 80 * count.layer_dense_mlp == pytest.approx(56.3e9, rel=0.01)
    assert count.vocabulary == pytest.approx(2.1e9, rel=0.01)
    assert 80 * count.layer_attention == pytest.approx(12e9, rel=0.01)
    assert count.total == pytest.approx(70.4e9, rel=0.005)


def test_6_2_flops_and_44_days():
    per_token = 6 * accounting.parameters(LLAMA3_70B).total
    assert per_token == pytest.approx(4.2e11, rel=0.01)
    assert per_token * 15e12 == pytest.approx(6.3e24, rel=0.01)
    assert per_token * 15e12 / (8960 * V5P_FLOPS * 0.4) / 86_400 == pytest.approx(44, rel=0.02)
    # The exact count leaves out the embedding lookup and adds causal attention: close to six per parameter at 4k.
    assert accounting.model_flops_per_token(LLAMA3_70B, 4096) == pytest.approx(per_token, rel=0.03)


def test_6_2_checkpoints_need_225_chips():
    states = 10 * accounting.parameters(LLAMA3_70B).total
    checkpoints = 2 * 8192 * 4e6 * 4 * 80
    assert checkpoints == pytest.approx(20.9e12, rel=0.01)
    assert (states + checkpoints) / 96e9 == pytest.approx(225, rel=0.01)
