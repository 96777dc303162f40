"""How the performance model's error divides on a workload, fitted on the measured sweeps (`make fit`).

The division is the one under which the errors of held-out runs (of efficiencies fitted without their workload) are the
likeliest; a workload counts as the root of its runs, which are alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import cache

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

from campaigns.engine.candidates import TrialCandidates
from campaigns.engine.posteriors import RESIDUALS_FILE, VarianceComponents, covariance
from evaluation.campaigns.recorded import Recorded, of_sweeps
from evaluation.held_out import FOLDINGS
from evaluation.held_out import fold_of as fold_of_key

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: Where the search starts: common, parts, local (multiples of the published variance), length (doublings), noise.
START = (0.3, 0.3, 0.4, 2.0, 0.05)
#: Errors further from the workload's median count as so far: a run on a bad host is no error of the model.
CLIP = 0.5
NUMBERS = tuple(part.name for part in fields(VarianceComponents) if part.name != "source")


@dataclass(frozen=True)
class Errors:
    """log(measured / predicted) of the runs `rows` of a workload, of the nearer of stalled and not."""

    candidates: TrialCandidates
    rows: Ints
    residual: Floats


@cache
def errors_of(landscape: Recorded) -> Errors:
    c = landscape.candidates
    measured = np.log(landscape.per_token)
    smooth, stalled = measured - c.log_s, measured - c.log_stalled_s
    near = np.where(np.abs(smooth) <= np.abs(stalled), smooth, stalled)
    rows = np.flatnonzero(np.isfinite(near))
    middle = float(np.median(near[rows]))
    return Errors(c, rows, middle + np.clip(near[rows] - middle, -CLIP, CLIP))


def fitted(landscapes: Sequence[Recorded]) -> VarianceComponents:
    data = [errors_of(landscape) for landscape in landscapes]

    def unlikely(x: Floats) -> float:
        division = _division(x, "")
        return -sum(log_likelihood(e.candidates, e.rows, e.residual, division) / len(e.rows) ** 0.5 for e in data)

    options = {"maxiter": 400, "xatol": 0.01, "fatol": 0.01}
    logs = minimize(unlikely, np.log(START), method="Nelder-Mead", options=options).x
    text = f"make fit: {sum(len(e.rows) for e in data)} held-out runs of {len(data)} workloads"
    return _division(logs, text)


def log_likelihood(c: TrialCandidates, rows: Ints, residual: Floats, d: VarianceComponents) -> float:
    """Of measurements of one workload under a division, their errors taken as Gaussian."""
    within = covariance(c, rows, rows, d) + np.diag(np.full(len(rows), d.noise**2))
    root, lower = cho_factor(within, lower=True)
    fit = float(residual @ cho_solve((root, lower), residual))
    return -0.5 * fit - float(np.log(np.diag(root)).sum()) - 0.5 * len(rows) * float(np.log(2.0 * np.pi))


def _division(logs: Floats, source: str) -> VarianceComponents:
    common, parts, local, length, noise = (float(value) for value in np.exp(logs))
    return VarianceComponents(common, parts, local, length, noise, source)


def fold_of(landscape: Recorded) -> int:
    """That of the efficiencies' fit."""
    count = FOLDINGS["workload"][1]
    assert count is not None
    return fold_of_key(f"{landscape.source} {landscape.name}", count)


@cache
def without_folds() -> Mapping[int, VarianceComponents]:
    """By fold, the division fitted on the workloads of the other folds."""
    folds = {landscape.name: fold_of(landscape) for landscape in of_sweeps()}
    return {
        fold: fitted([landscape for landscape in of_sweeps() if folds[landscape.name] != fold])
        for fold in sorted(set(folds.values()))
    }


def main() -> None:
    """Write residuals.toml."""
    division = fitted(of_sweeps())
    lines = [
        f"# Written by `make fit` on {datetime.now(UTC):%Y-%m-%d} (evaluation/campaigns/fit.py): how the performance",
        "# model's error divides on a workload; campaigns/engine/posteriors.py says what each number is.",
        "",
        "[residual]",
        *(f"{name} = {getattr(division, name):.4g}" for name in NUMBERS),
        f'source = "{division.source}"',
    ]
    RESIDUALS_FILE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
