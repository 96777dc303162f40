"""Candidates as nested dataclasses of arrays that broadcast; and special functions of arrays.

Importing scipy's special functions takes 0.2 s, and many processes of the application never price anything; so each is
imported by its first call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def array_of(value: float) -> Floats:
    """One number, of shape (1,)."""
    return np.array([value], dtype=np.float64)


def arrays_of(value: Any) -> list[npt.NDArray[Any]]:
    """Every array in a dataclass, a mapping, or an array itself."""
    if isinstance(value, np.ndarray):
        return [value]
    if isinstance(value, Mapping):
        return [array for item in value.values() for array in arrays_of(item)]
    if is_dataclass(value):
        return [array for part in fields(value) for array in arrays_of(getattr(value, part.name))]
    return []


def shape_of(value: Any) -> tuple[int, ...]:
    """What its arrays broadcast to."""
    return np.broadcast_shapes(*(array.shape for array in arrays_of(value)))


def taken(value: Any, rows: slice, count: int) -> Any:
    """These rows of the first of the dimensions, of which there are `count`; what is the same for all rows stays.

    Arrays have all dimensions, or one of size 1.
    """
    return _mapped(value, lambda array: array[rows] if array.shape and array.shape[0] == count > 1 else array)


def picked(value: Any, index: tuple[npt.NDArray[np.intp], ...], shape: tuple[int, ...]) -> Any:
    """Single entries along one dimension: index of each, as of `np.unravel_index` in `shape`."""

    def pick(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if array.size == 1:
            return array.reshape(1)
        whole = array.reshape((1,) * (len(shape) - array.ndim) + array.shape)
        return np.asarray(whole[tuple(np.minimum(at, n - 1) for at, n in zip(index, whole.shape, strict=True))])

    return _mapped(value, pick)


def joined(blocks: Sequence[Floats], dimensions: int) -> Floats:
    """Blocks along the first dimension; one where they do not depend on it."""
    if len(blocks) == 1 or blocks[0].ndim < dimensions or all(block.shape[0] == 1 for block in blocks):
        return blocks[0]
    return np.concatenate(blocks)


def _mapped(value: Any, change: Any) -> Any:
    if isinstance(value, np.ndarray):
        return change(value)
    if isinstance(value, Mapping):
        return {key: _mapped(item, change) for key, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return type(value)(**{part.name: _mapped(getattr(value, part.name), change) for part in fields(value)})
    return value


def normal_cdf(z: npt.ArrayLike) -> Floats:
    """Probability that a standard normal variable is at most z."""
    from scipy.special import ndtr

    return np.asarray(ndtr(z))


def log_normal_cdf(z: npt.ArrayLike) -> Floats:
    """Its logarithm, exact where the probability itself is 0 in floating point."""
    from scipy.special import log_ndtr

    return np.asarray(log_ndtr(z))


def student_cdf(freedom: npt.ArrayLike, t: npt.ArrayLike) -> Floats:
    """Probability that a Student t variable with so many degrees of freedom is at most t."""
    from scipy.special import stdtr

    return np.asarray(stdtr(freedom, t))


def student_quantile(freedom: npt.ArrayLike, probability: npt.ArrayLike) -> Floats:
    """The t up to which a Student t variable with so many degrees of freedom lies with this probability."""
    from scipy.special import stdtrit

    return np.asarray(stdtrit(freedom, probability))
