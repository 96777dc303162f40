"""Rows on which memory is fitted and judged: measured peaks, and runs that failed beside runs that ran.

What a source prints differs: nanotron's benchmark the memory reserved by the allocator of rank 0, which is on the first
stage; SimuMax the peak allocated; OptiCo what the device says, of the fullest GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from evaluation.optico import tuned_runs
from evaluation.published import load_published
from evaluation.sweeps import load_sweeps
from perfmodel import memory
from perfmodel.arrays import mapped
from perfmodel.config import ExperimentConfig
from perfmodel.execution import MemoryConstants, fitted_constants
from perfmodel.legality import schedule_fails
from perfmodel.workload import Workload, from_config, stack

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

#: What a source printed, by source; see `peak`.
PRINTED = {"ultrascale": "reserved", "simumax": "allocated", "optico": "device"}


@dataclass(frozen=True)
class Rows:
    """Runs of one source.  workloads, models: names per run; work: the runs priced at once.  measured_bytes: nan where
    none; ran: whether it ran."""

    source: str
    labels: tuple[str, ...]
    workloads: npt.NDArray[np.str_]
    models: npt.NDArray[np.str_]
    work: Workload
    measured_bytes: Floats
    ran: Mask

    def take(self, mask: Mask) -> Rows:
        chosen = np.flatnonzero(mask)
        return Rows(
            self.source,
            tuple(self.labels[i] for i in chosen),
            self.workloads[chosen],
            self.models[chosen],
            mapped(lambda array: array[chosen], self.work),
            self.measured_bytes[chosen],
            self.ran[chosen],
        )

    def __len__(self) -> int:
        return len(self.labels)


@cache
def sweep_rows(source: str) -> Rows:
    """Runs of a sweep that ran or failed."""
    runs = [run for run in load_sweeps(source) if run.status != "unclear"]
    return _rows(
        source,
        [(f"{run.id} {run.config.mesh.text()}", run.workload, _size(run.config), run.config) for run in runs],
        [run.peak_bytes for run in runs],
        [run.status == "ran" for run in runs],
    )


@cache
def optico_rows() -> Rows:
    """OptiCo's Figure 5; nothing is fitted on it."""
    runs = tuned_runs()
    return _rows(
        "optico",
        [(run.label, "Llama3-8B on 8 A100", "8B", run.config) for run in runs],
        [run.peak_bytes for run in runs],
        [run.step_time_s is not None for run in runs],
    )


@cache
def published_rows(kind: str) -> Rows:
    """Published recipes of a kind of chip; all of them ran."""
    runs = [run for run in load_published().runs if run.chip.kind == kind]
    return _rows(
        f"published {kind}",
        [(run.id, run.configuration, run.family, run.config) for run in runs],
        [None for _ in runs],
        [True for _ in runs],
    )


@cache
def peak_rows(source: str) -> Rows:
    """Runs of a source whose peak was measured."""
    rows = optico_rows() if source == "optico" else sweep_rows(source)
    return rows.take(np.isfinite(rows.measured_bytes))


def of_first_stage(w: Workload, constants: MemoryConstants | None = None) -> memory.MemoryUse:
    """Memory of the first pipeline stage, where rank 0 is, which is the one that some programs report."""
    return memory.of_stage(w, memory.stage(w), constants or fitted_constants())


def peak(rows: Rows, constants: MemoryConstants | None = None) -> Floats:
    """What the model says of the figure that the source printed, in bytes."""
    printed = PRINTED[rows.source]
    if printed == "reserved":
        used = of_first_stage(rows.work, constants)
        return used.total - used.runtime
    used = memory.per_chip(rows.work, constants)
    return used.needed - used.runtime if printed == "allocated" else used.total


def unrunnable_rows(rows: Rows) -> Mask:
    """Runs whose pipeline the program cannot run, whatever the memory."""
    return np.broadcast_to(schedule_fails(rows.work), len(rows))


def naive_bytes(rows: Rows) -> Floats:
    """The usual back-of-envelope figure: 16 bytes of state per parameter, the optimizer's 12 over the replicas where it
    is sharded, and 34 bytes per token, width and layer of activations (arXiv 2205.05198) on the first stage."""
    w = rows.work
    mesh, train, model = w.mesh, w.training, w.model
    own = (model.params_dense + model.params_experts + model.params_vocabulary) / (mesh.model * mesh.pipeline)
    ways = np.where(train.sharding == 0, 1.0, mesh.links["weights"].size * mesh.dcn_fsdp)
    whole = np.where(train.sharding == 2, ways, 1.0)
    tokens = train.global_batch * train.seq_len / mesh.token_shards
    tokens = tokens / train.micro_batches * np.minimum(mesh.pipeline, train.micro_batches)
    return own * (4.0 / whole + 12.0 / ways) + 34.0 * tokens * model.d_model * model.layers / (
        mesh.pipeline * mesh.model
    )


def _rows(
    source: str,
    runs: Sequence[tuple[str, str, str, ExperimentConfig]],
    peaks: Sequence[float | None],
    ran: Sequence[bool],
) -> Rows:
    return Rows(
        source,
        tuple(run[0] for run in runs),
        np.array([run[1] for run in runs]),
        np.array([run[2] for run in runs]),
        stack([from_config(run[3]) for run in runs]),
        np.array([np.nan if value is None else value for value in peaks]),
        np.array(ran, dtype=bool),
    )


def _size(config: ExperimentConfig) -> str:
    assert config.model is not None
    return f"{config.model.layers} × {config.model.d_model}"
