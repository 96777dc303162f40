"""What the conditions of passages compare (`supports`, knowledge/passages/README.md): quantities of a proposal.

Those of a configuration are the proposed one's by name, and with `was_` before it those of the one that ran; those of
the run have no `was_`.  Axes by role with `fsdp` as data; tokens and sequences of an optimizer step; bounds by
`perfmodel.bounds` in the training precision; shares of the step as observed.  None where a fact is missing: no
condition on it holds then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from math import log2

from knowledge.supports import Quantity
from perfmodel import accounting, bounds
from perfmodel.config import ExperimentConfig
from perfmodel.execution import framework_of, profile_named
from perfmodel.workload import chip_of, micro_batches
from perfmodel.xla_flags import flag_set
from proposals.candidate import candidate
from proposals.proposer.changes import WORTH_HIDING, exposed_by_cause
from proposals.proposer.wording import Case

BEFORE = "was_"
#: A collective that carries less than a link moves meanwhile waits for the hop (TPU, `latency-bound`).
HOP_S = 1e-6
#: What shards the tokens of a step.
TOKEN_ROLES = ("replica", "data", "fsdp", "expert", "seq")

OF_CONFIG: dict[str, Callable[[ExperimentConfig], Quantity]] = {}
OF_RUN: dict[str, Callable[[Case], Quantity]] = {}


class Quantities:
    """The quantities of one proposal by name, each computed when it is first asked for.  Raises KeyError."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._after = candidate(case.config, case.mesh.to_json(), case.changes)
        self._known: dict[str, Quantity] = {}

    def __call__(self, name: str) -> Quantity:
        if name not in self._known:
            self._known[name] = self._compute(name)
        return self._known[name]

    def _compute(self, name: str) -> Quantity:
        if name in OF_RUN:
            return OF_RUN[name](self._case)
        if name.startswith(BEFORE):
            return OF_CONFIG[name.removeprefix(BEFORE)](self._case.config)
        return OF_CONFIG[name](self._after)


def is_known(name: str) -> bool:
    """Whether there is a quantity of this name."""
    return name in OF_RUN or name.removeprefix(BEFORE) in OF_CONFIG


def _of_config(function: Callable[[ExperimentConfig], Quantity]) -> Callable[[ExperimentConfig], Quantity]:
    OF_CONFIG[function.__name__] = function
    return function


def _of_run(function: Callable[[Case], Quantity]) -> Callable[[Case], Quantity]:
    OF_RUN[function.__name__] = function
    return function


# Of a configuration: sizes and settings


def _sized(name: str, *roles: str) -> None:
    OF_CONFIG[name] = lambda config: float(config.mesh.size(*roles))


for _role in ("seq", "model", "expert", "pipeline", "replica"):
    _sized(_role, _role)
_sized("data", "data", "fsdp")


@_of_config
def chips(config: ExperimentConfig) -> Quantity:
    return float(config.hardware.chips)


@_of_config
def slices(config: ExperimentConfig) -> Quantity:
    return float(config.hardware.slices)


@_of_config
def chip(config: ExperimentConfig) -> Quantity:
    """Its name in chips.toml."""
    return config.hardware.chip


@_of_config
def kind(config: ExperimentConfig) -> Quantity:
    return chip_of(config.hardware).kind


@_of_config
def domain(config: ExperimentConfig) -> Quantity:
    """GPUs of an NVLink domain; None on TPUs."""
    size = chip_of(config.hardware).nvlink_domain
    return float(size) if size else None


@_of_config
def tensor_group(config: ExperimentConfig) -> Quantity:
    """Chips of the tensor times the expert axis."""
    return float(config.mesh.size("model", "expert"))


@_of_config
def experts(config: ExperimentConfig) -> Quantity:
    """Routed experts of the model, 0 for a dense one."""
    return None if config.model is None else float(config.model.experts)


@_of_config
def remat(config: ExperimentConfig) -> Quantity:
    return config.training.remat


@_of_config
def weight_sharding(config: ExperimentConfig) -> Quantity:
    return config.training.weight_sharding


@_of_config
def precision(config: ExperimentConfig) -> Quantity:
    return config.training.precision


@_of_config
def framework(config: ExperimentConfig) -> Quantity:
    """Execution profile of the framework that the configuration names; None where it names none."""
    named = framework_of(config)
    return profile_named(named, chip_of(config.hardware).kind).name if named else None


@_of_config
def accumulation(config: ExperimentConfig) -> Quantity:
    """Micro-batches per optimizer step."""
    return micro_batches(config.training, config.mesh)


@_of_config
def virtual_stages(config: ExperimentConfig) -> Quantity:
    return float(config.training.virtual_stages)


@_of_config
def flags(config: ExperimentConfig) -> Quantity:
    """Names of the XLA flags that are set to anything but false."""
    pairs = (flag.removeprefix("--").partition("=") for flag in config.training.xla_flags)
    return frozenset(name for name, _, value in pairs if value.lower() not in ("false", "0"))


@_of_config
def sparsecore_offload(config: ExperimentConfig) -> Quantity:
    """`on` where flags run a collective on the SparseCores, which excludes fusing it; by default so on TPU7x."""
    found = flags(config)
    assert isinstance(found, frozenset)
    named = any("sparse_core_collective_offload" in name for name in found)
    return "on" if named or config.hardware.chip == "tpu7x" else "off"


# Of a configuration: shares of a chip


@_of_config
def sequence_length(config: ExperimentConfig) -> Quantity:
    length = config.training.seq_len
    return float(length) if length else None


@_of_config
def tokens_per_chip(config: ExperimentConfig) -> Quantity:
    """Tokens of a step over all chips."""
    tokens = config.training.global_batch_tokens
    return tokens / config.hardware.chips if tokens else None


@_of_config
def tokens_per_rank(config: ExperimentConfig) -> Quantity:
    """Tokens of a step that a chip computes on."""
    tokens = config.training.global_batch_tokens
    return tokens / config.mesh.size(*TOKEN_ROLES) if tokens else None


@_of_config
def tokens_per_micro_batch(config: ExperimentConfig) -> Quantity:
    """Tokens that a chip multiplies at once."""
    tokens, count = tokens_per_rank(config), micro_batches(config.training, config.mesh)
    return tokens / count if isinstance(tokens, float) else None


@_of_config
def tokens_per_slice(config: ExperimentConfig) -> Quantity:
    tokens = config.training.global_batch_tokens
    return tokens / config.hardware.slices if tokens else None


@_of_config
def tokens_per_shard(config: ExperimentConfig) -> Quantity:
    """Tokens of one sequence in a shard of the sequence axis."""
    length = config.training.seq_len
    return length / config.mesh.size("seq") if length else None


@_of_config
def sequences_per_rank(config: ExperimentConfig) -> Quantity:
    """Sequences of a step in one shard of the batch."""
    batch = config.training.global_batch
    return batch / config.mesh.size("replica", "data", "fsdp", "expert") if batch else None


@_of_config
def micro_batches_per_stage(config: ExperimentConfig) -> Quantity:
    return micro_batches(config.training, config.mesh) / config.mesh.size("pipeline")


@_of_config
def bubble(config: ExperimentConfig) -> Quantity:
    """Share of a pipeline's step in which a stage fills or drains."""
    stages = config.mesh.size("pipeline")
    return (stages - 1) / (config.training.virtual_stages * micro_batches(config.training, config.mesh) + stages - 1)


@_of_config
def shard_width(config: ExperimentConfig) -> Quantity:
    """d_ff of a dense model in one tensor shard; None for a mixture."""
    width = _dense_width(config)
    return width / config.mesh.size("model") if width else None


@_of_config
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


@_of_config
def expert_width(config: ExperimentConfig) -> Quantity:
    """Width of a routed expert."""
    model = config.model
    return float(accounting.expert_width(model)) if model is not None and model.experts else None


@_of_config
def kv_intensity(config: ExperimentConfig) -> Quantity:
    """FLOPs of causal attention per byte of keys and values that a sequence axis gathers; None for latent attention."""
    model, tokens = config.model, tokens_per_shard(config)
    if model is None or not isinstance(tokens, float) or model.attention == "mla" or model.sliding_window:
        return None
    return tokens * model.heads / model.kv_heads / 2


# Of a configuration: bounds


def _dense_width(config: ExperimentConfig) -> float | None:
    return float(config.model.d_ff) if config.model is not None and not config.model.experts else None


@_of_config
def data_bound(config: ExperimentConfig) -> Quantity:
    """Tokens per rank that hide data parallelism or FSDP: on all ICI axes; on GPUs of one domain by NVLink, of several
    by the network cards that a tensor axis leaves to a rank's gathers.  None for mixtures, whose weights see fewer, and
    where the model is not known."""
    part, wide = chip_of(config.hardware), config.training.precision
    if config.model is None or config.model.experts:
        return None
    if part.kind == "tpu":
        return bounds.data_tokens(part, part.ici_axes, wide)
    if config.hardware.chips <= part.nvlink_domain:
        return bounds.nvlink_intensity(part, wide)
    cards = max(1, min(8, part.nvlink_domain) // config.mesh.size("model"))
    return bounds.node_tokens(part, cards, wide)


@_of_config
def mixed_bound(config: ExperimentConfig) -> Quantity:
    """Tokens per chip that the best mix of FSDP and tensor parallelism needs; dense models on TPUs of two axes or more.

    With three axes the mix divides them two to one.
    """
    part, width = chip_of(config.hardware), _dense_width(config)
    if part.kind != "tpu" or width is None:
        return None
    return bounds.mixed_tokens(part, width, part.ici_axes - 1, config.training.precision)


@_of_config
def slice_bound(config: ExperimentConfig) -> Quantity:
    """Tokens per slice that hide data parallelism over DCN."""
    return bounds.slice_tokens(chip_of(config.hardware), config.training.precision)


@_of_config
def tensor_bound(config: ExperimentConfig) -> Quantity:
    """Tensor shards of a dense model that one ICI axis, or NVLink inside its domain, hides."""
    width, part = _dense_width(config), chip_of(config.hardware)
    return None if width is None else bounds.tensor_shards(part, width, 1, config.training.precision)


@_of_config
def hbm_bound(config: ExperimentConfig) -> Quantity:
    """Tokens per micro-batch and chip from which matmuls of a dense model leave the HBM roof."""
    if config.model is None or config.model.experts:
        return None
    return bounds.hbm_tokens(chip_of(config.hardware), config.training.precision)


@_of_config
def link_bound(config: ExperimentConfig) -> Quantity:
    """FLOPs per byte that hide an exchange on one ICI axis or by NVLink."""
    part, wide = chip_of(config.hardware), config.training.precision
    return bounds.axis_intensity(part, wide) if part.kind == "tpu" else bounds.nvlink_intensity(part, wide)


@_of_config
def host_bound(config: ExperimentConfig) -> Quantity:
    """Parameters per layer over d_model that hide offloading a layer's input."""
    return bounds.host_width(chip_of(config.hardware), config.training.precision)


@_of_config
def expert_bound(config: ExperimentConfig) -> Quantity:
    """Expert width that hides the all-to-all over the expert axis."""
    return bounds.expert_width(
        chip_of(config.hardware), config.mesh.size("expert"), config.training.precision
    )  # fmt: skip


@_of_config
def from_best_mix(config: ExperimentConfig) -> Quantity:
    """Doublings between the data shards and those at which FSDP and tensor parallelism together communicate least;
    None where other axes shard as well."""
    tokens, width, mesh = config.training.global_batch_tokens, _dense_width(config), config.mesh
    if not tokens or width is None or mesh.size("seq", "expert", "pipeline", "replica") * mesh.dcn_product > 1:
        return None
    best = bounds.best_data_shards(tokens, width, config.hardware.chips)
    return abs(log2(mesh.size("data", "fsdp") / best))


# Of the run


@_of_run
def verdict(case: Case) -> Quantity:
    return case.diagnosis.bottleneck.primary


@_of_run
def finding(case: Case) -> Quantity:
    """Rules of the findings."""
    return frozenset(item.rule for item in case.diagnosis.findings)


@_of_run
def rank(case: Case) -> Quantity:
    return float(case.rank)


@_of_run
def mesh_changes(case: Case) -> Quantity:
    return "yes" if case.resized else "no"


def _observed(name: str, *parts: str) -> None:
    def share(case: Case) -> Quantity:
        spent = {**case.observed.work_s, **case.observed.traffic_s}
        return sum(spent[part] for part in parts) / case.observed.step_s

    OF_RUN[name] = share


_observed("tensor_share", "tensor")
_observed("weights_share", "weights")
_observed("sequence_share", "sequence")
_observed("expert_share", "expert")
_observed("pipeline_share", "pipeline")
_observed("dcn_share", "dcn")
_observed("weights_hbm_share", "weights_hbm")
_observed("optimizer_share", "optimizer")
_observed("attention_share", "attention")
_observed("products_share", "products", "attention")


def _measured(name: str, kpi: str) -> None:
    OF_RUN[name] = lambda case: case.diagnosis.kpis.get(kpi)


_measured("communication_share", "communication")
_measured("duty_cycle", "duty_cycle")
_measured("flops_utilization", "flops_utilization")
_measured("idle_share", "idle")
_measured("measured_memory_share", "memory_peak_share")


@_of_run
def exposed_share(case: Case) -> Quantity:
    return case.exposed_s / case.observed.step_s


@_of_run
def small_collectives_share(case: Case) -> Quantity:
    """Share of the step in collectives that carry less than their link moves in the time of a hop."""
    known = [op for op in case.diagnosis.ops if op.collective and op.collective_bytes and op.possible_bytes_per_s]
    small = (op for op in known if (op.collective_bytes or 0.0) < HOP_S * (op.possible_bytes_per_s or 0.0))
    return float(sum(op.time_share for op in small)) if known else None


@_of_run
def new_flags(case: Case) -> Quantity:
    """Names of the flags that the proposal sets and the run did not."""
    given = set(case.config.training.xla_flags)
    return _names(flag for flag in case.changes.get("xla_flags", ()) if flag not in given)


def _names(flags: Iterable[str]) -> frozenset[str]:
    return frozenset(flag.removeprefix("--").partition("=")[0] for flag in flags)


@_of_run
def exposed_cause(case: Case) -> Quantity:
    """Exposed transfers that the proposed mesh still has and for which it sets flags, as these are documented
    (perfmodel/xla_flags.toml)."""
    left = {axis for axis, size in case.mesh.ici if size > 1} | ({"dcn"} if case.mesh.dcn_product > 1 else set())
    rows = (row for row in case.diagnosis.collectives if not row.axis or left & set(row.axis.split("+")))
    exposed = exposed_by_cause(case.config, replace(case.diagnosis, collectives=tuple(rows)))
    chip = case.config.hardware.chip
    found = {cause: flag_set(chip, cause) for cause, share in exposed.items() if share >= WORTH_HIDING}
    added = new_flags(case)
    assert isinstance(added, frozenset)
    return frozenset(cause for cause, flags in found.items() if flags and added & _names(flags.flags))


@_of_run
def memory_share(case: Case) -> Quantity:
    """Predicted memory of the proposal over what a program can fill."""
    return _filled(case.predicted.hbm_per_chip_bytes)


@_of_run
def was_memory_share(case: Case) -> Quantity:
    return _filled(case.baseline.hbm_per_chip_bytes)


def _filled(used: dict[str, float] | None) -> float | None:
    return used["total"] / used["capacity"] if used and used.get("capacity") else None
