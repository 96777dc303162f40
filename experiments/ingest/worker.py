"""Runs in the sandbox: `main` takes a job from a file, works under its limits, and leaves a result in a file."""

from __future__ import annotations

import errno
import json
import os
import sys
from pathlib import Path

from experiments.ingest.errors import IngestError
from experiments.ingest.limits import Limits
from formatting import limit
from jobs.confinement import confine

_NO_ROOM = (errno.EFBIG, errno.ENOSPC, errno.EDQUOT)


def main() -> None:
    """`JOB_FILE PROGRESS_FD` on the command line; exit code 0 with `result.json` in the job's folder."""
    job = json.loads(Path(sys.argv[1]).read_text())
    limits = Limits(**job["limits"])
    uploads = job["arguments"].get("uploads", ())
    confine(
        job["parent"], folder=Path(job["folder"]), reads=[Path(path) for path, _ in uploads],
        memory_bytes=limits.memory_bytes, cpu_s=limits.cpu_s, file_bytes=limits.unpacked_bytes,
    )  # fmt: skip
    reports = os.fdopen(int(sys.argv[2]), "w", buffering=1)

    def report(stage: str, fraction: float | None, text: str) -> None:
        reports.write(json.dumps([stage, fraction, text]) + "\n")

    # Only now: whatever these load counts against the limits.
    from experiments.ingest import tasks

    folder = Path(job["folder"])
    try:
        answer = {"result": tasks.read(folder=folder, limits=limits, report=report, **job["arguments"])}
    except IngestError as error:
        answer = {"error": error.to_json()}
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        answer = {"error": _no_room(error, limits).to_json()}
    (folder / "result.json").write_text(json.dumps(answer, allow_nan=False))


def _no_room(error: OSError, limits: Limits) -> IngestError:
    if error.errno == errno.EFBIG:
        return IngestError(
            f"Reading this profile needs a file larger than {limit(limits.unpacked_bytes, 'bytes')}.",
            "Profile fewer steps (ten are enough) and upload again.",
            kind="too_large",
        )
    return IngestError(
        "The server's disk is full, so the profile cannot be unpacked.",
        "Free some space, or set ASAP_INGEST_FOLDER to a larger disk, and try again.",
        kind="disk",
    )
