"""How far a predicted gain may be trusted: learnt from pairs of runs that were predicted and measured.

The model's own spread leaves out what no term of it knows, and its errors have heavier tails than a normal
distribution's.  The measured gain is therefore taken to lie around the predicted one as Student's t, scaled by
`sqrt(sigma² + floor²)`; the floor is fitted (`evaluation.fit_confidence`, docs/accuracy-confidence.md).  A team's own
measured proposals move the fit a little each (`updated`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import numpy.typing as npt

from formatting import LEAST_CHANCE, MOST_CHANCE
from perfmodel import reading
from perfmodel.arrays import Floats, special
from perfmodel.step_time import Z80

#: Probability that an input pipeline which stalls the step runs beside it and determines its time, so that a faster
#: step only waits longer: half where much of the step waits for input, less the less it does, since a pipeline that is
#: slower than the step leaves a stall of any size.
INPUT_SETS_PACE, INPUT_STALL = 0.5, 0.05
#: An own pair further off than so many scales counts as one that is: one odd run must not decide.
FURTHEST = 3.0


def input_sets_pace(share: float) -> float:
    """Return the probability that input determines the time of a step that waits for it for a share (0–1)."""
    return INPUT_SETS_PACE * share / (share + INPUT_STALL)


def claimed(probability: npt.ArrayLike, scaled: bool) -> Floats:
    """What is said of a probability.  scaled: terms of the current configuration were scaled, not computed."""
    return np.clip(np.asarray(probability, dtype=np.float64), LEAST_CHANCE, 0.9 if scaled else MOST_CHANCE)


@dataclass(frozen=True)
class Confidence:
    """What was learnt.

    floor: error of a predicted log gain that the model's own spread does not hold, floor_assumed: the same where the
    model's shape, batch and length had to be assumed; freedom: of Student's t; families: independent sources in the
    fit, which own pairs must outweigh; shift: log gain that own runs measured beyond the predicted; stretch: factor on
    every scale from own runs; reaches: probability that what the chips save shortens the step at all.
    """

    floor: float
    floor_assumed: float
    freedom: float
    families: int
    shift: float = 0.0
    stretch: float = 1.0
    reaches: float = 1.0

    def where_assumed(self) -> Confidence:
        """For predictions whose model's shape had to be assumed."""
        return replace(self, floor=max(self.floor, self.floor_assumed))

    def where_chips_wait(self, share: float) -> Confidence:
        """For steps that wait for input or the host for a share (0–1): where these run beside the chips and determine
        the time, what the chips save only makes them wait longer."""
        return replace(self, reaches=1.0 - input_sets_pace(share))

    def scale(self, sigma: npt.ArrayLike) -> Floats:
        """Scale of Student's t around a predicted log gain whose own spread is sigma; 0 where sigma is, since nothing
        changes there."""
        own = np.asarray(sigma, dtype=np.float64)
        return np.where(own > 0, self.stretch * np.hypot(own, self.floor), 0.0)

    def probability(self, gain: npt.ArrayLike, sigma: npt.ArrayLike, *, worth: float = 0.0) -> Floats:
        """That the measured log gain per token exceeds `worth`; arrays of the broadcast shape.

        gain, sigma: predicted log gain and the model's own spread of it.
        """
        scale = np.maximum(self.scale(sigma), 1e-9)
        moved = np.where(np.asarray(sigma) > 0, self.shift, 0.0)
        faster = special("stdtr", self.freedom, (np.asarray(gain) + moved - worth) / scale)
        return np.asarray(self.reaches * faster, dtype=np.float64)

    def range_sigma(self, sigma: npt.ArrayLike) -> Floats:
        """The spread s for which exp(gain ± Z80·s) holds the measured speed-up four times in five."""
        return self.scale(sigma) * (special("stdtrit", self.freedom, 0.9) / Z80)


@dataclass(frozen=True)
class OwnPair:
    """One proposal that was run and measured: predicted log gain, the model's own spread of it, measured log gain."""

    gain: float
    sigma: float
    measured: float


@cache
def shipped() -> Confidence:
    """The fit of the shipped pairs, confidence.toml."""
    return Confidence(**reading.shipped("confidence.toml")["confidence"])


def updated(fit: Confidence, own: Sequence[OwnPair]) -> Confidence:
    """The fit after own pairs; the shipped one weighs as many pairs as it has families.

    The shift is the mean of own errors, the stretch the root of their mean square over what the fit expects, both
    shrunk (the conjugate update of a normal mean and an inverse-gamma variance); errors count up to FURTHEST scales.
    """
    pairs = [pair for pair in own if pair.sigma > 0]
    if not pairs:
        return fit
    scales = np.array([float(fit.scale(pair.sigma)) for pair in pairs])
    errors = np.array([pair.measured - pair.gain for pair in pairs])
    errors = np.clip(errors, -FURTHEST * scales, FURTHEST * scales)
    total = fit.families + len(pairs)
    shift = float(errors.sum()) / total
    expected = _mean_square(fit.freedom)
    square = (fit.families * expected + float(np.sum((errors / scales) ** 2))) / total
    return replace(fit, shift=fit.shift + shift, stretch=fit.stretch * float(np.sqrt(square / expected)))


@cache
def _mean_square(freedom: float) -> float:
    """Mean square of Student's t cut at ±FURTHEST: the integral of 2 z P(|t| > z) up to there."""
    nodes, weights = np.polynomial.legendre.leggauss(64)
    z = FURTHEST * (nodes + 1) / 2
    return float(FURTHEST / 2 * np.sum(weights * 4 * z * special("stdtr", freedom, -z)))
