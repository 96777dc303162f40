"""Collectives of compiled programs: trips of loops, axes, bytes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.hlo import groups
from experiments.hlo.program import Program
from perfmodel.config import Mesh
from proposals.compiling import collectives

ROOT = Path(__file__).resolve().parents[2]

#: As libtpu 0.0.42.1 prints it: a loop over layers without a stated number of trips, in it a windowed einsum that
#: counts in steps of two, an all-reduce with its slice fused, an asynchronous gather in two fusions, shapes of results
#: only.
TPU = """HloModule jit_train_step, is_scheduled=true

%all-reduce-scatter.2 (input.9: f32[4,8,64]) -> f32[4,2,64] {
  %input.9 = f32[4,8,64]{2,1,0:T(8,128)} parameter(0)
  %all-reduce.30 = f32[4,8,64]{2,1,0} all-reduce(%input.9), channel_id=11, replica_groups={{0,1,2,3},{4,5,6,7}}, use_global_device_ids=true, to_apply=%add.1
  ROOT %dynamic-slice.1 = f32[4,2,64]{2,1,0} dynamic-slice(%all-reduce.30), dynamic_slice_sizes={4,2,64}
}

%gather_start (p.1: bf16[2,64]) -> bf16[8,64] {
  %p.1 = bf16[2,64]{1,0} parameter(0)
  ROOT %all-gather.5 = bf16[8,64]{1,0} all-gather(%p.1), channel_id=7, replica_groups=mesh['axis_0'=2,'axis_1'=4] {'axis_1'}, dimensions={0}, metadata={op_name="jit(train_step)/mlp"}
}

%gather_done (p.2: bf16[2,64]) -> bf16[8,64] {
  %p.2 = bf16[2,64]{1,0} parameter(0)
  ROOT %all-gather.6 = bf16[8,64]{1,0} all-gather(%p.2), channel_id=7, replica_groups=mesh['axis_0'=2,'axis_1'=4] {'axis_1'}, dimensions={0}, metadata={op_name="jit(train_step)/mlp"}
}

%windowed_cond (wide.param: (u32[], bf16[8,64])) -> pred[] {
  %constant.9 = u32[]{:T(128)} constant(4)
  %wide.param = (u32[]{:T(128)}, bf16[8,64]{1,0}) parameter(0)
  %get-tuple-element.1 = u32[]{:T(128)} get-tuple-element(%wide.param), index=0
  ROOT %compare.56 = pred[]{:T(512)} compare(%get-tuple-element.1, %constant.9), direction=LT
}

%windowed_body (wide.param.1: (u32[], bf16[8,64])) -> (u32[], bf16[8,64]) {
  %constant.2 = u32[]{:T(128)} constant(2)
  %wide.param.1 = (u32[]{:T(128)}, bf16[8,64]{1,0}) parameter(0)
  %get-tuple-element.2 = u32[]{:T(128)} get-tuple-element(%wide.param.1), index=0
  %get-tuple-element.3 = bf16[8,64]{1,0} get-tuple-element(%wide.param.1), index=1
  %collective-permute-start.1 = (bf16[8,64]{1,0}, bf16[8,64]{1,0}, u32[]{:S(2)}, u32[]{:S(2)}) collective-permute-start(%get-tuple-element.3), channel_id=27, source_target_pairs={{0,1},{1,2},{2,3},{3,0},{4,5},{5,6},{6,7},{7,4}}
  %collective-permute-done.1 = bf16[8,64]{1,0} collective-permute-done(%collective-permute-start.1)
  %add.2 = u32[]{:T(128)} add(%get-tuple-element.2, %constant.2), control-predecessors={%constant.2}
  ROOT %tuple.2 = (u32[]{:T(128)}, bf16[8,64]{1,0}) tuple(%add.2, %collective-permute-done.1)
}

%layers_cond (param.5: (s32[], bf16[8,64])) -> pred[] {
  %constant.5 = s32[]{:T(128)} constant(16)
  %param.5 = (s32[]{:T(128)}, bf16[8,64]{1,0}) parameter(0)
  %get-tuple-element.5 = s32[]{:T(128)} get-tuple-element(%param.5), index=0
  ROOT %lt.5 = pred[]{:T(512)} compare(%get-tuple-element.5, %constant.5), direction=LT
}

%layers_body (param.6: (s32[], bf16[8,64])) -> (s32[], bf16[8,64]) {
  %constant.6 = s32[]{:T(128)} constant(1)
  %constant.7 = u32[]{:T(128)} constant(0)
  %param.6 = (s32[]{:T(128)}, bf16[8,64]{1,0}) parameter(0)
  %get-tuple-element.6 = s32[]{:T(128)} get-tuple-element(%param.6), index=0
  %get-tuple-element.7 = bf16[8,64]{1,0} get-tuple-element(%param.6), index=1
  %tuple.6 = (u32[]{:T(128)}, bf16[8,64]{1,0}) tuple(%constant.7, %get-tuple-element.7)
  %while.6 = (u32[]{:T(128)}, bf16[8,64]{1,0}) while(%tuple.6), condition=%windowed_cond, body=%windowed_body
  %get-tuple-element.8 = bf16[8,64]{1,0} get-tuple-element(%while.6), index=1
  %add.6 = s32[]{:T(128)} add(%get-tuple-element.6, %constant.6)
  ROOT %tuple.7 = (s32[]{:T(128)}, bf16[8,64]{1,0}) tuple(%add.6, %get-tuple-element.8)
}

ENTRY %main (p.9: f32[4,8,64], p.10: bf16[2,64]) -> f32[4,2,64] {
  %p.9 = f32[4,8,64]{2,1,0} parameter(0)
  %p.10 = bf16[2,64]{1,0} parameter(1)
  %constant.8 = s32[]{:T(128)} constant(0)
  %fusion.1 = bf16[8,64]{1,0} fusion(%p.10), kind=kCustom, calls=%gather_start
  %fusion.2 = bf16[8,64]{1,0} fusion(%p.10), kind=kCustom, calls=%gather_done
  %tuple.8 = (s32[]{:T(128)}, bf16[8,64]{1,0}) tuple(%constant.8, %fusion.2)
  %while.1 = (s32[]{:T(128)}, bf16[8,64]{1,0}) while(%tuple.8), condition=%layers_cond, body=%layers_body
  ROOT %fusion.3 = f32[4,2,64]{2,1,0} fusion(%p.9), kind=kCustom, calls=%all-reduce-scatter.2, metadata={op_name="jit(train_step)/attention"}
}
"""  # noqa: E501


def test_loops_multiply_and_channels_count_once() -> None:
    found = {use.kind: use for use in collectives.read(TPU, Mesh((("data", 2), ("model", 4))))}
    assert set(found) == {"collective-permute", "reduce-scatter", "all-gather"}
    permuted = found["collective-permute"]
    assert (permuted.times, permuted.payload_bytes, permuted.axes) == (16 * 2, 8 * 64 * 2, ("model",))
    scattered = found["reduce-scatter"]
    assert (scattered.times, scattered.payload_bytes) == (1, 4 * 8 * 64 * 4)
    assert scattered.sent_bytes == 4 * 8 * 64 * 4 * 3 / 4 and scattered.source == "jit(train_step)/attention"
    gathered = found["all-gather"]
    assert (gathered.times, gathered.sent_bytes, gathered.source) == (1, 8 * 64 * 2 * 3 / 4, "jit(train_step)/mlp")


def test_a_mesh_in_an_order_of_its_own_is_read() -> None:
    """As libtpu writes groups over the minor axis of a 4 x 4 mesh: it calls the minor axis its major one."""
    line = "x = f32[4] all-gather(y), replica_groups=mesh['axis_0'=4,'axis_1'=1,'axis_2'=4], device_ids=([4,4]T(1,0)) "
    found = groups.parse(line + "{'axis_0'}, dimensions={0}")
    assert found is not None
    assert found.members.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]]


def test_a_loop_that_cannot_be_read_counts_once() -> None:
    program = Program.parse(TPU.replace("constant(16)", "parameter(3)"))
    assert program.executions["layers_body"] == 1
    assert program.executions["windowed_body"] == 2


@pytest.mark.slow
def test_a_program_that_jax_compiled_for_eight_devices() -> None:
    environment = {
        **os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
        "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    command = [sys.executable, "-m", "tests.compiling.cpu_program"]
    text = subprocess.run(command, capture_output=True, text=True, env=environment, check=True, timeout=250).stdout
    uses = {use.kind: use for use in collectives.read(text, Mesh((("a", 2), ("b", 4))))}
    gathered, summed = uses["all-gather"], uses["all-reduce"]
    assert (gathered.axes, gathered.times, gathered.payload_bytes) == (("b",), 5, 64 * 64 * 4)
    assert gathered.sent_bytes == 5 * 64 * 64 * 4 * 3 / 4
    assert (summed.axes, summed.times, summed.sent_bytes) == (("a",), 1, 8 * 64 * 4)
    assert "psum" in summed.source
