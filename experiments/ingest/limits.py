"""What one ingestion may use."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields

from formatting.numbers import whole_number

#: Called with the stage, how much of it is done (0–1, None where that is not known), and a sentence.
Progress = Callable[[str, "float | None", str], None]


@dataclass(frozen=True)
class Limits:
    """Bounds of one ingestion; each can be set with the environment variable `ASAP_INGEST_<NAME>`.

    memory_bytes: address space of the converting process; XProf needs about 2 kB for every op of every step on every
    core (measured, xprof 2.24.2).  cpu_s: its processor time.  wall_s: its time by the clock.  upload_bytes: one
    uploaded file.  unpacked_bytes: everything that comes out of the uploads.  ratio: unpacked to packed bytes of one
    archive.  entries: members of one archive.  result_bytes: the StepProfile as JSON.
    """

    memory_bytes: int = 4_300_000_000
    cpu_s: int = 240
    wall_s: int = 240
    upload_bytes: int = 500_000_000
    unpacked_bytes: int = 2_000_000_000
    ratio: int = 250
    entries: int = 10_000
    result_bytes: int = 250_000_000

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Limits:
        """Limits with what `ASAP_INGEST_MEMORY_BYTES`, `ASAP_INGEST_CPU_S`, … say; ValueError for what is no number."""
        values: dict[str, int] = {}
        for field in fields(cls):
            name = f"ASAP_INGEST_{field.name.upper()}"
            text = environment.get(name, "").strip()
            if not text:
                continue
            if not (number := whole_number(text)):
                raise ValueError(f"{name} is {text!r}; give a whole number greater than 0.")
            values[field.name] = number
        return cls(**values)
