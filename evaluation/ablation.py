"""What each term of the time model is worth: the fit without it, judged on whole workloads left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from evaluation import scores
from evaluation.accuracy import part_of
from evaluation.accuracy_numbers import Ablation, PartWithout
from evaluation.fit_time import Fit, Problem, fitted
from evaluation.held_out import folds
from evaluation.time_priors import PRIORS
from perfmodel.efficiency import to_scale

#: Terms by the efficiencies that carry them, and the value of each at which the term is gone.
TERMS: dict[str, dict[str, float]] = {
    "matmul efficiency falls with few rows": {"rows_half": 1e-3},
    "matmul efficiency falls with narrow shards": {"width_half": 1e-3},
    "kernel-launch overhead": {"layer_s": 1e-9, "moe_layer_s": 1e-9},
    "fixed time per collective": {"message_s": 1e-9, "network_message_s": 1e-9},
    "network slower than NVLink": {"network": 1.0},
    "tensor-parallel collectives overlapping a pipeline": {"beside_pipeline_s": 1e-12},
    "stalls of pipelined runs": {"stall_per_host": 0.0},
    "gradient reduction per doubling of ranks": {"reduce_s": 1e-9},
    "elementwise work waits for HBM": {"hbm_exposed": 1e-6},
    "stragglers": {"straggler": 1e-9, "slice_straggler": 1e-9},
    "fixed time per step": {"step_s": 1e-9},
    "narrow heads": {"narrow_heads": 0.0},
    "architectures": {"architecture": 1.0},
    "software releases": {"software_per_year": 0.0, "launch_per_year": 0.0},
}
#: Folds of whole workloads that are left out, of those that `held_out` leaves out.
FOLDS = 3
STEPS = 6


def without(p: Problem, values: dict[str, float]) -> Problem:
    """The problem with these efficiencies held at their values."""
    kept = tuple(parameter for parameter in p.parameters if parameter.name not in values)
    held = {name: value for name, value in values.items() if name in PRIORS[p.kind]}
    return replace(p, parameters=kept, held={name: to_scale(name, value) for name, value in held.items()})


def ablation(fits: Sequence[Fit]) -> tuple[Ablation, ...]:
    """Median error by part of the report, with everything and without each term."""
    return tuple(Ablation(term, _parts(fits, values)) for term, values in {"everything": {}, **TERMS}.items())


def _parts(fits: Sequence[Fit], values: dict[str, float]) -> dict[str, PartWithout]:
    errors: dict[str, PartWithout] = {}
    for fit in fits:
        p = without(fit.problem, {name: value for name, value in values.items() if name != "stall_per_host"})
        start = np.array(
            [x for x, parameter in zip(fit.x, fit.problem.parameters, strict=True) if parameter.name not in values]
        )
        error = np.full(len(p.rows), np.nan)
        for out in folds(p.rows, "workload")[:FOLDS]:
            one = fitted(p, ~out, start, STEPS)
            if "stall_per_host" in values:
                one = replace(one, stalls={})
            error[out] = one.log_error[out]
        parts = np.array([part_of(row) for row in p.rows])
        known = ~np.isnan(error)
        for part in sorted(set(parts[known])):
            mine = known & (parts == part)
            workloads = [p.rows[i].workload for i in np.flatnonzero(mine)]
            measured = p.measured_s[mine]
            ranked = scores.summary(scores.rank_all(workloads, measured * np.exp(error[mine]), measured))
            median = float(np.median(np.abs(np.expm1(error[mine]))))
            errors[str(part)] = PartWithout(median, ranked.spearman if ranked is not None else None)
    return errors
