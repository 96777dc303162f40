"""A session of 64 hosts: the whole way from files to diagnosis, against XProf's conversion of the same files alone.

The aim is 1.5 times XProf's time.  Both run in a process of their own, on as many processors as there are.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from diagnosis.analyzer import diagnose
from evaluation.xspace_writer import MODULES_LINE, OPS_LINE, STEPS_LINE, SpaceWriter
from experiments.ingest import read_profile
from perfmodel.config import ExperimentConfig, Hardware, Mesh, Training

HOSTS, CORES, STEPS, OPS = 64, 4, 10, 300
OP_PS, GAP_PS = 700_000, 50_000
AIM = 1.5

_XPROF = """
import sys, time
start = time.perf_counter()
from xprof.convert import _pywrap_profiler_plugin as xprof
for tool in ("overview_page", "roofline_model"):
    data, ok = xprof.xspace_to_tools_data(sys.argv[1:], tool, {"use_saved_result": True})
    assert ok, data
print(time.perf_counter() - start)
"""


def write_host(path: Path, host: int) -> None:
    """Ten steps of 300 ops on four cores; every tenth op an asynchronous gather over the data axis."""
    writer = SpaceWriter(f"host-{host:03}")
    step_ps = OPS * (OP_PS + GAP_PS)
    for core in range(CORES):
        plane = writer.add_plane(f"/device:TPU:{core}")
        plane.add_stats(
            {
                "device_type_string": "TPU v5p",
                "peak_teraflops_per_second": 459.0,
                "peak_hbm_bw_gigabytes_per_second": 2765.0,
            }
        )
        steps, modules, ops = (plane.add_line(name) for name in (STEPS_LINE, MODULES_LINE, OPS_LINE))
        module = plane.add_event_metadata("jit_step(1)", "jit_step")
        kinds = []
        for n in range(OPS):
            name, category, text = _op(n)
            stats = {
                "program_id": 1,
                "symbol_id": n + 1,
                "hlo_category": category,
                "tf_op": f"jit(step)/jvp(loss)/layer_{n % 30}/mlp/dot_general",
                "source": f"model.py:{n % 90}",
                "flops": 10**8,
                "model_flops": 10**8,
                "bytes_accessed": 10**6,
            }
            kinds.append(plane.add_event_metadata(text, name, stats))
        for step in range(STEPS):
            begin = step * step_ps
            steps.add_event(plane.add_event_metadata(str(step)), begin, step_ps)
            modules.add_event(module, begin, step_ps)
            for n, kind in enumerate(kinds):
                ops.add_event(kind, begin + n * (OP_PS + GAP_PS), OP_PS)
    path.write_bytes(writer.to_bytes())


def _op(n: int) -> tuple[str, str, str]:
    if n % 10 == 3:
        text = f"%all-gather-start.{n} = (bf16[64,128], bf16[4096,128]) all-gather-start(bf16[64,128] %p), "
        return f"all-gather-start.{n}", "all-gather-start", text + "replica_groups=[4,64]<=[64,4]T(1,0)"
    if n % 10 == 8:
        text = f"%all-gather-done.{n} = bf16[4096,128] all-gather-done((bf16[64,128]) %all-gather-start.{n - 5})"
        return f"all-gather-done.{n}", "all-gather-done", text
    text = f"%fusion.{n} = bf16[8,128]{{1,0}} fusion(bf16[8,128]{{1,0}} %p.{n}), kind=kOutput"
    return f"fusion.{n}", "convolution fusion", text


def main() -> dict[str, float]:
    """Seconds of XProf alone, of our reading, of the diagnosis after it; peak memory of the reading process."""
    config = ExperimentConfig(
        Hardware("v5p", (4, 8, 8)),
        Mesh((("data", 64), ("model", 4))),
        training=Training(global_batch=256, seq_len=4096),
    )
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"host-{number:03}.xplane.pb" for number in range(HOSTS)]
        for number, path in enumerate(paths):
            write_host(path, number)
        size = sum(path.stat().st_size for path in paths)
        idle = _processor()
        ran = subprocess.run(
            [sys.executable, "-c", _XPROF, *map(str, paths)], capture_output=True, text=True, check=True
        )
        alone, alone_used = float(ran.stdout.split()[-1]), _processor() - idle
        for path in Path(folder).iterdir():
            if path not in paths:
                path.unlink()  # XProf's caches
        before = _processor()
        start = time.perf_counter()
        profile = read_profile(paths)
        reading = time.perf_counter() - start
        used = _processor() - before
    start = time.perf_counter()
    diagnosis = diagnose(profile, config)
    diagnosing = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    cores = profile.device.core_count
    print(f"{HOSTS} hosts, {cores} cores, {len(profile.ops)} ops, {STEPS} steps, {size / 1e6:.1f} MB")
    print(f"XProf alone {alone:.2f} s, processor {alone_used:.2f} s")
    print(f"reading {reading:.2f} s, processor {used:.2f} s")
    print(f"times XProf: {reading / alone:.2f}, processor {used / alone_used:.2f} (aim {AIM})")
    print(f"diagnosis {diagnosing:.2f} s ({diagnosis.bottleneck.primary}); peak memory {peak / 1e6:,.0f} MB")
    return {
        "xprof_s": alone,
        "xprof_processor_s": alone_used,
        "reading_s": reading,
        "reading_processor_s": used,
        "diagnosis_s": diagnosing,
        "peak_bytes": float(peak),
    }


def _processor() -> float:
    """Processor seconds of all processes that were started from here and have ended."""
    used = os.times()
    return used.children_user + used.children_system


if __name__ == "__main__":
    main()
