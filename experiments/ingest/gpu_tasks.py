"""Reading PyTorch traces and Nsight Systems exports in the sandbox: one file after the other, so that one is held."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from experiments.ingest.archives import Contents, Found
from experiments.ingest.errors import IngestError
from experiments.ingest.gpu.device import TraceFile
from experiments.ingest.gpu.profile import profile
from experiments.ingest.kineto import read as kineto
from experiments.ingest.nsight import read as nsight
from experiments.ingest.progress import Report
from experiments.step_profile import Note, SourceFile, StepProfile
from experiments.trace import TraceBuilder

Reader = Callable[[Path, str], TraceFile]
#: (reader, why there is no step time where nothing marks steps) by kind of upload.
READERS: dict[str, tuple[Reader, str]] = {
    "kineto": (kineto.read, kineto.NO_STEPS),
    "nsight": (nsight.read, nsight.NO_STEPS),
}


def read(
    contents: Contents,
    files: Sequence[SourceFile],
    exclude: Sequence[str],
    report: Report,
    notes: Sequence[Note],
    builder: TraceBuilder | None = None,
) -> StepProfile:
    """The StepProfile of uploads of one of the kinds in READERS; IngestError names the file at fault.

    builder: takes the events for the timeline.
    """
    kind = contents.files[0].kind
    reader, no_steps = READERS[kind]
    left_out = set(exclude)
    wanted = [item for item in contents.files if not _excluded(item, left_out)]
    if not wanted:
        raise IngestError("Every file of this session is excluded.", "Keep at least one.", kind="empty")
    recordings: list[TraceFile] = []
    for index, item in enumerate(wanted):
        which = f"Reading trace {index + 1} of {len(wanted)}" if len(wanted) > 1 else "Reading the trace"
        report("read", 0.05 + 0.85 * index / len(wanted), which)
        try:
            recordings.append(reader(item.path, item.name))
        except IngestError as error:
            error.excludable = len(wanted) > 1
            raise
    report("read", 0.9, "Merging ranks" if len(recordings) > 1 else "Merging steps and ops")
    return profile(
        recordings, _with_ranks(files, recordings), source_kind=kind, no_steps=no_steps, notes=notes, builder=builder
    )


def _excluded(item: Found, left_out: set[str]) -> bool:
    member = item.name.partition(": ")[2] or item.name
    return bool(left_out & {item.name, member, member.rpartition("/")[2]})


def _with_ranks(files: Sequence[SourceFile], recordings: Sequence[TraceFile]) -> list[SourceFile]:
    """Each upload with the ranks that came out of it."""
    named: list[SourceFile] = []
    for file in files:
        ranks = [
            f"rank {recording.rank}"
            for recording in recordings
            if recording.rank is not None
            and (recording.file == file.name or recording.file.startswith(f"{file.name}: "))
        ]
        named.append(SourceFile(file.name, ", ".join(ranks[:8]), file.size_bytes, file.sha256))
    return named
