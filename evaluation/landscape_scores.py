"""How well prices order a landscape: rank correlation, regret of the first choice, error and coverage of the gains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import spearmanr

from perfmodel.step_time import Z80

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Priced:
    """Predicted log gain per token over the baseline and its standard deviation, per candidate of a landscape."""

    gain: Floats
    sigma: Floats


@dataclass(frozen=True)
class Score:
    """Of one landscape.  spearman: predicted against simulated gains; regret: how much longer the first choice takes
    than the best, the baseline among both; error: mean |log| of predicted over simulated gain; bias: mean of the same
    with its sign; coverage: share of gains in the 80 % interval; width: mean of its half-width, as a log."""

    spearman: float
    regret: float
    error: float
    bias: float
    coverage: float
    width: float


def score(priced: Priced, gain: Floats) -> Score:
    """gain: simulated log gain per token of every candidate; the baseline's is 0."""
    gains = np.append(priced.gain, 0.0)
    true = np.append(gain, 0.0)
    off = priced.gain - gain
    return Score(
        spearman=float(spearmanr(gains, true)[0]),
        regret=float(np.exp(true.max() - true[int(np.argmax(gains))]) - 1.0),
        error=float(np.abs(off).mean()),
        bias=float(off.mean()),
        coverage=float((np.abs(off) <= Z80 * priced.sigma + 1e-12).mean()),
        width=float(Z80 * priced.sigma.mean()),
    )


def mean(scores: Sequence[Score]) -> Score:
    return Score(*(float(np.mean([getattr(item, name) for item in scores])) for name in Score.__dataclass_fields__))
