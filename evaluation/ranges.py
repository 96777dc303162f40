"""Ranges of predictions from the errors of held-out rows: per program, class of configurations and distance.

A class with enough workloads of its own at a distance has their quantiles.  Elsewhere the runs of all programs of the
kind of chip at that distance are used, and nothing is narrower than the class itself where it is nearer to the fit.
For a new architecture, chip or framework the few that were left out tell the range, widened for being few; what no
program of the kind was left out for (frameworks on TPUs) is taken from the other kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.stats import t as student

from evaluation.held_out import HeldOut
from evaluation.time_rows import TimeRow
from perfmodel.efficiency import CLASSES, DISTANCES, ErrorRange, architecture_key, class_of
from perfmodel.execution import load_profiles
from perfmodel.step_time import TAIL, Z80

Floats = npt.NDArray[np.float64]

#: Groups of rows that a class needs at a distance to speak for itself.
FEWEST_GROUPS = 4
#: What was left out together, where that is more than a workload.
UNITS: Mapping[str, Callable[[TimeRow], str]] = {
    "architecture": lambda row: f"{row.profile.name} {architecture_key(row.shape)}",
    "chip": lambda row: f"{row.profile.name} {row.silicon}",
    "framework": lambda row: row.profile.name,
}


@dataclass(frozen=True)
class Errors:
    """Held-out rows of one kind of chip at one distance.

    groups: what errs together, and is left out when a range is judged: workloads, and where whole architectures, chips
    or frameworks were left out, those.
    """

    distance: str
    kind: str
    rows: tuple[TimeRow, ...]
    held: HeldOut

    @cached_property
    def classes(self) -> npt.NDArray[np.str_]:
        return np.array([class_of(row.config) for row in self.rows])

    @cached_property
    def profiles(self) -> npt.NDArray[np.str_]:
        return np.array([row.profile.name for row in self.rows])

    @cached_property
    def groups(self) -> npt.NDArray[np.str_]:
        unit = UNITS.get(self.distance, lambda row: f"{row.source} {row.workload}")
        return np.array([unit(row) for row in self.rows])

    @cached_property
    def weights(self) -> Floats:
        """A workload of n rows weighs as √n; whole architectures, chips and frameworks weigh alike."""
        groups, counts = np.unique(self.groups, return_counts=True)
        sizes = dict(zip(groups, counts, strict=True))
        power = -1.0 if self.distance in UNITS else -0.5
        return np.array([sizes[group] ** power for group in self.groups])

    @cached_property
    def inside(self) -> npt.NDArray[np.bool_]:
        """Whether each measurement lies in a range in which neither its own group nor its prediction had a part."""
        held, groups = self.held, self.groups
        cells = np.array([f"{p} {c}" for p, c in zip(self.profiles, self.classes, strict=True)])
        measured = np.array([row.step_time_s for row in self.rows])
        within = np.zeros(len(self.rows), dtype=bool)
        for cell in sorted(set(cells)):
            for group in sorted(set(groups[cells == cell])):
                mine = (groups == group) & (cells == cell)
                if self.distance in UNITS:
                    others = groups != group
                    low, high = of_new_group(held.mode_error[others], self.weights[others], len(set(groups[others])))
                else:
                    others = (groups != group) & (cells == cell)
                    if len(set(groups[others])) < FEWEST_GROUPS - 1:
                        others = groups != group
                    if not others.any():
                        continue
                    low, high = quantiles(held.mode_error[others], self.weights[others])
                smooth, stalled = held.smooth_s[mine], held.smooth_s[mine] + held.stall_s[mine]
                chance = held.stall_chance[mine]
                at_least = np.where(chance < 1.0 - TAIL, smooth, stalled) * np.exp(low)
                at_most = np.where(chance > TAIL, stalled, smooth) * np.exp(high)
                at_least = np.maximum(at_least, held.lower_s[mine])
                within[mine] = (at_least <= measured[mine]) & (measured[mine] <= at_most)
        return within


def errors_at(rows: Sequence[TimeRow], held: Mapping[str, HeldOut]) -> dict[str, Errors]:
    """Errors by distance of the rows of one kind of chip."""
    return {
        name: Errors(name, rows[0].chip.kind, tuple(rows[int(i)] for i in one.index), one) for name, one in held.items()
    }


def quantiles(errors: Floats, weights: Floats) -> tuple[float, float]:
    """log(measured / estimate) below and above which a share TAIL lies.  errors: log(estimate / measured)."""
    values = -errors
    order = np.argsort(values)
    cumulative = np.cumsum(weights[order])
    middles = (cumulative - weights[order] / 2.0) / cumulative[-1]
    low, high = np.interp([TAIL, 1.0 - TAIL], middles, values[order])
    return float(low), float(high)


def of_new_group(errors: Floats, weights: Floats, groups: int) -> tuple[float, float]:
    """The quantiles for a group like none of the `groups` seen: widened about their middle as Student's t is, since few
    groups tell their scatter badly."""
    low, high = quantiles(errors, weights)
    middle = (low + high) / 2.0
    factor = float(student.ppf(1.0 - TAIL, max(groups - 1, 1))) * np.sqrt(1.0 + 1.0 / groups) / Z80
    return float(middle + (low - middle) * factor), float(middle + (high - middle) * factor)


def ranges(by_kind: Mapping[str, Mapping[str, Errors]]) -> dict[str, dict[str, dict[str, ErrorRange]]]:
    """Ranges by profile, class and distance.  by_kind: errors by kind of chip and distance."""
    by_profile: dict[str, dict[str, dict[str, ErrorRange]]] = {}
    for profile in load_profiles().values():
        kind = "tpu" if profile.family == "compiled" else "gpu"
        for name in CLASSES:
            nearer: ErrorRange | None = None
            for distance in DISTANCES:
                one = _range(by_kind, kind, profile.name, name, distance, nearer)
                if one is None:
                    continue
                by_profile.setdefault(profile.name, {}).setdefault(name, {})[distance] = one
                nearer = one
    return by_profile


def _range(
    by_kind: Mapping[str, Mapping[str, Errors]],
    kind: str,
    profile: str,
    name: str,
    distance: str,
    nearer: ErrorRange | None,
) -> ErrorRange | None:
    own = _chosen(by_kind.get(kind, {}).get(distance), profile, name)
    if own is not None and distance not in UNITS and len(set(own[1])) >= FEWEST_GROUPS:
        return _of(own, distance, borrowed=False)
    for others in (kind, "gpu" if kind == "tpu" else "tpu"):
        there = by_kind.get(others, {}).get(distance)
        pool = None if distance in UNITS else _chosen(there, None, name)
        pool = pool or _chosen(there, None, None)
        if pool is not None and len(set(pool[1])) >= FEWEST_GROUPS:
            wide = _of(pool, distance, borrowed=True)
            if nearer is None:
                return wide
            return ErrorRange(
                distance=distance,
                low80=min(wide.low80, nearer.low80),
                high80=max(wide.high80, nearer.high80),
                median=max(wide.median, nearer.median),
                naive_median=wide.naive_median,
                rows=wide.rows,
                borrowed=True,
            )
    return nearer


Chosen = tuple[tuple[Floats, Floats, Floats, Floats], list[str]]


def _chosen(errors: Errors | None, profile: str | None, name: str | None) -> Chosen | None:
    """Error, mode error, naive error and weight of the rows of a profile and class, and their groups."""
    if errors is None:
        return None
    keep = np.ones(len(errors.rows), dtype=bool)
    if profile is not None:
        keep &= errors.profiles == profile
    if name is not None:
        keep &= errors.classes == name
    if not keep.any():
        return None
    held = errors.held
    columns = (held.log_error[keep], held.mode_error[keep], held.naive_error[keep], errors.weights[keep])
    return columns, list(errors.groups[keep])


def _of(chosen: Chosen, distance: str, borrowed: bool) -> ErrorRange:
    (error, mode, naive, weights), groups = chosen
    new = distance in UNITS
    low, high = of_new_group(mode, weights, len(set(groups))) if new else quantiles(mode, weights)
    return ErrorRange(
        distance=distance,
        low80=min(low, -0.01),
        high80=max(high, 0.01),
        median=float(np.median(np.abs(np.expm1(error)))),
        naive_median=float(np.median(np.abs(np.expm1(naive)))),
        rows=len(error),
        borrowed=borrowed,
    )
