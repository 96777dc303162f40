"""Tools over chips and models as data: peaks and bandwidths, the ridge point, parameters, divisors, documented
flags."""

from __future__ import annotations

from collections.abc import Iterator
from math import lcm

from pydantic import Field

from agent.tools import Arguments, ToolError
from experiments.step_profile import PROFILE
from formatting import did_you_mean
from perfmodel.accounting import forward_flops, model_flops_per_token, parameters
from perfmodel.chips import Chip, load_chips
from perfmodel.config import BATCH_ROLES, missing_facts
from perfmodel.known_flags import cause_of, flag_set
from perfmodel.workload import chip_of
from proposals.agents.tool_result import ToolResult
from proposals.agents.tools.common import Tools
from proposals.agents.tools.flags import PROGRAMS, FlagTools, program

#: FLOPs per parameter and token of a training step, forward and backward (Kaplan et al. 2020; scaling book 4).
FLOPS_PER_PARAMETER = 6
#: Exposed time from which a collective is worth a flag, as a share of the step.
WORTH_A_FLAG = 0.005


class ChipName(Arguments):
    chip: str = Field("", max_length=40, description="A chip's key such as v5p or h100; empty: the run's own.")


class ChipFacts(ToolResult):
    """A chip as data: see `chips.Chip`.  peaks_flops_per_s: by precision, only where it has units for it."""

    chip: str = ""
    title: str = ""
    precision: str = ""
    peak_flops_per_s: int | float = 0.0
    peaks_flops_per_s: dict[str, int | float] = {}
    hbm_capacity_bytes: int | float = 0.0
    hbm_usable_bytes: int | float = 0.0
    hbm_bytes_per_s: int | float = 0.0
    ridge_flops_per_byte: float = 0.0
    ici_link_bytes_per_s: int | float | None = None
    ici_axes: int | None = None
    nvlink_bytes_per_s: int | float | None = None
    nvlink_domain: int | None = None
    dcn_bytes_per_s_per_host: int | float = 0.0
    dcn_bytes_per_s_per_chip: float = 0.0
    host_link_bytes_per_s: int | float = 0.0
    chips_per_host: int = 0
    devices_per_chip: int = 0
    devices: str = ""
    matrix_tile: int | None = None
    sources: dict[str, str] = {}


class ModelSize(ToolResult):
    """Parameters and FLOPs per token of the model, or what the measured FLOPs suggest."""

    flops_per_step_measured: int | float | None = None
    tokens_per_step: int | None = None
    parameters_estimated_from_flops: float | None = None
    rule: str = ""
    not_known: tuple[str, ...] = ()
    model: str = ""
    parameters: int | float | None = None
    parameters_of_experts: int | float | None = None
    layers: int | None = None
    d_model: int | None = None
    flops_per_token: int | float | None = None
    forward_flops_per_token: int | float | None = None


class Divisors(ToolResult):
    """What the batch and the sizes of the model must divide by."""

    mesh_text: str = ""
    batch_shards: int = 1
    batch_axes: tuple[str, ...] = ()
    grad_accum: int = 1
    batch_must_divide_by: int = 1
    global_batch: int | None = None
    sequences_per_shard: float | None = None
    sequence_shards: int = 1
    tensor_shards: int = 1
    pipeline_stages: int = 1
    model_sizes: dict[str, int] = {}


class FlagSetRow(ToolResult):
    """XLA flags that are documented for an exposed collective of this run."""

    cause: str = ""
    collective: str = ""
    axis: str = ""
    exposed_s: float | None = None
    predicted: bool | None = None
    flags: tuple[str, ...] = ()
    note: str = ""
    documented_in: str = ""


class OwnFlag(ToolResult):
    """A setting of a program that reads no XLA flags."""

    flag: str = ""
    does: str = ""


class DocumentedFlags(ToolResult):
    """Flags for the exposed collectives.  program, own: of one that reads no XLA flags."""

    kept = frozenset(("set_in_the_configuration", "rows", "own"))
    program: str = ""
    set_in_the_configuration: tuple[str, ...] = ()
    rows: tuple[FlagSetRow, ...] = ()
    own: tuple[OwnFlag, ...] = ()
    chip: str = ""


class MachineTools(Tools):
    def hardware(self, asked: ChipName) -> ChipFacts:
        """A chip as data: peak FLOP/s, HBM capacity and bandwidth, links, network per host, the link to host memory
        (PCIe), devices that JAX counts per chip, and the ridge point in FLOPs per byte, with sources. Everything is per
        chip unless its name says otherwise."""
        config = self._bench.config
        own = not asked.chip or asked.chip == config.hardware.chip
        chip = chip_of(config.hardware) if own else chip_named(asked.chip)
        precision = config.training.precision
        peak = chip.peak(precision)
        return ChipFacts(
            chip=chip.name, title=chip.title, precision=precision, peak_flops_per_s=peak,
            peaks_flops_per_s=dict(chip.peak_flops_per_s), hbm_capacity_bytes=chip.hbm_bytes,
            hbm_usable_bytes=chip.hbm_usable_bytes, hbm_bytes_per_s=chip.hbm_bytes_per_s,
            ridge_flops_per_byte=peak / chip.hbm_bytes_per_s, ici_link_bytes_per_s=chip.ici_link_bytes_per_s or None,
            ici_axes=chip.ici_axes or None, nvlink_bytes_per_s=chip.nvlink_bytes_per_s or None,
            nvlink_domain=chip.nvlink_domain or None, dcn_bytes_per_s_per_host=chip.dcn_bytes_per_s_per_host,
            dcn_bytes_per_s_per_chip=chip.dcn_bytes_per_s_per_chip, host_link_bytes_per_s=chip.host_link_bytes_per_s,
            chips_per_host=chip.chips_per_host, devices_per_chip=chip.devices_per_chip,
            devices=_DEVICES[chip.devices_per_chip > 1] if chip.kind == "tpu" else "",
            matrix_tile=chip.matrix_tile or None, sources={key: chip.sources[key] for key in sorted(chip.sources)[:12]},
        )  # fmt: skip

    def model_size(self) -> ModelSize:
        """Parameters and FLOPs per token of the model; where it is not known, what the measured FLOPs of a step
        suggest."""
        bench, config = self._bench, self._bench.config
        tokens = config.training.global_batch_tokens
        flops = [op.flops for op in bench.diagnosis.ops]
        step = sum(f for f in flops if f) * config.hardware.chips if any(flops) else None
        model, length = config.model, config.training.seq_len
        count = parameters(model) if model else None
        return ModelSize(
            flops_per_step_measured=step, tokens_per_step=tokens,
            parameters_estimated_from_flops=step / (FLOPS_PER_PARAMETER * tokens) if step and tokens else None,
            rule="parameters ≈ FLOPs per step / (6 × tokens per step), attention and recompute counted as matmuls",
            not_known=missing_facts(config),
            model=model.name if model else "",
            parameters=count.total if count else None, parameters_of_experts=count.experts or None if count else None,
            layers=model.layers if model else None, d_model=model.d_model if model else None,
            flops_per_token=model_flops_per_token(model, length) if model and length else None,
            forward_flops_per_token=forward_flops(model, length).total if model and length else None,
        )  # fmt: skip

    def divisors(self) -> Divisors:
        """What the batch must divide by on the current mesh, and the sizes of the model that axes must divide."""
        config = self._bench.config
        mesh, training, model = config.mesh, config.training, config.model
        shards = mesh.batch_shards
        return Divisors(
            mesh_text=mesh.text(),
            batch_shards=shards,
            batch_axes=tuple(axis for axis, size in mesh.ici if size > 1 and mesh.role(axis) in BATCH_ROLES),
            grad_accum=training.grad_accum,
            batch_must_divide_by=lcm(shards, shards * training.grad_accum),
            global_batch=training.global_batch,
            sequences_per_shard=training.global_batch / shards if training.global_batch else None,
            sequence_shards=mesh.size("seq"),
            tensor_shards=mesh.size("model"),
            pipeline_stages=mesh.size("pipeline"),
            model_sizes={name: getattr(model, name) for name in _SIZES if getattr(model, name, 0)},
        )

    def _exposed(self) -> Iterator[tuple[str, str, float | None]]:
        """Kind, axis and exposed time of collectives that are worth a flag, measured or predicted, the longest
        first."""
        diagnosis, mesh = self._bench.diagnosis, self._bench.config.mesh
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

    def flags(self) -> DocumentedFlags:
        """XLA flags that are documented for the exposed collectives of this run on its chip, each with its source,
        and those
        that the configuration sets."""
        bench = self._bench
        chip, set_now = bench.config.hardware.chip, bench.config.training.xla_flags
        run = program(bench)
        if run in ("pytorch", "megatron"):
            kinds = frozenset(row.kind for row in bench.diagnosis.collectives)
            own = tuple(OwnFlag(flag=f.name, does=f.does) for f in FlagTools(bench).for_program(kinds))
            return DocumentedFlags(program=PROGRAMS[run], set_in_the_configuration=set_now, rows=(), own=own, chip=chip)
        rows: dict[str, FlagSetRow] = {}
        for kind, axis, exposed_s in self._exposed():
            cause = cause_of(kind, axis == "dcn")
            documented_set = flag_set(chip, cause) if cause else None
            if cause and documented_set is not None and cause not in rows:
                rows[cause] = FlagSetRow(
                    cause=cause, collective=kind, axis=axis, exposed_s=exposed_s,
                    predicted=bench.diagnosis.basis != PROFILE or None,
                    flags=tuple(f for f in documented_set.flags if f.split("=")[0] not in " ".join(set_now)),
                    note=documented_set.note, documented_in=documented_set.citation,
                )  # fmt: skip
        return DocumentedFlags(set_in_the_configuration=set_now, rows=tuple(rows.values()), chip=chip)


#: What a device of JAX is, by whether a chip is more than one.
_DEVICES = {
    True: "JAX counts each core of a chip as a device; a configuration counts chips, and a chip's figures are of all "
    "its cores together",
    False: "a chip is one device of JAX (its cores, where it has two, work as one, a megacore)",
}
#: Sizes of a model that axes must divide.
_SIZES = ("heads", "kv_heads", "d_ff", "d_model", "layers", "experts", "vocab")
#: Collectives of an axis by its role, where no profile tells.
_BY_ROLE = {
    "fsdp": ("all-gather", "reduce-scatter"), "data": ("all-reduce",), "model": ("all-gather", "reduce-scatter"),
    "expert": ("all-to-all",), "seq": ("collective-permute",), "pipeline": ("collective-permute",),
}  # fmt: skip


def chip_named(name: str) -> Chip:
    """Raises ToolError for a chip that is not known."""
    known = load_chips()
    if name not in known:
        raise ToolError(f"{name!r} is not a known chip.{did_you_mean(name, list(known))} Known: {', '.join(known)}.")
    return known[name]
