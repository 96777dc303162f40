"""OptiCo's hand-tuned runs (data/published/optico.json) against predictions: ranking, out-of-memory runs, peak memory.

No efficiency is fitted on them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from evaluation.accuracy_numbers import Agreement
from perfmodel.config import ExperimentConfig
from perfmodel.config_file import parse_config
from perfmodel.efficiency import EfficiencyTable
from perfmodel.prediction import predict

OPTICO_FILE = Path(__file__).parent / "data" / "published" / "optico.json"
#: The table's TFLOPS count six FLOPs per parameter of "8B" and token.
FLOPS_PER_TOKEN = 48e9
MIB = 2.0**20


@dataclass(frozen=True)
class TunedRun:
    """One row of Figure 5.  step_time_s and peak_bytes are None where the run ran out of memory."""

    config: ExperimentConfig
    step_time_s: float | None
    peak_bytes: float | None

    @property
    def label(self) -> str:
        training, mesh = self.config.training, self.config.mesh
        return (
            f"TP {mesh.size('model')} PP {mesh.size('pipeline')} MBS {training.micro_batch} GBS {training.global_batch}"
        )


@cache
def tuned_runs() -> tuple[TunedRun, ...]:
    """The rows of Figure 5; Megatron-LM with its distributed optimizer, nothing recomputed."""
    data = json.loads(OPTICO_FILE.read_text(encoding="utf-8"))
    return tuple(_run(data, row) for row in data["figure5"])


def _run(data: dict[str, Any], row: dict[str, Any]) -> TunedRun:
    gpus = data["gpus"]
    replicas = gpus // (row["tp"] * row["pp"])
    config, _ = parse_config(
        {
            "name": "OptiCo Figure 5",
            "hardware": {"chip": data["chip"], "topology": [gpus, 1]},
            "mesh": {"ici": {"pipeline": row["pp"], "data": replicas, "model": row["tp"]}},
            "model": {"name": data["model"]},
            "training": {
                "global_batch": row["gbs"],
                "seq_len": data["seq_len"],
                "precision": data["precision"],
                "micro_batch": row["mbs"],
                "grad_accum": row["gbs"] // (replicas * row["mbs"]),
            },
        }
    )
    if not row["ok"]:
        return TunedRun(config, None, None)
    tokens = row["gbs"] * data["seq_len"]
    time = tokens * FLOPS_PER_TOKEN / (row["tflops"] * 1e12 * gpus)
    return TunedRun(config, time, row["mem_max_mib"] * MIB)


def agreement(efficiencies: EfficiencyTable | None = None) -> Agreement:
    """Predict every row and compare.  efficiencies: None for the shipped table."""
    runs = tuned_runs()
    predictions = [predict(run.config, efficiencies) for run in runs]
    fits = [bool(p.fits) for p in predictions]
    estimates = [p.step_time_s["estimate"] for p in predictions if p.step_time_s]
    ran = [i for i, run in enumerate(runs) if run.step_time_s is not None]
    measured = np.array([runs[i].step_time_s or 0.0 for i in ran])
    predicted = np.array([estimates[i] for i in ran])
    batch = np.array([runs[i].config.training.global_batch or 1 for i in ran])
    memory = [
        abs((p.hbm_per_chip_bytes["total"] or 0.0) / run.peak_bytes - 1.0)
        for run, p in zip(runs, predictions, strict=True)
        if run.peak_bytes and p.hbm_per_chip_bytes
    ]
    same = np.flatnonzero(batch == np.bincount(batch).argmax())
    first = same[np.argmin(predicted[same])]
    return Agreement(
        spearman=float(spearmanr(measured / batch, predicted / batch).statistic),
        regret=float(measured[first] / measured[same].min() - 1.0),
        first_choice=runs[ran[first]].label,
        out_of_memory=len(runs) - len(ran),
        missed=sum(fits[i] for i in range(len(runs)) if i not in ran),
        false_alarms=len({runs[i].label for i in ran if not fits[i]}),
        memory_median=float(np.median(memory)),
        memory_worst=float(max(memory)),
        time_bias=float(np.mean(np.log(predicted / measured))),
        regret_all=float((measured / batch)[np.argmin(predicted / batch)] / (measured / batch).min() - 1.0),
    )
