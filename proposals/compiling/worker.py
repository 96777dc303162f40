"""Compiles one step: `main`, started by `engine.check`; a request as JSON on stdin, lines of JSON on stdout.

Lines are ``{"stage": …}`` while it works and one ``{"result": …}`` at the end (`CompileCheck`).  A process of its own,
since the compiler may crash, loop or take all memory, and since what it compiles for is fixed when JAX starts.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from jobs.confinement import confine

_GIB = 2**30
#: In the folder of the process.
HLO_FILE = "program.hlo"
#: The HLO of a step of thousands of ops is some tens of megabytes.
LARGEST_FILE_BYTES = 4 * 10**9
#: What XLA says of a program that does not fit, in the wordings of TPU and GPU, and of what there is.
_NEEDED = (
    re.compile(r"[Tt]otal hbm usage >= ([\d.]+)([KMG])"),
    re.compile(r"[Uu]sed ([\d.]+)([KMG]) of [\d.]+[KMG] hbm"),
    re.compile(r"total memory required for HLO temporaries \(([\d.]+)([KMG])\)"),
    re.compile(r"trying to allocate ([\d.]+)([KMG])i?B"),
)
_CAPACITY = (
    re.compile(r"[Uu]sed [\d.]+[KMG] of ([\d.]+)([KMG]) hbm"),
    re.compile(r"exceeds available HBM \(([\d.]+)([KMG])\)"),
)


def main() -> None:
    request = json.load(sys.stdin)
    libraries = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    confine(
        request["parent"],
        # A step of the user's own is code that may read what the user may.
        folder=None if request["step"] else Path.cwd(), reads=map(Path, filter(None, libraries)),
        memory_bytes=None, cpu_s=request["cpu_s"], file_bytes=LARGEST_FILE_BYTES,
    )  # fmt: skip
    # What libraries print must not stand between our lines.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(line: dict[str, Any]) -> None:
        print(json.dumps(line), file=out, flush=True)

    say({"result": _compiled(request, lambda stage: say({"stage": stage}))})


def _compiled(request: dict[str, Any], stage: Callable[[str], None]) -> dict[str, Any]:
    stage("starting")
    import jax

    from perfmodel.config_file import parse_config
    from proposals.compiling import collectives
    from proposals.compiling.result import CHECK, CompileCheck

    config, _ = parse_config(request["config"])
    versions = {"jax": jax.__version__}
    if request["platform"] == "tpu":
        versions["libtpu"] = _version("libtpu")
    notes: tuple[str, ...] = ()
    try:
        devices = _devices(request)
        stage("tracing")
        step, arguments, notes = _step(request.get("step"), request["sources"], config, devices)
        lowered = step.trace(*arguments).lower(lowering_platforms=(_LOWERED[request["platform"]],))
    except Exception as error:
        return CHECK.write(CompileCheck("invalid", _sentence(error), versions=versions, notes=notes))
    stage("compiling")
    try:
        compiled = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        text = str(error)
        if "RESOURCE_EXHAUSTED" in text and ("memory" in text.lower()):
            needed, capacity = _bytes(_NEEDED, text), _bytes(_CAPACITY, text)
            message = "The compiled step does not fit the chip's memory."
            checked = CompileCheck(
                "out_of_memory", message, needed_bytes=needed, capacity_bytes=capacity, versions=versions, notes=notes
            )
            return CHECK.write(checked)
        return CHECK.write(CompileCheck("invalid", _sentence(error), versions=versions, notes=notes))
    stage("reading")
    memory, text = compiled.memory_analysis(), compiled.as_text()
    if request.get("hlo"):
        Path(HLO_FILE).write_text(text, encoding="utf-8")
    checked = CompileCheck(
        "fits",
        peak_bytes=float(memory.peak_memory_in_bytes),
        argument_bytes=float(memory.argument_size_in_bytes),
        collectives=collectives.read(text, config.mesh),
        versions=versions,
        notes=notes,
    )
    return CHECK.write(checked)


_LOWERED = {"tpu": "tpu", "gpu": "cuda"}


def _devices(request: dict[str, Any]) -> Any:
    import jax
    from jax.experimental import topologies

    if request["platform"] == "gpu":
        return jax.devices()
    return topologies.get_topology_desc(platform="tpu", topology_name=request["topology"], **request["options"]).devices


def _step(
    named: str | None, sources: list[str], config: Any, devices: Any
) -> tuple[Any, tuple[Any, ...], tuple[str, ...]]:
    """Jitted step, abstract arguments, notes: of the reference step, or of `module:function` with
    ``(config, mesh) -> (jitted step, abstract arguments)``, found in the folders `sources`."""
    from reference_step.layout import device_mesh
    from reference_step.step import build

    mesh = device_mesh(config, devices)
    if named:
        module, _, name = named.partition(":")
        sys.path[:0] = sources
        step, arguments = getattr(importlib.import_module(module), name)(config, mesh)
        return step, tuple(arguments), ()
    reference = build(config, mesh)
    return reference.step, (reference.abstract_state, reference.abstract_batch), reference.notes


def _bytes(patterns: tuple[re.Pattern[str], ...], text: str) -> float | None:
    for pattern in patterns:
        if match := pattern.search(text):
            return float(match.group(1)) * {"K": 1024, "M": 1024**2, "G": _GIB}[match.group(2)]
    return None


def _sentence(error: Exception) -> str:
    """One line of the complaint, at most 300 characters."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 300 else text[:297] + "…"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
