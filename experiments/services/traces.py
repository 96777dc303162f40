"""The event stores of profiles: where they lie, opened once."""

from __future__ import annotations

import logging
from pathlib import Path

from django.db import transaction
from django.http import Http404

from experiments.lru_cache import LruCache
from experiments.models import Profile, Run
from experiments.services import storage
from experiments.step_profile import MODEL, STEP_TIME
from experiments.trace import Trace, TraceError

logger = logging.getLogger(__name__)

#: Opened stores are kept, with what they work out about themselves; 16 of a million events are about 130 MB.
_traces = LruCache(16)


class NoTrace(Http404):
    """The profile has no events to show.  The text is a sentence."""


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
    try:
        return _opened(storage.absolute(profile.trace or ""))
    except (OSError, TraceError) as error:
        logger.warning("the event store of profile %s cannot be read: %s", profile.pk, error)
        raise NoTrace("The events of this profile are not in the data folder. Upload it again to see them.") from error


def _opened(path: Path) -> Trace:
    facts = path.stat()
    return _traces.get((path, facts.st_mtime_ns, facts.st_size), lambda: Trace(path))
