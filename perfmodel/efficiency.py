"""Efficiencies: the few physical numbers between a roofline and a real step, and the file that holds them.

`efficiency_names.toml` says what each means.  `efficiencies.toml` holds values by kind of chip and what shifts them:
precision, family of programs, program, chip, architecture; and the errors of runs that the fit had not seen.  The fit
writes it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from perfmodel.catalogue import architecture
from perfmodel.chips import Chip, get_chip
from perfmodel.config import CANONICAL_ROLES, ExperimentConfig, ModelShape, framework_of
from perfmodel.execution import ExecutionProfile, profile_named
from perfmodel.reading import DataError, read_rows, shipped
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


class Number(NamedTuple):
    """A row of efficiency_names.toml; see there."""

    default: float
    scale: Literal["log", "share", "linear"] = "log"
    spread: float = 0.0
    capped: bool = False


#: What the fit may move, by name.
NUMBERS: Mapping[str, Number] = read_rows(Number, shipped("efficiency_names.toml"))


class Efficiencies(SimpleNamespace):
    """A value for every one of NUMBERS, a number or an array over candidates; the default where none is given."""

    def __init__(self, **values: Value) -> None:
        super().__init__(**{name: row.default for name, row in NUMBERS.items()} | values)

    def with_(self, **values: Value) -> Efficiencies:
        return Efficiencies(**vars(self) | values)

    @classmethod
    def stack(cls, rows: list[Efficiencies]) -> Efficiencies:
        """One set whose fields are arrays over the rows."""
        return cls(**{name: np.array([getattr(row, name) for row in rows], dtype=np.float64) for name in NUMBERS})


def to_scale(name: str, value: float) -> float:
    """The scale on which an efficiency is shifted: logarithm, log-odds for a share, itself where it may be negative."""
    if NUMBERS[name].scale == "linear":
        return value
    return float(np.log(value / (1.0 - value)) if NUMBERS[name].scale == "share" else np.log(value))


def from_scale(name: str, value: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """An efficiency from its scale; see `to_scale`."""
    if NUMBERS[name].scale == "linear":
        return value
    return np.asarray(1.0 / (1.0 + np.exp(-value)) if NUMBERS[name].scale == "share" else np.exp(value))


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
                base = values.get(name, NUMBERS[name].default)
                values[name] = float(from_scale(name, np.asarray(to_scale(name, base) + shift)))
        values.update(self.stalls.get(ran.name, {}))
        for name in CLASSES:
            known = self.range_of(ran, name, distance)
            if known is not None:
                values |= {f"low80_{name}": known.low80, f"high80_{name}": known.high80}
        return Efficiencies(**values)

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
    """Table of a parsed efficiencies.toml.  Raises DataError for an unknown name, KeyError for a row without source."""
    parts: dict[str, dict[str, dict[str, float]]] = {"kind": {}, "shift": {}, "stall": {}}
    sources: dict[str, str] = {}
    for part, tables in parts.items():
        for key, row in data.get(part, {}).items():
            tables[key] = {name: float(value) for name, value in row.items() if name != "source"}
            sources[f"{part}.{key}"] = row["source"]
            if unknown := tables[key].keys() - NUMBERS.keys():
                raise DataError(f"{part} {key!r}: unknown efficiencies {sorted(unknown)}")
    ranges = {
        profile: {
            name: {distance: ErrorRange(distance=distance, **row) for distance, row in rows.items()}
            for name, rows in classes.items()
        }
        for profile, classes in data.get("range", {}).items()
    }
    numbers = parts["kind"], parts["shift"], parts["stall"]
    return EfficiencyTable(*numbers, ranges, sources, dict(data.get("provenance", {})))


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
