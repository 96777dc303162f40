"""What the performance model describes is priced; what it does not is diagnosed, and the reason is given."""

from __future__ import annotations

from dataclasses import replace

import pytest

from diagnosis.analyzer import diagnose
from experiments.step_profile import Op, StepProfile
from perfmodel.catalogue import get_model
from perfmodel.config import ConfigError, ExperimentConfig, Hardware, Mesh, Training
from proposals.candidate import Candidate
from proposals.proposer import Pricer, propose
from tests.proposer.test_propose import MATMUL, NORM, op, profile_of

UNKNOWN = ExperimentConfig(Hardware("h100", (8, 1)), Mesh((("data", 8),)), None, Training())
LLAMA = replace(UNKNOWN, model=get_model("llama3.1-8b"), training=Training(global_batch=8, seq_len=2048))


def kineto(*ops: Op, step_s: float = 0.7) -> StepProfile:
    ran = replace(profile_of(*ops, step_s=step_s), source_kind="kineto")
    return replace(ran, device=replace(ran.device, kind="NVIDIA H100", chip="h100"))


def named(name: str, category: str, time_s: float, path: str) -> Op:
    return op(name, category, time_s, op_name=path)


BACKWARD = named("aten::mm: sgemm", "gemm", 0.05, "backward/Linear/aten::mm")
CONVOLUTION = named("aten::cudnn_convolution: implicit_gemm", "gemm", 0.4, "forward/aten::cudnn_convolution")
JAX_CONVOLUTION = named("custom-call.1", "custom-call", 0.4, "jit(f)/jvp(ResNet)/conv_general_dilated")
LOOKUP = named("split_embedding_lookup", "embedding gather", 0.3, "forward/EmbeddingBag/embedding_lookup")
ATTENTION = named("flash_fwd_kernel", "attention", 0.3, "forward/Attention/flash")
CACHE = named("reshape_and_cache_flash_kernel", "gather or scatter", 0.05, "execute/generation")


@pytest.mark.parametrize(
    ("ops", "config", "reason"),
    [
        ((CONVOLUTION, BACKWARD), UNKNOWN, "convolutional"),
        ((CONVOLUTION, BACKWARD), LLAMA, "convolutional"),
        ((JAX_CONVOLUTION, BACKWARD), LLAMA, "convolutional"),
        ((LOOKUP, BACKWARD), UNKNOWN, "recommender"),
        ((replace(MATMUL, op_name="aten::mm"), replace(NORM, op_name="aten::add")), UNKNOWN, "inference"),
        ((replace(MATMUL, op_name="aten::mm"), CACHE), LLAMA, "inference"),
    ],
)
def test_other_programs_get_a_diagnosis_and_no_meshes(
    ops: tuple[Op, ...], config: ExperimentConfig, reason: str
) -> None:
    ran = kineto(*ops)
    found = diagnose(ran, config)
    assert reason in found.not_modelled
    assert found.kpis["step_time_s"] == pytest.approx(0.7) and found.ops
    plan = propose(ran, config, found)
    assert plan.proposals == () and plan.not_modelled == found.not_modelled
    assert plan.baseline.step_time_s is not None and plan.baseline.step_time_s.estimate == pytest.approx(0.7)
    assert plan.to_json(found)["not_modelled"] == found.not_modelled
    with pytest.raises(ConfigError, match="performance model"):
        Pricer(ran, config, found).evaluate(Candidate(config.mesh.to_json()))


def test_a_step_shorter_than_the_model_needs_at_peak_is_of_another_model() -> None:
    """6 × 8.0e9 parameters × 8 × 2,048 tokens over 8 × 989 TFLOP/s is 0.1 s; attention adds to it."""
    ops = (BACKWARD, replace(MATMUL, op_name="forward/Linear/aten::mm"))
    assert "peak" in diagnose(kineto(*ops, step_s=0.09), LLAMA).not_modelled
    assert diagnose(kineto(*ops, step_s=0.2), LLAMA).not_modelled == ""


@pytest.mark.parametrize(
    "ops",
    [
        (BACKWARD, ATTENTION, named("conv1d", "gemm", 0.02, "forward/PatchEmbed/aten::conv2d")),
        (BACKWARD, ATTENTION, named("embedding", "embedding gather", 0.01, "forward/Embedding/aten::embedding")),
        (MATMUL, NORM),  # ops without a framework's names leave it open
        (named("fusion.7", "convolution fusion", 0.4, "jit(step)/transpose(jvp(Llama))/mlp/dot_general"), NORM),
    ],
)
def test_transformers_and_unnamed_programs_are_modelled(ops: tuple[Op, ...]) -> None:
    assert diagnose(kineto(*ops), UNKNOWN).not_modelled == ""
