"""How far the performance model is off on this workload, learnt from its measured trials.

log(measured / predicted) of a candidate is a Gaussian process.  Its standard deviation before any trial is that of
held-out runs as docs/accuracy.md publishes it; how much of it all candidates of a workload share, how much belongs to
the parts of the step (a slow all-gather is slow wherever it is), and how much to neighbouring settings, is fitted on
other workloads (residuals.toml, `make fit`).  Measurements are taken as Student's t: a run on a bad host is an outlier,
not a lesson.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from campaigns.engine.candidates import Candidates
from perfmodel.reading import EXACT, read_rows

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

RESIDUALS_FILE = Path(__file__).with_name("residuals.toml")
#: Standard deviation of what all candidates have in common beyond that, as a logarithm: how fast this machine and
#: program are beside those that the model was fitted on.  From 0 to 0.4 it changes the trials to the best by 1 %.
OFFSET = 0.2
#: Degrees of freedom of a measurement's error, and rounds in which outliers lose their weight.
FREEDOM, ROUNDS = 4.0, 4
#: Trials that are learnt from at most: the fastest half and the latest.  More teach nothing new and cost their cube.
MOST_LEARNT = 256


@dataclass(frozen=True)
class VarianceComponents:
    """Variances of log(measured / predicted) as multiples of the published one.

    common: shared by all candidates of a workload; parts: of the speed of each part of the step; local: shared by
    neighbours in settings, within `length` doublings.  noise: standard deviation of one measurement.
    """

    __pydantic_config__ = EXACT

    common: float
    parts: float
    local: float
    length: float
    noise: float
    source: str


@cache
def shipped() -> VarianceComponents:
    """As fitted on all recorded workloads."""
    data = tomllib.loads(RESIDUALS_FILE.read_text(encoding="utf-8"))
    return read_rows(VarianceComponents, {"residual": data["residual"]})["residual"]


def covariance(c: Candidates, rows: Ints, columns: Ints, d: VarianceComponents) -> Floats:
    """(rows, columns): of log(measured / predicted), without the noise of measurements."""
    one, other = c.settings[rows], c.settings[columns]
    apart = (one**2).sum(axis=1)[:, None] + (other**2).sum(axis=1)[None, :] - 2.0 * one @ other.T
    near = np.exp(-0.5 * np.maximum(apart, 0.0) / d.length**2)
    shared = d.common + d.parts * (c.shares[rows] @ c.shares[columns].T) + d.local * near
    return np.asarray(OFFSET**2 + c.sigma[rows][:, None] * c.sigma[columns][None, :] * shared)


def variance(c: Candidates, d: VarianceComponents) -> Floats:
    """The diagonal of `covariance` over all candidates."""
    return np.asarray(OFFSET**2 + c.sigma**2 * (d.common + d.parts * (c.shares**2).sum(axis=1) + d.local))


@dataclass(frozen=True)
class ResidualPosterior:
    """Mean and standard deviation of log(measured / predicted) of every candidate."""

    mean: Floats
    sd: Floats


def learn(
    c: Candidates, rows: Ints, residual: Floats, d: VarianceComponents, certain: Ints | None = None
) -> ResidualPosterior:
    """Condition on log(measured / predicted) of the candidates `rows`; `certain` are taken as measured at their mean,
    as of trials that still run."""
    from scipy.linalg import cho_factor, cho_solve  # 10 MB that a process needs only where it plans

    prior = variance(c, d)
    both = rows if certain is None else np.concatenate([rows, certain])
    if not len(both):
        return ResidualPosterior(np.zeros(len(c)), np.sqrt(prior))
    count = len(rows)
    within = covariance(c, both, both, d)
    across = covariance(c, np.arange(len(c)), both, d)
    mean = np.zeros(len(c))
    noise = np.full(len(both), d.noise**2)
    if count:
        for _ in range(ROUNDS):
            solved = cho_solve(cho_factor(within[:count, :count] + np.diag(noise[:count]), lower=True), residual)
            off = residual - within[:count, :count] @ solved
            noise[:count] = d.noise**2 * (FREEDOM + (off / d.noise) ** 2) / (FREEDOM + 1.0)
        mean = across[:, :count] @ solved
    factor = cho_factor(within + np.diag(noise), lower=True)
    left = prior - np.einsum("ij,ji->i", across, cho_solve(factor, across.T))
    return ResidualPosterior(mean, np.sqrt(np.maximum(left, 1e-10)))
