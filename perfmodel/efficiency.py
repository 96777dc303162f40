"""Efficiencies: the few physical numbers between a roofline and a real step, and the file that holds them.

`efficiencies.toml` holds values by kind of chip and what shifts them: precision, family of programs, program, chip,
architecture; and the errors of runs that the fit had not seen.  The fit writes it.  Every field may be a number or an
array over candidates.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from perfmodel.catalogue import architecture
from perfmodel.chips import Chip, get_chip
from perfmodel.config import CANONICAL_ROLES, ExperimentConfig, ModelShape, framework_of
from perfmodel.execution import ExecutionProfile, profile_named
from perfmodel.reading import DataError, shipped
from perfmodel.workload import chip_of

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

EFFICIENCIES_FILE = Path(__file__).with_name("efficiencies.toml")

Value = float | npt.NDArray[np.float64]


@dataclass(frozen=True)
class Efficiencies:
    """What the fit may move.  Shares are 0–1 of the chip's own peak or bandwidth.

    matmul: share of peak FLOP/s of a large product with weights; expert: of grouped expert products, relative to
    `matmul`; attention: share of the *bf16* peak in attention kernels; narrow_heads: power of the time per FLOP by
    which a head is narrower than 128; head: of the vocabulary product, relative to `matmul`.  rows_half, width_half:
    tokens per micro-batch, and narrowest shard width, at which a product reaches half its efficiency (MXU or tile
    quantisation and prologue); expert_rows_half, expert_width_half: the same in tokens per expert and width of an
    expert.
    hbm: share of HBM bandwidth; hbm_exposed: share of HBM time not hidden under products (fusion, prefetch).
    link: share of link bandwidth inside a slice or NVLink domain; network: of the network cards between NVLink domains;
    dcn: of DCN.  message_s: fixed time per collective call; network_message_s: more of it where
    the group spans two NVLink domains, and for more of them by the power `network_power` of their number;
    beside_pipeline_s: more of it per rank of a tensor group where pipeline stages talk over the network meanwhile.
    reduce_s: fixed time per step and doubling of the ranks that reduce gradients once per step.
    overlap_reduce: share of a once-per-step all-reduce of unsharded gradients that is hidden; the other overlap_*:
    share of that communication which the schedule can hide, as far as there is compute to hide it under.
    layer_s: time the host needs to launch one layer of one micro-batch, forward and backward; moe_layer_s: more of it
    in a mixture layer; step_s: fixed time per step.  straggler, slice_straggler: relative loss per doubling of hosts,
    of slices.
    host_overlap: share of offload traffic hidden.
    architecture: speed on the chip relative to what the rest says, for architectures whose kernels are better or
    worse tuned than those of plain transformers.
    software_per_year, launch_per_year: logarithmic speed that products, and the host's launches, gain per year of
    software; at `software_year` they are as stated, and a configuration that names no release is assumed to be of then.
    stall_s: time that a program loses per micro-batch passed between all its stages when a host of the job is slow to
    send, as runs of nanotron showed; stall_per_host: rate of such hosts; full_at: share of the memory, as computed, at
    which every second pipelined run stalls as long for want of memory; full_spread: of its logarithm.
    low80_*, high80_*: 80 % of measurements lie between estimate · exp(low80) and estimate · exp(high80): of dense
    models without a pipeline (plain), with one (pipelined), and of mixtures of experts.
    """

    matmul: Value = 0.72
    expert: Value = 0.75
    attention: Value = 0.45
    narrow_heads: Value = 1.0
    head: Value = 0.9
    rows_half: Value = 128.0
    width_half: Value = 64.0
    expert_rows_half: Value = 128.0
    expert_width_half: Value = 64.0
    hbm: Value = 0.8
    hbm_exposed: Value = 0.35
    link: Value = 0.8
    dcn: Value = 0.7
    network: Value = 0.8
    message_s: Value = 5.0e-6
    network_message_s: Value = 2.0e-5
    network_power: Value = 1.0
    beside_pipeline_s: Value = 1.0e-6
    reduce_s: Value = 1.0e-4
    overlap_weights: Value = 0.85
    overlap_reduce: Value = 0.85
    overlap_tensor: Value = 0.3
    overlap_seq: Value = 0.5
    overlap_expert: Value = 0.3
    overlap_pipeline: Value = 0.5
    overlap_dcn: Value = 0.8
    layer_s: Value = 2.0e-5
    moe_layer_s: Value = 5.0e-5
    step_s: Value = 5.0e-3
    straggler: Value = 0.004
    slice_straggler: Value = 0.01
    host_overlap: Value = 0.9
    architecture: Value = 1.0
    software_per_year: Value = 0.0
    launch_per_year: Value = 0.0
    software_year: Value = 2026.25
    stall_s: Value = 0.0
    stall_per_host: Value = 0.0
    full_at: Value = 1.05
    full_spread: Value = 0.1
    low80_plain: Value = -0.15
    high80_plain: Value = 0.15
    low80_pipelined: Value = -0.2
    high80_pipelined: Value = 0.2
    low80_mixture: Value = -0.25
    high80_mixture: Value = 0.25

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return tuple(field.name for field in fields(cls))

    @classmethod
    def stack(cls, rows: list[Efficiencies]) -> Efficiencies:
        """One set whose fields are arrays over the rows."""
        return cls(**{name: np.array([getattr(row, name) for row in rows], dtype=np.float64) for name in cls.names()})


#: Shares whose distance from 1 matters as much as that from 0.
SHARES = frozenset((
    "overlap_weights", "overlap_reduce", "overlap_tensor", "overlap_seq", "overlap_expert", "overlap_pipeline",
    "overlap_dcn", "host_overlap", "hbm_exposed",
))  # fmt: skip
#: Numbers that may be zero or negative, on their own scale.
LINEAR = frozenset(("software_per_year", "launch_per_year", "software_year", "narrow_heads"))


def to_scale(name: str, value: float) -> float:
    """The scale on which an efficiency is shifted: logarithm, log-odds for a share, itself where it may be negative."""
    if name in LINEAR:
        return value
    return float(np.log(value / (1.0 - value)) if name in SHARES else np.log(value))


def from_scale(name: str, value: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """An efficiency from its scale; see `to_scale`."""
    if name in LINEAR:
        return value
    return np.asarray(1.0 / (1.0 + np.exp(-value)) if name in SHARES else np.exp(value))


CLASSES = ("plain", "pipelined", "mixture")


@dataclass(frozen=True)
class ErrorRange:
    """Errors of measured runs that a fit had not seen, all as far from it as `distance` says (`distance_to`).

    low80, high80: logarithms of measured over estimate between which 80 % lie.  median: median absolute relative error;
    naive_median: that of one share of peak per chip and precision on the same runs.  rows: how many runs say so;
    borrowed: where this program has none of its own at that distance, and those of others are used.
    """

    distance: str
    low80: float
    high80: float
    median: float
    naive_median: float
    rows: int
    borrowed: bool

    @property
    def meaning(self) -> str:
        """The distance in words."""
        return DESCRIBED[self.distance]

    def to_json(self) -> dict[str, Any]:
        names = ("distance", "meaning", "median", "naive_median", "rows", "borrowed")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class EfficiencyTable:
    """Efficiencies by where they apply.

    kinds: values by kind of chip.  shifts: on the scale of `to_scale`, added up over all keys that apply:
    `kind.gpu.fp8`, `family.eager`, `profile.nanotron`, `chip.h100`, `chip.h100.fp8`, `architecture.gpu.gpt-oss`.
    stalls: values by profile.  ranges: by profile, class and distance.  sources: by the name of each table.
    """

    kinds: Mapping[str, Mapping[str, float]]
    shifts: Mapping[str, Mapping[str, float]]
    stalls: Mapping[str, Mapping[str, float]]
    ranges: Mapping[str, Mapping[str, Mapping[str, ErrorRange]]]
    sources: Mapping[str, str]
    provenance: Mapping[str, Any]

    def for_config(self, config: ExperimentConfig, distance: str | None = None) -> Efficiencies:
        """Efficiencies of a configuration, with ranges of its own distance from what was measured, or of `distance`."""
        chip = chip_of(config.hardware)
        profile = profile_named(framework_of(config), chip.kind)
        return self.resolve(chip, config.training.precision, config.model, profile, distance or distance_to(config))

    def resolve(
        self,
        chip: Chip,
        precision: str,
        model: ModelShape | None = None,
        profile: ExecutionProfile | None = None,
        distance: str = "model",
    ) -> Efficiencies:
        """profile: default the usual one of the kind of chip.  distance: how far from what was measured."""
        ran = profile or profile_named(None, chip.kind)
        values = dict(self.kinds.get(chip.kind, {}))
        for key in self.keys(chip, chip.runs_as(precision), model, ran):
            for name, shift in self.shifts.get(key, {}).items():
                base = values.get(name, getattr(Efficiencies, name))
                values[name] = float(from_scale(name, np.asarray(to_scale(name, base) + shift)))
        values.update(self.stalls.get(ran.name, {}))
        for name in CLASSES:
            known = self.range_of(ran, name, distance)
            if known is not None:
                values |= {f"low80_{name}": known.low80, f"high80_{name}": known.high80}
        return replace(Efficiencies(), **values)

    def keys(self, chip: Chip, precision: str, model: ModelShape | None, profile: ExecutionProfile) -> tuple[str, ...]:
        """Shifts that apply, from general to special."""
        return (
            f"kind.{chip.kind}.{precision}",
            f"family.{profile.family}",
            f"profile.{profile.name}",
            f"profile.{profile.name}.{precision}",
            f"chip.{chip.name}",
            f"chip.{chip.name}.{precision}",
            *([f"architecture.{chip.kind}.{architecture(model)}"] if model is not None else []),
        )

    def range_of(self, profile: ExecutionProfile, name: str, distance: str) -> ErrorRange | None:
        """Errors of a class of configurations at a distance; None before the first fit."""
        return self.ranges.get(profile.name, {}).get(name, {}).get(distance)

    def errors_of(self, config: ExperimentConfig) -> ErrorRange | None:
        """Errors of measured runs as far from the fit as this configuration is."""
        profile = profile_named(framework_of(config), chip_of(config.hardware).kind)
        return self.range_of(profile, class_of(config), distance_to(config))


def class_of(config: ExperimentConfig) -> str:
    """One of CLASSES."""
    if config.model is not None and config.model.experts:
        return "mixture"
    return "pipelined" if config.mesh.size("pipeline") > 1 else "plain"


def parse_efficiencies(data: Mapping[str, Any]) -> EfficiencyTable:
    """Table of a parsed efficiencies.toml.

    Raises DataError for an unknown name or a table without a source.
    """
    known = set(Efficiencies.names())
    sources: dict[str, str] = {}

    def numbers(part: str) -> dict[str, dict[str, float]]:
        tables = {}
        for key, row in data.get(part, {}).items():
            if not row.get("source"):
                raise DataError(f"{part} {key!r} has no source")
            unknown = sorted(set(row) - known - {"source"})
            if unknown:
                raise DataError(f"{part} {key!r}: unknown efficiency {unknown[0]!r}")
            tables[key] = {name: float(value) for name, value in row.items() if name != "source"}
            sources[f"{part}.{key}"] = row["source"]
        return tables

    ranges: dict[str, dict[str, dict[str, ErrorRange]]] = {}
    for profile, classes in data.get("range", {}).items():
        ranges[profile] = {
            name: {distance: ErrorRange(distance=distance, **row) for distance, row in rows.items()}
            for name, rows in classes.items()
        }
    return EfficiencyTable(
        kinds=numbers("kind"),
        shifts=numbers("shift"),
        stalls=numbers("stall"),
        ranges=ranges,
        sources=sources,
        provenance=dict(data.get("provenance", {})),
    )


@cache
def load_efficiencies() -> EfficiencyTable:
    """The shipped table."""
    return parse_efficiencies(shipped(EFFICIENCIES_FILE.name))


#: Dense families whose layers differ from the plain transformer's (norms, windows, gates).
DENSE_OF_THEIR_OWN = ("gemma",)


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


def run_keys(config: ExperimentConfig) -> dict[str, str]:
    """Return what tells runs apart by level, in the order of DISTANCES: equal texts are the same.  A model, batch or
    length that is absent equals no other."""
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
    return {
        "configuration": f"{workload} {sizes} {settings}", "workload": workload, "scale": scale,
        "architecture": layers, "chip": chip, "framework": known,
    }  # fmt: skip


@cache
def _seen() -> Mapping[str, frozenset[str]]:
    data = json.loads(SEEN_FILE.read_text(encoding="utf-8"))
    return {level: frozenset(texts) for level, texts in data.items()}


def distance_to(config: ExperimentConfig, seen: Mapping[str, frozenset[str]] | None = None) -> str:
    """One of DISTANCES: how far the configuration is from the measured runs (default: those of the shipped fit)."""
    known = _seen() if seen is None else seen
    for distance, (level, key) in zip(DISTANCES, run_keys(config).items(), strict=False):
        if key in known[level]:
            return distance
    return DISTANCES[-1]
