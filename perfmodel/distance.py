"""How far a configuration is from what the fit has seen: the error that a prediction may quote depends on it.

From near to far: the same configuration was measured; the same workload on another mesh; the model on this chip with
this program, at another batch or number of chips; another model on this chip with this program; the program on a chip
on which it was not measured; a program of which nothing was measured.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from perfmodel.catalogue import architecture
from perfmodel.chips import get_chip
from perfmodel.config import CANONICAL_ROLES, ExperimentConfig
from perfmodel.execution import framework_of, profile_named
from perfmodel.shapes import ModelShape

SEEN_FILE = Path(__file__).with_name("measured_runs.json")

#: From near to far.
DISTANCES = ("configuration", "workload", "scale", "model", "architecture", "chip", "framework")
#: In words, after "measured:".
DESCRIBED: Mapping[str, str] = {
    "configuration": "this configuration was measured",
    "workload": "other meshes of this workload were measured",
    "scale": "this model was measured on this chip, at another batch or number of chips",
    "model": "other models of this architecture were measured on this chip with this framework",
    "architecture": "other architectures were measured on this chip with this framework",
    "chip": "this framework was measured on other chips only",
    "framework": "no run of this framework was measured",
}


#: Dense families whose layers differ from the plain transformer's (norms, windows, gates).
DENSE_OF_THEIR_OWN = ("gemma",)


@dataclass(frozen=True)
class RunKeys:
    """What tells runs apart, from special to general; equal texts are the same."""

    configuration: str
    workload: str
    scale: str
    architecture: str
    chip: str
    framework: str


def model_key(shape: ModelShape) -> str:
    """The same text for models of the same shape, whatever their name."""
    parts = [shape.layers, shape.d_model, shape.d_ff, shape.heads, shape.kv_heads, shape.vocab, shape.experts]
    return "-".join(str(part) for part in parts)


def architecture_key(shape: ModelShape) -> str:
    """Models whose layers are alike: dense ones unless their family differs, mixtures by family."""
    family = architecture(shape)
    if shape.experts:
        return f"mixture {family}"
    return family if family in DENSE_OF_THEIR_OWN else "dense"


def run_keys(config: ExperimentConfig) -> RunKeys:
    """Keys of a configuration; a model, batch or length that is absent equals no other."""
    hardware, training, mesh = config.hardware, config.training, config.mesh
    framework = framework_of(config)
    profile = profile_named(framework, get_chip(hardware.chip).kind)
    # Where no framework is given the default profile is taken at its word.
    known = profile.name if framework is None or profile.has_measured(framework) else f"? {framework.lower()}"
    chip = f"{known} {hardware.chip}"
    scale = f"{chip} {model_key(config.model) if config.model else '?'} {training.precision}"
    layers = f"{chip} {architecture_key(config.model) if config.model else '?'}"
    workload = f"{scale} x{hardware.chips} B{training.global_batch} S{training.seq_len}"
    sizes = "/".join(str(mesh.size(role)) for role in CANONICAL_ROLES)
    settings = (
        f"{training.micro_batch or training.grad_accum} v{training.virtual_stages} {training.remat} "
        f"{training.weight_sharding} {hardware.slices}"
    )
    return RunKeys(f"{workload} {sizes} {settings}", workload, scale, layers, chip, known)


@cache
def _seen() -> Mapping[str, frozenset[str]]:
    data = json.loads(SEEN_FILE.read_text(encoding="utf-8"))
    return {level: frozenset(texts) for level, texts in data.items()}


def distance_to(config: ExperimentConfig, seen: Mapping[str, frozenset[str]] | None = None) -> str:
    """One of DISTANCES: how far the configuration is from the measured runs (default: those of the shipped fit)."""
    known = _seen() if seen is None else seen
    keys = run_keys(config)
    for distance, level in (("configuration", "configuration"), ("workload", "workload"), ("scale", "scale")):
        if getattr(keys, level) in known[level]:
            return distance
    if keys.architecture in known["architecture"]:
        return "model"
    if keys.chip in known["chip"]:
        return "architecture"
    return "chip" if keys.framework in known["framework"] else "framework"
