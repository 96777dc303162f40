"""Writes the shipped profiles anew: `python -m evaluation.samples [KEY ...]`.

Reconstructions come out byte for byte the same.  Recordings are new measurements: make them on a quiet machine.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from evaluation.reconstruct.profile import write
from evaluation.reconstruct.scenarios import SCENARIOS
from evaluation.xspace_writer import SpaceWriter
from experiments.samples.samples import CONFIG_NAME, CPU_RUNS, FOLDER, CpuRun
from experiments.trial.recording import record
from experiments.xplane import XSpace

#: Bookkeeping of XLA's thread pool: no op, no step, and most of the events.
_BOOKKEEPING = ("ThreadpoolListener::", "ThunkExecutor::", "Wait: ")


def compact(space: XSpace, host: str) -> SpaceWriter:
    """The recording without thread-pool bookkeeping and without programs that did not run; times are as recorded."""
    result = SpaceWriter(host)
    result.space.CopyFrom(space)
    result.space.hostnames[:] = [host]
    ran: set[str] = set()
    for plane in result.space.planes:
        dropped = {key for key, meta in plane.event_metadata.items() if meta.name.startswith(_BOOKKEEPING)}
        module_ids = {key for key, meta in plane.stat_metadata.items() if meta.name == "hlo_module"}
        for line in plane.lines:
            kept = [event for event in line.events if event.metadata_id not in dropped]
            del line.events[:]
            line.events.extend(kept)
            for event in kept:
                for stat in event.stats:
                    if stat.metadata_id in module_ids:
                        ran.add(stat.str_value or plane.stat_metadata[stat.ref_value].name)
        for key in dropped:
            del plane.event_metadata[key]
    for plane in result.space.planes:
        if plane.name == "/host:metadata":
            for key in [k for k, meta in plane.event_metadata.items() if meta.name.split("(")[0] not in ran]:
                del plane.event_metadata[key]
    return result


def record_sample(run: CpuRun, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch) / "log"
        record(run.mesh, log, steps=run.steps)
        for path in sorted(log.glob("plugins/profile/*/*.xplane.pb")):
            compact(XSpace.FromString(path.read_bytes()), run.key).write(folder / f"{run.key}.xplane.pb.gz")
        (folder / CONFIG_NAME).write_text((log / CONFIG_NAME).read_text())


def main(keys: list[str]) -> None:
    for key, scenario in SCENARIOS.items():
        if not keys or key in keys:
            write(scenario, FOLDER / key)
    for run in CPU_RUNS:
        if not keys or run.key in keys:
            record_sample(run, FOLDER / run.key)
    for path in sorted(FOLDER.glob("*/*.gz")):
        print(f"{path.relative_to(FOLDER)}  {path.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main(sys.argv[1:])
