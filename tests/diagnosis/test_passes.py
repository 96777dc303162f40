"""The pass an op belongs to, and what follows from it: recompute is a repeated forward pass, nothing else."""

from __future__ import annotations

import pytest

from diagnosis.analyzer import diagnose
from experiments.consistency import facts_of
from experiments.passes import pass_of
from experiments.step_profile import Memory
from tests.diagnosis.build import config, find, matmul, op, profile

_AGAIN = "jit(step)/transpose(jvp(Model))/while/body/checkpoint/rematted_computation/layers/attention"
_ROOMY = Memory(6e9, 16e9)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("jit(step)/jvp(Model)/layers/mlp/dot_general", "forward"),
        ("jit(step)/transpose(jvp(Model))/layers/mlp/dot_general", "backward"),
        (f"{_AGAIN}/query/dot_general", "recompute"),
        # Backward rules of a custom_vjp, traced where its forward rule is recomputed.
        (f"{_AGAIN}/vmap(splash_mha_dkv_segmented_block_kv=512_block_q_dkv=512)/pallas_call", "backward"),
        (f"{_AGAIN}/splash_mqa_dq_no_residuals_block_q=512/pallas_call", "backward"),
        (f"{_AGAIN}/flash_mha_bwd_dkv/pallas_call", "backward"),
        # The block sizes of all three kernels are part of each one's name.
        (f"{_AGAIN}/splash_mha_fwd_residuals_block_kv_dkv=512_block_q_dq=512_use_fused_bwd_kernel=False", "recompute"),
        ("backward/Block/aten::mm", "backward"),
        ("recompute/Block/aten::mm", "recompute"),
        ("Block/aten::mm", ""),
    ],
)
def test_a_framework_path_names_the_pass(path: str, expected: str) -> None:
    assert pass_of(path) == expected


def test_backward_kernels_in_the_scope_of_recompute_are_no_recompute() -> None:
    again = matmul("fusion.2", 0.15, op_name=f"{_AGAIN}/query/dot_general")
    backward = op("splash_mha_dkv", "custom-call", 0.2, op_name=f"{_AGAIN}/splash_mha_dkv_block_kv=512/pallas_call")
    found = diagnose(profile(matmul("fusion.1", 0.65), again, backward, memory=_ROOMY), config({"data": 4}))
    assert find(found, "recompute").saving_share == pytest.approx(0.15)


@pytest.mark.parametrize(("share", "policy"), [(0.3, "full"), (0.1, "minimal")])
def test_a_pytorch_trace_says_that_it_recomputes(share: float, policy: str) -> None:
    """Without shapes of matmuls, recompute that takes as long as most of the forward pass repeats most of it."""
    said = facts_of(profile(
        op("conv.1", "convolution", 0.3, op_name="forward/Net/CheckpointWrapper/Conv2d/aten::convolution"),
        op("conv.2", "convolution", share, op_name="recompute/Net/CheckpointWrapper/Conv2d/aten::convolution"),
        op("conv.3", "convolution", 0.6 - share, op_name="backward/Net/CheckpointWrapper/Conv2d/aten::convolution"),
    ))  # fmt: skip
    assert said.value("remat") == policy and said.known["remat"].sure == "likely"


@pytest.mark.parametrize("trains", [False, True])
def test_a_program_without_a_backward_pass_has_no_gradients(trains: bool) -> None:
    """Inference: the all-reduce after a row-parallel layer adds activations, whatever the axis is called."""
    path = "{}Model/Block/Attention/RowParallelLinear/all_reduce"
    ops = (
        op("mm.1", "gemm", 0.6, op_name=path.format("forward/" if trains else "")),
        op("all-reduce.1", "all-reduce", 0.4, op_name=path.format("backward/" if trains else ""),
           groups=(tuple(range(8)),), payload_bytes=1e8),
    )  # fmt: skip
    found = diagnose(profile(*ops), config({"data": 8}))
    assert next(item.tensor for item in found.ops if item.collective) == ("gradients" if trains else "activations")
    assert ("gradient_reduction" in {item.rule for item in found.findings}) == trains
