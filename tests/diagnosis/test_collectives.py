"""What kind of collective an op is, what it moves, on which axis, and how fast that could be."""

from __future__ import annotations

import pytest

from diagnosis.analyzer import diagnose
from diagnosis.analyzer.collectives import identify, payload_bytes
from experiments.hlo import text as hlo
from tests.diagnosis.build import collective, config, matmul, op, profile


@pytest.mark.parametrize(
    ("name", "category", "line", "kind"),
    [
        ("all-reduce.5", "all-reduce", "", ("all-reduce", "sync")),
        ("All-reduce operation", "All-reduce", "", ("all-reduce", "sync")),
        ("all-gather-start.3", "all-gather-start", "", ("all-gather", "start")),
        ("all-gather-done.3", "async-done", "", ("all-gather", "done")),
        ("reduce-scatter.1", "reduce-scatter", "", ("reduce-scatter", "sync")),
        ("all-reduce-scatter-fusion.2", "all-reduce-scatter fusion", "", ("reduce-scatter", "sync")),
        ("collective-permute-done", "collective-permute-done", "", ("collective-permute", "done")),
        ("ragged-all-to-all.1", "ragged-all-to-all", "", ("all-to-all", "sync")),
        ("send.1", "send", "", ("send/recv", "sync")),
        ("recv-done.4", "recv-done", "", ("send/recv", "done")),
        ("Asynchronous collective completion", "Custom fusion", "", ("collective", "done")),
        ("async-collective-done.7", "custom fusion", "", ("collective", "done")),
        (
            "fusion.9",
            "custom fusion",
            "%fusion.9 = bf16[8] fusion(bf16[64] %p), kind=kCustom, calls=%all-reduce-scatter.9",
            ("reduce-scatter", "sync"),
        ),
        ("ncclDevKernel_AllReduce_Sum", "unknown", "", ("all-reduce", "sync")),
        (
            "async-done.2",
            "async-done",
            "%async-done.2 = bf16[8] async-done((bf16[8]) %async-start.2), calls=%wrapped_all-gather.1",
            ("all-gather", "done"),
        ),
    ],
)
def test_kinds(name: str, category: str, line: str, kind: tuple[str, str]) -> None:
    assert identify(name, category, line) == kind


@pytest.mark.parametrize(
    ("name", "category", "line"),
    [
        ("fusion.1", "loop fusion", "%fusion.1 = bf16[8] fusion(bf16[8] %all-reduce.3), kind=kLoop, calls=%fused.1"),
        ("reduce.4", "reduce", ""),
        ("All-gather matrix multiplication", "Custom-call", ""),
        ("Custom matrix multiplication with scatter", "Custom-call", ""),
        ("gather.3", "gather", "%gather.3 = f32[8] gather(f32[9] %p, s32[8] %i)"),
        ("scatter.3", "scatter", ""),
        ("copy-done.2", "copy-done", "%copy-done.2 = bf16[8] copy-done((bf16[8], bf16[8], u32[]) %copy-start.2)"),
        ("send.1", "host send", ""),
        ("transpose.1", "data formatting", ""),
        ("dot.1", "convolution fusion", "%dot.1 = bf16[8,8] fusion(bf16[8,8] %all-gather.1), calls=%fused_computation"),
    ],
)
def test_not_collectives(name: str, category: str, line: str) -> None:
    assert identify(name, category, line) is None


def test_done_belongs_to_its_start() -> None:
    start = op(
        "all-gather-start.1",
        "all-gather-start",
        0.001,
        hlo=(
            "%all-gather-start.1 = (bf16[64,128]{1,0}, bf16[256,128]{1,0}) all-gather-start(bf16[64,128]{1,0} %p), "
            "channel_id=1, "
            "replica_groups=[4,4]<=[4,4]T(1,0), dimensions={0}"
        ),
    )
    done = op(
        "all-gather-done.1",
        "all-gather-done",
        0.2,
        hlo=(
            "%all-gather-done.1 = bf16[256,128]{1,0} all-gather-done((bf16[64,128]{1,0}, bf16[256,128]{1,0}) "
            "%all-gather-start.1)"
        ),
    )
    diagnosis = diagnose(profile(start, done, matmul("fusion.1", 0.7)), config({"data": 4, "model": 4}, (4, 4)))
    found = {entry.name: entry for entry in diagnosis.ops}
    for name in ("all-gather-start.1", "all-gather-done.1"):
        assert found[name].mesh_axis == "data"
        assert found[name].collective == "all-gather"
        assert found[name].collective_bytes == 256 * 128 * 2
        assert found[name].achieved_bytes_per_s is None
    assert found["all-gather-done.1"].axis_source == "start op"
    assert found["fusion.1"].mesh_axis is None


def test_unnamed_completion_takes_kind_and_axis_of_its_start() -> None:
    start = op(
        "async-collective-start.3",
        "custom fusion",
        0.0,
        hlo=(
            "%async-collective-start.3 = bf16[256,128]{1,0} fusion(bf16[64,128]{1,0} %p), kind=kCustom, "
            "calls=%all-gather.9, replica_groups={{0,1},{2,3}}"
        ),
    )
    done = op(
        "async-collective-done.3",
        "custom fusion",
        0.2,
        hlo=(
            "%async-collective-done.3 = bf16[256,128]{1,0} fusion(bf16[256,128]{1,0} %async-collective-start.3), "
            "kind=kCustom"
        ),
    )
    found = diagnose(profile(start, done), config({"data": 2, "model": 2}, (2, 2))).ops[0]
    assert (found.name, found.collective, found.mesh_axis) == ("async-collective-done.3", "all-gather", "model")


def test_axes_of_a_real_mesh() -> None:
    """The paper's third mesh on 16 × 16: model neighbours, seq strided by 4, data by 64."""
    mesh = config({"replica": 1, "data": 4, "seq": 16, "model": 4}, (16, 16))
    ops = [
        collective("all-reduce", 0.2, "replica_groups=[64,4]<=[256]", name="all-reduce.1"),
        collective("all-reduce", 0.1, "replica_groups=[64,4]<=[4,64]T(1,0)", name="all-reduce.2"),
        collective("all-reduce", 0.05, "replica_groups=[4,64]<=[4,16,4]T(2,0,1)", name="all-reduce.3"),
        collective("all-reduce", 0.04, "replica_groups=[16,16]<=[4,16,4]T(0,2,1)", name="all-reduce.4"),
    ]
    found = {entry.name: entry.mesh_axis for entry in diagnose(profile(*ops), mesh).ops}
    assert found == {
        "all-reduce.1": "model",
        "all-reduce.2": "data",
        "all-reduce.3": ("data", "seq"),
        "all-reduce.4": "seq",
    }


def test_bandwidth_against_the_book() -> None:
    """All-gather of V bytes over a closed axis of 16 v5e chips takes V ÷ (2 × 45 GB/s) (scaling book 3.2)."""
    size = 1024 * 4096 * 2
    gather = collective("all-gather", 0.1, "replica_groups=[16,16]<=[256]", operand="bf16[64,4096]")
    diagnosis = diagnose(profile(gather), config({"data": 16, "model": 16}, (16, 16)))
    found = diagnosis.ops[0]
    assert found.collective_bytes == size
    sent = size * 15 / 16
    assert found.achieved_bytes_per_s == pytest.approx(sent / 0.01)
    assert found.possible_bytes_per_s == pytest.approx(sent / (size / 9e10), rel=1e-6)
    row = diagnosis.collectives[0]
    assert (row.axis, row.kind, row.count) == ("model", "all-gather", 10)
    assert row.bytes == pytest.approx(10 * size)
    assert row.time_s == pytest.approx(0.1)


def test_only_axis_and_group_size_stand_in_for_missing_groups() -> None:
    plain = op("all-reduce.1", "all-reduce", 0.1)
    assert diagnose(profile(plain), config({"data": 8, "model": 1})).ops[0].mesh_axis == "data"
    assert diagnose(profile(plain), config({"data": 4, "model": 2}, (4, 2))).ops[0].mesh_axis is None
    grown = op("all-gather.1", "all-gather", 0.1, hlo="%all-gather.1 = bf16[256,8]{1,0} all-gather(bf16[32,8]{1,0} %p)")
    found = diagnose(profile(grown), config({"data": 8, "model": 4}, (8, 4))).ops[0]
    assert (found.mesh_axis, found.axis_source) == ("data", "group size")


def test_without_configuration_no_axis_is_claimed() -> None:
    found = diagnose(profile(collective("all-reduce", 0.1, "replica_groups=[2,4]<=[8]"))).ops[0]
    assert found.mesh_axis is None and found.participants == 4


@pytest.mark.parametrize(
    ("kind", "part", "line", "size", "expected"),
    [
        ("all-gather", "sync", "%a = bf16[256,8]{1,0} all-gather(bf16[64,8]{1,0} %p)", 4, 4096),
        (
            "all-gather",
            "start",
            "%a = (bf16[64,8]{1,0}, bf16[256,8]{1,0}) all-gather-start(bf16[64,8]{1,0} %p)",
            4,
            4096,
        ),
        ("all-gather", "start", "%a = (bf16[64,8]{1,0}, bf16[256,8]{1,0}) all-gather-start(%p)", 4, 4096),
        ("reduce-scatter", "sync", "%a = f32[16]{0} reduce-scatter(f32[64]{0} %p)", 4, 256),
        ("reduce-scatter", "sync", "%a = f32[16]{0} reduce-scatter(%p)", 4, 256),
        ("all-reduce", "sync", "%a = (f32[4]{0}, bf16[8]{0}) all-reduce(f32[4]{0} %p, bf16[8]{0} %q)", 2, 32),
        (
            "collective-permute",
            "start",
            "%a = (bf16[8]{0}, bf16[8]{0}, u32[], u32[]) collective-permute-start(bf16[8]{0} %p)",
            4,
            16,
        ),
        (
            "reduce-scatter",
            "sync",
            "%f = bf16[32,32,4096]{2,1,0:T(8,128)(2,1)S(1)} fusion(bf16[32,32,8192]"
            "{2,1,0:T(8,128)(2,1)S(1)} %fusion.32), kind=kCustom, calls=%all-reduce-scatter.3",
            2,
            32 * 32 * 8192 * 2,
        ),
    ],
)
def test_payload(kind: str, part: str, line: str, size: int, expected: float) -> None:
    assert payload_bytes(kind, part, line, size) == expected


def test_instruction_of_the_book() -> None:
    line = (
        "%fusion.3 = bf16[32,32,4096]{2,1,0:T(8,128)(2,1)S(1)} fusion(bf16[32,32,8192]{2,1,0:T(8,128)(2,1)S(1)} "
        "%fusion.32), "
        "kind=kCustom, calls=%all-reduce-scatter.3"
    )
    found = hlo.parse(line)
    assert found is not None
    assert (found.name, found.opcode, found.operand_names, found.calls) == (
        "fusion.3",
        "fusion",
        ("fusion.32",),
        "all-reduce-scatter.3",
    )
    assert found.results[0].dims == (32, 32, 4096) and found.operand_bytes == 32 * 32 * 8192 * 2


@pytest.mark.parametrize("text", ["", "=", "%a = ", "%a = bf16[8", "%a = bf16[8] fusion(((", "x" * 5000, "%a = f(%b"])
def test_cut_lines_are_no_error(text: str) -> None:
    hlo.parse(text)
    identify("all-reduce.1", "all-reduce", text)


@pytest.mark.parametrize(
    ("kind", "groups", "path", "tensor"),
    [
        ("all-reduce", "replica_groups=[4,4]<=[16]", "jit(s)/jvp(l)/mlp/psum", "activations"),
        ("all-gather", "replica_groups=[4,4]<=[4,4]T(1,0)", "jit(s)/jvp(l)/mlp/all_gather", "parameters"),
        (
            "reduce-scatter",
            "replica_groups=[4,4]<=[4,4]T(1,0)",
            "jit(s)/transpose(jvp(l))/mlp/psum_scatter",
            "gradients",
        ),
        ("all-reduce", "replica_groups=[4,4]<=[4,4]T(1,0)", "jit(s)/transpose(jvp(l))/mlp/psum", "gradients"),
    ],
)
def test_which_tensor_moves(kind: str, groups: str, path: str, tensor: str) -> None:
    found = diagnose(profile(collective(kind, 0.1, groups, op_name=path)), config({"data": 4, "model": 4}, (4, 4))).ops[
        0
    ]
    assert found.tensor == tensor
