"""Parameters and FLOPs against the published sizes of known models and hand-derived cases."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel import accounting
from perfmodel.catalogue import get_model
from perfmodel.config import ModelShape
from tests.perfmodel.cases import LLAMA3_8B, LLAMA3_70B, MIXTRAL


@pytest.mark.parametrize(
    ("shape", "total", "active"),
    [
        (LLAMA3_8B, 8.03e9, 7.5e9),
        (LLAMA3_70B, 70.6e9, 69.5e9),
        (MIXTRAL, 46.7e9, 12.9e9),
        (get_model("deepseek-v3"), 671e9, 37e9),
        (get_model("deepseek-v2-lite"), 15.7e9, 2.4e9),
        (get_model("qwen3-235b-a22b"), 235e9, 22e9),
        (get_model("gpt-oss-120b"), 117e9, 5.1e9),
    ],
)
def test_published_sizes(shape, total, active):
    count = accounting.parameters(shape)
    assert count.total == pytest.approx(total, rel=0.02)
    # What "active" counts of the vocabulary differs between publishers.
    assert count.active == pytest.approx(active, rel=0.1)


def test_latent_attention_by_hand():
    shape = ModelShape(
        1, 7168, 18432, 128, 128, 0, 129280, attention="mla",
        q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128,
    )  # fmt: skip
    queries = 7168 * 1536 + 1536 * 128 * 192
    keys = 7168 * (512 + 64) + 512 * 128 * (128 + 128)
    assert accounting.attention_parameters(shape) == queries + keys + 128 * 128 * 7168


def test_dense_layers_come_first_and_mixtures_every_other():
    shape = ModelShape(10, 8, 32, 1, 1, 8, 16, experts=4, experts_per_token=1, first_dense_layers=2, moe_layer_step=2)
    assert accounting.moe_layers(shape) == 4
    assert accounting.parameters(shape).dense_layers == 6


def test_window_of_the_whole_sequence_is_no_window():
    plain = accounting.layer_contexts(LLAMA3_8B, 4096)
    windowed = ModelShape(32, 4096, 14_336, 32, 8, 128, 128_256, sliding_window=4096, sliding_window_every=2)
    assert accounting.layer_contexts(windowed, 4096) == plain
    assert accounting.layer_contexts(windowed, 65_536) < 0.6 * accounting.layer_contexts(LLAMA3_8B, 65_536)


def test_mean_context_by_counting():
    """A query at position i sees min(i + 1, window) keys."""
    length, window = 4096, 512
    counted = sum(min(i + 1, window) for i in range(length)) / length
    assert accounting.mean_context(length, window=window) == pytest.approx(counted, rel=2e-3)
    assert accounting.mean_context(length) == pytest.approx(sum(range(1, length + 1)) / length, rel=1e-3)


@given(st.integers(1, 10), st.integers(6, 12).map(lambda p: 2**p))
def test_flops_are_six_per_parameter_and_token_without_attention(layers, width):
    shape = ModelShape(layers, width, 4 * width, width // 64, width // 64, 64, 1000, tied_embeddings=True)
    flops = accounting.forward_flops(shape, 1024)
    norms = layers * 2 * width + width
    assert 3 * flops.matmul == pytest.approx(6 * (accounting.parameters(shape).total - norms))
