"""Runs and records the reference step in its own process: `python -m experiments.record.worker REQUEST FOLDER`.

REQUEST is JSON: `config`, an experiment configuration, and `steps` to record.  A process of its own, because the number
of devices is fixed when JAX starts.  Prints one line of JSON at the end.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import jax

from perfmodel.config_file import parse_config
from reference_step import build, device_mesh

#: Steps before the recording starts: the first compiles, the second runs with warm memory.
WARM_UP = 2


def record(request: dict[str, Any], folder: str) -> dict[str, Any]:
    """Trains `WARM_UP` + `steps` steps and records the latter into `folder`; returns what was seen on the way."""
    jax.config.update("jax_hlo_source_file_canonicalization_regex", r"^.*/(?=reference_step/)")
    config, _ = parse_config(request["config"])
    devices = jax.devices()
    if len(devices) < config.hardware.chips:
        needed = config.hardware.chips
        return {"error": f"The mesh needs {needed} devices, {devices[0].platform} has {len(devices)} here."}
    reference = build(config, device_mesh(config, devices))
    state, batch = reference.init(jax.random.key(0)), reference.batch(jax.random.key(1))
    losses: list[float] = []
    for _ in range(WARM_UP):
        state, loss = reference.step(state, batch)
        losses.append(float(loss))
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    times: list[float] = []
    with jax.profiler.trace(folder, profiler_options=options):
        for number in range(request["steps"]):
            begin = time.perf_counter()
            with jax.profiler.StepTraceAnnotation("train", step_num=number):
                state, loss = reference.step(state, batch)
                jax.block_until_ready((state, loss))
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
    sys.stdout.write(json.dumps(record(json.loads(sys.argv[1]), sys.argv[2])) + "\n")
