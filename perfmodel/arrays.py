"""Candidates as nested dataclasses of arrays that broadcast; special functions of arrays; and what is kept of a call.

Importing scipy's special functions takes 0.2 s, and many processes of the application never price anything; so each is
imported by its first call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import wraps
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Made = TypeVar("Made", bound=Callable[..., Any])


def array_of(value: float) -> Floats:
    """One number, of shape (1,)."""
    return np.array([value], dtype=np.float64)


def kept(count: int) -> Callable[[Made], Made]:
    """Return a decorator that keeps what a function made of its latest `count` arguments.

    Arguments are compared by their text: configurations contain mappings, which have no hash.
    """

    def decorate(function: Made) -> Made:
        values: dict[str, Any] = {}

        @wraps(function)
        def call(*arguments: Any) -> Any:
            key = repr(arguments)
            value = values.pop(key, None)
            if value is None:
                value = function(*arguments)
            values[key] = value  # behind those that were asked for before
            if len(values) > count:
                values.pop(next(iter(values)), None)
            return value

        return cast(Made, call)

    return decorate


def mapped(change: Callable[..., Any], value: Any, *others: Any) -> Any:
    """Return nested dataclasses, namespaces and mappings of arrays with `change` applied to each array, and to those at
    its place in the others."""
    if isinstance(value, np.ndarray):
        return change(value, *others)
    if isinstance(value, Mapping):
        return {key: mapped(change, item, *(other[key] for other in others)) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(mapped(change, *items) for items in zip(value, *others, strict=True))
    if isinstance(value, SimpleNamespace) or (is_dataclass(value) and not isinstance(value, type)):
        names = vars(value) if isinstance(value, SimpleNamespace) else [field.name for field in fields(value)]
        each = {name: [getattr(one, name) for one in (value, *others)] for name in names}
        return type(value)(**{name: mapped(change, *items) for name, items in each.items()})
    return value


def concatenated(*values: Any) -> Any:
    """Return values of one kind behind each other."""
    return mapped(lambda *arrays: np.concatenate(arrays), *values)


def shape_of(value: Any) -> tuple[int, ...]:
    """What its arrays broadcast to."""
    shapes: list[tuple[int, ...]] = []
    mapped(lambda array: shapes.append(array.shape), value)
    return np.broadcast_shapes(*shapes)


def picked(value: Any, index: tuple[npt.NDArray[np.intp], ...], shape: tuple[int, ...]) -> Any:
    """Single entries along one dimension: index of each, as of `np.unravel_index` in `shape`."""

    def pick(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if array.size == 1:
            return array.reshape(1)
        whole = array.reshape((1,) * (len(shape) - array.ndim) + array.shape)
        return np.asarray(whole[tuple(np.minimum(at, n - 1) for at, n in zip(index, whole.shape, strict=True))])

    return mapped(pick, value)


def special(name: str, *arguments: npt.ArrayLike) -> Floats:
    """Return a function of `scipy.special` of arrays: `ndtr` and `log_ndtr`, the probability that a standard normal
    variable is at most z and its logarithm, exact where that probability is 0 in floating point; `stdtr` and `stdtrit`,
    the same probability of Student's t by degrees of freedom and t, and its inverse by freedom and probability."""
    from scipy import special as functions

    return np.asarray(getattr(functions, name)(*arguments))
