"""Efficiencies: the few physical numbers between a roofline and a real step, and the file that holds them.

`efficiencies.toml` holds one table of defaults and tables that override it by kind of chip, chip and precision, each
with its `source`; the fit writes it.  Every field may be a number or an array over candidates.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from perfmodel.catalogue import architecture
from perfmodel.chips import Chip
from perfmodel.shapes import ModelShape

EFFICIENCIES_FILE = Path(__file__).with_name("efficiencies.toml")

Value = float | npt.NDArray[np.float64]


@dataclass(frozen=True)
class Efficiencies:
    """What the fit may move.  Shares are 0–1 of the chip's own peak or bandwidth.

    matmul: share of peak FLOP/s of a large product with weights; expert: of grouped expert products, relative to
    `matmul`; attention: share of the *bf16* peak in attention kernels; head: of the vocabulary product, relative to
    `matmul`.  rows_half, width_half: tokens per micro-batch, and narrowest shard width, at which a product reaches half
    its efficiency (MXU or tile quantisation and prologue); expert_rows_half, expert_width_half: the same in tokens per
    expert and width of an expert.
    hbm: share of HBM bandwidth; hbm_exposed: share of HBM time not hidden under products (fusion, prefetch).
    link: share of link bandwidth inside a slice or NVLink domain group; dcn: of the network between slices;
    message_s: fixed time per collective call.
    overlap_*: share of that communication which the schedule can hide, as far as there is compute to hide it under.
    layer_s: time the host needs to launch one layer of one micro-batch, forward and backward; moe_layer_s: more of it
    in a mixture layer;
    step_s: fixed time per step.  straggler, slice_straggler: relative loss per doubling of hosts, of slices.
    recompute_full, recompute_minimal, recompute_offload: share of the forward layers computed again (minimal: of the
    attention scores only).  host_overlap: share of offload traffic hidden.
    architecture: speed on the chip relative to what the rest says, for architectures whose kernels are better or
    worse tuned than those of plain transformers.
    software_per_year, launch_per_year: logarithmic speed that products, and the host's launches, gain per year of
    software; at `software_year` they are as stated, and a configuration that names no release is taken to be of then.
    spread, spread_mixture: standard deviation of log(measured / estimate) of dense models and of mixtures; the 80 %
    range and the bounds rest on it.
    """

    matmul: Value = 0.72
    expert: Value = 0.75
    attention: Value = 0.45
    head: Value = 0.9
    rows_half: Value = 128.0
    width_half: Value = 64.0
    expert_rows_half: Value = 128.0
    expert_width_half: Value = 64.0
    hbm: Value = 0.8
    hbm_exposed: Value = 0.35
    link: Value = 0.8
    dcn: Value = 0.7
    message_s: Value = 5.0e-6
    overlap_weights: Value = 0.85
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
    recompute_full: Value = 1.0
    recompute_minimal: Value = 1.0
    recompute_offload: Value = 0.8
    host_overlap: Value = 0.9
    architecture: Value = 1.0
    software_per_year: Value = 0.0
    launch_per_year: Value = 0.0
    software_year: Value = 2026.25
    spread: Value = 0.12
    spread_mixture: Value = 0.2

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return tuple(field.name for field in fields(cls))

    @classmethod
    def stack(cls, rows: list[Efficiencies]) -> Efficiencies:
        """One set whose fields are arrays over the rows."""
        return cls(**{name: np.array([getattr(row, name) for row in rows], dtype=np.float64) for name in cls.names()})


class EfficiencyDataError(ValueError):
    """efficiencies.toml is wrong: an unknown name, a table without a source.  Our bug, not the user's."""


@dataclass(frozen=True)
class EfficiencyTable:
    """Efficiencies by where they apply.  Keys of `tables`: `default`, `kind.gpu`, `chip.h100`, `kind.gpu.fp8`,
    `chip.h100.fp8`, `architecture.gpu.gpt-oss`; the more special one wins, name by name."""

    tables: Mapping[str, Mapping[str, float]]
    sources: Mapping[str, str]
    provenance: Mapping[str, Any]

    def keys(self, chip: Chip, precision: str, model: ModelShape | None = None) -> tuple[str, ...]:
        """Tables that apply, from general to special."""
        return (
            "default",
            f"kind.{chip.kind}",
            f"kind.{chip.kind}.{precision}",
            f"chip.{chip.name}",
            f"chip.{chip.name}.{precision}",
            *([f"architecture.{chip.kind}.{architecture(model)}"] if model is not None else []),
        )

    def resolve(self, chip: Chip, precision: str, model: ModelShape | None = None) -> Efficiencies:
        values: dict[str, float] = {}
        for key in self.keys(chip, precision, model):
            values.update(self.tables.get(key, {}))
        return replace(Efficiencies(), **values)


def parse_efficiencies(data: Mapping[str, Any]) -> EfficiencyTable:
    """Table of a parsed efficiencies.toml: `[table."chip.h100"]` with numbers and `source`, and `[provenance]`."""
    tables: dict[str, dict[str, float]] = {}
    sources: dict[str, str] = {}
    known = set(Efficiencies.names())
    for key, row in data.get("table", {}).items():
        if not row.get("source"):
            raise EfficiencyDataError(f"table {key!r} has no source")
        unknown = sorted(set(row) - known - {"source"})
        if unknown:
            raise EfficiencyDataError(f"table {key!r}: unknown efficiency {unknown[0]!r}")
        tables[key] = {name: float(value) for name, value in row.items() if name != "source"}
        sources[key] = row["source"]
    return EfficiencyTable(tables, sources, dict(data.get("provenance", {})))


@cache
def load_efficiencies() -> EfficiencyTable:
    """The shipped table."""
    with EFFICIENCIES_FILE.open("rb") as file:
        return parse_efficiencies(tomllib.load(file))
