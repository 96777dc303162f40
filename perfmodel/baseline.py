"""What the configuration of a baseline leaves open, filled from the profile and from usual sizes: `fill_in`."""

from __future__ import annotations

from dataclasses import replace
from math import log

from perfmodel import memory
from perfmodel.accounting import parameters
from perfmodel.config import ExperimentConfig, ModelShape
from perfmodel.efficiency import Efficiencies
from perfmodel.observation import Observation, by_group
from perfmodel.step_time import combine
from perfmodel.terms import step_terms
from perfmodel.workload import from_config

#: Shapes assumed where the user did not say what was trained: LLaMA-3 sizes (arXiv 2407.21783, table 3).
ASSUMED_SHAPES = (
    ModelShape(32, 4096, 14336, 32, 8, 128, 128256, name="assumed 8B"),
    ModelShape(80, 8192, 28672, 64, 8, 128, 128256, name="assumed 70B"),
    ModelShape(126, 16384, 53248, 128, 8, 128, 128256, name="assumed 405B"),
)
#: Tokens per sequence and per chip assumed where neither the user nor the measured compute time says.
ASSUMED_SEQ_LEN = 4096
ASSUMED_TOKENS_PER_CHIP = 8192


def fill_in(
    config: ExperimentConfig, observation: Observation, efficiencies: Efficiencies
) -> tuple[ExperimentConfig, tuple[str, ...]]:
    """The configuration with every gap filled, and the names of what was filled.

    An unknown batch or sequence length is the one whose modelled compute takes as long as the measured (or a usual one,
    where no step time is known).  An unknown model is the assumed shape whose states fit a chip and whose weight
    collectives then take most nearly as long as measured, or, without any, whose tokens per chip are most usual.  Where
    the tokens are known and the FLOPs were measured, each shape first gets as many layers as make these FLOPs with
    attention and recomputation counted, so that its size is inferred: N ≈ F / (6·tokens), less what attention takes.
    """
    assumed = []
    training, mesh = config.training, config.mesh
    if training.seq_len is None:
        assumed.append("training.seq_len")
        training = replace(training, seq_len=max(ASSUMED_SEQ_LEN, mesh.size("seq") * 128))
    if training.global_batch is None:
        assumed.append("training.global_batch")
        shards = mesh.batch_shards
        tokens = ASSUMED_TOKENS_PER_CHIP * config.hardware.chips
        training = replace(training, global_batch=max(shards, round(tokens / (training.seq_len or 1))))
    free = assumed[-1] if assumed else ""
    filled = replace(config, training=training)
    if config.model is not None:
        return _with_tokens(filled, free, observation, efficiencies), tuple(assumed)
    choices = []
    for shape in ASSUMED_SHAPES:
        tried = _with_tokens(replace(filled, model=shape), free, observation, efficiencies)
        misfit = 0.0
        if not free and observation.flops:
            tried, misfit = _with_layers(tried, observation, efficiencies)
        choices.append((misfit + _implausibility(tried, observation, efficiencies), tried))
    return min(choices, key=lambda choice: choice[0])[1], (*assumed, "model")


def _with_tokens(
    config: ExperimentConfig, free: str, observation: Observation, efficiencies: Efficiencies
) -> ExperimentConfig:
    """The configuration with the batch or sequence length whose modelled compute and HBM time is the measured one.

    free: the dotted name of the one that may move; neither where it is empty.
    """
    if not free or not observation.step_time_s or observation.work_s <= 0:
        return config
    for _ in range(6):
        ratio = _work_ratio(config, observation, efficiencies)
        training = config.training
        if free == "training.global_batch":
            training = replace(training, global_batch=max(1, round((training.global_batch or 1) * ratio)))
        else:
            step = 128 * config.mesh.size("seq")
            training = replace(training, seq_len=max(step, step * round((training.seq_len or step) * ratio / step)))
        config = replace(config, training=training)
    return config


def _with_layers(
    config: ExperimentConfig, observation: Observation, efficiencies: Efficiencies
) -> tuple[ExperimentConfig, float]:
    """The configuration with as many layers of its shape as make the measured FLOPs, and how far they stay away.

    The distance is in logarithms; the width may make one layer too many.
    """
    assert config.model is not None
    shape = config.model
    for _ in range(4):
        ratio = _work_ratio(replace(config, model=shape), observation, efficiencies)
        shape = replace(shape, layers=max(1, round(shape.layers * ratio)))
    params = parameters(shape).total
    imputed = replace(config, model=replace(shape, name=f"assumed {params / 1e9:.2g}B"))
    return imputed, abs(log(_work_ratio(imputed, observation, efficiencies)))


def _work_ratio(config: ExperimentConfig, observation: Observation, efficiencies: Efficiencies) -> float:
    """Measured work over modelled: by executed FLOPs where they were measured, else by the time they take."""
    terms = step_terms(from_config(config))
    if observation.flops:
        return observation.flops / terms.executed_flops(float(config.training.remat in ("full", "offload")))
    parts = combine(terms, efficiencies).parts_s
    # Products that wait for their weights take longer than their arithmetic; how much longer is not known here.
    arithmetic = observation.work_s - observation.parts_s.get("hbm:weights", 0.0)
    return max(arithmetic, 0.1 * observation.work_s) / float((parts["compute"] + parts["hbm"]).reshape(-1)[0])


def _implausibility(config: ExperimentConfig, observation: Observation, efficiencies: Efficiencies) -> float:
    """How far an assumed shape is from what was measured, in logarithms; far where its states would not fit."""
    work = from_config(config)
    used = memory.per_chip(work)
    states = float((used.params + used.optimizer + used.gradients).reshape(-1)[0])
    capacity = float(used.capacity.reshape(-1)[0])
    misfit = 100.0 * max(0.0, states / (0.7 * capacity) - 1.0)
    base = combine(step_terms(work), efficiencies)
    groups, _ = by_group(config.mesh, observation, base)
    names = ("weights", "expert_weights", "replica")
    measured = sum(groups[name] for name in names)
    modelled = sum(float(base.parts_s[f"ici:{name}"].reshape(-1)[0]) for name in names)
    if measured > 0 and modelled > 0:
        return misfit + abs(log(modelled / measured))
    tokens = float((work.training.global_batch * work.training.seq_len / work.chip.chips).reshape(-1)[0])
    return misfit + abs(log(tokens / ASSUMED_TOKENS_PER_CHIP))
