"""What ops of small programs tell of the run."""

from __future__ import annotations

from experiments.consistency.matmuls import matmuls
from tests.diagnosis.build import op, profile


def test_shapes_of_a_pytorch_matmul_are_read_from_its_name() -> None:
    found = matmuls(profile(
        op("aten::mm[8944x1024, 1024x2816]: sm90_gemm", "gemm", 0.3, op_name="forward/Model/MLP/Linear/aten::mm"),
        op("aten::linear[8944x2816, 1024x2816]: sm90_gemm", "gemm", 0.2, op_name="backward/Model/MLP/aten::linear"),
        op("aten::mul: elementwise_kernel", "elementwise", 0.1, op_name="forward/Model/MLP/aten::mul"),
    ))  # fmt: skip
    assert [(m.dims, m.kind, m.phase) for m in found] == [
        ((1024, 2816, 8944), "mlp", "forward"), ((1024, 2816, 8944), "mlp", "backward"),
    ]  # fmt: skip
