"""Time and peak memory of ingestion: a 4 MB CPU recording, and 36 MB of many steps on a TPU, generated on the fly.

The memory is that of the sandboxed process which does everything; the aim of the whole way from upload to proposals for
the CPU recording is 10 s, of which this is the larger part.
"""

from __future__ import annotations

import gzip
import os
import resource
import tempfile
import time
from pathlib import Path

from evaluation.xspace_writer import MODULES_LINE, OPS_LINE, STEPS_LINE, SpaceWriter
from experiments.ingest import Limits, read_profile
from experiments.samples.samples import FOLDER

STEPS, CORES, OPS = 4200, 4, 137
OP_PS, GAP_PS = 700_000, 100_000


def many_steps(path: Path) -> None:
    """A TPU profile of 4200 steps of 137 ops on 4 cores, 2.3 million events."""
    writer = SpaceWriter("bench-host")
    step_ps = OPS * (OP_PS + GAP_PS) + 2 * GAP_PS
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
        kinds = [
            plane.add_event_metadata(
                f"%fusion.{n} = bf16[8,128]{{1,0}} fusion(bf16[8,128]{{1,0}} %p)",
                f"fusion.{n}",
                {
                    "program_id": 1,
                    "symbol_id": n + 1,
                    "hlo_category": "all-reduce" if n % 5 == 0 else "loop fusion",
                    "tf_op": f"jit(step)/layer_{n}",
                    "flops": 10**8,
                    "bytes_accessed": 10**6,
                },
            )
            for n in range(OPS)
        ]
        for step in range(STEPS):
            begin = step * step_ps
            steps.add_event(plane.add_event_metadata(str(step)), begin, step_ps)
            modules.add_event(module, begin, step_ps)
            for n, kind in enumerate(kinds):
                ops.add_event(kind, begin + GAP_PS + n * (OP_PS + GAP_PS), OP_PS)
    path.write_bytes(writer.to_bytes())


def measure(path: Path) -> None:
    """Read one profile and print its time by stage, and the most memory its process had."""
    began = time.perf_counter()
    stages: list[tuple[str, float]] = []

    def report(stage: str, fraction: float | None, text: str) -> None:
        if not stages or stages[-1][0] != stage:
            stages.append((stage, time.perf_counter() - began))

    before = os.times()
    profile = read_profile([path], on_progress=report)
    total = time.perf_counter() - began
    after = os.times()
    ends = [start for _, start in stages[1:]] + [total]
    parts = ", ".join(f"{name} {end - start:.2f}" for (name, start), end in zip(stages, ends, strict=True))
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    print(
        f"{path.name}: {path.stat().st_size / 1e6:.1f} MB, {len(profile.steps):,} steps, {len(profile.ops):,} ops, "
        f"{profile.device.core_count} cores"
    )
    print(f"  {total:.2f} s ({parts}), {cpu:.2f} s of processor, peak {_children_peak_bytes() / 1e9:.2f} GB")
    for note in profile.notes:
        print(f"  {note.severity}: {note.message}")


def _children_peak_bytes() -> int:
    """The most resident memory any ended child had (the largest so far: measure the small one first)."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024


def main() -> None:
    limits = Limits.from_environment()
    print(f"limits: {limits.memory_bytes / 1e9:.1f} GB of address space")
    with tempfile.TemporaryDirectory() as folder:
        packed = next((FOLDER / "cpu-data8").glob("*.xplane.pb.gz"))
        recording = Path(folder) / packed.name.removesuffix(".gz")
        recording.write_bytes(gzip.decompress(packed.read_bytes()))
        measure(recording)
        large = Path(folder) / "many-steps.xplane.pb"
        many_steps(large)
        measure(large)


if __name__ == "__main__":
    main()
