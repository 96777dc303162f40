"""The experiment configuration as values: hardware, mesh, model, training; and when two are the same run.

The contract of the JSON / YAML form is in docs/configuration.md; `perfmodel.config_file` reads it.  All values are
frozen; `None` means *not given*, never zero.  Configurations with one `config_key` place the same arrays on the same
chips and run the same program, so that every page, command and tool gives them one price (docs/one-price.md).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from math import log2, prod
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True)
class ModelShape:
    """Shape of a decoder-only transformer.

    layers, d_model, d_ff, heads, kv_heads, head_dim, vocab: counts and widths.  mlp: `gated` (three matrices) or
    `plain` (two).  Mixtures: `experts` routed experts of which each token takes `experts_per_token`, each `d_ff_expert`
    wide, beside `shared_experts`; the first `first_dense_layers` layers are dense (`d_ff`), after that every
    `moe_layer_step`-th layer is a mixture.  attention: `gqa`, or `mla` with its ranks.  sliding_window: tokens seen by
    local layers; one layer in `sliding_window_every` is global.
    """

    layers: int
    d_model: int
    d_ff: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    name: str = ""
    mlp: str = "gated"
    tied_embeddings: bool = False
    experts: int = 0
    experts_per_token: int = 0
    d_ff_expert: int = 0
    shared_experts: int = 0
    first_dense_layers: int = 0
    moe_layer_step: int = 1
    attention: str = "gqa"
    q_lora_rank: int = 0
    kv_lora_rank: int = 0
    qk_nope_head_dim: int = 0
    qk_rope_head_dim: int = 0
    v_head_dim: int = 0
    sliding_window: int = 0
    sliding_window_every: int = 0
    source: str = ""


#: What an axis does.  Users may name axes as they like; the role decides the physics.
ROLES = ("replica", "data", "fsdp", "seq", "context", "model", "tensor", "expert", "pipeline")

#: The roles under one name each: `Mesh.role` gives one of them for an axis that has one.
CANONICAL_ROLES = ("replica", "data", "fsdp", "seq", "model", "expert", "pipeline")
#: Roles of data parallelism proper; of all axes that split the sequences of a batch, experts included, as each expert
#: shard routes tokens of its own; and of all that split its tokens.
DATA_ROLES = ("replica", "data", "fsdp")
BATCH_ROLES = (*DATA_ROLES, "expert")
TOKEN_ROLES = (*BATCH_ROLES, "seq")

#: Names that mean the same role.  `fsdp` is `data` whose weights are sharded; `context` is `seq`; `tensor` is `model`.
ROLE_SYNONYMS = {"context": "seq", "tensor": "model"}

_EMPTY: Mapping[str, Any] = MappingProxyType({})


#: A mesh as JSON has it: sizes by axis name, `ici` inside a slice and `dcn` across slices, which may be absent.
MeshSizes = Mapping[str, Mapping[str, int]]


class ConfigError(ValueError):
    """A configuration that cannot be used.

    `field` is the dotted path of the key at fault (``mesh.ici``), `message` one sentence that says what is wrong and
    what to do.  ``str(error)`` is ``"{field}: {message}"``, at most 300 characters, on one line.
    """

    def __init__(self, field: str, message: str) -> None:
        self.field = field
        self.message = message
        text = f"{field}: {message}" if field else message
        super().__init__(" ".join(text.split())[:300])


@dataclass(frozen=True)
class Hardware:
    """Chips and their topology.

    chip: key of chips.toml.  topology: chips per dimension of one slice (TPU), or [GPUs per NVLink domain, domains].
    slices: number of slices joined by DCN.  overrides: values that replace the chip's own (`hbm_bytes`, …), SI units.
    """

    chip: str
    topology: tuple[int, ...]
    slices: int = 1
    overrides: Mapping[str, float] = field(default_factory=lambda: _EMPTY)

    @property
    def chips_per_slice(self) -> int:
        return prod(self.topology)

    @property
    def chips(self) -> int:
        return self.chips_per_slice * self.slices


@dataclass(frozen=True)
class Mesh:
    """Mesh axes, major to minor, with their sizes on ICI (inside a slice) and on DCN (across slices).

    ici, dcn: ((axis name, size), …).  axis_roles: role by custom axis name.
    """

    ici: tuple[tuple[str, int], ...]
    dcn: tuple[tuple[str, int], ...] = ()
    axis_roles: Mapping[str, str] = field(default_factory=lambda: _EMPTY)

    def role(self, axis: str) -> str:
        """Canonical role of an axis: replica, data, fsdp, seq, model, expert or pipeline."""
        role = self.axis_roles.get(axis, axis)
        return ROLE_SYNONYMS.get(role, role)

    def ici_size(self, *roles: str) -> int:
        """Product of the ICI sizes of all axes with one of these canonical roles."""
        return prod(size for axis, size in self.ici if self.role(axis) in roles)

    def dcn_size(self, *roles: str) -> int:
        return prod(size for axis, size in self.dcn if self.role(axis) in roles)

    def size(self, *roles: str) -> int:
        """Product over ICI and DCN."""
        return self.ici_size(*roles) * self.dcn_size(*roles)

    @property
    def batch_shards(self) -> int:
        """Groups of chips that work on different sequences of a batch."""
        return self.size(*BATCH_ROLES)

    @property
    def token_shards(self) -> int:
        """Groups of chips that work on different tokens of a batch."""
        return self.size(*TOKEN_ROLES)

    @property
    def ici_product(self) -> int:
        return prod(size for _, size in self.ici)

    @property
    def dcn_product(self) -> int:
        return prod(size for _, size in self.dcn)

    def to_json(self) -> dict[str, dict[str, int]]:
        """`{"ici": {...}, "dcn": {...}}` in the key order given."""
        return {"ici": dict(self.ici), "dcn": dict(self.dcn)}

    def text(self) -> str:
        """`data 4 · seq 4 · model 1`: see `mesh_text`."""
        return mesh_text(self.to_json())


def flat_sizes(mesh: MeshSizes) -> dict[str, int]:
    """Size by axis: those inside a slice under their names, those across slices as `dcn.name`."""
    return {**(mesh.get("ici") or {}), **{f"dcn.{axis}": size for axis, size in (mesh.get("dcn") or {}).items()}}


def shown_sizes(mesh: MeshSizes) -> dict[str, int]:
    """The same as a reader sees it: axes across slices only where not of size 1."""
    inside = mesh.get("ici") or {}
    return {axis: size for axis, size in flat_sizes(mesh).items() if size != 1 or axis in inside}


def mesh_text(mesh: MeshSizes) -> str:
    """`data 4 · seq 4 · model 1 · dcn.data 2`."""
    return " · ".join(f"{axis} {size}" for axis, size in shown_sizes(mesh).items())


def wide_sizes(mesh: Mesh) -> list[tuple[str, int]]:
    """Return the axes that are larger than one, in order."""
    return [(axis, size) for axis, size in flat_sizes(mesh.to_json()).items() if size > 1]


def doublings(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, float]:
    """Change of every size in doublings, log2 of after / before, by axis or role; those that stay are absent."""
    change = {name: log2(after.get(name, 1) / before.get(name, 1)) for name in dict.fromkeys([*before, *after])}
    return {name: value for name, value in change.items() if value}


def product_errors(mesh: Mesh, hardware: Hardware) -> list[ConfigError]:
    """Where the sizes of the mesh do not multiply to the chips."""
    errors = []
    if mesh.ici_product != hardware.chips_per_slice:
        sizes = " x ".join(str(size) for _, size in mesh.ici)[:80]
        product = f"{sizes} = {mesh.ici_product}" if len(mesh.ici) > 1 else f"the product is {sizes}"
        text = f"{product}, but the topology has {hardware.chips_per_slice} chips per slice; make the products equal"
        errors.append(ConfigError("mesh.ici", text))
    if mesh.dcn_product != hardware.slices:
        text = f"the sizes multiply to {mesh.dcn_product}, but hardware.slices is {hardware.slices}; make them equal"
        errors.append(ConfigError("mesh.dcn", text))
    return errors


@dataclass(frozen=True)
class Training:
    """How the step is trained.  Sequences and tokens per optimizer step; None where not given.

    sequence_parallel: whether a tensor axis of GPUs also shards activations as wide as the model.  loss_parallel:
    whether the loss of a GPU recipe is formed where the logits lie, sharded over the tensor axis, or on whole ones.
    """

    global_batch: int | None = None
    seq_len: int | None = None
    precision: str = "bf16"
    optimizer: str = "adamw"
    weight_sharding: str = "fsdp"
    remat: str = "full"
    grad_accum: int = 1
    micro_batch: int | None = None
    virtual_stages: int = 1
    sequence_parallel: bool | None = None
    loss_parallel: bool | None = None
    xla_flags: tuple[str, ...] = ()

    @property
    def global_batch_tokens(self) -> int | None:
        if self.global_batch is None or self.seq_len is None:
            return None
        return self.global_batch * self.seq_len


@dataclass(frozen=True)
class Measured:
    """Measurements of this configuration; None without one.

    step_time_s: mean wall time of an optimizer step, seconds.  peak_memory_bytes: most device memory that the program
    held on the fullest chip.
    """

    step_time_s: float | None = None
    peak_memory_bytes: float | None = None


@dataclass(frozen=True)
class ExperimentConfig:
    """One training run as configured.  `model` is None where the user did not say what was trained.

    measured: of this very configuration; whoever derives another one from it leaves it out.
    """

    hardware: Hardware
    mesh: Mesh
    model: ModelShape | None = None
    training: Training = Training()
    name: str = ""
    notes: str = ""
    extra: Mapping[str, Any] = field(default_factory=lambda: _EMPTY)
    measured: Measured | None = None


#: ((role, size), …), major to minor, inside a slice and across slices.
Placement = tuple[tuple[tuple[str, int], ...], tuple[tuple[str, int], ...]]

#: Distance, in doublings, of a mesh of the same sizes in another order: its axes lie on other links.
DISTANCE_OF_ORDER = 1.0


def placement(mesh: Mesh) -> Placement:
    """Return the mesh as the chips see it: roles in order with their sizes.

    Notation does not count: names of axes, axes of size 1, neighbours of one role, and inside a slice `fsdp` beside
    `data`, which carry the same collectives there.  Across slices they differ: only `fsdp` shards weights.
    """

    def segments(axes: tuple[tuple[str, int], ...], inside: bool) -> tuple[tuple[str, int], ...]:
        joined: list[tuple[str, int]] = []
        for axis, size in axes:
            if size == 1:
                continue
            role = merged_role(mesh.role(axis), inside)
            if joined and joined[-1][0] == role:
                joined[-1] = (role, joined[-1][1] * size)
            else:
                joined.append((role, size))
        return tuple(joined)

    return segments(mesh.ici, True), segments(mesh.dcn, False)


def merged_role(role: str, inside: bool) -> str:
    """Return the role under one name: inside a slice, `data` and `fsdp` carry the same collectives."""
    return "data" if inside and role == "fsdp" else role


def placement_of(sizes: MeshSizes, axis_roles: Mapping[str, str] | None = None) -> Placement:
    """Return `placement` of a mesh as JSON has it."""
    ici, dcn = (tuple((sizes.get(place) or {}).items()) for place in ("ici", "dcn"))
    return placement(Mesh(ici, dcn, axis_roles or {}))


def placement_text(sizes: MeshSizes, axis_roles: Mapping[str, str] | None = None) -> str:
    """Return a placement as one line, `data=8 model=4 | fsdp=2`, for a column of the database."""
    texts = [" ".join(f"{role}={size}" for role, size in side) for side in placement_of(sizes, axis_roles)]
    return " | ".join(text for text in texts) if texts[1] else texts[0]


def mesh_distance(old: Mesh, new: Mesh) -> float:
    """Return how far one mesh is from another: factors of two moved between roles, 0 only for the same placement."""
    one, other = placement(old), placement(new)
    if one == other:
        return 0.0
    moved = 0.0
    for before, after in zip(one, other, strict=True):
        for role in {role for role, _ in (*before, *after)}:
            sizes = [prod(size for name, size in side if name == role) for side in (before, after)]
            moved += abs(log2(sizes[1] / sizes[0]))
    return moved / 2.0 or DISTANCE_OF_ORDER


def config_key(config: ExperimentConfig) -> Hashable:
    """Return what tells a configuration from every other one that is another run.

    Micro-batches count by their number, however they were given; settings without effect are left out: virtual stages
    without a pipeline, weight sharding over one shard, the order of XLA flags.  Names and notes are no part of it.
    """
    hardware = config.hardware
    site = tuple(sorted(hardware.overrides.items()))
    return (
        (hardware.chip, hardware.topology, hardware.slices, site),
        placement(config.mesh),
        config.model,
        training_key(config.training, config.mesh),
        framework_of(config),
        config.extra.get("software_year"),
        bool(config.extra.get(REMAT_OPEN)) and config.training.remat == "none",
    )


def training_key(training: Training, mesh: Mesh) -> Hashable:
    """Return the settings of a training that have an effect on this mesh."""
    return (
        training.global_batch,
        training.seq_len,
        training.precision,
        training.optimizer,
        training.weight_sharding if mesh.token_shards > 1 else None,
        training.remat,
        micro_batches(training, mesh),
        training.virtual_stages if mesh.size("pipeline") > 1 else 1,
        training.sequence_parallel if mesh.size("model") > 1 else None,
        training.loss_parallel if mesh.size("model") > 1 else None,
        tuple(sorted(training.xla_flags)),
    )


def framework_of(config: ExperimentConfig) -> str | None:
    """`software.framework` as given."""
    text = config.extra.get("software_framework")
    return text if isinstance(text, str) else None


#: Key of `ExperimentConfig.extra` that says that `training.remat` is a default nobody asked for.
REMAT_OPEN = "remat_open"


def micro_batches(training: Training, mesh: Mesh) -> float:
    """Micro-batches per optimizer step: from `micro_batch` where it is given, else `grad_accum`."""
    if training.micro_batch and training.global_batch:
        return training.global_batch / (mesh.batch_shards * training.micro_batch)
    return float(max(1, training.grad_accum))


def missing_facts(config: ExperimentConfig) -> tuple[str, ...]:
    """Dotted names of what a full prediction needs and the configuration lacks."""
    batch, seq_len = config.training.global_batch, config.training.seq_len
    needed = {"model": config.model, "training.global_batch": batch, "training.seq_len": seq_len}
    return tuple(name for name, value in needed.items() if value is None)


def filled_from(config: ExperimentConfig, ran: ExperimentConfig) -> ExperimentConfig:
    """Return the configuration with what it leaves open of model, batch and sequence length taken from one that ran."""
    training = replace(
        config.training,
        global_batch=config.training.global_batch or ran.training.global_batch,
        seq_len=config.training.seq_len or ran.training.seq_len,
    )
    return replace(config, model=config.model or ran.model, training=training)


def check_products(config: ExperimentConfig) -> None:
    """Raise ConfigError unless the mesh names every chip once (contract, section 4)."""
    for error in product_errors(config.mesh, config.hardware):
        raise error
