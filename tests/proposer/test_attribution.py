"""What a matmul waits for, by its own sizes: the weights it streams, or activations that a narrow shard reads again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from diagnosis.analyzer import diagnose
from evaluation.proposing.experiments import case
from perfmodel.config import ExperimentConfig, Hardware, Mesh, Training
from proposals.proposer.observed import observe, waits_for_weights

#: 4 sequences of 1,024 tokens on each of 4 batch shards: 4,096 rows.
RUN = ExperimentConfig(
    Hardware("v5p", (4, 4, 4)), Mesh((("data", 4), ("model", 16))), training=Training(global_batch=16, seq_len=1024)
)


def line(m: int, k: int, n: int) -> str:
    return f"%f = bf16[{m},{n}]{{1,0}} fusion(bf16[{m},{k}]{{1,0}} %x, bf16[{k},{n}]{{1,0}} %w), kind=kOutput"


@pytest.mark.parametrize(
    ("sizes", "waits"),
    [
        ((4096, 4096, 64), False),  # a shard 64 wide: 34 MB of activations against 0.5 MB of weights
        ((4096, 8192, 128), False),
        ((4096, 64, 8192), False),  # the product back to the full width
        ((8192, 2048, 64), True),  # no size is the tokens of the run: the profile is believed
    ],
)
def test_a_narrow_shard_waits_for_activations(sizes: tuple[int, int, int], waits: bool) -> None:
    assert waits_for_weights(line(*sizes), RUN) == waits


@pytest.mark.parametrize("cores", [1, 2])
def test_executed_flops_are_those_of_a_chip_where_the_peak_is_that_of_a_core(cores: int) -> None:
    profile, config = case(2)
    device = replace(profile.device, peak_flops_per_s=918e12 / cores)
    seen = observe(replace(profile, device=device), config, diagnose(profile, config))
    utilization = diagnose(profile, config).kpis["flops_utilization"]
    assert utilization and seen.flops == pytest.approx(utilization * 918e12 * profile.step_time_s)


def test_few_tokens_wait_for_weights() -> None:
    few = ExperimentConfig(RUN.hardware, RUN.mesh, training=Training(global_batch=4, seq_len=32))
    assert waits_for_weights(line(32, 8192, 28672), few)
    assert waits_for_weights(line(8192, 32, 28672), few)  # the gradient of the same weights


def test_without_shapes_or_tokens_the_profile_is_believed() -> None:
    unknown = ExperimentConfig(RUN.hardware, RUN.mesh, training=Training())
    assert waits_for_weights("", RUN)
    assert waits_for_weights(line(4096, 4096, 64), unknown)
