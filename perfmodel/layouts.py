"""Measured sweeps: ten LLaMA workloads on A100, each on dozens of meshes and micro-batches (data/layouts.json).

No efficiency is fitted on them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from perfmodel.config import ExperimentConfig
from perfmodel.config_file import parse_config

LAYOUTS_FILE = Path(__file__).parent / "data" / "layouts.json"


@dataclass(frozen=True)
class Layout:
    """One run of a sweep.  workload: runs that share model, batch, GPUs and sequence length; kernel: which fused
    kernels ran; step_time_s: None where the run ran out of memory."""

    workload: str
    kernel: str
    config: ExperimentConfig
    step_time_s: float | None


@cache
def layouts() -> tuple[Layout, ...]:
    """All rows of data/layouts.json."""
    data = json.loads(LAYOUTS_FILE.read_text(encoding="utf-8"))
    return tuple(_layout(data, workload, row) for workload in data["workloads"] for row in workload["rows"])


def _layout(data: dict[str, Any], workload: dict[str, Any], row: Sequence[Any]) -> Layout:
    tensor, stages, micro, sequence_parallel, remat, kernel, step_time_s = row
    replicas = workload["gpus"] // (tensor * stages)
    name = f"{workload['model']} a100-80gb x{workload['gpus']} B{workload['global_batch']} S{workload['seq_len']}"
    sizes = {"pipeline": stages, "data": replicas, "model": tensor}
    config, _ = parse_config(
        {
            "name": name,
            "hardware": {
                "chip": data["chip"],
                "topology": [data["gpus_per_node"], workload["gpus"] // data["gpus_per_node"]],
            },
            "mesh": {"ici": sizes},
            "model": data["shapes"][workload["model"]] | {"name": workload["model"]},
            "training": {
                "global_batch": workload["global_batch"],
                "seq_len": workload["seq_len"],
                "precision": data["precision"],
                "weight_sharding": "zero1",
                "micro_batch": micro,
                "grad_accum": workload["global_batch"] // (replicas * micro),
                "remat": remat,
                "sequence_parallel": sequence_parallel,
                "loss_parallel": data["loss_parallel"],
            },
            "software": {"date": data["software"]},
        }
    )
    return Layout(name, kernel, config, step_time_s)
