"""`check`: compile a configuration's step in a process of its own, and say what came of it.

Quick effort first; where the compiler crashes, once more at its default effort (one shape crashed libtpu at quick
effort every time and compiled at the default).  The process is limited in processor time, wall time and memory.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import formatting
from jobs import child
from jobs.child_environment import DEVICES, PYTHON, SYSTEM, environment
from perfmodel.chips import get_chip
from perfmodel.config import ExperimentConfig
from perfmodel.config_file import config_to_json
from proposals.compiling import compiler_flags, targets
from proposals.compiling.cache import Cache, key_of
from proposals.compiling.result import CHECK, CompileCheck
from proposals.compiling.worker import HLO_FILE

EFFORTS = ("quick", "default")
LOOK_EVERY_S = 0.5
#: Bytes of one line: a program has thousands of collectives at most.
LONGEST_ANSWER = 50_000_000
#: The module whose `main` compiles; tests have one of their own.
WORKER = "proposals.compiling.worker"

#: Told of (effort, stage); an exception ends the compiler and passes through, which is how a caller cancels.
Progress = Callable[[str, str], None]


@dataclass(frozen=True)
class Limits:
    """Processor and wall seconds by effort; resident memory, bytes.

    A compile takes 10 to 25 s of two cores at quick effort, 60 to 100 s at the default, and 2 GB of memory.
    """

    cpu_s: tuple[int, int] = (300, 900)
    wall_s: tuple[int, int] = (900, 1800)
    memory_bytes: int = 8_000_000_000


def check(
    config: ExperimentConfig, *, step: str | None = None, effort: str = "quick", limits: Limits = Limits(),
    cache: Cache | None = None, on_progress: Progress | None = None, worker: str = WORKER, hlo: Path | None = None,
    any_flags: bool = False,
) -> CompileCheck:  # fmt: skip
    """What the compiler says of `config`.

    step: `module:function` of the user's own step, the reference step by default; it is code and runs as such.  effort:
    the first tried.  cache: where answers are kept by content.  worker: the module that compiles.  hlo: file that the
    scheduled HLO is written to; it is in no cache, so the step is compiled.  any_flags: pass the configuration's XLA
    flags as they are, where who compiles is at home on this machine.
    """
    target = targets.target(config.hardware)
    if isinstance(target, str):
        return CompileCheck("invalid", target)
    if worker == WORKER and not targets.installed(target.platform):
        return CompileCheck("not_installed", targets.not_installed(target.platform))
    key = key_of(config, step, effort, worker)
    if cache is not None and hlo is None and (known := cache.get(key)):
        return known
    if not any_flags and (sentence := compiler_flags.refused_flag(config.training.xla_flags, target.platform)):
        return CompileCheck("refused", sentence)
    sources = [os.getcwd(), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))] if step else []
    request = {
        "config": config_to_json(config), "step": step, "platform": target.platform, "topology": target.name,
        "options": target.options or {}, "hlo": str(hlo.absolute()) if hlo else None, "sources": sources,
        "flags": compiler_flags.words(config.training.xla_flags),
    }  # fmt: skip
    efforts = (effort, *(other for other in EFFORTS if other != effort))
    for tried in efforts:
        begin = time.monotonic()
        checked = _run(request, tried, limits, on_progress, worker)
        checked = replace(checked, effort=tried, compile_s=time.monotonic() - begin)
        if checked.outcome != "crashed":
            break
    usable = get_chip(config.hardware.chip).hbm_usable_bytes
    checked = replace(checked, capacity_bytes=checked.capacity_bytes or float(usable))
    # What depends on the load of the machine is no property of the configuration.
    if cache is not None and checked.outcome not in ("timed_out", "crashed"):
        cache.put(key, checked)
    return checked


def _run(request: dict[str, Any], effort: str, limits: Limits, progress: Progress | None, worker: str) -> CompileCheck:
    at = EFFORTS.index(effort)
    with tempfile.TemporaryDirectory(prefix="asap-compile-") as place, tempfile.TemporaryFile() as errors:
        folder = Path(place)
        process = child.start(worker, folder=folder, errors=errors, piped=True, variables=_variables(request, effort))
        assert process.stdin is not None and process.stdout is not None
        deadline = time.monotonic() + limits.wall_s[at]
        memory = _Memory(process.pid, limits.memory_bytes)
        result: dict[str, Any] | None = None
        stages = ["starting"]
        try:
            with contextlib.suppress(BrokenPipeError), process.stdin as into:
                into.write(json.dumps(request | {"cpu_s": limits.cpu_s[at], "parent": os.getpid()}).encode())

            def look() -> bool:
                _tell(progress, effort, stages[-1])
                return memory.look()

            said = child.lines(process.stdout, deadline, look, every_s=LOOK_EVERY_S, longest=LONGEST_ANSWER)
            for line in filter(None, map(_object, said)):
                if "result" in line:
                    result = line["result"]
                else:
                    stages.append(str(line.get("stage")))
                    _tell(progress, effort, stages[-1])
            late = memory.exceeded or time.monotonic() >= deadline
            code = None if late else process.wait(max(0.1, deadline - time.monotonic()))
        except child.TimeoutExpired:
            code = None
        finally:
            child.end(process)
            process.stdout.close()
        if result is None:
            return _ending(code, memory, limits, at, stages[-1], _last_line(errors))
        if request["hlo"] and (folder / HLO_FILE).exists():
            shutil.move(folder / HLO_FILE, request["hlo"])
        return CHECK.read(result)


def _variables(request: dict[str, Any], effort: str) -> dict[str, str]:
    """Return what the compiler needs besides a folder: the devices, its effort, and the flags of the configuration."""
    name = "LIBTPU_INIT_ARGS" if request["platform"] == "tpu" else "XLA_FLAGS"
    own = environment(SYSTEM, PYTHON) if request["step"] else {}  # the user's own code, started by the user
    given = {name: " ".join(request["flags"])} if request["flags"] else {}
    return own | environment(DEVICES) | targets.environment(request["platform"], effort == "quick") | given


def _ending(code: int | None, memory: _Memory, limits: Limits, at: int, stage: str, tail: str) -> CompileCheck:
    if memory.exceeded:
        most = formatting.limit(limits.memory_bytes, "bytes")
        return CompileCheck("crashed", f"The compiler took more than {most} of this machine's memory and was stopped.")
    if code in (-signal.SIGXCPU, -signal.SIGKILL) or code is None:
        limit = f"{limits.cpu_s[at]} s of processor time or {limits.wall_s[at]} s"
        return CompileCheck("timed_out", f"The compiler exceeded {limit} while {stage} and was stopped.")
    how = signal.Signals(-code).name if code < 0 else f"exit status {code}"
    text = f"The compiler crashed while {stage} ({how}){': ' + tail if tail and code > 0 else '.'}"
    return CompileCheck("crashed", text[:300])


def _tell(progress: Progress | None, effort: str, stage: str) -> None:
    if progress is not None:
        progress(effort, stage)


def _object(line: bytes) -> dict[str, Any] | None:
    """A line of JSON; None for what a library printed between ours."""
    with contextlib.suppress(ValueError):
        parsed = json.loads(line)
        return parsed if isinstance(parsed, dict) else None
    return None


class _Memory:
    """Resident memory of a process, against its limit."""

    def __init__(self, pid: int, limit_bytes: int) -> None:
        self._file, self._limit = Path(f"/proc/{pid}/statm"), limit_bytes
        self._page = os.sysconf("SC_PAGE_SIZE")
        self.exceeded = False

    def look(self) -> bool:
        with contextlib.suppress(OSError, IndexError, ValueError):
            self.exceeded |= int(self._file.read_text().split()[1]) * self._page > self._limit
        return self.exceeded


def _last_line(errors: IO[bytes]) -> str:
    """The last line that the process wrote to stderr."""
    lines = child.tail(errors, 4096).strip().splitlines()
    return " ".join(lines[-1].split()) if lines else ""
