"""What a compile check says, in one sentence."""

from __future__ import annotations

from formatting import plain
from proposals.compiling.result import CompileCheck


def sentence(check: CompileCheck) -> str:
    """The verdict with its sizes, and what was compiled at which effort."""
    what = f"reference step, {check.effort} effort"
    of = f" of {plain(check.capacity_bytes, 'bytes')}" if check.capacity_bytes else ""
    if check.outcome == "fits" and check.peak_bytes is not None:
        return f"The compiled step fits: peak {plain(check.peak_bytes, 'bytes')}{of} per chip ({what})."
    if check.outcome == "out_of_memory":
        asked = (
            f": the compiler asks for at least {plain(check.needed_bytes, 'bytes')}{of} per chip"
            if check.needed_bytes
            else ""
        )
        return f"The compiled step runs out of memory{asked} ({what})."
    return f"The compile check gave no verdict on memory ({check.outcome.replace('_', ' ')}): {check.message}"
