"""Ingestion: uploaded profile files → `StepProfile`, everything that reads their bytes in a sandboxed process."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from experiments.ingest import sandbox
from experiments.ingest.errors import IngestError
from experiments.ingest.limits import Limits, Progress
from experiments.step_profile import STEP_PROFILE, StepProfile
from formatting import limit, plain

__all__ = ["IngestError", "Limits", "Progress", "read_profile"]

#: The event store in the private folder.
_TRACE = "events.trace"


def read_profile(
    paths: Sequence[Path | str],
    *,
    names: Sequence[str] | None = None,
    exclude: Sequence[str] = (),
    on_progress: Progress | None = None,
    limits: Limits | None = None,
    trace_to: Path | str | None = None,
    meanwhile: Callable[[], object] | None = None,
) -> StepProfile:
    """The StepProfile of one profiling session.

    paths: `*.xplane.pb[.gz]`, zip or tar.gz of a log directory, XProf's JSON exports, PyTorch traces (one per rank) or
    Nsight Systems' SQLite exports.  names: what the user called
    them, in the same order (default: their file names).  exclude: hosts, or files by name, to leave out.  on_progress:
    called with (stage, fraction 0–1 or None, text); what it raises ends the work and passes through.  limits: default
    `Limits.from_environment()`.  trace_to: where the event store (`experiments.trace`) is written; no file appears
    where the upload has no events, as XProf's JSON exports.  meanwhile: called once while the reading process starts,
    to load what the caller needs next.  Raises IngestError with a sentence for everything that is
    wrong with the files.
    """
    limits = limits or Limits.from_environment()
    uploads = _uploads(paths, names, limits)
    arguments = {"uploads": uploads, "exclude": list(exclude), "trace": _TRACE if trace_to else ""}
    subject = uploads[0][1] if len(uploads) == 1 else f"{len(uploads)} files"
    with sandbox.private_folder() as folder:
        answer = sandbox.run(arguments, folder, limits, on_progress, subject=subject, meanwhile=meanwhile)
        if trace_to and (folder / _TRACE).exists():
            shutil.move(folder / _TRACE, trace_to)
    try:
        return STEP_PROFILE.read(answer)
    except ValueError as error:
        raise sandbox.unusable(subject, repr(error)) from error


def _uploads(paths: Sequence[Path | str], names: Sequence[str] | None, limits: Limits) -> list[tuple[str, str]]:
    """(absolute path, name) of each upload; sizes are checked here, before anything is started for them."""
    if not paths:
        raise IngestError("No file was given.", "Provide at least one profile file.", kind="empty")
    shown = list(names) if names is not None else [Path(path).name for path in paths]
    uploads: list[tuple[str, str]] = []
    for path, name in zip(paths, shown, strict=True):
        try:
            resolved = Path(path).resolve(strict=True)
            size = resolved.stat().st_size
        except OSError as error:
            raise IngestError(f"{name} cannot be opened: {error.strerror}.", "Check the path.", name) from error
        if not resolved.is_file():
            raise IngestError(
                f"{name} is not a file.",
                "Provide the *.xplane.pb files in it, or pack the folder as zip or tar.gz.",
                name,
            )
        if size > limits.upload_bytes:
            raise IngestError(
                f"{name} has {plain(size, 'bytes')}; at most {limit(limits.upload_bytes, 'bytes')} are accepted.",
                "Profile fewer steps, or upload the hosts as separate files.",
                name,
                kind="too_large",
            )
        uploads.append((str(resolved), name))
    return uploads
