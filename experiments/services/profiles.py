"""Keep a StepProfile as gzipped JSON below the data folder, with a summary in the database."""

from __future__ import annotations

import gzip
import json
import os
import uuid
from typing import Any

from django.utils import timezone

from experiments.models import Profile
from experiments.services import storage
from experiments.step_profile import StepProfile


class NotIngested(LookupError):
    """The profile has not been read yet, or its data is gone.  The text is a sentence for the user."""


def store(profile: Profile, value: StepProfile) -> None:
    """Write the value under a new name, then point the profile at it; what it pointed at before is removed.

    A worker that dies in between leaves a file that nothing points at, never a profile that points at half a file.
    """
    path = f"{storage.PROFILES}/{uuid.uuid4().hex}.json.gz"
    target = storage.absolute(path)
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    partial = target.with_suffix(".part")
    try:
        with partial.open("wb") as raw:
            with gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=5, mtime=0) as packed:
                packed.write(json.dumps(value.to_json(), allow_nan=False).encode())
            raw.flush()
            os.fsync(raw.fileno())
        partial.rename(target)
    finally:
        partial.unlink(missing_ok=True)
    previous = profile.data
    profile.data = path
    profile.summary = summary(value)
    profile.step_time_s = value.step_time_s
    profile.ingested_at = timezone.now()
    profile.save(update_fields=["data", "summary", "step_time_s", "ingested_at"])
    storage.remove([previous])


def load(profile: Profile) -> StepProfile:
    """The StepProfile that was read from the uploaded files.  Raises NotIngested."""
    if not profile.data:
        raise NotIngested("This profile has not been read yet.")
    try:
        with gzip.open(storage.absolute(profile.data), "rt", encoding="utf-8") as file:
            return StepProfile.from_json(json.load(file))
    except FileNotFoundError as error:
        raise NotIngested("The data of this profile is gone from the data folder; retry the analysis.") from error


def summary(value: StepProfile) -> dict[str, Any]:
    """What the pages show of a profile without opening it."""
    return {
        "provenance": value.provenance,
        "label": value.label,
        "source_kind": value.source_kind,
        "converter": value.converter,
        "device": {
            "kind": value.device.kind,
            "chip": value.device.chip,
            "core_count": value.device.core_count,
            "host_count": value.device.host_count,
        },
        "files": [{"name": file.name, "host": file.host, "size_bytes": file.size_bytes} for file in value.files],
        "step_count": len(value.steps),
        "op_count": len(value.ops),
        "ops_dropped": value.ops_dropped,
        "kpis": value.kpis,
        "not_measured": value.not_measured,
        "notes": [{"severity": note.severity, "message": note.message} for note in value.notes],
    }
