"""`build`: the jitted training step of a configuration on a mesh, with its abstract state and batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from perfmodel import legality
from perfmodel.chips import get_chip
from perfmodel.config import ExperimentConfig, micro_batches
from perfmodel.workload import recipe
from reference_step import adam
from reference_step.decoder import Decoder
from reference_step.layout import Layout, axis_sizes
from reference_step.sharded_arrays import Array, activation_arrays, weight_arrays

#: Places per expert over the mean number of tokens it gets (Switch Transformer, arXiv 2101.03961, table 2).
CAPACITY_FACTOR = 1.25
_DTYPES = {"bf16": jnp.bfloat16, "fp16": jnp.float16, "fp32": jnp.float32}

State = dict[str, Any]


class UnsupportedStep(ValueError):
    """The reference step cannot be built as configured; one sentence that says why."""

    is_user_error = True


@dataclass(frozen=True)
class ReferenceStep:
    """A training step ready to run or to compile.

    step: jitted ``(state, batch) -> (state, loss)``; the state is donated.  abstract_state: ``params`` (float32 weights
    by name), ``mean`` and ``square`` (AdamW's moments), ``count``; abstract_batch: ``tokens``, [sequences, tokens]
    int32; both of `jax.ShapeDtypeStruct`s with their `NamedSharding`.  init: the state for a random key, the same
    numbers on every mesh.  notes: where the step differs from the configuration.
    """

    config: ExperimentConfig
    mesh: Mesh
    step: Any
    abstract_state: State
    abstract_batch: dict[str, jax.ShapeDtypeStruct]
    init: Callable[[jax.Array], State]
    notes: tuple[str, ...]

    def batch(self, key: jax.Array) -> dict[str, jax.Array]:
        """Random tokens, the same on every mesh."""
        assert self.config.model is not None
        tokens = self.abstract_batch["tokens"]
        vocab = self.config.model.vocab
        draw = jax.jit(lambda k: jax.random.randint(k, tokens.shape, 0, vocab), out_shardings=tokens.sharding)
        return {"tokens": draw(key)}

    @property
    def parameters(self) -> int:
        return sum(prod(weight.shape) for weight in self.abstract_state["params"].values())


def build(config: ExperimentConfig, mesh: Mesh, *, capacity_factor: float = CAPACITY_FACTOR) -> ReferenceStep:
    """The step of `config` on `mesh`, whose axes must be those of the configuration (`device_mesh`).

    capacity_factor: places per expert over the mean number of tokens; what is beyond is dropped.
    Raises UnsupportedStep.
    """
    _check(config, mesh)
    shape, training = config.model, config.training
    assert shape is not None and training.global_batch is not None and training.seq_len is not None
    layout = Layout.of(config, mesh)
    weights = {array.name: array for array in weight_arrays(shape)}
    decoder = Decoder(
        shape, layout, {name: _without_stage(a) for name, a in weights.items()}, _residual(config),
        _DTYPES.get(training.precision, jnp.bfloat16), training.remat, capacity_factor,
    )  # fmt: skip
    owned = {name: layout.sharding(array.shape, *array.dims) for name, array in weights.items()}
    kept = owned if training.weight_sharding == "fsdp" else {
        name: layout.sharding(array.shape, *_without_weights(array)) for name, array in weights.items()
    }  # fmt: skip
    moments = owned if training.weight_sharding != "none" else kept
    micro = round(micro_batches(training, config.mesh))
    shardings: State = {
        "params": kept, "mean": moments, "square": moments, "count": NamedSharding(mesh, PartitionSpec()),
    }  # fmt: skip
    arrays = {name: jax.ShapeDtypeStruct(array.shape, jnp.float32) for name, array in weights.items()}
    abstract = {"params": arrays, "mean": arrays, "square": arrays, "count": jax.ShapeDtypeStruct((), jnp.float32)}
    tokens = (training.global_batch, training.seq_len)

    def train_step(state: State, batch: dict[str, jax.Array]) -> tuple[State, jax.Array]:
        return _train_step(decoder, moments, micro, state, batch)

    return ReferenceStep(
        config=config,
        mesh=mesh,
        step=jax.jit(train_step, donate_argnums=0, out_shardings=(shardings, NamedSharding(mesh, PartitionSpec()))),
        abstract_state=jax.tree.map(_placed, abstract, shardings),
        abstract_batch={
            "tokens": jax.ShapeDtypeStruct(tokens, jnp.int32, sharding=layout.sharding(tokens, "BATCH", "SEQ"))
        },
        init=jax.jit(partial(_initial, weights), out_shardings=shardings),
        notes=_notes(config),
    )


def _train_step(
    decoder: Decoder, moments: dict[str, NamedSharding], micro: int, state: State, batch: dict[str, jax.Array]
) -> tuple[State, jax.Array]:
    """One update; the loss is that before it."""
    loss, gradients = _gradients(decoder, moments, micro, state["params"], batch["tokens"])
    with jax.named_scope("adamw"):
        count = state["count"] + 1
        after: State = {"params": {}, "mean": {}, "square": {}, "count": count}
        for name, weight in state["params"].items():
            # Norm scales are not decayed.
            decay = 0.0 if "norm" in name else adam.DECAY
            # Of a weight that each chip holds whole, a chip updates the part of which it holds the moments.
            own = jax.lax.with_sharding_constraint(weight, moments[name])
            new = adam.update(own, gradients[name], state["mean"][name], state["square"][name], count, decay)
            after["params"][name], after["mean"][name], after["square"][name] = new
    return after, loss


def _gradients(
    decoder: Decoder, moments: dict[str, NamedSharding], micro: int, params: dict[str, jax.Array], tokens: jax.Array
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Mean loss and gradients (float32, sharded as the moments) over `micro` micro-batches."""

    def of(tokens: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
        tokens = decoder.layout.constrain(tokens, "BATCH", "SEQ")
        loss, gradients = jax.value_and_grad(decoder.loss)(params, tokens)
        return loss, {n: jax.lax.with_sharding_constraint(g, moments[n]) for n, g in gradients.items()}

    if micro == 1:
        return of(tokens)
    # Every device cuts its own sequences into micro-batches, so that none moves.
    cut = tokens.reshape(tokens.shape[0] // micro, micro, -1).transpose(1, 0, 2)

    def add(total: Any, tokens: jax.Array) -> tuple[Any, None]:
        with jax.named_scope("micro_batch"):
            return jax.tree.map(jnp.add, total, of(tokens)), None

    zeros = {n: jax.lax.with_sharding_constraint(jnp.zeros_like(p), moments[n]) for n, p in params.items()}
    total, _ = jax.lax.scan(add, (jnp.zeros((), jnp.float32), zeros), cut)
    mean: tuple[jax.Array, dict[str, jax.Array]] = jax.tree.map(lambda x: x / micro, total)
    return mean


def _initial(weights: dict[str, Array], key: jax.Array) -> State:
    """Normal weights with standard deviation 1/sqrt(fan-in), norms of one, no moments."""
    params = {}
    for name, array in weights.items():
        key, own = jax.random.split(key)
        if "norm" in name:
            params[name] = jnp.ones(array.shape, jnp.float32)
        else:
            params[name] = jax.random.normal(own, array.shape, jnp.float32) * _fan_in(name, array.shape) ** -0.5
    zeros = {name: jnp.zeros_like(weight) for name, weight in params.items()}
    return {"params": params, "mean": zeros, "square": dict(zeros), "count": jnp.zeros((), jnp.float32)}


def _fan_in(name: str, shape: tuple[int, ...]) -> int:
    if name == "embedding":
        return shape[-1]
    if name == "wo":
        return shape[-3] * shape[-2]
    return shape[1] if len(shape) == 4 and not name.startswith("expert") else shape[-2]


def _placed(array: jax.ShapeDtypeStruct, sharding: NamedSharding) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=sharding)


def _without_weights(array: Array) -> tuple[tuple[str, ...], ...]:
    """A weight that only tensor and expert axes shard."""
    return tuple(tuple(g for g in names if g not in ("WEIGHTS", "EXPERT_WEIGHTS")) for names in array.dims)


def _without_stage(array: Array) -> Array:
    return Array(array.name, array.kind, array.shape, tuple(tuple(g for g in d if g != "STAGE") for d in array.dims))


def _residual(config: ExperimentConfig) -> tuple[tuple[str, ...], ...]:
    kind = get_chip(config.hardware.chip).kind
    parallel = bool(recipe(config.training, config.extra, kind)["sequence_parallel"][0])
    assert config.model is not None
    arrays = activation_arrays(config.model, config.training, 1, kind == "gpu", parallel)
    return next(array.dims for array in arrays if array.name == "residual")


def _check(config: ExperimentConfig, mesh: Mesh) -> None:
    sizes = axis_sizes(config)
    if dict(mesh.shape) != sizes:
        raise UnsupportedStep(f"The mesh has the axes {dict(mesh.shape)}, the configuration {sizes}; use device_mesh.")
    training, shape = config.training, config.model
    if shape is None or training.global_batch is None or training.seq_len is None:
        missing = "model" if shape is None else "batch" if training.global_batch is None else "sequence length"
        raise UnsupportedStep(f"The configuration names no {missing}, which the reference step needs.")
    if config.mesh.size("pipeline") > 1:
        raise UnsupportedStep("The reference step has no pipeline schedule; set the pipeline axis to 1.")
    if training.optimizer not in ("adam", "adamw"):
        raise UnsupportedStep(f"The reference step trains with AdamW, not {training.optimizer}.")
    for rule, broken in legality.indivisible(config).items():
        if broken:
            raise UnsupportedStep(str(legality.sentence(rule, config)))
    tensor = config.mesh.size("model")
    if shape.d_model % tensor or shape.vocab % tensor:
        name = "d_model" if shape.d_model % tensor else "vocab"
        raise UnsupportedStep(f"{name} {getattr(shape, name)} is not divisible by {tensor} tensor shards.")


def _notes(config: ExperimentConfig) -> tuple[str, ...]:
    notes = []
    if config.training.precision not in _DTYPES:
        notes.append(f"Matmuls run in bf16: {config.training.precision} needs a quantisation library.")
    if config.training.xla_flags:
        notes.append("The configuration's XLA flags are set by whoever starts the process, not by the step.")
    return tuple(notes)
