"""What ops of small programs tell of the run: FLOPs, weights and shapes, without more than they say."""

from __future__ import annotations

from dataclasses import replace

from experiments.consistency import facts_of
from experiments.consistency.matmuls import executed_flops, matmuls
from experiments.step_profile import Op, StepProfile
from tests.diagnosis.build import op, profile

_DOT = "%dot.{0} = bf16[4096,1024]{{1,0}} dot(bf16[4096,512]{{1,0}} %a, bf16[512,1024]{{1,0}} %b)"
_WHOLE = 2 * 4096 * 512 * 1024


def _dot(number: int, flops: float | None) -> Op:
    made = op(f"dot.{number}", "convolution", 0.1, op_name="jit(step)/jvp(l)/mlp/wi/dot_general",
              hlo=_DOT.format(number))  # fmt: skip
    return replace(made, flops=None if flops is None else flops * made.occurrences)


def _of(*ops: Op) -> StepProfile:
    return profile(*ops)


def test_parts_of_a_matmul_count_as_parts() -> None:
    """Two ops that do half of a matmul each name its whole arrays; only as the other states its FLOPs in full is a half
    no FLOPs of one core of two."""
    blocks = matmuls(_of(_dot(1, _WHOLE), _dot(2, _WHOLE / 2), _dot(3, _WHOLE / 2)))
    assert sum(executed_flops(blocks)) == 2 * _WHOLE
    per_core = matmuls(_of(_dot(1, _WHOLE / 2), _dot(2, _WHOLE / 2)))
    assert sum(executed_flops(per_core)) == 2 * _WHOLE


def test_flops_of_which_some_are_missing_are_at_least_that() -> None:
    assert "at least" not in facts_of(_of(_dot(1, _WHOLE))).known["flops_per_step"].text
    assert facts_of(_of(_dot(1, _WHOLE), _dot(2, None))).known["flops_per_step"].text.startswith("at least")


def test_shapes_of_a_pytorch_matmul_are_read_from_its_name() -> None:
    found = matmuls(_of(
        op("aten::mm[8944x1024, 1024x2816]: sm90_gemm", "gemm", 0.3, op_name="forward/Model/MLP/Linear/aten::mm"),
        op("aten::linear[8944x2816, 1024x2816]: sm90_gemm", "gemm", 0.2, op_name="backward/Model/MLP/aten::linear"),
        op("aten::mul: elementwise_kernel", "elementwise", 0.1, op_name="forward/Model/MLP/aten::mul"),
    ))  # fmt: skip
    assert [(m.dims, m.kind, m.phase) for m in found] == [
        ((1024, 2816, 8944), "mlp", "forward"), ((1024, 2816, 8944), "mlp", "backward"),
    ]  # fmt: skip
