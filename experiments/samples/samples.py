"""The profiles that ship with the product: two recorded on CPU devices, three rebuilt from the ASAP paper.

Rebuild the files with `python -m evaluation.samples`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import formatting

FOLDER = Path(__file__).parent
CONFIG_NAME = "config.json"
#: Wherever a number of a rebuilt profile is shown.
RECONSTRUCTED = "reconstructed from the paper, experiment {number}"


@dataclass(frozen=True)
class Sample:
    """One shipped profile.  label: how it came to be, shown wherever its numbers are.  provenance: see StepProfile."""

    key: str
    title: str
    label: str
    provenance: str

    @property
    def files(self) -> tuple[Path, ...]:
        """One `*.xplane.pb.gz` per host."""
        return tuple(sorted((FOLDER / self.key).glob("*.xplane.pb.gz")))

    @property
    def config(self) -> Path:
        return FOLDER / self.key / CONFIG_NAME


@dataclass(frozen=True)
class CpuRun:
    """A recording that ships: its mesh as `asap record` takes it, and how many steps."""

    key: str
    mesh: str
    steps: int

    @property
    def sample(self) -> Sample:
        mesh = self.mesh.replace(",", " · ").replace("=", " ")
        return Sample(
            self.key,
            f"Small transformer on 8 CPU devices, {mesh}",
            "recorded on 8 CPU devices by asap record",
            "measured",
        )


CPU_RUNS = (CpuRun("cpu-data8", "data=8", 4), CpuRun("cpu-data2-seq2-model2", "data=2,seq=2,model=2", 4))


def _paper(number: int, verdict: str, chip: str, dims: tuple[int, ...]) -> Sample:
    title = f"ASAP paper, experiment {number}: {verdict} on TPU {chip}, {formatting.topology(dims)}"
    label = RECONSTRUCTED.format(number=number)
    return Sample(f"asap-experiment-{number}", title, label, "reconstructed")


SAMPLES: Sequence[Sample] = (
    _paper(1, "compute-bound", "v5p", (8, 8, 8)),
    _paper(2, "HBM-bound", "v6e", (4, 4)),
    _paper(3, "communication-bound", "v5e", (16, 16)),
    *(run.sample for run in CPU_RUNS),
)
