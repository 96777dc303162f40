"""The tool over flags: sets that were measured, with their effect on this run, and what a named flag does here."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress

from pydantic import Field

from agent.tools import Arguments
from experiments.step_profile import XLA_PROFILES
from history.effects import FlagEffect
from perfmodel import known_flags as documented
from perfmodel.config import ConfigError, framework_of
from perfmodel.execution import profile_named
from perfmodel.known_flags import Flag
from perfmodel.workload import chip_of
from proposals.agents.tool_result import Result, about
from proposals.agents.workbench import Workbench

#: How a program is called that takes the flags of a kind.
PROGRAMS = {"xla": "XLA", "pytorch": "PyTorch", "megatron": "Megatron"}
#: Records named with an effect, the most telling.
NAMED = 4


class FlagArguments(Arguments):
    text: str = Field("", max_length=600, description="Flags or variables; empty: those that bear on the run.")


def flags(bench: Workbench, asked: FlagArguments) -> Result:
    """Sets of flags that were measured, with their expected effect on this run, and flags that nobody measured in a run
    like it; or what named flags do, whether this program reads them, their measured effect, and the time they can
    affect."""
    run, set_now = program(bench), tuple(bench.config.training.xla_flags)
    base = {"program": PROGRAMS.get(run, ""), "set_in_the_configuration": set_now}
    if asked.text.strip():
        values = documented.flag_values(asked.text)
        found = dict(documented.named(asked.text))
        said = dict.fromkeys(re.findall(r"--[\w-]+|\w+_\w+|\w+-\w+-[\w-]+", asked.text))
        unknown = [word for word in said if not any(word.strip("-").lower() in name.lower() for name in found)]
        named = [(name, flag) for name, every in found.items() for flag in (every or (None,))]
        named += [(word, None) for word in unknown]
        return Result(base, flags=[_row(bench, name, flag, values) for name, flag in named])
    kinds = frozenset(row.kind for row in bench.diagnosis.collectives)
    reads = [item for item in documented.load().values() if _is_read(item, run, chip_of(bench.config.hardware).kind)]
    bearing = [item for item in reads if run and kinds & set(item.on) and item.takes != "maxtext"]
    offered: list[Result] = []
    with suppress(ConfigError):  # of a run that cannot be priced nothing is expected
        offered = [
            Result(flags=[flag for flag in written if flag not in set_now], **_effect(effect))
            for written, effect in bench.pricer.offers
        ]
    note = "" if offered else "No set of flags was measured to gain in a run like this one."
    rows = [_row(bench, item.name, item, {}) for item in bearing]
    return Result(base, measured_sets=offered, untested_here=[row for row in rows if not row["measured"]], note=note)


def program(bench: Workbench) -> str:
    """Return the program of the run: `xla`, `pytorch` or `megatron`; empty if nothing says."""
    if bench.profile.source_kind in XLA_PROFILES or chip_of(bench.config.hardware).kind == "tpu":
        return "xla"
    framework = framework_of(bench.config)
    if framework:
        name = profile_named(framework, chip_of(bench.config.hardware).kind).name
        return "xla" if name == "xla" else "megatron" if name.startswith("megatron") else "pytorch"
    return "pytorch" if bench.profile.source_kind == "kineto" else ""


def _effect(effect: FlagEffect) -> Result:
    """Return what was measured, and what is expected here."""
    first = effect.trials[0]
    rests = {"trials": len(effect.trials), "of_the_whole_set": effect.whole, "stacks": effect.stacks}
    return Result(
        speedup=1.0 / effect.ratio, low80=1.0 / effect.high80, high80=1.0 / effect.low80, **rests,
        measured_speedup=1.0 / effect.measured, records=[record.id for record in effect.trials[:NAMED]],
        did_not_run=[record.id for record in effect.failed[:NAMED]],
        _about=about("predicted", "flags", f"record:{first.id}", measured_speedup="measured"),
    )  # fmt: skip


def _row(bench: Workbench, name: str, known: Flag | None, values: dict[str, str]) -> Result:
    """Return a flag, variable or argument.  read_here: whether this run's program reads it, None where that is not
    known.  measured: its effect on this run, None where nobody measured it in one like it."""
    plain = (known.name if known else name).lstrip("-").replace("-", "_")
    measured = _measured(bench, plain, values.get(plain, "true"))
    if known is None:
        return Result(name=name, known=False, measured=measured)
    chip, mesh = chip_of(bench.config.hardware), bench.config.mesh
    acting = documented.shown_by((op.name, op.collective or "") for op in bench.diagnosis.ops if op.collective)
    rows = [
        row for row in bench.diagnosis.collectives if row.kind in known.on or ("dcn" in known.on and row.axis == "dcn")
    ]
    lacks = bool(known.needs_axis) and mesh.size(*known.needs_axis) == 1
    return Result(
        name=known.name, known=True, does=known.does, set_in=_variable(known, chip.kind),
        read_here=_is_read(known, program(bench), chip.kind), measured=measured,
        set_now=[f for f in bench.config.training.xla_flags if plain in f.lower().replace("-", "_")],
        acts_already=f"--{known.name}" in acting or None, needs_axis=known.needs_axis if lacks else (),
        affects_s=sum(row.exposed_s or row.time_s or 0.0 for row in rows) or None,
        affects=", ".join(dict.fromkeys(row.kind for row in rows)), documented_in=known.citation,
    )  # fmt: skip


def _measured(bench: Workbench, name: str, value: str) -> Result | None:
    """Return the effect of one flag more; None where it is not known."""
    kept: Sequence[str] = [flag for flag in bench.config.training.xla_flags if name not in documented.flag_values(flag)]
    with suppress(ConfigError):
        if effect := bench.pricer.effect_of({"xla_flags": [*kept, f"--{name}={value}"]}):
            return _effect(effect)
    return None


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
