"""The paper's three experiments as their reconstructed profiles, and the meshes that its human experts chose."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache
from pathlib import Path

from experiments.ingest import read_profile
from experiments.samples.samples import SAMPLES
from experiments.step_profile import StepProfile
from perfmodel.config import ExperimentConfig
from perfmodel.config_file import read_config

#: arXiv 2511.03844, sections 3.1–3.3.
EXPERT = {
    1: {"model": 8, "data": 16, "seq": 4},
    2: {"replica": 1, "data": 4, "seq": 1, "model": 4},
    3: {"replica": 1, "data": 8, "seq": 16, "model": 2},
}


@cache
def case(number: int) -> tuple[StepProfile, ExperimentConfig]:
    sample = next(item for item in SAMPLES if item.key == f"asap-experiment-{number}")
    config, _ = read_config(Path(sample.config))
    return read_profile(list(sample.files)), config


def perturbed(profile: StepProfile, seed: int) -> StepProfile:
    """Durations changed by up to 10 % either way, 5 % of the ops dropped."""
    draw = random.Random(seed)
    ops = []
    for op in profile.ops:
        factor = draw.uniform(0.9, 1.1)
        if draw.random() > 0.05:
            ops.append(replace(op, self_time_s=op.self_time_s * factor, total_time_s=op.total_time_s * factor))
    total = sum(op.self_time_s for op in ops)
    ranked = sorted(ops, key=lambda op: -op.self_time_s)
    return replace(profile, ops=tuple(replace(op, time_share=op.self_time_s / total) for op in ranked))
