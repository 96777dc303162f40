"""Runs and records the training step in its own process: `python -m experiments.record.worker SPEC FOLDER`.

A process of its own, because the number of devices is fixed when JAX starts.  Prints one line of JSON at the end.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from experiments.record.spec import BATCH_AXES, SEQ_AXES, TENSOR_AXES, RecordSpec
from experiments.record.transformer import Axes, Model, Shape, zero_moments

#: Steps before the recording starts: the first compiles, the second runs with warm memory.
WARM_UP = 2


def build_model(spec: RecordSpec, devices: list[Any]) -> Model:
    names = [axis for axis, _ in spec.mesh]
    mesh = Mesh(np.array(devices[: spec.devices]).reshape([size for _, size in spec.mesh]), names)

    def present(wanted: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in names if name in wanted)

    axes = Axes(
        batch=present(BATCH_AXES),
        seq=present(SEQ_AXES),
        tensor=present(TENSOR_AXES),
        weights=present(("data", "fsdp", *SEQ_AXES)),
    )
    shape = Shape(spec.layers, spec.d_model, spec.d_ff, spec.heads, spec.kv_heads, spec.head_dim, spec.vocab)
    return Model(shape, axes, mesh)


def record(spec: RecordSpec, folder: str) -> dict[str, Any]:
    """Trains `WARM_UP` + `steps` steps and records the latter into `folder`; returns what was seen on the way."""
    jax.config.update("jax_hlo_source_file_canonicalization_regex", r"^.*/(?=experiments/record/)")
    devices = jax.devices()
    if len(devices) < spec.devices:
        return {"error": f"The mesh needs {spec.devices} devices, {devices[0].platform} has {len(devices)} here."}
    model = build_model(spec, devices)
    params = model.init(jax.random.key(0))
    moments = zero_moments(params)
    tokens = jax.random.randint(jax.random.key(1), (spec.batch, spec.seq_len), 0, spec.vocab)
    tokens = jax.device_put(tokens, model.sharded(model.axes.batch, model.axes.seq))
    # The results keep the shardings of the arguments; left to the compiler, the second step would compile anew.
    kept = jax.tree.map(lambda array: array.sharding, (params, moments))
    train_step = jax.jit(model.train_step, donate_argnums=(0, 1), out_shardings=(*kept, None))
    losses: list[float] = []
    for _ in range(WARM_UP):
        params, moments, loss = train_step(params, moments, tokens)
        losses.append(float(loss))
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    times: list[float] = []
    with jax.profiler.trace(folder, profiler_options=options):
        for number in range(spec.steps):
            begin = time.perf_counter()
            with jax.profiler.StepTraceAnnotation("train", step_num=number):
                params, moments, loss = train_step(params, moments, tokens)
                jax.block_until_ready((params, loss))
            times.append(time.perf_counter() - begin)
            losses.append(float(loss))
    first = devices[0]
    return {
        "step_times_s": times,
        "losses": losses,
        "platform": first.platform,
        "device_kind": first.device_kind,
        "coords": [list(device.coords) for device in devices] if hasattr(first, "coords") else [],
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(record(RecordSpec.from_json(json.loads(sys.argv[1])), sys.argv[2])) + "\n")
