"""Memory per chip by part: parameters, optimizer, gradients, activations with the temporary gathers.

A TPU keeps float32 parameters and casts them when it gathers; a GPU keeps 16-bit parameters and a float32 master copy
that counts as optimizer state.  What else a program allocates is its memory profile (`perfmodel.execution`).
Sources: scaling book 4.4.2 and 5.1; Megatron-LM's activation formula (arXiv 2205.05198, section 4), with masks of
dropout only for attention scores, which no fused kernel keeps; the profiles' own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from perfmodel.arrays import Floats, mapped
from perfmodel.config import ExperimentConfig
from perfmodel.execution import MemoryConstants, fitted_constants
from perfmodel.workload import ACTIVATION_BYTES, MASTER_BYTES, REMAT, SHARDING, WEIGHT_BYTES, Workload, from_config

#: Classic recipes (fp16) keep the product of a gated MLP's branches, and form the loss on a float32 copy.
LOGIT_BYTES_CLASSIC = 6.0
#: The plain loss on whole logits: the 16-bit logits and their gradient, and in float32 the copy, its logarithm of the
#: softmax and its gradient.
LOGIT_BYTES_WHOLE = 16.0
#: A caching allocator fragments as the micro-batches of a pipeline come and go: share of the activations per doubling
#: of the stages, where it may not grow its segments (OptiCo Figure 5).
FRAGMENTATION = 0.165
#: How full a chip is that recomputes just enough: short of the limit by less than any of these numbers is known.
FULL = 0.999
#: Chips of a reduce-scatter up to which XLA forms the head's weight gradient in windows: in 78 of 81 compiled programs
#: with at most 32, in none of 16 with 64 or more.
MOST_WINDOWS = 32
#: Whole outputs of row-parallel matmuls per layer that a reduce-scatter is given.
REDUCED_PER_LAYER = 2.0


@dataclass(frozen=True)
class MemoryUse:
    """Bytes per chip of the fullest stage; arrays over candidates.  capacity: what a program can fill of the chip.

    spared: activations that the framework must recompute or offload so that the rest fits, where nobody said what is
    recomputed; `activations` are without them.  held: of the activations, what the allocator keeps but gives back where
    the room is needed; wanted: the total if the memory had no end.  recomputed: share (0–1) of a full recomputation
    that spares what is spared, which `step_time` charges; sparable: of the activations, what it could spare besides.
    runtime: of the activations, what lies outside the
    framework's allocator.  crash_spread: of log(needed / capacity) among runs that ran and that ran out of memory.
    """

    params: Floats
    optimizer: Floats
    gradients: Floats
    activations: Floats
    capacity: Floats
    spared: Floats
    held: Floats
    wanted: Floats
    recomputed: Floats
    sparable: Floats
    runtime: Floats
    crash_spread: Floats

    @property
    def total(self) -> Floats:
        return self.params + self.optimizer + self.gradients + self.activations

    @property
    def needed(self) -> Floats:
        """Without what the allocator would give back."""
        return self.total - self.held

    @property
    def pressure(self) -> Floats:
        """What the allocator would take if it could, over what there is: near 1, giving back and asking again makes a
        step slow; above 1, by how much it must give back."""
        return self.wanted / self.capacity

    @property
    def fits(self) -> np.ndarray:
        return self.total <= self.capacity

    def parts(self) -> Mapping[str, Floats]:
        names = ("params", "optimizer", "gradients", "activations", "total", "capacity")
        return {name: getattr(self, name) for name in names}


def per_chip(w: Workload, constants: MemoryConstants | None = None) -> MemoryUse:
    """Memory of the fullest pipeline stage of every candidate.  constants: the fitted ones by default."""
    constants_used = constants or fitted_constants()
    first = of_stage(w, stage(w), constants_used)
    if not bool(np.any(w.mesh.pipeline > 1)):
        return first
    last = of_stage(w, stage(w, last=True), constants_used)
    later = last.needed > first.needed
    fullest: MemoryUse = mapped(lambda one, other: np.where(later, one, other), last, first)
    return fullest


def of_stage(w: Workload, at: Stage, c: MemoryConstants) -> MemoryUse:
    """Memory of one pipeline at."""
    chip, model, mesh, train = w.chip, w.model, w.mesh, w.training
    profile = train.profile
    params, optimizer, gradients, kept = _states(w, at, c)
    gpu = chip.gpu > 0
    rows = _rows(w)
    saved, formed, least_saved, none = _saved(w, at, rows, c)
    logits = rows * model.vocab / mesh.model * np.where(_classic(w), LOGIT_BYTES_CLASSIC, c["logit_bytes"][profile])
    logits = np.where(gpu & (train.whole_logits > 0), rows * model.vocab * LOGIT_BYTES_WHOLE, logits)
    windowed = np.where(_windowed_head(w), rows * model.vocab / mesh.model, 0.0)
    logits = logits + windowed * c["logit_gradient_bytes"][profile]
    # The logits are gone when the backward pass reaches the layers, and the gradients of its weights come one by one.
    head = np.maximum(logits * at.has_head, kept * c["transient_gradient_bytes"][profile])
    # Of one layer: each matrix comes just in time and goes with its gradient.
    layer = model.params_layer_largest / mesh.model * WEIGHT_BYTES
    gathered = np.where(train.sharding == SHARDING.index("fsdp"), layer * chip.devices, 0.0)
    keys = rows * mesh.seq * model.kv_width / mesh.model * ACTIVATION_BYTES
    runtime = chip.gpu * c["runtime_bytes"][profile]
    handed = _handed_over(w, at, rows, c)
    forced = handed * c["held_needed"][profile]
    whole = rows * model.d_model * ACTIVATION_BYTES * (1.0 - 1.0 / _wide(w)) * c["whole_tensors"][profile]
    always = gathered + np.where(mesh.seq > 1, keys, 0.0) + runtime + c["workspace_bytes"][profile] + forced + whole
    sharded = (train.sharding == SHARDING.index("zero1")) & (mesh.links["weights"].size * mesh.dcn_fsdp > 1)
    # The update comes when the activations are gone.
    updated = np.where(sharded, kept * c["updated_bytes"][profile], 0.0)
    activations = np.maximum(saved + np.maximum(formed, head) + always, updated)
    # Nobody said what is recomputed: as much as it takes, at most everything.
    least = np.minimum(activations, np.maximum(least_saved + np.maximum(none, head) + always, updated))
    capacity = chip.hbm_capacity_bytes * (1.0 - c["unfilled"][profile])
    room = capacity * FULL - params - optimizer - gradients
    is_open = (train.remat_open > 0) & (train.remat == REMAT.index("none"))
    spared = np.where(is_open, activations - np.clip(room, least, activations), 0.0)
    recomputed = spared / np.maximum(activations - least, 1.0)
    activations = activations - spared
    sparable = np.where(is_open, np.maximum(0.0, activations - least), 0.0)
    flat = np.where(sharded, kept * c["optimizer_gather_bytes"][profile], 0.0)
    elastic = handed - forced + flat
    held = np.clip(elastic, 0.0, np.maximum(0.0, room - activations))
    return MemoryUse(
        params=params,
        optimizer=optimizer,
        gradients=gradients,
        activations=activations + held,
        capacity=capacity,
        spared=spared,
        held=held,
        wanted=params + optimizer + gradients + activations + elastic,
        recomputed=np.minimum(recomputed, 1.0),
        sparable=sparable,
        runtime=runtime,
        crash_spread=c["crash_spread"][profile],
    )


def _rows(w: Workload) -> Floats:
    """Tokens of a micro-batch on a chip, before a tensor axis shards anything."""
    mesh, train = w.mesh, w.training
    rows = train.global_batch * train.seq_len
    return np.asarray(rows / mesh.token_shards / train.micro_batches)


def _windowed_head(w: Workload) -> np.ndarray:
    """Whether a TPU's matmul for the gradient of the head's weights goes through windows with its reduce-scatter: a
    loop, which reads the whole gradient of the logits until its end.  Not where replicas need an all-reduce, and not
    for groups so large that their windows are small."""
    mesh = w.mesh
    group = mesh.links["weights"].size * mesh.dcn_fsdp
    alone = mesh.replica * mesh.dcn_replica == 1
    sharded = (group > 1) & (w.training.sharding != SHARDING.index("none"))
    return np.asarray((w.chip.gpu == 0) & sharded & (group <= MOST_WINDOWS) & alone)


def _wide(w: Workload) -> Floats:
    """Chips over which a tensor axis shards what is as wide as the model: all in the book's scheme (5.1.3) and
    MaxText's, on GPUs only with sequence parallelism."""
    alone = (w.chip.gpu > 0) & ~(w.training.sequence_parallel > 0)
    return np.asarray(np.where(alone, 1.0, w.mesh.model))


def _classic(w: Workload) -> np.ndarray:
    return np.asarray((w.chip.gpu > 0) & (w.training.classic > 0))


def _saved(w: Workload, at: Stage, rows: Floats, c: MemoryConstants) -> tuple[Floats, Floats, Floats, Floats]:
    """Activations kept for the backward pass; what it forms again for the layer at work; what is kept and what is
    formed where everything is recomputed."""
    chip, model, mesh, train = w.chip, w.model, w.mesh, w.training
    gpu, classic, parallel = chip.gpu > 0, _classic(w), train.sequence_parallel > 0
    fragments = np.where(classic & ~parallel, FRAGMENTATION, c["fragmentation"][train.profile])
    in_flight = at.micro_batches * (1.0 + fragments * np.log2(mesh.pipeline))
    layers = at.layers * in_flight
    wide = _wide(w)
    # 8-bit training keeps the inputs of products in 8 bits.
    kept_bytes = np.where(gpu & (train.low_precision > 0), 0.5 * (ACTIVATION_BYTES + 1.0), ACTIVATION_BYTES)
    extra = np.where(classic, 1.0, c["mlp_extra"][train.profile])
    scores = model.heads_narrow / model.v_width * train.seq_len / mesh.model
    scores = rows * scores * c["score_bytes"][train.profile] * train.unfused_attention
    sharded = model.saved_none_sharded + extra * model.saved_mlp_product
    none = rows * kept_bytes * (model.saved_none_model / wide + sharded / mesh.model) + scores
    minimal = rows * kept_bytes * (model.saved_minimal_model / wide + model.saved_minimal_sharded / mesh.model)
    # Inputs and outputs of experts, and their branches, for the tokens that may come beside a chip's own share.
    routed = _room_for_others(w) * model.moe_layers / model.layers * model.experts_per_token
    branches = 2.0 * model.expert_narrow / mesh.model
    none = none + rows * kept_bytes * routed * (2.0 * model.d_model / wide + branches)
    minimal = minimal + rows * kept_bytes * routed * (model.d_model / wide + branches)
    # Without sequence parallelism programs recompute the scores alone (Korthikanti et al., 2022, section 5): nothing as
    # wide as the model is spared, nor divided by the tensor axis.
    minimal = np.where(gpu & ~parallel, none - scores, minimal)
    boundary = rows * ACTIVATION_BYTES * model.d_model / wide
    of = [train.remat == REMAT.index(name) for name in ("none", "minimal", "full")]
    saved = np.select(of, [layers * none, layers * minimal, layers * boundary], 2.0 * boundary)
    formed = np.select(of[:2], [0.0 * none, none - minimal], none)
    return saved, formed, layers * boundary, none


def _room_for_others(w: Workload) -> Floats:
    """Return the room for tokens that other chips send to a chip's experts, beyond its own tokens and over these: 0
    where buffers are as large as tokens that spread evenly need."""
    shards, chosen = w.mesh.expert, np.maximum(w.model.experts_per_token, 1.0)
    most = shards * np.minimum(np.maximum(w.model.experts, 1.0) / shards, chosen) / chosen
    return np.asarray(w.training.worst_case_experts * np.maximum(0.0, most - 1.0))


def _handed_over(w: Workload, at: Stage, rows: Floats, c: MemoryConstants) -> Floats:
    """Whole outputs of row-parallel matmuls that the reduce-scatter over the tensor axis has been given, and that the
    allocator cannot use again until the GPU has finished with them (`record_stream`)."""
    mesh, profile = w.mesh, w.training.profile
    pipelined = mesh.pipeline > 1
    most = c["held_tensors"][profile]
    # The host runs ahead while it only sends, over the forward passes of the warm-up and at least one; then it waits
    # for the gradients of each micro-batch.
    warm_up = np.maximum(1.0, at.micro_batches - 1.0)
    count = np.where(pipelined, np.minimum(most, REDUCED_PER_LAYER * at.layers * warm_up), most)
    count = count * np.where(pipelined, c["held_share"][profile], 1.0)
    return np.asarray(count * rows * w.model.d_model * ACTIVATION_BYTES * (1.0 - 1.0 / mesh.model))


def _states(w: Workload, at: Stage, c: MemoryConstants) -> tuple[Floats, Floats, Floats, Floats]:
    """Bytes of parameters, optimizer and gradients; parameters of the stage that the chip keeps."""
    chip, model, mesh, train = w.chip, w.model, w.mesh, w.training
    profile = train.profile
    share = at.layers / model.layers
    dense = (model.params_dense * share + at.vocabulary) / mesh.model
    experts = model.params_experts * share / (mesh.model * mesh.expert)
    dense_ways = mesh.links["weights"].size * mesh.dcn_fsdp
    expert_ways = mesh.links["expert_weights"].size * mesh.dcn_fsdp
    fsdp = train.sharding == SHARDING.index("fsdp")
    sharded = train.sharding != SHARDING.index("none")
    # Devices of a chip that work on different sequences each hold what is not sharded.
    counts = np.maximum(1.0, np.rint(train.micro_batches)) * chip.devices
    shares = np.mod(train.global_batch, mesh.batch_shards * counts) == 0
    whole = (dense + experts) * np.where(shares, chip.devices, 1.0)
    owned = np.where(sharded, dense / dense_ways + experts / expert_ways, whole)
    kept = np.where(fsdp, owned, whole)
    gpu = chip.gpu > 0
    params = kept * np.where(gpu, WEIGHT_BYTES, MASTER_BYTES)
    optimizer = owned * (train.moment_bytes + np.where(gpu, MASTER_BYTES, 0.0))
    each = np.where(_classic(w), MASTER_BYTES, c["gradient_bytes"][profile])
    reduced = ~sharded & (mesh.replica * dense_ways > 1)
    held = np.where(c["sharded_gradients"][profile] > 0, owned, kept)
    summed = np.where(train.micro_batches > 1, c["summed_gradient_bytes"][profile], 0.0)
    gradients = held * (each + summed + np.where(reduced, c["bucket_bytes"][profile], 0.0))
    return params, optimizer, gradients, kept


def before_activations(config: ExperimentConfig) -> tuple[dict[str, float | None], bool | None]:
    """Return what is known without batch or sequence length, `activations` and `total` None, the rest as in `per_chip`,
    and False where that alone exceeds the capacity, else None.  The model must be given."""
    training = replace(config.training, global_batch=config.mesh.batch_shards, seq_len=config.mesh.size("seq"))
    used = per_chip(from_config(replace(config, training=replace(training, micro_batch=None))))
    known = {name: float(value.reshape(-1)[0]) for name, value in used.parts().items()}
    is_over = known["total"] - known["activations"] > known["capacity"]
    return {**known, "activations": None, "total": None}, False if is_over else None


@dataclass(frozen=True)
class Stage:
    """layers: of the stage.  micro_batches: whose activations it holds at once.  has_head: 1 where the loss is here.

    vocabulary: parameters of embedding and head on the stage, before a tensor axis shards them.
    """

    layers: Floats
    micro_batches: Floats
    has_head: Floats
    vocabulary: Floats


def stage(w: Workload, last: bool = False) -> Stage:
    """Return the first or the last pipeline stage; the same where there is one.

    Either layers fall on stages evenly, or balanced by cost (nanotron's `build_model`): blocks go to a stage until its
    share of the cost is reached, the head counting as the layers it is worth.  Schedules are 1F1B (Megatron-LM, arXiv
    2104.04473, 2.2): the first stage holds as many micro-batches as there are stages, the last one; interleaved
    schedules hold more.
    """
    stages, layers = w.mesh.pipeline, w.model.layers
    virtual = np.where(stages > 1, w.training.virtual_stages, 1.0)
    alone = stages <= 1
    if last:
        held = (stages * (virtual - 1.0) + 1.0) / virtual
        balanced = np.maximum(0.0, layers - _blocks(w, stages - 1.0))
    else:
        held = stages + np.where(virtual > 1, (stages - 1.0) / virtual, 0.0)
        balanced = np.minimum(layers, _blocks(w, 1.0))
    own = np.where(w.training.balanced_stages > 0, balanced, layers / stages)
    return Stage(
        layers=np.where(alone, layers, own),
        micro_batches=np.minimum(held, w.training.micro_batches),
        has_head=np.where(alone | last, 1.0, 0.0),
        vocabulary=np.where(alone, w.model.params_vocabulary, w.model.d_model * w.model.vocab),
    )


def head_layers(w: Workload) -> Floats:
    """Return how many layers the head is worth, by parameters."""
    params = w.model.params_dense + w.model.params_experts
    return np.asarray(w.model.d_model * w.model.vocab * w.model.layers / params)


def _blocks(w: Workload, stages: Floats | float) -> Floats:
    """Layers on the first `stages` stages: as many as reach their share of the cost, norms not counted."""
    share = (w.model.layers + head_layers(w)) * stages / w.mesh.pipeline
    return np.asarray(np.ceil(share - 1e-9))
