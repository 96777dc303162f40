"""The tool over flags: those documented for this run's exposed collectives, and what a named flag does here."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from agent.tools import Arguments
from experiments.step_profile import PROFILE, XLA_PROFILES
from perfmodel import known_flags as documented
from perfmodel.config import framework_of
from perfmodel.execution import profile_named
from perfmodel.known_flags import Flag, cause_of, flag_set
from perfmodel.workload import chip_of
from proposals.agents.tool_result import Result, about
from proposals.agents.workbench import Workbench

#: Exposed time from which a collective is worth a flag, as a share of the step.
WORTH_A_FLAG = 0.005
#: How a program is called that takes the flags of a kind.
PROGRAMS = {"xla": "XLA", "pytorch": "PyTorch", "megatron": "Megatron"}


class FlagArguments(Arguments):
    text: str = Field("", max_length=600, description="Flags or variables; empty: those that bear on the run.")


def flags(bench: Workbench, asked: FlagArguments) -> Result:
    """Documented flags for this run's exposed collectives; or what named flags do, whether this program reads them, and
    the time they can affect."""
    run, set_now = program(bench), tuple(bench.config.training.xla_flags)
    base = {"program": PROGRAMS.get(run, ""), "set_in_the_configuration": set_now}
    if asked.text.strip():
        rows = [_row(bench, name, flag) for name, every in documented.named(asked.text) for flag in (every or (None,))]
        return Result(base, flags=rows)
    if run in ("pytorch", "megatron"):
        kinds = frozenset(row.kind for row in bench.diagnosis.collectives)
        own = [item for item in documented.load().values() if item.takes == run and kinds & set(item.on)]
        return Result(base, flags=[_row(bench, item.name, item) for item in own])
    found: dict[str, Result] = {}
    for kind, axis, exposed_s in _exposed(bench):
        cause = cause_of(kind, axis == "dcn")
        known = flag_set(bench.config.hardware.chip, cause) if cause else None
        if cause and known is not None and cause not in found:
            found[cause] = Result(
                collective=kind, axis=axis, exposed_s=exposed_s, note=known.note, documented_in=known.citation,
                flags=[flag for flag in known.flags if flag.split("=")[0] not in " ".join(set_now)],
                _about=about(subject=f"{kind} on {axis}"),
            )  # fmt: skip
    note = "" if found else "No exposed collective of this run has documented flags."
    return Result(base, for_exposed_collectives=[*found.values()], note=note)


def program(bench: Workbench) -> str:
    """Return the program of the run: `xla`, `pytorch` or `megatron`; empty if nothing says."""
    if bench.profile.source_kind in XLA_PROFILES:
        return "xla"
    framework = framework_of(bench.config)
    if framework:
        name = profile_named(framework, chip_of(bench.config.hardware).kind).name
        return "xla" if name == "xla" else "megatron" if name.startswith("megatron") else "pytorch"
    return "pytorch" if bench.profile.source_kind == "kineto" else ""


def _exposed(bench: Workbench) -> Iterator[tuple[str, str, float | None]]:
    """Yield (kind, axis, exposed s) of collectives worth a flag, measured or predicted, the longest first."""
    diagnosis, mesh = bench.diagnosis, bench.config.mesh
    if diagnosis.basis == PROFILE:
        least = WORTH_A_FLAG * (diagnosis.kpis.get("step_time_s") or 0.0)
        for row in sorted(diagnosis.collectives, key=lambda each: -(each.exposed_s or 0.0)):
            if row.exposed_s is None or row.exposed_s >= least:
                yield row.kind, row.axis, row.exposed_s
        return
    for part, value in sorted(diagnosis.breakdown_s.items(), key=lambda item: -item[1]):
        axis = "dcn" if part == "dcn" else part.removeprefix("ici:") if part.startswith("ici:") else ""
        for kind in ("all-reduce",) if axis == "dcn" else _BY_ROLE.get(mesh.role(axis), ()) if axis else ():
            yield kind, axis, value


#: Collectives of an axis by its role, where no profile tells.
_BY_ROLE = {
    "fsdp": ("all-gather", "reduce-scatter"), "data": ("all-reduce",), "model": ("all-gather", "reduce-scatter"),
    "expert": ("all-to-all",), "seq": ("collective-permute",), "pipeline": ("collective-permute",),
}  # fmt: skip


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
