"""What a compile check says, in one sentence."""

from __future__ import annotations

from experiments.formatting import quantity
from proposals.compiling.result import CompileCheck


def sentence(found: CompileCheck) -> str:
    """The verdict with its sizes, and what was compiled at which effort."""
    what = f"reference step, {found.effort} effort"
    of = f" of {_size(found.capacity_bytes)}" if found.capacity_bytes else ""
    if found.outcome == "fits" and found.peak_bytes is not None:
        return f"The compiled step fits: peak {_size(found.peak_bytes)}{of} per chip ({what})."
    if found.outcome == "out_of_memory":
        asked = (
            f": the compiler asks for at least {_size(found.needed_bytes)}{of} per chip" if found.needed_bytes else ""
        )
        return f"The compiled step runs out of memory{asked} ({what})."
    return f"The compile check gave no verdict on memory ({found.outcome.replace('_', ' ')}): {found.message}"


def _size(value: float) -> str:
    return str(quantity(value, "bytes"))
