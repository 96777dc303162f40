"""Arguments that several commands take."""

from __future__ import annotations

import argparse

from formatting.numbers import whole_number

PROFILE_FILES = (
    "*.xplane.pb[.gz] (one per host), a zip or tar.gz of a log directory, XProf's JSON exports, PyTorch traces (one "
    "per rank) or Nsight Systems .sqlite exports"
)


def positive(text: str) -> int:
    if not (number := whole_number(text, digits=9)):
        raise argparse.ArgumentTypeError(f"give a whole number of at least 1, not {text[:40]!r}")
    return number
