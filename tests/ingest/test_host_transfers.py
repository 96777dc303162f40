"""Copies between HBM and host memory: their bytes, their time in flight, and their part of the step."""

from __future__ import annotations

from experiments.hlo.host_memory import host_transfer_bytes
from experiments.ingest import read_profile
from tests.ingest.conftest import Save
from tests.ingest.xspaces import OpSpec, tpu_xspace

IN_HBM, ON_HOST = "f32[1024,1024]{1,0:T(8,128)}", "f32[1024,1024]{1,0:T(8,128)S(5)}"
MB4 = 4 * 1024 * 1024
START = f"%copy-start.1 = ({IN_HBM}, {ON_HOST}, u32[]{{:S(2)}}) copy-start({ON_HOST} %param)"
DONE = f"%copy-done.1 = {IN_HBM} copy-done(({IN_HBM}, {ON_HOST}, u32[]{{:S(2)}}) %copy-start.1)"


def test_bytes_of_a_copy_from_host_memory() -> None:
    assert host_transfer_bytes(START) == host_transfer_bytes(DONE) == MB4
    assert host_transfer_bytes(f"%copy.2 = {ON_HOST} copy({IN_HBM} %fusion.3)") == MB4


def test_done_op_printed_without_operand_shapes_goes_by_its_start_op() -> None:
    done = f"%copy-done.1 = {IN_HBM} copy-done(%copy-start.1)"
    assert host_transfer_bytes(done) is None
    assert host_transfer_bytes(done, START) == MB4


def test_slice_and_update_move_the_part_on_the_device() -> None:
    layers, layer = "bf16[32,512,512]{2,1,0:S(5)}", "bf16[1,512,512]{2,1,0}"
    assert (
        host_transfer_bytes(f"%s = {layer} dynamic-slice({layers} %p, s32[] %i, s32[] %z, s32[] %z)") == 512 * 512 * 2
    )
    assert (
        host_transfer_bytes(f"%u = {layers} dynamic-update-slice({layers} %p, {layer} %g, s32[] %i)") == 512 * 512 * 2
    )


def test_what_stays_on_the_device_moves_nothing() -> None:
    """Prefetches into VMEM (S(1)), scalars in scalar memory and fusions are no host transfers."""
    assert host_transfer_bytes(f"%copy = f32[8,128]{{1,0:S(1)}} copy({IN_HBM} %p)") is None
    assert host_transfer_bytes(f"%b = {IN_HBM} broadcast(f32[]{{:T(128)S(6)}} %c), dimensions={{}}") is None
    assert host_transfer_bytes(f"%f = {IN_HBM} fusion({ON_HOST} %p), kind=kLoop, calls=%fused") is None
    assert host_transfer_bytes("no HLO at all") is None


def test_profile_says_what_the_step_waited_for(save: Save) -> None:
    """Of 100 µs, the core computes for 30 and waits for the copy for 50; the copy was in flight for 70."""
    ops = (
        OpSpec("copy-start.1", "copy-start", 5, 1, hlo=START),
        OpSpec("fusion.1", "loop fusion", 6, 20, flops=1000, bytes_accessed=1000),
        OpSpec("copy-done.1", "copy-done", 26, 49, hlo=DONE),
        OpSpec("fusion.2", "loop fusion", 80, 10, flops=1000, bytes_accessed=1000),
    )
    profile = read_profile([save(space=tpu_xspace(ops, steps=3, cores=(0, 1)))])
    found = {op.name: op for op in profile.ops}
    done, start = found["copy-done.1"], found["copy-start.1"]
    assert done.host_bytes == MB4 * 3 * 2
    assert start.host_bytes is None and found["fusion.1"].host_bytes is None
    assert done.in_flight_s is not None and abs(done.in_flight_s - 6 * 70e-6) < 1e-9
    assert done.exposed_s is None  # that is of collectives
    for step in profile.steps:
        assert abs(step.breakdown_s["host_transfer"] - 50e-6) < 1e-9
        assert abs(step.breakdown_s["compute"] - 30e-6) < 1e-9
        assert abs(sum(step.breakdown_s.values()) - step.time_s) < 1e-9
    assert all(core.host_transfer_s is not None and abs(core.host_transfer_s - 70e-6) < 1e-9 for core in profile.cores)
