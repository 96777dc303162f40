"""Workload: configurations as arrays, the form in which the model prices them.

One entry per candidate; entries may differ in everything (rows of a fit) or share most of it (meshes of a search):
every field broadcasts against the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from perfmodel.accounting import ModelNumbers, model_numbers
from perfmodel.arrays import Floats, array_of, concatenated, kept
from perfmodel.chips import Chip, get_chip
from perfmodel.config import CANONICAL_ROLES, REMAT_OPEN, ConfigError, ExperimentConfig, Hardware, Mesh, Training
from perfmodel.execution import load_profiles, profile_named
from perfmodel.topology import Layout, Links, group_links, lay_out, network_links, physical_dims

PROFILES = tuple(load_profiles())
REMAT = ("none", "minimal", "full", "offload")
SHARDING = ("none", "zero1", "fsdp")

#: Groups of canonical roles that communicate together inside a slice.
GROUPS: Mapping[str, tuple[str, ...]] = {
    "weights": ("data", "fsdp", "seq", "expert"),
    "expert_weights": ("data", "fsdp", "seq"),
    "replica": ("replica",),
    "model": ("model",),
    "seq": ("seq",),
    "expert": ("expert",),
    "pipeline": ("pipeline",),
}
LOW_PRECISIONS = ("fp8", "mxfp8", "nvfp4", "int8")
#: GPU recipes that train in these are the classic ones: gradients summed in float32, an unfused loss, nothing
#: recomputed that is not asked for, and, unless `sequence_parallel` says so, activations as wide as the model whole on
#: every tensor rank (OptiCo's Figure 5 shows all of it in its memory).  Recipes of today do otherwise.
WITHOUT_SEQUENCE_PARALLELISM = ("fp16", "fp32")
#: Bytes per element: what crosses HBM and the links for activations and gathered weights, master weights, and the
#: moments of every optimizer that a configuration may name.
ACTIVATION_BYTES = 2.0
WEIGHT_BYTES = 2.0
MASTER_BYTES = 4.0
MOMENT_BYTES = {"adamw": 8.0, "adam": 8.0, "adafactor": 0.1, "sgd": 0.0, "momentum": 4.0, "lion": 4.0, "muon": 4.0}

#: Year of software of which nothing is known.
NEWEST = 9999.0


def _one() -> Floats:
    return array_of(1.0)


@dataclass(frozen=True)
class ChipNumbers:
    """Of one chip, with the site's overrides.  FLOP/s, bytes, bytes/s.  hbm_capacity_bytes: usable less a margin, or as
    the site says.  devices: that a program sees of a chip."""

    peak: Floats
    peak_bf16: Floats
    hbm_bytes_per_s: Floats
    hbm_capacity_bytes: Floats
    host_link_bytes_per_s: Floats
    hosts: Floats
    chips: Floats
    devices: Floats
    gpu: Floats


@dataclass(frozen=True, kw_only=True)
class AxisSizes:
    """Sizes by canonical role, ICI times DCN; 1 where not given."""

    replica: Floats = field(default_factory=_one)
    data: Floats = field(default_factory=_one)
    fsdp: Floats = field(default_factory=_one)
    seq: Floats = field(default_factory=_one)
    model: Floats = field(default_factory=_one)
    expert: Floats = field(default_factory=_one)
    pipeline: Floats = field(default_factory=_one)

    @property
    def batch_shards(self) -> Floats:
        """As `Mesh.batch_shards`."""
        return self.replica * self.data * self.fsdp * self.expert

    @property
    def token_shards(self) -> Floats:
        """As `Mesh.token_shards`."""
        return self.batch_shards * self.seq


@dataclass(frozen=True, kw_only=True)
class MeshNumbers(AxisSizes):
    """Of one mesh: sizes by role, links by group.

    regular: 1 where the mesh lies evenly on the topology.  dcn_*: sizes across slices, of which there are `slices`.
    """

    dcn_replica: Floats
    dcn_fsdp: Floats
    slices: Floats
    regular: Floats
    links: Mapping[str, Links]
    dcn: Mapping[str, Links]


@dataclass(frozen=True)
class TrainingNumbers:
    """global_batch in sequences; micro_batches per step; remat and sharding as indices into REMAT and SHARDING.

    whole_logits: 1 where the loss is formed on logits gathered from the tensor axis; classic: 1 for GPU recipes as in
    WITHOUT_SEQUENCE_PARALLELISM; remat_open: 1 where nobody said what is recomputed, so that a framework recomputes or
    offloads what does not fit.  worst_case_experts: 1 where tokens on their way to an expert axis have room for the
    worst case.  gradient_bytes to stalls_when_full: of the execution profile (`perfmodel.execution`), whose place in
    PROFILES is `profile`.
    """

    global_batch: Floats
    seq_len: Floats
    micro_batches: Floats
    virtual_stages: Floats
    remat: npt.NDArray[np.int64]
    sharding: npt.NDArray[np.int64]
    moment_bytes: Floats
    low_precision: Floats
    sequence_parallel: Floats
    whole_logits: Floats
    classic: Floats
    remat_open: Floats
    software_year: Floats
    worst_case_experts: Floats
    gradient_bytes: Floats
    gradient_sum_bytes: Floats
    unfused_attention: Floats
    balanced_stages: Floats
    stalls_when_full: Floats
    profile: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Workload:
    """Everything the model needs to know, as arrays that broadcast."""

    chip: ChipNumbers
    model: ModelNumbers
    mesh: MeshNumbers
    training: TrainingNumbers


def chip_numbers(hardware: Hardware, precision: str) -> ChipNumbers:
    """Raises ConfigError for a chip that is not known."""
    chip = chip_of(hardware)
    over = hardware.overrides
    return ChipNumbers(
        peak=array_of(over.get("peak_flops_per_s", chip.peak(precision))),
        peak_bf16=array_of(over.get("peak_bf16_flops_per_s", min(chip.peak("bf16"), chip.peak(precision)))),
        hbm_bytes_per_s=array_of(over.get("hbm_bytes_per_s", chip.hbm_bytes_per_s)),
        hbm_capacity_bytes=array_of(over.get("hbm_bytes", chip.hbm_capacity_bytes)),
        host_link_bytes_per_s=array_of(over.get("host_link_bytes_per_s", chip.host_link_bytes_per_s)),
        hosts=array_of(max(1.0, hardware.chips / chip.chips_per_host)),
        chips=array_of(hardware.chips),
        devices=array_of(chip.devices_per_chip),
        gpu=array_of(1.0 if chip.kind == "gpu" else 0.0),
    )


def chip_of(hardware: Hardware) -> Chip:
    """The chip with a site's link overrides applied.  Raises ConfigError naming the nearest known chip."""
    try:
        chip = get_chip(hardware.chip)
    except KeyError as error:
        raise ConfigError("hardware.chip", str(error.args[0])) from None
    names = {
        "ici_bytes_per_s": "ici_link_bytes_per_s",
        "ici_link_bytes_per_s": "ici_link_bytes_per_s",
        "nvlink_bytes_per_s": "nvlink_bytes_per_s",
        "dcn_bytes_per_s": "dcn_bytes_per_s_per_host",
        "dcn_bytes_per_s_per_host": "dcn_bytes_per_s_per_host",
    }
    changes: dict[str, Any] = {names[key]: value for key, value in hardware.overrides.items() if key in names}
    return replace(chip, **changes) if changes else chip


def mesh_links(
    hardware: Hardware, roles: Sequence[str], sizes: npt.NDArray[np.int64]
) -> tuple[Layout, dict[str, Links]]:
    """Layout and links by group, for meshes that share axis roles.  sizes: (candidates, axes), major to minor."""
    chip = chip_of(hardware)
    dims = physical_dims(chip, hardware.topology)
    layout = lay_out(sizes, dims)
    wraps = chip.wraps(dims) if chip.kind == "tpu" else ()
    links = {
        group: group_links(chip, layout, [i for i, role in enumerate(roles) if role in members], wraps)
        for group, members in GROUPS.items()
    }
    return layout, links


@kept(1024)
def mesh_numbers(hardware: Hardware, mesh: Mesh) -> MeshNumbers:
    """Kept: what is tried on a mesh, and what it is compared with, asks for the same again and again."""
    roles = [mesh.role(axis) for axis, _ in mesh.ici]
    sizes = np.array([[size for _, size in mesh.ici] or [1]], dtype=np.int64)
    layout, links = mesh_links(hardware, roles, sizes)
    ici = {role: np.array([float(mesh.ici_size(role))]) for role in CANONICAL_ROLES}
    dcn = {role: np.array([float(mesh.dcn_size(role))]) for role in CANONICAL_ROLES}
    return assemble_mesh(hardware, ici, dcn, layout.regular.astype(np.float64), links)


def assemble_mesh(
    hardware: Hardware,
    ici: Mapping[str, Floats],
    dcn: Mapping[str, Floats],
    regular: Floats,
    links: Mapping[str, Links],
) -> MeshNumbers:
    """Mesh numbers from sizes by role and the links inside a slice.

    Across slices `data`, `replica` and `seq` replicate the weights; only an axis of role `fsdp` shards them there.
    """
    per_chip = chip_of(hardware).dcn_bytes_per_s_per_chip
    expert_gradients = dcn["replica"] * dcn["data"] * dcn["seq"]
    groups = {role: dcn[role] for role in ("model", "seq", "expert", "pipeline")} | {
        "gradients": expert_gradients * dcn["expert"],
        "expert_gradients": expert_gradients,
        "weights": dcn["fsdp"],
    }
    return MeshNumbers(
        **{role: ici[role] * dcn[role] for role in CANONICAL_ROLES},
        dcn_replica=dcn["replica"],
        dcn_fsdp=dcn["fsdp"],
        slices=np.asarray(reduce(np.multiply, (dcn[role] for role in CANONICAL_ROLES))),
        regular=regular,
        links=links,
        dcn={name: network_links(size, per_chip) for name, size in groups.items()},
    )


def training_numbers(
    training: Training,
    batch_shards: Floats,
    extra: Mapping[str, Any] | None = None,
    kind: str = "tpu",
    changes: Sequence[Mapping[str, Any]] = ({},),
) -> TrainingNumbers:
    """A training with each of these changes of its keys, along the last dimension.

    batch_shards: of the mesh, of shape (1,), or of many, (meshes, 1).  kind: of the chip, `tpu` or `gpu`.  Raises
    ConfigError where batch or sequence length is absent.
    """

    def along(values: Sequence[float]) -> Floats:
        if len(set(values)) == 1:  # what is the same for all is computed once for all
            return array_of(values[0])
        return np.array(values, dtype=np.float64).reshape(*(1,) * (batch_shards.ndim - 1), -1)

    def of(key: str) -> list[Any]:
        own = getattr(training, key)
        return [change.get(key, own) for change in changes]

    if None in of("global_batch"):
        raise ConfigError("training.global_batch", "is missing, so the step cannot be priced; give sequences per step")
    if training.seq_len is None:
        raise ConfigError("training.seq_len", "is missing, so the step cannot be priced; give tokens per sequence")
    batches, micro = along(of("global_batch")), along([max(1, count) for count in of("grad_accum")])
    if any(sizes := of("micro_batch")):
        sized = batches / (batch_shards * along([size or 1 for size in sizes]))
        micro = np.where(along([bool(size) for size in sizes]), sized, micro)
    program = recipe(training, extra, kind)
    # What recomputes as it must, where nobody said, does so no longer once a policy is named.
    program["remat_open"] = program["remat_open"] * along(["remat" not in change for change in changes])
    return TrainingNumbers(
        global_batch=batches,
        seq_len=array_of(training.seq_len),
        micro_batches=micro,
        virtual_stages=along(of("virtual_stages")),
        remat=along([REMAT.index(name) for name in of("remat")]).astype(np.int64),
        sharding=along([SHARDING.index(name) for name in of("weight_sharding")]).astype(np.int64),
        moment_bytes=array_of(MOMENT_BYTES.get(training.optimizer, 8.0)),
        low_precision=array_of(1.0 if training.precision in LOW_PRECISIONS else 0.0),
        **program,
    )


def recipe(training: Training, extra: Mapping[str, Any] | None, kind: str) -> dict[str, Any]:
    """What the program decides of TrainingNumbers: its execution profile, and the kind of GPU recipe.

    extra: of the configuration; kind: `tpu` or `gpu`.
    """
    framework = (extra or {}).get("software_framework")
    profile = profile_named(framework, kind)
    has_room = any(part in (framework or "").lower() for part in profile.worst_case_experts)
    classic = training.precision in WITHOUT_SEQUENCE_PARALLELISM
    parallel = profile.sequence_parallel and not classic
    if training.sequence_parallel is not None:
        parallel = training.sequence_parallel
    is_open = bool((extra or {}).get(REMAT_OPEN)) and training.remat == "none" and not classic
    year = (extra or {}).get("software_year")
    is_unfused = (NEWEST if year is None else float(year)) < profile.fused_attention_since
    return {
        "gradient_bytes": array_of(profile.gradient_bytes),
        "gradient_sum_bytes": array_of(profile.gradient_sum_bytes),
        "unfused_attention": array_of(1.0 if is_unfused else 0.0),
        "balanced_stages": array_of(1.0 if profile.balanced_stages else 0.0),
        "stalls_when_full": array_of(1.0 if profile.stalls_when_full else 0.0),
        "profile": np.array([PROFILES.index(profile.name)]),
        "sequence_parallel": array_of(1.0 if parallel else 0.0),
        "whole_logits": array_of(1.0 if training.loss_parallel is False else 0.0),
        "classic": array_of(1.0 if classic else 0.0),
        "remat_open": array_of(1.0 if is_open else 0.0),
        "software_year": array_of(np.nan if year is None else float(year)),
        "worst_case_experts": array_of(1.0 if has_room else 0.0),
    }


def from_config(config: ExperimentConfig) -> Workload:
    """One configuration as a workload of length one.  Raises ConfigError where model, batch or length is absent."""
    if config.model is None:
        raise ConfigError("model", "is missing, so the step cannot be priced; name a model or give its shape")
    shards, kind = array_of(config.mesh.batch_shards), chip_of(config.hardware).kind
    training = training_numbers(config.training, shards, config.extra, kind)
    return Workload(
        chip=chip_numbers(config.hardware, config.training.precision),
        model=model_numbers(config.model, float(training.seq_len[0])),
        mesh=mesh_numbers(config.hardware, config.mesh),
        training=training,
    )


def stack(workloads: Sequence[Workload]) -> Workload:
    """Many workloads of length one as one of length n."""
    stacked: Workload = concatenated(*workloads)
    return stacked
