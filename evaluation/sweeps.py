"""Measured sweeps: workloads of four public sources, each on all meshes that were tried, good and bad.

Rows are data/sweeps/*.json; what they are and their licences: data/sweeps/README.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from perfmodel.chips import Chip, get_chip
from perfmodel.config import ExperimentConfig
from perfmodel.config_file import parse_config

SWEEPS_FOLDER = Path(__file__).parent / "data" / "sweeps"
SOURCES = ("ultrascale", "vtrain-single", "vtrain-multi", "simumax", "llm-foundry")
#: Bytes of the unit in which a source prints memory: nanotron writes bytes over 1024**3 and calls them GB; all else is
#: converted already.
_MEMORY_UNIT = {"ultrascale": 2.0**30}
_SHARDING = {0: "none", 1: "zero1", 2: "zero1", 3: "fsdp"}


@dataclass(frozen=True)
class SweepRun:
    """One run of a sweep.

    workload: as the source groups its runs.  status: `ran`, `failed` or `unclear`.  step_time_s: None unless it ran;
    peak_bytes: None where not published.  consistent: False where the published figures contradict each other.
    """

    id: str
    source: str
    workload: str
    status: str
    config: ExperimentConfig
    step_time_s: float | None
    peak_bytes: float | None
    consistent: bool
    row: Mapping[str, Any]

    @property
    def chip(self) -> Chip:
        return get_chip(self.config.hardware.chip)

    @property
    def model(self) -> str:
        """The sweeps name no models: depth and width tell them apart."""
        shape = self.config.model
        assert shape is not None
        return f"{shape.layers} layers of {shape.d_model}"

    @property
    def work(self) -> str:
        """The same for runs that do the same work on as many of the same chips; one workload of llm-foundry holds
        several models."""
        training, hardware = self.config.training, self.config.hardware
        return (
            f"{self.model}, {hardware.chips} × {hardware.chip}, batch {training.global_batch} × {training.seq_len}, "
            f"{training.precision}"
        )

    @property
    def usable(self) -> bool:
        """Whether a step time can be learnt from it."""
        return self.status == "ran" and self.consistent and self.step_time_s is not None


@cache
def load_sweeps(source: str | None = None) -> tuple[SweepRun, ...]:
    """All rows, or those of one source."""
    rows: list[SweepRun] = []
    for name in SOURCES if source is None else (source,):
        data = json.loads((SWEEPS_FOLDER / f"{name}.json").read_text(encoding="utf-8"))
        rows.extend(map_row(row) for row in data)
    return tuple(rows)


def map_row(row: Mapping[str, Any]) -> SweepRun:
    """A row as a configuration: pipeline stages outermost, the tensor axis on the fastest links."""
    fully = row["zero"] == 3
    sizes = {
        "pipeline": row["pp"],
        "fsdp" if fully else "data": row["dp"],
        "context": row["cp"],
        "model": row["tp"],
    }
    per_node = min(row["gpus_per_node"], row["gpus"])
    model = {key: value for key, value in row["model"].items() if key != "params_published"}
    config, _ = parse_config(
        {
            "name": row["id"],
            "hardware": {"chip": row["chip"], "topology": [per_node, row["gpus"] // per_node]},
            "mesh": {"ici": {axis: size for axis, size in sizes.items() if size > 1} or {"data": 1}},
            "model": model | {"name": row["group"]},
            "training": {
                "global_batch": row["global_batch"],
                "seq_len": row["seq_len"],
                "precision": row["precision"],
                "weight_sharding": _SHARDING[row["zero"]],
                "micro_batch": row["micro_batch"],
                "grad_accum": row["grad_accum"],
                "remat": row["recompute"],
            },
            "software": {"framework": row["framework"]},
        }
    )
    memory = row["memory_gb"]
    return SweepRun(
        id=row["id"],
        source=row["source"],
        workload=row["group"],
        status=row["status"],
        config=config,
        step_time_s=row["step_time_s"],
        peak_bytes=None if memory is None else memory * _MEMORY_UNIT.get(row["source"], 1e9),
        consistent=row["consistent"],
        row=row,
    )
