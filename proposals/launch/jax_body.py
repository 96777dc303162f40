"""The parts of the plain JAX file that are the same for every proposal."""

from __future__ import annotations

USAGE = """

    python plain_jax.py --check     anywhere: the mesh and all shardings on forced CPU devices
    python plain_jax.py             on the chips: the same on the real mesh

Import `make_mesh`, `ARRAYS`, `sharding` and `train` from your training program.  `train` takes STEPS, OUTPUT (a folder)
and PROFILE (empty: no profile is recorded) from the environment.
"""

START = """
import math
import os
import sys
import time

FLAGS = {flags}
CHECK = __name__ == "__main__" and "--check" in sys.argv[1:]
if FLAGS and not CHECK:
    os.environ["{variable}"] = " ".join([os.environ.get("{variable}", ""), *FLAGS]).strip()
"""

DEVICES = """
DEVICES = {devices}
MOST_CPU_DEVICES = 512
if CHECK:
    os.environ["JAX_PLATFORMS"] = "cpu"
    if DEVICES <= MOST_CPU_DEVICES:
        os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={{DEVICES}}"

import jax  # noqa: E402  -- after the flags, which are read once
import jax.numpy as jnp  # noqa: E402
from jax.experimental import mesh_utils  # noqa: E402
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec as P  # noqa: E402
"""

BODY = '''
AXIS_NAMES = tuple(name for name, _ in (*ACROSS_SLICES, *INSIDE_SLICE))
SIZES = dict((*ACROSS_SLICES, *INSIDE_SLICE))


def make_mesh(devices=None):
    """The device mesh over all chips; CPU devices are taken in their order."""
    devices = jax.devices() if devices is None else devices
    if len(devices) != DEVICES:
        raise SystemExit(f"The mesh needs {DEVICES} devices, and there are {len(devices)}.")
    shape = tuple(SIZES.values())
    if devices[0].platform != "tpu":
        array = mesh_utils.create_device_mesh(shape, devices)
    elif ACROSS_SLICES:
        inside = (1,) * len(ACROSS_SLICES) + tuple(size for _, size in INSIDE_SLICE)
        across = tuple(size for _, size in ACROSS_SLICES) + (1,) * len(INSIDE_SLICE)
        array = mesh_utils.create_hybrid_device_mesh(
            inside, across, devices, allow_split_physical_axes=ALLOW_SPLIT_PHYSICAL_AXES
        )
    else:
        array = mesh_utils.create_device_mesh(
            shape, devices, allow_split_physical_axes=ALLOW_SPLIT_PHYSICAL_AXES
        )
    return Mesh(array, AXIS_NAMES)


def sharding(mesh, name, optimizer_state=False):
    """How an array of ARRAYS, or its optimizer state, lies on the mesh."""
    spec = ARRAYS[name][2]
    return NamedSharding(mesh, OPTIMIZER_STATE.get(name, spec) if optimizer_state else spec)


def ways(spec, rank):
    """Number of shards along every dimension."""
    entries = [*spec, *[None] * (rank - len(spec))]
    names = [entry if isinstance(entry, tuple) else (entry,) if entry else () for entry in entries]
    return tuple(math.prod(SIZES[axis] for axis in axes) for axes in names)


def place_sample(mesh, name):
    """The smallest array of the same rank that shards alike, put on the devices; every device must hold one element."""
    spec, rank = ARRAYS[name][2], len(ARRAYS[name][1])
    sample = jnp.zeros(ways(spec, rank), COMPUTE_DTYPE)
    placed = jax.device_put(sample, sharding(mesh, name))
    assert {shard.data.shape for shard in placed.addressable_shards} == {(1,) * rank}, name
    return placed


def train(step, state, batches):
    """Runs `state, loss = step(state, batch)` STEPS times, prints each step's seconds and profiles three of them."""
    begin_profile = int(os.environ.get("PROFILE_AFTER", "10")) if os.environ.get("PROFILE", "1") else -1
    for number, batch in zip(range(int(os.environ.get("STEPS", "30"))), batches):
        if number == begin_profile:
            jax.profiler.start_trace(os.environ.get("OUTPUT", "output"))
        begin = time.perf_counter()
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            state, loss = step(state, batch)
            jax.block_until_ready((state, loss))
        print(f"asap_step_time_s={time.perf_counter() - begin:.6f}", flush=True)
        if number == begin_profile + 2 and begin_profile >= 0:
            jax.profiler.stop_trace()
    return state


def check(mesh):
    """Shard every array of the model on the mesh and print the shape that each device holds."""
    total = 0
    for name, (kind, shape, spec) in ARRAYS.items():
        local = sharding(mesh, name).shard_shape(shape)
        sharding(mesh, name, optimizer_state=True).shard_shape(shape)
        if isinstance(mesh, Mesh):
            place_sample(mesh, name)
        if kind == "weight":
            total += math.prod(local)
        print(f"{name:16} {kind:10} {str(shape):32} {str(local):28} {spec}")
    print(f"{total:,} weights on each of {DEVICES} devices")


if __name__ == "__main__":
    if CHECK and DEVICES > MOST_CPU_DEVICES:
        check(AbstractMesh(tuple(SIZES.values()), AXIS_NAMES))
    else:
        check(make_mesh())
    print("OK")
'''
