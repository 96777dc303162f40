"""Writes the three reconstructions: `python -m experiments.reconstruct [FOLDER]`."""

from __future__ import annotations

import sys
from pathlib import Path

from experiments.reconstruct.profile import write
from experiments.reconstruct.scenarios import SCENARIOS

SAMPLES = Path(__file__).parent.parent / "samples"


def main(arguments: list[str]) -> None:
    folder = Path(arguments[0]) if arguments else SAMPLES
    for key, scenario in SCENARIOS.items():
        for path in write(scenario, folder / key):
            print(f"{path}  {path.stat().st_size / 1e6:.2f} MB")  # noqa: T201


main(sys.argv[1:])
