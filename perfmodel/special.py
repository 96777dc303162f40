"""Special functions for arrays, from scipy.  Importing them takes 0.2 s, mostly of numpy's Fortran interface, and many
processes of the application never price anything; so each is imported by its first call."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def normal_cdf(z: ArrayLike) -> Floats:
    """Probability that a standard normal variable is at most z."""
    from scipy.special import ndtr

    values: Floats = ndtr(z)
    return values


def log_normal_cdf(z: ArrayLike) -> Floats:
    """Its logarithm, exact where the probability itself is 0 in floating point."""
    from scipy.special import log_ndtr

    values: Floats = log_ndtr(z)
    return values


def student_cdf(freedom: ArrayLike, t: ArrayLike) -> Floats:
    """Probability that a Student t variable with so many degrees of freedom is at most t."""
    from scipy.special import stdtr

    values: Floats = stdtr(freedom, t)
    return values


def student_quantile(freedom: ArrayLike, probability: ArrayLike) -> Floats:
    """The t up to which a Student t variable with so many degrees of freedom lies with this probability."""
    from scipy.special import stdtrit

    values: Floats = stdtrit(freedom, probability)
    return values
