"""How unsure the effect of a measured change is where it is carried over to another run.  Knows no Django."""

from __future__ import annotations

from math import sqrt

#: Standard deviation of the logarithm of an effect, beyond a repeated measurement's, of which nothing alike was
#: measured; and of a repeated measurement: where the model prices both changes (measured, `evaluation.transfer`), and
#: where the effect itself is carried over (judged).
SPREAD, NOISE = 0.12, 0.07
SPREAD_UNPRICED, NOISE_UNPRICED = 0.5, 0.15


def spread(value: float, priced: bool = True) -> float:
    """Standard deviation of the logarithm of a speed-up of which one so much alike was measured.

    priced: whether it is the model's prediction, shifted by what it missed there, or the measured effect itself.
    """
    of_nothing_alike, repeated = (SPREAD, NOISE) if priced else (SPREAD_UNPRICED, NOISE_UNPRICED)
    return sqrt(of_nothing_alike**2 * (1.0 - value**2) + repeated**2)
