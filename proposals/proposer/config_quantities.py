"""Quantities of a configuration that conditions of passages compare (`quantities`): sizes, settings, what falls to a
chip, and bounds by `perfmodel.roofline` in the training precision.

Axes by role with `fsdp` as data; tokens and sequences of an optimizer step.  None where a fact is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import log2

from knowledge.supports import Quantity
from perfmodel import accounting, roofline
from perfmodel.config import ExperimentConfig, micro_batches
from perfmodel.workload import chip_of

#: Facts of the chip: nothing is known of them where a run was recorded on another one than its configuration names.
#: Bounds are, too.
OF_CHIP = frozenset({"chip", "kind", "domain", "domains"})

OF_CONFIG: dict[str, Callable[[ExperimentConfig], Quantity]] = {}


def of_config(function: Callable[[ExperimentConfig], Quantity]) -> Callable[[ExperimentConfig], Quantity]:
    OF_CONFIG[function.__name__] = function
    return function


# Of a configuration: sizes and settings


def _sized(name: str, *roles: str) -> None:
    OF_CONFIG[name] = lambda config: float(config.mesh.size(*roles))


for _role in ("seq", "model", "expert", "pipeline"):
    _sized(_role, _role)
_sized("data", "data", "fsdp")


@of_config
def chips(config: ExperimentConfig) -> Quantity:
    return float(config.hardware.chips)


@of_config
def slices(config: ExperimentConfig) -> Quantity:
    return float(config.hardware.slices)


@of_config
def chip(config: ExperimentConfig) -> Quantity:
    """Its name in chips.toml."""
    return config.hardware.chip


@of_config
def kind(config: ExperimentConfig) -> Quantity:
    return chip_of(config.hardware).kind


@of_config
def domain(config: ExperimentConfig) -> Quantity:
    """GPUs of an NVLink domain as configured; None on TPUs."""
    return float(config.hardware.topology[0]) if chip_of(config.hardware).kind == "gpu" else None


@of_config
def domains(config: ExperimentConfig) -> Quantity:
    """NVLink domains that the GPUs fill; None on TPUs."""
    inside = domain(config)
    return config.hardware.chips / inside if isinstance(inside, float) else None


@of_config
def links(config: ExperimentConfig) -> Quantity:
    """`equal` where all axes lie on links of one kind: ICI of one slice, NVLink of one domain."""
    inside = config.hardware.slices == 1 if kind(config) == "tpu" else domains(config) == 1
    return "equal" if inside else "unequal"


@of_config
def shape(config: ExperimentConfig) -> Quantity:
    """Whether the model's sizes are `known`."""
    return "unknown" if config.model is None else "known"


@of_config
def tensor_group(config: ExperimentConfig) -> Quantity:
    """Chips of the tensor times the expert axis."""
    return float(config.mesh.size("model", "expert"))


@of_config
def experts(config: ExperimentConfig) -> Quantity:
    """Routed experts of the model, 0 for a dense one."""
    return None if config.model is None else float(config.model.experts)


@of_config
def remat(config: ExperimentConfig) -> Quantity:
    return config.training.remat


@of_config
def weight_sharding(config: ExperimentConfig) -> Quantity:
    return config.training.weight_sharding


@of_config
def accumulation(config: ExperimentConfig) -> Quantity:
    """Micro-batches per optimizer step."""
    return micro_batches(config.training, config.mesh)


@of_config
def sparsecore_offload(config: ExperimentConfig) -> Quantity:
    """`on` where flags run a collective on the SparseCores, which excludes fusing it; by default so on TPU7x."""
    pairs = (flag.partition("=") for flag in config.training.xla_flags)
    named = any("sparse_core_collective_offload" in name and value.lower() == "true" for name, _, value in pairs)
    return "on" if named or config.hardware.chip == "tpu7x" else "off"


# Of a configuration: shares of a chip


@of_config
def sequence_length(config: ExperimentConfig) -> Quantity:
    length = config.training.seq_len
    return float(length) if length else None


@of_config
def tokens_per_chip(config: ExperimentConfig) -> Quantity:
    """Tokens of a step over all chips."""
    tokens = config.training.global_batch_tokens
    return tokens / config.hardware.chips if tokens else None


@of_config
def tokens_per_rank(config: ExperimentConfig) -> Quantity:
    """Tokens of a step that a chip computes on."""
    tokens = config.training.global_batch_tokens
    return tokens / config.mesh.token_shards if tokens else None


@of_config
def tokens_per_micro_batch(config: ExperimentConfig) -> Quantity:
    """Tokens that a chip multiplies at once."""
    tokens, count = tokens_per_rank(config), micro_batches(config.training, config.mesh)
    return tokens / count if isinstance(tokens, float) else None


@of_config
def tokens_per_slice(config: ExperimentConfig) -> Quantity:
    tokens = config.training.global_batch_tokens
    return tokens / config.hardware.slices if tokens else None


@of_config
def tokens_per_shard(config: ExperimentConfig) -> Quantity:
    """Tokens of one sequence in a shard of the sequence axis."""
    length = config.training.seq_len
    return length / config.mesh.size("seq") if length else None


@of_config
def sequences_per_rank(config: ExperimentConfig) -> Quantity:
    """Sequences of a step in one shard of the batch."""
    batch = config.training.global_batch
    return batch / config.mesh.batch_shards if batch else None


@of_config
def micro_batches_per_stage(config: ExperimentConfig) -> Quantity:
    return micro_batches(config.training, config.mesh) / config.mesh.size("pipeline")


@of_config
def bubble(config: ExperimentConfig) -> Quantity:
    """Share of a pipeline's step in which a stage fills or drains."""
    stages = config.mesh.size("pipeline")
    return (stages - 1) / (config.training.virtual_stages * micro_batches(config.training, config.mesh) + stages - 1)


@of_config
def chunks(config: ExperimentConfig) -> Quantity:
    """`whole` where the layers divide by stages times virtual stages."""
    slots = config.mesh.size("pipeline") * config.training.virtual_stages
    return None if config.model is None else "uneven" if config.model.layers % slots else "whole"


@of_config
def shard_width(config: ExperimentConfig) -> Quantity:
    """d_ff of a dense model in one tensor shard; None for a mixture."""
    width = _dense_width(config)
    return width / config.mesh.size("model") if width else None


@of_config
def layer_width(config: ExperimentConfig) -> Quantity:
    """Parameters of a layer that a token passes through, over d_model; of a mixture those of its mixture layers."""
    model = config.model
    if model is None:
        return None
    count = accounting.parameters(model)
    used = count.layer_dense_mlp
    if model.experts:
        used = count.layer_experts * model.experts_per_token / model.experts + count.layer_shared_experts
    return (count.layer_attention + used) / model.d_model


@of_config
def expert_width(config: ExperimentConfig) -> Quantity:
    """Width of a routed expert."""
    model = config.model
    return float(accounting.expert_width(model)) if model is not None and model.experts else None


@of_config
def kv_intensity(config: ExperimentConfig) -> Quantity:
    """FLOPs of causal attention per byte of keys and values that a sequence axis gathers; None for latent attention."""
    model, tokens = config.model, tokens_per_shard(config)
    if model is None or not isinstance(tokens, float) or model.attention == "mla" or model.sliding_window:
        return None
    return tokens * model.heads / model.kv_heads / 2


# Of a configuration: bounds


def _dense_width(config: ExperimentConfig) -> float | None:
    return float(config.model.d_ff) if config.model is not None and not config.model.experts else None


@of_config
def data_bound(config: ExperimentConfig) -> Quantity:
    """Tokens per rank that hide data parallelism or FSDP: on all ICI axes; on GPUs of one domain by NVLink, of several
    by the network cards that a tensor axis leaves to a rank's gathers.  None for mixtures, whose weights see fewer, and
    where the model is not known."""
    part, wide = chip_of(config.hardware), config.training.precision
    if config.model is None or config.model.experts:
        return None
    if part.kind == "tpu":
        return roofline.data_tokens(part, part.ici_axes, wide)
    inside = config.hardware.topology[0]
    if config.hardware.chips <= inside:
        return roofline.nvlink_intensity(part, wide)
    return roofline.node_tokens(part, max(1, inside // config.mesh.size("model")), wide)


@of_config
def mixed_bound(config: ExperimentConfig) -> Quantity:
    """Tokens per chip that the best mix of FSDP and tensor parallelism needs; dense models on TPUs of two axes or more.

    With three axes the mix divides them two to one.
    """
    part, width = chip_of(config.hardware), _dense_width(config)
    if part.kind != "tpu" or width is None:
        return None
    return roofline.mixed_tokens(part, width, part.ici_axes - 1, config.training.precision)


@of_config
def slice_bound(config: ExperimentConfig) -> Quantity:
    """Tokens per slice that hide data parallelism over DCN between this many slices."""
    return roofline.slice_tokens(chip_of(config.hardware), config.training.precision, config.hardware.slices)


@of_config
def tensor_bound(config: ExperimentConfig) -> Quantity:
    """Tensor shards of a dense model that one ICI axis, or NVLink inside its domain, hides."""
    width, part = _dense_width(config), chip_of(config.hardware)
    return None if width is None else roofline.tensor_shards(part, width, 1, config.training.precision)


@of_config
def hbm_bound(config: ExperimentConfig) -> Quantity:
    """Tokens per micro-batch and chip from which matmuls of a dense model leave the HBM roof."""
    if config.model is None or config.model.experts:
        return None
    return roofline.hbm_tokens(chip_of(config.hardware), config.training.precision)


@of_config
def link_bound(config: ExperimentConfig) -> Quantity:
    """FLOPs per byte that hide an exchange on one ICI axis or by NVLink."""
    part, wide = chip_of(config.hardware), config.training.precision
    return roofline.axis_intensity(part, wide) if part.kind == "tpu" else roofline.nvlink_intensity(part, wide)


@of_config
def attention_bound(config: ExperimentConfig) -> Quantity:
    """FLOPs per byte of attention, which multiplies in bf16, that hide an exchange on one ICI axis or by NVLink."""
    return link_bound(replace(config, training=replace(config.training, precision="bf16")))


@of_config
def host_bound(config: ExperimentConfig) -> Quantity:
    """Parameters per layer over d_model that hide offloading a layer's input."""
    return roofline.host_width(chip_of(config.hardware), config.training.precision)


@of_config
def expert_bound(config: ExperimentConfig) -> Quantity:
    """Expert width that hides the all-to-all over the expert axis."""
    part, inside = chip_of(config.hardware), config.hardware.topology[0]
    return roofline.expert_width(part, config.mesh.size("expert"), inside, config.training.precision)


@of_config
def from_best_mix(config: ExperimentConfig) -> Quantity:
    """Doublings between the data shards and those at which FSDP and tensor parallelism together communicate least;
    None where other axes shard as well."""
    tokens, width, mesh = config.training.global_batch_tokens, _dense_width(config), config.mesh
    if not tokens or width is None or mesh.size("seq", "expert", "pipeline", "replica") * mesh.dcn_product > 1:
        return None
    best = roofline.best_data_shards(tokens, width, config.hardware.chips)
    return abs(log2(mesh.size("data", "fsdp") / best))
