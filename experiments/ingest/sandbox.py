"""A process of its own for everything that touches an upload's bytes.

XProf is a large C++ library that a malformed profile can crash or make eat all memory.  It runs here under limits on
address space, processor time and file size, without the parent's environment, in a fresh folder that is removed
afterwards, and is killed with its whole process group when its time is up or its parent dies.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from experiments.ingest.errors import IngestError
from experiments.ingest.limits import Limits, Progress
from formatting import limit
from jobs import child

FOLDER_PREFIX = "asap-ingest-"
FEWER_STEPS = "Profile fewer steps (ten are enough) and upload again."

#: How often the process is looked at.
LOOK_EVERY_S = 0.05

#: What a dying allocator says, in XProf, Python and the C++ runtime.
OUT_OF_MEMORY = ("bad_alloc", "out of memory", "cannot allocate memory", "memoryerror", "length_error")


@contextlib.contextmanager
def private_folder() -> Iterator[Path]:
    """A fresh folder only we may enter, removed afterwards; folders that a killed worker left are removed too."""
    base = Path(os.environ.get("ASAP_INGEST_FOLDER") or tempfile.gettempdir())
    _sweep(base)
    folder = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX, dir=base))
    lock = os.open(folder / ".lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _sweep(base: Path) -> None:
    """Remove folders of processes that are gone: nobody holds their lock."""
    for folder in base.glob(f"{FOLDER_PREFIX}*"):
        with contextlib.suppress(OSError):
            if folder.stat().st_uid != os.getuid() or time.time() - folder.stat().st_mtime < 60:
                continue
            lock = os.open(folder / ".lock", os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


def run(
    arguments: dict[str, Any],
    folder: Path,
    limits: Limits,
    on_progress: Progress | None = None,
    *,
    subject: str = "the profile",
    meanwhile: Callable[[], object] | None = None,
) -> Any:
    """Run `experiments.ingest.worker` under limits; its result, or IngestError with its reason.

    arguments: of `tasks.read`, JSON values.  subject: what the sentence of a failure is about.  on_progress is
    called in this process with (stage, fraction or None, text) as the worker reports; an exception from it ends the
    worker and passes through, which is how a caller cancels.  meanwhile: called once while the worker starts.
    """
    job = {"arguments": arguments, "limits": asdict(limits), "folder": str(folder), "parent": os.getpid()}
    job_path, result_path = folder / "job.json", folder / "result.json"
    job_path.write_text(json.dumps(job))
    result_path.unlink(missing_ok=True)
    read_end, write_end = os.pipe()
    with (folder / "stderr").open("w+b") as errors, os.fdopen(read_end, "rb") as reports:
        try:
            process = child.start(
                "experiments.ingest.worker", str(job_path), str(write_end),
                folder=folder, errors=errors, pass_fds=(write_end,),
            )  # fmt: skip
        finally:
            os.close(write_end)
        stage = "start"
        try:
            if meanwhile is not None:
                meanwhile()
            deadline = time.monotonic() + limits.wall_s
            for line in child.lines(reports, deadline, every_s=LOOK_EVERY_S, longest=100_000):
                stage, fraction, text = _report(line)
                if on_progress is not None:
                    on_progress(stage, fraction, text)
            process.wait(max(deadline - time.monotonic(), 0.01))
        except child.TimeoutExpired as error:
            text = f"Reading {subject} exceeded {limits.wall_s} s and was stopped."
            raise IngestError(text, FEWER_STEPS, kind="time", detail=child.tail(errors)) from error
        finally:
            child.end(process)
        if process.returncode == 0:
            return _result(result_path, limits, subject, child.tail(errors))
        raise _failure(process.returncode, limits, subject, stage, child.tail(errors))


def _report(line: bytes) -> tuple[str, float | None, str]:
    try:
        stage, fraction, text = json.loads(line)
        return str(stage)[:40], None if fraction is None else min(max(float(fraction), 0.0), 1.0), str(text)[:300]
    except (ValueError, TypeError):
        return "convert", None, ""


def _result(path: Path, limits: Limits, subject: str, detail: str) -> Any:
    try:
        if path.stat().st_size > limits.result_bytes:
            raise IngestError(
                f"The data read from {subject} exceeds {limit(limits.result_bytes, 'bytes')}.",
                FEWER_STEPS,
                kind="too_large",
            )
        answer = json.loads(path.read_bytes(), parse_constant=_no_constant)
        if "error" in answer:
            raise IngestError.from_json(answer["error"])
        return answer["result"]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise unusable(subject, f"{error!r}\n{detail}") from error


def unusable(subject: str, detail: str) -> IngestError:
    return IngestError(
        f"The converter produced no usable result for {subject}.",
        "Retry; if it recurs, report it with the file.",
        kind="converter",
        detail=detail,
    )


def _failure(code: int, limits: Limits, subject: str, stage: str, detail: str) -> IngestError:
    """What a process that ended with this code died of."""
    how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    memory = limit(limits.memory_bytes, "bytes")
    kind, next_step = "memory", FEWER_STEPS
    if any(words in detail.lower() for words in OUT_OF_MEMORY):
        text = f"Converting {subject} needs more than its memory limit of {memory}."
    elif code == -signal.SIGXCPU or (code == -signal.SIGKILL and stage != "start"):
        kind = "time"
        text = (
            f"Converting {subject} was stopped: it used more than {limits.cpu_s} s of processor time, or the machine "
            "ran out of memory."
        )
    elif code == -signal.SIGXFSZ:
        kind = "too_large"
        text = f"Converting {subject} wrote a file larger than {limit(limits.unpacked_bytes, 'bytes')}."
    else:
        kind = "crash"
        text = f"XProf's converter crashed on {subject} ({how})."
        next_step = "A file is probably damaged: copy it again, or leave out one host after the other to find it."
    return IngestError(text, next_step, kind=kind, detail=detail)


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is not a number")
