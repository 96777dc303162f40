"""Keep a StepProfile as gzipped JSON below the data folder, with a summary in the database."""

from __future__ import annotations

import gzip
import json
import os
import uuid
from typing import Any

from django.db import transaction
from django.utils import timezone

from experiments.models import Experiment, Origin, Profile, Run
from experiments.services import storage
from experiments.step_profile import PROFILE, STEP_PROFILE, StepProfile
from formatting.text import clean, clean_json


class NotIngested(LookupError):
    """The profile has not been read yet, or its data is gone.  The text is a sentence for the user."""


def write(run: Run, value: StepProfile) -> str:
    """Write the value to the run's own file and return its path below the data folder.

    A worker that takes over the run writes the same file again; it appears whole or not at all.
    """
    path = f"{storage.PROFILES}/{run.profile_id}-{run.pk}.json.gz"
    target = storage.absolute(path)
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    partial = target.with_name(f"{target.name}.{uuid.uuid4().hex}.part")
    try:
        with partial.open("wb") as raw:
            with gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=5, mtime=0) as packed:
                packed.write(json.dumps(clean_json(STEP_PROFILE.write(value)), allow_nan=False).encode())
            raw.flush()
            os.fsync(raw.fileno())
        partial.rename(target)
    finally:
        partial.unlink(missing_ok=True)
    return path


def store(profile: Profile, value: StepProfile, path: str) -> None:
    """Point the profile at the written value; the file it pointed at before goes once this is committed."""
    previous = profile.data
    profile.data = path
    profile.summary = clean_json(summary(value))
    profile.step_time_s = value.step_time_s
    profile.ingested_at = timezone.now()
    profile.save(update_fields=["data", "summary", "step_time_s", "ingested_at"])
    _label(profile, value)
    if previous != path:
        transaction.on_commit(lambda: storage.remove([previous]))


def _label(profile: Profile, value: StepProfile) -> None:
    """A profile that was reconstructed, not measured, says so wherever it is uploaded, as a shipped sample does; a run
    without a profile says so too, until one is added."""
    made = value.provenance == "reconstructed"
    origin = Origin.RECONSTRUCTED if made else Origin.UPLOADED if value.basis == PROFILE else Origin.STEP_TIME
    Experiment.objects.filter(pk=profile.experiment_id, sample="").update(
        origin=origin, label=clean(value.label)[:200] if made else ""
    )


def load(profile: Profile) -> StepProfile:
    """The StepProfile that was read from the uploaded files.  Raises NotIngested."""
    if not profile.data:
        raise NotIngested("This profile has not been read yet.")
    return load_from(profile.data)


def load_from(path: str) -> StepProfile:
    """The StepProfile written at a path below the data folder.  Raises NotIngested."""
    try:
        with gzip.open(storage.absolute(path), "rt", encoding="utf-8") as file:
            return STEP_PROFILE.read(json.load(file))
    except FileNotFoundError as error:
        raise NotIngested("The data of this profile is no longer in the data folder; retry the analysis.") from error


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
        "memory_peak_bytes": value.memory.peak_bytes,
        "memory_capacity_bytes": value.memory.capacity_bytes,
        "kpis": value.kpis,
        "not_measured": value.not_measured,
        "computed": value.computed,
        "notes": [{"severity": note.severity, "message": note.message} for note in value.notes],
    }
