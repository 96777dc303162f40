"""The tool over single flags: what each does, whether this program reads it, whether it is in effect, and on what."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from agent.tools import Arguments
from experiments.step_profile import PROFILE, XLA_PROFILES
from perfmodel import known_flags
from perfmodel.config import framework_of
from perfmodel.execution import profile_named
from perfmodel.known_flags import Flag
from perfmodel.workload import chip_of
from proposals.agents.tool_result import ToolResult
from proposals.agents.tools.common import Tools
from proposals.agents.words import part_name
from proposals.agents.workbench import Workbench

#: Parts of the breakdown that a flag acts on, by what flags.toml calls it.
_PARTS = {"hbm": "hbm", "idle": "idle", "host_transfer": "host_transfer", "dcn": "dcn", "pipeline": "bubble"}
#: Kinds of ops that are no collectives.
_FAMILIES = ("matmul", "broadcast", "attention")
#: How a program is called that takes the flags of a kind.
PROGRAMS = {"xla": "XLA", "pytorch": "PyTorch", "megatron": "Megatron"}


class Asked(Arguments):
    text: str = Field(max_length=600, description="Flags, variables or arguments, or a sentence with them.")


class Affected(ToolResult):
    """Time of this run that a flag can affect."""

    what: str = ""
    time_s: float | None = None
    share: float | None = None
    exposed_s: float | None = None


class PredictedAffected(Affected):
    """The same without a profile."""

    last = ("share",)


class FlagRow(ToolResult):
    """A flag, variable or argument; all but the name only where it is documented.

    takes: the kind of program that reads it; taken_here: whether this one does, None where it is not known.  holds:
    flags of a bundle; lacks_axis: without which it has nothing to act on.
    """

    name: str = ""
    known: bool = False
    does: str = ""
    takes: str = ""
    set_in: str = ""
    taken_here: bool | None = None
    set_in_the_configuration: tuple[str, ...] = ()
    acts_already: bool | None = None
    holds: tuple[str, ...] = ()
    memory: str = ""
    lacks_axis: str | None = None
    proposals_with_the_axis: tuple[int, ...] = ()
    acts_on: tuple[Affected, ...] = ()
    documented_in: str = ""


class FlagRows(ToolResult):
    """The flags that a text names."""

    flags: tuple[FlagRow, ...] = ()
    program: str = ""
    framework: str = ""


def program(bench: Workbench) -> str:
    """Program of the run: `xla`, `pytorch` or `megatron`; empty if neither configuration nor profile says."""
    if bench.profile.source_kind in XLA_PROFILES:
        return "xla"
    framework = framework_of(bench.config)
    if framework:
        name = profile_named(framework, chip_of(bench.config.hardware).kind).name
        return "xla" if name == "xla" else "megatron" if name.startswith("megatron") else "pytorch"
    return "pytorch" if bench.profile.source_kind == "kineto" else ""


class FlagTools(Tools):
    def flag(self, asked: Asked) -> FlagRows:
        """What named flags, variables and arguments do (XLA, NCCL, PyTorch, Megatron, MaxText's bundles): whether this
        program reads them and where they are set, whether they are in effect, and the time of this run that they can
        affect."""
        rows = (self._row(name, flag) for name, every in known_flags.named(asked.text) for flag in (every or (None,)))
        run = PROGRAMS.get(program(self._bench), "")
        return FlagRows(flags=tuple(rows), program=run, framework=framework_of(self._bench.config) or "")

    def for_program(self, kinds: frozenset[str]) -> Iterator[Flag]:
        """Flags of the program's own framework that act on kinds of collectives."""
        run = program(self._bench)
        return (item for item in known_flags.load().values() if item.takes == run and kinds & set(item.on))

    def _row(self, name: str, known: Flag | None) -> FlagRow:
        if known is None:
            return FlagRow(name=name, known=False)
        bench = self._bench
        chip = chip_of(bench.config.hardware)
        set_now = bench.config.training.xla_flags
        plain = known.name.replace("-", "_")
        held = [flag for flag in set_now if plain in flag.lower().replace("-", "_")]
        bundles = [flag for flag in set_now if any(plain in each for each in _holds(flag))]
        acting = known_flags.shown_by((op.name, op.collective or "") for op in bench.diagnosis.ops if op.collective)
        run = program(bench)
        return FlagRow(
            name=known.name, known=True, does=known.does, takes=known.takes, set_in=_variable(known, chip.kind),
            taken_here=_is_read_by_program(known, run, chip.kind), set_in_the_configuration=(*held, *bundles),
            acts_already=f"--{known.name}" in acting or None, holds=known.holds, memory=known.memory,
            lacks_axis=self._lacks(known), proposals_with_the_axis=self._proposals_with_axis(known),
            acts_on=tuple(self._acts_on(known)), documented_in=known.citation,
        )  # fmt: skip

    def _lacks(self, flag: Flag) -> str | None:
        mesh = self._bench.config.mesh
        if not flag.needs_axis or mesh.size(*flag.needs_axis) > 1:
            return None
        return " or ".join(flag.needs_axis)

    def _proposals_with_axis(self, flag: Flag) -> tuple[int, ...]:
        """Proposals whose mesh has the axis that the current one lacks."""
        if not self._lacks(flag):
            return ()
        mesh = self._bench.config.mesh
        return tuple(
            item.proposal.rank
            for item in self._bench.proposals
            if any(size > 1 and mesh.role(axis) in flag.needs_axis for axis, size in item.proposal.mesh["ici"].items())
        )

    def _acts_on(self, flag: Flag) -> Iterator[Affected]:
        """Time of this run that the flag could shorten."""
        diagnosis = self._bench.diagnosis
        for kind in flag.on:
            rows = [row for row in diagnosis.collectives if row.kind == kind or (kind == "dcn" and row.axis == "dcn")]
            if rows:
                exposed = [row.exposed_s for row in rows]
                yield Affected(
                    what=f"{kind} ops", time_s=sum(row.time_s or 0.0 for row in rows) or None,
                    share=sum(row.share for row in rows),
                    exposed_s=None if None in exposed else sum(e or 0.0 for e in exposed),
                )  # fmt: skip
            part = _PARTS.get(kind)
            if part and (share := diagnosis.breakdown_share.get(part)):
                yield Affected(what=part_name(part), time_s=diagnosis.breakdown_s.get(part), share=share)
            if kind in _FAMILIES and not rows:
                ops = [op for op in diagnosis.ops if op.family == kind or kind in op.name.lower()]
                time = sum(op.time_s or 0.0 for op in ops) or None
                if ops:
                    yield Affected(what=f"{kind} ops", time_s=time, share=sum(op.time_share for op in ops))
        if diagnosis.basis != PROFILE:
            yield from self._predicted(flag)

    def _predicted(self, flag: Flag) -> Iterator[Affected]:
        """Without a profile: the exposed communication that is predicted on the axes in question."""
        diagnosis, mesh = self._bench.diagnosis, self._bench.config.mesh
        kinds = {"all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute"}
        for part, value in diagnosis.breakdown_s.items():
            role = mesh.role(part.removeprefix("ici:")) if part.startswith("ici:") else ""
            if role and (role in flag.needs_axis or (not flag.needs_axis and kinds & set(flag.on))):
                share = diagnosis.breakdown_share.get(part)
                yield PredictedAffected(what=f"{part_name(part)}, predicted", exposed_s=value, share=share)


def _holds(bundle: str) -> tuple[str, ...]:
    flag = known_flags.load().get(bundle.lower())
    return flag.holds if flag else ()


def _variable(flag: Flag, kind: str) -> str:
    if flag.takes in ("xla-tpu", "maxtext") or (flag.takes == "xla" and kind == "tpu"):
        return "LIBTPU_INIT_ARGS"
    if flag.takes in ("xla", "xla-gpu"):
        return "XLA_FLAGS"
    return {
        "pytorch": "the arguments of DistributedDataParallel, FSDP or the model's code",
        "megatron": "the arguments of pretrain_gpt.py", "nccl": "an environment variable",
        "cuda": "an environment variable", "jax": "an environment variable",
    }.get(flag.takes, "an environment variable")  # fmt: skip


def _is_read_by_program(flag: Flag, run: str, kind: str) -> bool | None:
    """Whether the program of the run reads it; None if that program is unknown."""
    if flag.takes in ("nccl", "cuda"):
        return kind == "gpu"
    if not run:
        return None
    if flag.takes == "xla-gpu":
        return run == "xla" and kind == "gpu"
    if flag.takes in ("xla-tpu", "maxtext"):
        return run == "xla" and kind == "tpu"
    if flag.takes in ("xla", "jax"):
        return run == "xla"
    return flag.takes == run or (flag.takes == "pytorch" and run == "megatron")
