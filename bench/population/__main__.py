"""`python -m bench.population FOLDER [--scale 0.1]`"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from bench.population import Sizes, build, database


def main() -> int:
    parser = argparse.ArgumentParser(description="Fill an empty data folder with a large site.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--scale", type=float, default=1.0, help="of 20,000 experiments and all that hangs on them")
    options = parser.parse_args()
    began = time.perf_counter()
    with database(options.folder):
        build(Sizes().scaled(options.scale), lambda line: print(f"{time.perf_counter() - began:6.0f} s  {line}"))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
