"""A configuration made small enough for the devices at hand, keeping its proportions, and what was changed, in words.

A scaled step is another step: it says whether a configuration runs and how it is sharded, not how fast it would be.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import gcd, prod

from formatting import plain
from perfmodel.accounting import model_flops_per_token, parameters
from perfmodel.config import ExperimentConfig, Mesh, ModelShape, Training

#: Bytes per parameter of the whole step: float32 weight, gradient and two moments, and the compute copy in bf16.
_BYTES_PER_PARAMETER = 18
#: Elements per token and layer that a step with full rematerialisation has at one time, and bytes per logit.
_KEPT, _LOGIT_BYTES = 12, 12


@dataclass(frozen=True)
class Room:
    """devices: that a mesh may take.  bytes: of all of them together.  flops: that one step may take."""

    devices: int
    bytes: float
    flops: float


@dataclass(frozen=True)
class Scaled:
    """changes: one line for each thing that is smaller than it was; empty where nothing had to be."""

    config: ExperimentConfig
    changes: tuple[str, ...]


def scale(config: ExperimentConfig, room: Room) -> Scaled:
    """The largest configuration of the same kind that has room: mesh first, then layers, batch, sequence and width.

    Axes are halved from the largest on, so that no kind of parallelism disappears before it must.  Raises ValueError
    where the smallest does not fit either.
    """
    if config.model is None or not config.training.global_batch or not config.training.seq_len:
        raise ValueError("The configuration needs a model, global_batch and seq_len to be run.")
    fitted = _mesh(config, room.devices)
    for shape, training in _smaller(fitted):
        if _bytes(shape, training) <= room.bytes and _flops(shape, training) <= room.flops:
            if shape != config.model:  # no model of the catalogue any more
                shape = replace(shape, name="", source="given by the user")
            fitted = replace(fitted, model=shape, training=training)
            return Scaled(fitted, tuple(_differences(config, fitted)))
    raise ValueError(
        f"Even the smallest step of this configuration needs more than {plain(room.bytes, 'bytes')} and "
        f"{plain(room.flops, 'flops')}."
    )


def _mesh(config: ExperimentConfig, devices: int) -> ExperimentConfig:
    ici, dcn = dict(config.mesh.ici), dict(config.mesh.dcn)
    while prod(ici.values()) * prod(dcn.values()) > devices:
        axes = dcn if prod(dcn.values()) > 1 else ici
        name = max(axes, key=lambda axis: axes[axis])
        axes[name] = max(1, axes[name] // 2)
    if ici == dict(config.mesh.ici) and dcn == dict(config.mesh.dcn):
        return config
    chips, slices = prod(ici.values()), prod(dcn.values())
    topology = [1] * (len(config.hardware.topology) - 1) + [chips]
    for at in range(len(topology) - 1):
        step = gcd(config.hardware.topology[at], topology[-1])
        topology[at], topology[-1] = step, topology[-1] // step
    hardware = replace(config.hardware, topology=tuple(topology), slices=slices)
    mesh: Mesh = replace(config.mesh, ici=tuple(ici.items()), dcn=tuple(dcn.items()))
    return replace(config, hardware=hardware, mesh=mesh)


def _smaller(config: ExperimentConfig) -> Iterator[tuple[ModelShape, Training]]:
    """From as it is to the smallest: what costs the fewest of the step's properties is halved first."""
    shape, training = config.model, config.training
    assert shape is not None and training.global_batch and training.seq_len
    shards = config.mesh.batch_shards
    least_batch = shards * max(1, training.grad_accum or 1)
    least_width = config.mesh.size("model", "data", "fsdp", "seq") * 32
    least_layers = 2 + shape.first_dense_layers
    while True:
        yield shape, training
        batch, length = training.global_batch or 1, training.seq_len or 1
        if shape.layers > least_layers:
            shape = replace(shape, layers=max(least_layers, shape.layers // 2))
        elif shape.vocab > 4096 and shape.vocab > 16 * shape.d_model:
            shape = replace(shape, vocab=max(4096, shape.vocab // 4 // 128 * 128))
        elif batch % 2 == 0 and batch // 2 >= least_batch and (batch // 2) % least_batch == 0:
            training = replace(training, global_batch=batch // 2)
        elif length % 2 == 0 and length > 256 * config.mesh.size("seq"):
            training = replace(training, seq_len=length // 2)
        elif shape.d_model % 2 == 0 and shape.d_model // 2 >= max(128, least_width):
            shape = _narrower(shape, config.mesh.size("model"))
        elif shape.vocab > 4096:
            shape = replace(shape, vocab=max(4096, shape.vocab // 4 // 128 * 128))
        else:
            return


def _narrower(shape: ModelShape, tensor: int) -> ModelShape:
    """Half as wide: fewer heads of the same width where they divide, else narrower heads."""
    values: dict[str, int] = {"d_model": shape.d_model // 2, "d_ff": max(tensor, shape.d_ff // 2 // tensor * tensor)}
    if shape.heads % 2 == 0 and shape.heads // 2 % tensor == 0 and shape.heads // 2 % shape.kv_heads == 0:
        values["heads"] = shape.heads // 2
    elif shape.heads % 2 == 0 and shape.kv_heads % 2 == 0 and shape.kv_heads // 2 % tensor == 0:
        values |= {"heads": shape.heads // 2, "kv_heads": shape.kv_heads // 2}
    elif shape.head_dim % 2 == 0 and shape.head_dim > 16:
        values["head_dim"] = shape.head_dim // 2
    if shape.d_ff_expert:
        values["d_ff_expert"] = max(tensor, shape.d_ff_expert // 2 // tensor * tensor)
    return replace(shape, **values)  # type: ignore[arg-type]


def _bytes(shape: ModelShape, training: Training) -> float:
    tokens = (training.global_batch or 1) * (training.seq_len or 1) / max(1, training.grad_accum or 1)
    kept = shape.layers * shape.d_model * _KEPT + shape.vocab * _LOGIT_BYTES
    return parameters(shape).total * _BYTES_PER_PARAMETER + tokens * kept


def _flops(shape: ModelShape, training: Training) -> float:
    tokens = (training.global_batch or 1) * (training.seq_len or 1)
    return model_flops_per_token(shape, float(training.seq_len or 1)) * tokens


def _differences(was: ExperimentConfig, now: ExperimentConfig) -> Iterator[str]:
    if was.mesh != now.mesh:
        yield f"mesh {was.mesh.text()} → {now.mesh.text()}"
    for before, after in ((was.model, now.model), (was.training, now.training)):
        assert before is not None and after is not None
        for field in dataclasses.fields(before):
            old, new = getattr(before, field.name), getattr(after, field.name)
            if old != new and not isinstance(new, str):
                yield f"{field.name} {old:,} → {new:,}"
