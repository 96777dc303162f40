"""The event stores of profiles: where they lie, opened once, written again from the uploaded files."""

from __future__ import annotations

import logging
from pathlib import Path

from django.db import transaction
from django.http import Http404

from experiments.ingest import IngestError, read_profile
from experiments.kept import Kept
from experiments.models import Profile, Run, RunStatus
from experiments.services import storage
from experiments.step_profile import MODEL, STEP_TIME
from experiments.trace import Trace, TraceError
from jobs.declared import DeclaredTask

logger = logging.getLogger(__name__)

WRITE_TRACE = DeclaredTask("work.experiments.trace")

#: Opened stores are kept, with what they work out about themselves; 16 of a million events are about 130 MB.
_traces = Kept(16)


class NoTrace(Http404):
    """The profile has no events to show.  The text is a sentence; can_write: reading its files again may bring them."""

    def __init__(self, text: str, *, can_write: bool = False) -> None:
        super().__init__(text)
        self.can_write = can_write


def path_of(run: Run) -> str:
    """Where the run's event store is written, below the data folder."""
    storage.absolute(storage.PROFILES).mkdir(parents=True, exist_ok=True, mode=0o700)
    return f"{storage.PROFILES}/{run.profile_id}-{run.pk}.trace"


def store(profile: Profile, path: str) -> None:
    """Point the profile at its event store, where one was written; the one before goes once this is committed."""
    previous, written = profile.trace or "", path if storage.absolute(path).exists() else ""
    Profile.objects.filter(pk=profile.pk).update(trace=written)
    profile.trace = written
    if previous and previous != written:
        transaction.on_commit(lambda: storage.remove([previous]))


def load(profile: Profile) -> Trace:
    """The profile's events.  Raises NoTrace."""
    if profile.summary.get("source_kind") in (STEP_TIME, MODEL):
        raise NoTrace("This experiment has only a step time. Upload a profile to see a timeline.")
    if profile.trace == "":
        raise NoTrace(
            "The uploaded files contain op totals but no events, so there is no timeline. Upload the profile itself "
            "(HOST.xplane.pb, or a PyTorch or Nsight trace) instead of its tables."
        )
    if profile.trace is None:
        raise NoTrace(
            "This profile was read before timelines were stored; its files are being read again.",
            can_write=profile.files.exists() and profile.ingested_at is not None,
        )
    try:
        return _opened(storage.absolute(profile.trace))
    except (FileNotFoundError, TraceError) as error:
        logger.warning("the event store of profile %s cannot be read: %s", profile.pk, error)
        raise NoTrace("The events of this profile are no longer in the data folder.", can_write=True) from error


def _opened(path: Path) -> Trace:
    facts = path.stat()
    return _traces.get((path, facts.st_mtime_ns, facts.st_size), lambda: Trace(path))


def ask(profile: Profile) -> bool:
    """Have a worker read the profile's files again for their events; False where the queue cannot be reached."""
    return WRITE_TRACE.send(profile.pk)


def write(pk: int) -> bool:
    """Read the files of a profile again and keep their events; nothing to do where they are there.

    A worker that dies here leaves the profile as it was, and the page offers to read it again.
    """
    profile = Profile.objects.filter(pk=pk).first()
    run = Run.objects.filter(profile_id=pk).order_by("-pk").first()
    if profile is None or run is None or RunStatus(run.status).is_working:
        return False
    if profile.trace is not None and (profile.trace == "" or storage.absolute(profile.trace).exists()):
        return False
    files = list(profile.files.filter(included=True))
    path = path_of(run)
    try:
        read_profile(
            [storage.absolute(file.path) for file in files],
            names=[file.name for file in files],
            exclude=profile.excluded,
            trace_to=storage.absolute(path),
        )
    except IngestError:
        logger.exception("the events of profile %s could not be read", pk)
        return False
    with transaction.atomic():
        store(profile, path)
    return True
