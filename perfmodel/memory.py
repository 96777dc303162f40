"""Memory per chip by part: parameters, optimizer, gradients, activations with the temporary gathers.

A TPU keeps float32 parameters and casts them when it gathers; a GPU keeps 16-bit parameters, gradients in 16 bits
(classic recipes: float32) and a float32 master copy that counts as optimizer state.  Sources: scaling book 4.4.2 and
5.1; Megatron-LM's activation formula (arXiv 2205.05198, section 4), without dropout and with a fused attention kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from perfmodel.config import ExperimentConfig
from perfmodel.topology import Floats
from perfmodel.workload import (
    ACTIVATION_BYTES,
    MASTER_BYTES,
    REMAT,
    SHARDING,
    WEIGHT_BYTES,
    Workload,
    from_config,
)

#: Runtime, collective buffers and workspace of a GPU process (OptiCo Figure 5: what no other part explains).
GPU_RUNTIME_BYTES = 1.5e9
#: Bytes per logit while the loss is formed.  XLA and the fused loss of today's GPU recipes turn the 16-bit product into
#: its gradient in place; the classic loss writes a float32 copy.
LOGIT_BYTES = 2.0
LOGIT_BYTES_CLASSIC = 6.0
#: The plain loss on whole logits: the 16-bit logits and their gradient, and in float32 the copy, its logarithm of the
#: softmax and its gradient.
LOGIT_BYTES_WHOLE = 16.0
#: A caching allocator fragments as the micro-batches of a pipeline come and go: share of the activations per doubling
#: of the stages, where it may not grow its segments (OptiCo Figure 5).
FRAGMENTATION = 0.165
#: Layers whose weights lie in memory gathered: each matrix comes just in time and goes with its gradient.
GATHERED_LAYERS = 1.0
#: How full a chip is that recomputes just enough: short of the limit by less than any of these numbers is known.
FULL = 0.999
#: Gradients of today's GPU recipes are kept, summed and reduced in 16 bits.
GRADIENT_BYTES = 2.0


@dataclass(frozen=True)
class MemoryUse:
    """Bytes per chip of the fullest stage; arrays over candidates.  capacity: what a program can fill of the chip.

    spared: activations that the framework must recompute or offload so that the rest fits, where nobody said what is
    recomputed; `activations` are without them.
    """

    params: Floats
    optimizer: Floats
    gradients: Floats
    activations: Floats
    capacity: Floats
    spared: Floats

    @property
    def total(self) -> Floats:
        return self.params + self.optimizer + self.gradients + self.activations

    @property
    def fits(self) -> np.ndarray:
        return self.total <= self.capacity

    def parts(self) -> Mapping[str, Floats]:
        return {
            "params": self.params,
            "optimizer": self.optimizer,
            "gradients": self.gradients,
            "activations": self.activations,
            "total": self.total,
            "capacity": self.capacity,
        }


def per_chip(w: Workload) -> MemoryUse:
    """Memory of the fullest pipeline stage of every candidate."""
    chip, model, mesh, train = w.chip, w.model, w.mesh, w.training
    params, optimizer, gradients = _states(w)
    stages = mesh.pipeline
    virtual = np.where(stages > 1, train.virtual_stages, 1.0)
    rows = train.global_batch * train.seq_len
    rows = rows / (mesh.replica * mesh.data * mesh.fsdp * mesh.seq * mesh.expert) / train.micro_batches
    # The first stage holds as many micro-batches as there are stages, and more when interleaved (Megatron-LM, arXiv
    # 2104.04473, 2.2).
    classic = (chip.gpu > 0) & (train.classic > 0)
    parallel = train.sequence_parallel > 0
    interleaved = np.where(virtual > 1, (stages - 1.0) / (stages * virtual), 0.0)
    in_flight = np.minimum(1.0 + interleaved, train.micro_batches)
    in_flight = in_flight * (1.0 + np.where(classic & ~parallel, FRAGMENTATION * np.log2(stages), 0.0))
    layers = model.layers * in_flight
    # A tensor axis shards what is as wide as the model in the book's scheme (5.1.3) and MaxText's; on GPUs only with
    # sequence parallelism.  8-bit training keeps the inputs of products in 8 bits.
    eight = (chip.gpu > 0) & (train.low_precision > 0)
    wide = np.where((chip.gpu > 0) & ~parallel, 1.0, mesh.model)
    kept_bytes = np.where(eight, 0.5 * (ACTIVATION_BYTES + 1.0), ACTIVATION_BYTES)
    sharded = model.saved_none_sharded + np.where(classic, model.saved_mlp_product, 0.0)
    none = rows * kept_bytes * (model.saved_none_model / wide + sharded / mesh.model)
    minimal = rows * kept_bytes * (model.saved_minimal_model / wide + model.saved_minimal_sharded / mesh.model)
    boundary = rows * ACTIVATION_BYTES * model.d_model / wide
    saved = np.select(
        [train.remat == REMAT.index(name) for name in ("none", "minimal", "full")],
        [layers * none, layers * minimal, layers * boundary],
        2.0 * boundary,
    )
    # What the backward pass forms again for the layer at work.
    formed = np.select(
        [train.remat == REMAT.index(name) for name in ("none", "minimal")], [0.0 * none, none - minimal], none
    )
    keys = rows * mesh.seq * model.kv_width / mesh.model * ACTIVATION_BYTES
    logits = rows * model.vocab / mesh.model * np.where(classic, LOGIT_BYTES_CLASSIC, LOGIT_BYTES)
    whole = (chip.gpu > 0) & (train.whole_logits > 0)
    logits = np.where(whole, rows * model.vocab * LOGIT_BYTES_WHOLE, logits)
    # The stage that keeps the most activations is the first; the logits lie in the last, and are gone when the backward
    # pass reaches the layers.
    head = np.where(stages > 1, np.maximum(0.0, logits - saved * (1.0 - 1.0 / (stages * in_flight))), logits)
    gathered = np.where(train.sharding == SHARDING.index("fsdp"), _gathered(w), 0.0)
    gathered_keys = np.where(mesh.seq > 1, keys, 0.0)
    always = gathered + gathered_keys + chip.gpu * GPU_RUNTIME_BYTES
    activations = saved + np.maximum(formed, head) + always
    # Nobody said what is recomputed: as much as it takes, at most everything.
    least = np.minimum(activations, layers * boundary + np.maximum(none, head) + always)
    room = chip.hbm_capacity_bytes * FULL - params - optimizer - gradients
    is_open = (train.remat_open > 0) & (train.remat == REMAT.index("none"))
    spared = np.where(is_open, activations - np.clip(room, least, activations), 0.0)
    return MemoryUse(
        params=params,
        optimizer=optimizer,
        gradients=gradients,
        activations=activations - spared,
        capacity=chip.hbm_capacity_bytes,
        spared=spared,
    )


def _stage_parameters(w: Workload) -> tuple[Floats, Floats]:
    """Non-expert (with the stage's part of the vocabulary) and expert parameters of a chip, before weight sharding."""
    model, mesh = w.model, w.mesh
    vocabulary = model.params_vocabulary / np.where(mesh.pipeline > 1, 2.0, 1.0)
    dense = (model.params_dense / mesh.pipeline + vocabulary) / mesh.model
    experts = model.params_experts / (mesh.pipeline * mesh.model * mesh.expert)
    return dense, experts


def _states(w: Workload) -> tuple[Floats, Floats, Floats]:
    chip, mesh, train = w.chip, w.mesh, w.training
    dense, experts = _stage_parameters(w)
    dense_ways = mesh.links["weights"].size * mesh.dcn_fsdp
    expert_ways = mesh.links["expert_weights"].size * mesh.dcn_fsdp
    fsdp = train.sharding == SHARDING.index("fsdp")
    sharded = train.sharding != SHARDING.index("none")
    whole = dense + experts
    owned = np.where(sharded, dense / dense_ways + experts / expert_ways, whole)
    kept = np.where(fsdp, owned, whole)
    gpu = chip.gpu > 0
    params = kept * np.where(gpu, WEIGHT_BYTES, MASTER_BYTES)
    optimizer = owned * (train.moment_bytes + np.where(gpu, MASTER_BYTES, 0.0))
    gradients = kept * np.where(gpu & (train.classic == 0), GRADIENT_BYTES, MASTER_BYTES)
    return params, optimizer, gradients


def _gathered(w: Workload) -> Floats:
    """Weights gathered at once, in 16 bits."""
    one = w.model.params_layer_largest / w.mesh.model
    return GATHERED_LAYERS * one * WEIGHT_BYTES


def fits_so_far(known: Mapping[str, float | None] | None) -> bool | None:
    """False where the known parts alone exceed the capacity, else None: without activations nobody knows."""
    if known is None:
        return None
    states = sum(known[name] or 0.0 for name in ("params", "optimizer", "gradients"))
    return False if states > (known["capacity"] or 0.0) else None


def parameters_only(config: ExperimentConfig) -> dict[str, float | None]:
    """What is known without batch or sequence length; `activations` and `total` are None, the rest as in `per_chip`.

    The model must be given.
    """
    groups = config.mesh.size("replica", "data", "fsdp", "expert")
    training = replace(config.training, global_batch=groups, seq_len=config.mesh.size("seq"), micro_batch=None)
    w = from_config(replace(config, training=training))
    params, optimizer, gradients = _states(w)
    return {
        "params": float(params[0]),
        "optimizer": float(optimizer[0]),
        "gradients": float(gradients[0]),
        "activations": None,
        "total": None,
        "capacity": float(w.chip.hbm_capacity_bytes[0]),
    }
