"""Arguments that several commands take."""

from __future__ import annotations

import argparse

PROFILE_FILES = (
    "*.xplane.pb[.gz] (one per host), a zip or tar.gz of a log directory, XProf's JSON exports, PyTorch traces (one "
    "per rank) or Nsight Systems .sqlite exports"
)


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("give a number of at least 1")
    return number
