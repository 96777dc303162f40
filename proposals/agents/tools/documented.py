"""The tool over flags: those documented for findings of this run, and what a named flag does here."""

from __future__ import annotations

from pydantic import Field

from agent.tools import Arguments
from experiments.step_profile import XLA_PROFILES
from perfmodel import known_flags as documented
from perfmodel.config import framework_of
from perfmodel.execution import profile_named
from perfmodel.known_flags import Flag
from perfmodel.workload import chip_of
from proposals.agents.tool_result import Result, about, taken
from proposals.agents.workbench import Workbench

#: How a program is called that takes the flags of a kind.
PROGRAMS = {"xla": "XLA", "pytorch": "PyTorch", "megatron": "Megatron"}


class FlagArguments(Arguments):
    text: str = Field("", max_length=600, description="Flags or variables; empty: those that bear on the run.")


def flags(bench: Workbench, asked: FlagArguments) -> Result:
    """Documented flags for findings of this run; or what named flags do, whether this program reads them, and the time
    they can affect."""
    run, set_now = program(bench), tuple(bench.config.training.xla_flags)
    base = {"program": PROGRAMS.get(run, ""), "set_in_the_configuration": set_now}
    if asked.text.strip():
        rows = [_row(bench, name, flag) for name, every in documented.named(asked.text) for flag in (every or (None,))]
        return Result(base, flags=rows)
    if run in ("pytorch", "megatron"):
        kinds = frozenset(row.kind for row in bench.diagnosis.collectives)
        own = [item for item in documented.load().values() if item.takes == run and kinds & set(item.on)]
        return Result(base, flags=[_row(bench, item.name, item) for item in own])
    found = [(number, item) for number, item in enumerate(bench.diagnosis.findings, start=1) if item.flags]
    rows = [
        taken(item, "title saving_s flags", finding=number, documented_in=item.flags_source,
              _about=about(subject=f"finding {number}", href=f"finding:{number}"))
        for number, item in found
    ]  # fmt: skip
    return Result(base, for_findings=rows, note="" if rows else "No finding of this run has documented flags.")


def program(bench: Workbench) -> str:
    """Return the program of the run: `xla`, `pytorch` or `megatron`; empty if nothing says."""
    if bench.profile.source_kind in XLA_PROFILES:
        return "xla"
    framework = framework_of(bench.config)
    if framework:
        name = profile_named(framework, chip_of(bench.config.hardware).kind).name
        return "xla" if name == "xla" else "megatron" if name.startswith("megatron") else "pytorch"
    return "pytorch" if bench.profile.source_kind == "kineto" else ""


def _row(bench: Workbench, name: str, known: Flag | None) -> Result:
    """Return a flag, variable or argument.  read_here: whether this run's program reads it, None where that is not
    known."""
    if known is None:
        return Result(name=name, known=False)
    chip, mesh = chip_of(bench.config.hardware), bench.config.mesh
    plain = known.name.replace("-", "_")
    acting = documented.shown_by((op.name, op.collective or "") for op in bench.diagnosis.ops if op.collective)
    rows = [
        row for row in bench.diagnosis.collectives if row.kind in known.on or ("dcn" in known.on and row.axis == "dcn")
    ]
    lacks = bool(known.needs_axis) and mesh.size(*known.needs_axis) == 1
    return Result(
        name=known.name, known=True, does=known.does, set_in=_variable(known, chip.kind),
        read_here=_is_read(known, program(bench), chip.kind),
        set_now=[f for f in bench.config.training.xla_flags if plain in f.lower().replace("-", "_")],
        acts_already=f"--{known.name}" in acting or None, needs_axis=known.needs_axis if lacks else (),
        affects_s=sum(row.exposed_s or row.time_s or 0.0 for row in rows) or None,
        affects=", ".join(dict.fromkeys(row.kind for row in rows)), documented_in=known.citation,
    )  # fmt: skip


def _variable(flag: Flag, kind: str) -> str:
    if flag.takes in ("xla-tpu", "maxtext") or (flag.takes == "xla" and kind == "tpu"):
        return "LIBTPU_INIT_ARGS"
    if flag.takes in ("xla", "xla-gpu"):
        return "XLA_FLAGS"
    return {"pytorch": "arguments of the model's code", "megatron": "arguments of pretrain_gpt.py"}.get(
        flag.takes, "an environment variable"
    )


def _is_read(flag: Flag, run: str, kind: str) -> bool | None:
    """Return whether the program of the run reads it; None if that program is unknown."""
    if flag.takes in ("nccl", "cuda"):
        return kind == "gpu"
    if not run:
        return None
    if flag.takes in ("xla-gpu", "xla-tpu", "maxtext"):
        return run == "xla" and kind == ("gpu" if flag.takes == "xla-gpu" else "tpu")
    if flag.takes in ("xla", "jax"):
        return run == "xla"
    return flag.takes == run or (flag.takes == "pytorch" and run == "megatron")
