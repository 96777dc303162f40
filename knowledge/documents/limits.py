"""What one document may be and use."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """file_bytes: of a PDF; text_bytes: of Markdown and text.  pages: of a PDF.  characters: of text in all.

    passages: it may be cut into.  memory_bytes: address space of the process that reads it; cpu_s: its processor time;
    wall_s: its time by the clock; result_bytes: of what it writes.
    """

    file_bytes: int = 25_000_000
    text_bytes: int = 5_000_000
    pages: int = 1500
    characters: int = 6_000_000
    passages: int = 8000
    memory_bytes: int = 1_000_000_000
    cpu_s: int = 200
    wall_s: int = 240
    result_bytes: int = 64_000_000


LIMITS = Limits()
