"""Collectives of PyTorch on mesh axes: by the ranks of their process group, else by its name."""

from __future__ import annotations

import pytest

from diagnosis.analyzer.collectives import Collectives
from experiments.step_profile import Op
from perfmodel.config_file import parse_config

CONFIG, _ = parse_config(
    {
        "hardware": {"chip": "h100", "topology": [8, 2], "slices": 1},
        "mesh": {"ici": {"pipeline": 2, "data": 4, "tensor": 2}},
        "training": {"precision": "bf16"},
    }
)


def collective(kind: str = "all-reduce", **values: object) -> Op:
    return Op(f"{kind}: ncclDevKernel", kind, 10, 1e-3, 1e-3, 0.1, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("groups", "axis", "participants"),
    [
        (((0, 1), (2, 3)), "tensor", 2),
        (((0, 2, 4, 6),), "data", 4),
        (((3, 11),), "pipeline", 2),
        ((tuple(range(8)),), ("data", "tensor"), 8),
        ((tuple(range(16)),), ("pipeline", "data", "tensor"), 16),
    ],
)
def test_ranks_say_the_axis(groups: tuple[tuple[int, ...], ...], axis: object, participants: int) -> None:
    found = Collectives([], CONFIG).read(collective(groups=groups, payload_bytes=1e6))
    assert found is not None
    assert found.axis == axis
    assert found.participants == participants
    assert found.possible_bytes_per_s


@pytest.mark.parametrize(
    ("name", "axis"),
    [
        ("TENSOR_MODEL_PARALLEL_GROUP", "tensor"),
        ("mesh_tp", "tensor"),
        ("DATA_PARALLEL_GROUP", "data"),
        ("mesh_fsdp", "data"),
        ("PIPELINE_MODEL_PARALLEL_GROUP", "pipeline"),
        ("default_pg", None),
    ],
)
def test_a_name_says_the_axis_where_no_ranks_do(name: str, axis: str | None) -> None:
    found = Collectives([], CONFIG).read(collective(group_name=name, payload_bytes=1e6))
    assert found is not None
    assert found.axis == axis


def test_ranks_beyond_the_configured_cluster_name_no_axis() -> None:
    found = Collectives([], CONFIG).read(collective(groups=((0, 64),), payload_bytes=1e6))
    assert found is not None
    assert found.axis is None
    assert found.participants == 2


def test_waiting_for_other_ranks_is_no_time_of_the_links() -> None:
    op = collective(groups=((0, 1),), payload_bytes=1e6, wait_s=0.9e-3)
    found = Collectives([], CONFIG).read(op)
    assert found is not None
    assert found.achieved_bytes_per_s == pytest.approx(10 * 1e6 / 0.1e-3)
