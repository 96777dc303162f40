"""Runs the reference step in a process of its own: `python -m experiments.trial.worker REQUEST`.

REQUEST is JSON: `config`, an experiment configuration, `warm_up` and `steps` to time, `profiled` steps to record into
`folder` afterwards.  The number of devices is fixed when JAX starts.  Prints one line of JSON at the end.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import jax

from perfmodel.config_file import parse_config
from reference_step.layout import device_mesh
from reference_step.step import build


def trial(request: dict[str, Any]) -> dict[str, Any]:
    """Step times without the profiler, then some steps with it: recording slows them.  losses: of all of them."""
    jax.config.update("jax_hlo_source_file_canonicalization_regex", r"^.*/(?=reference_step/)")
    config, _ = parse_config(request["config"])
    devices = jax.devices()
    if len(devices) < config.hardware.chips:
        needed = config.hardware.chips
        return {"error": f"The mesh needs {needed} devices, {devices[0].platform} has {len(devices)} here."}
    reference = build(config, device_mesh(config, devices))
    state, batch = reference.init(jax.random.key(0)), reference.batch(jax.random.key(1))
    compiled = reference.step.lower(state, batch).compile()
    times: list[float] = []
    profiled_times: list[float] = []
    losses: list[float] = []
    for _ in range(request["warm_up"] + request["steps"]):
        begin = time.perf_counter()
        state, loss = compiled(state, batch)
        jax.block_until_ready((state, loss))
        times.append(time.perf_counter() - begin)
        losses.append(float(loss))
    if request["profiled"]:
        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0
        with jax.profiler.trace(request["folder"], profiler_options=options):
            for number in range(request["profiled"]):
                begin = time.perf_counter()
                with jax.profiler.StepTraceAnnotation("train", step_num=number):
                    state, loss = compiled(state, batch)
                    jax.block_until_ready((state, loss))
                profiled_times.append(time.perf_counter() - begin)
                losses.append(float(loss))
    used = list(reference.mesh.devices.flat)
    peak, source = _peak(used, compiled)
    return {
        "step_times_s": times, "profiled_times_s": profiled_times, "losses": losses, "peak_memory_bytes": peak,
        "peak_memory_source": source, "device_kind": used[0].device_kind,
        "devices": len(used), "notes": list(reference.notes),
    }  # fmt: skip


def _peak(devices: list[Any], compiled: Any) -> tuple[int | None, str]:
    """Of the device that held most, by its allocator where it counts, else by the compiler."""
    stats = [device.memory_stats() or {} for device in devices]
    measured = [int(item["peak_bytes_in_use"]) for item in stats if item.get("peak_bytes_in_use")]
    if measured:
        return max(measured), "measured by the allocator"
    analysis = compiled.memory_analysis()
    if analysis is None:
        return None, "not measured on these devices"
    total = analysis.argument_size_in_bytes + analysis.output_size_in_bytes + analysis.temp_size_in_bytes
    return int(total - analysis.alias_size_in_bytes), "computed by the compiler, per device"


if __name__ == "__main__":
    sys.stdout.write(json.dumps(trial(json.loads(sys.argv[1]))) + "\n")
