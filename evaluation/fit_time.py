"""Fit the efficiencies of the time model on measured steps: `make fit`.

A few physical numbers per kind of chip, each pulled towards a textbook value; families of programs, single programs,
chips, precisions and architectures shift them, each pulled towards no shift.  Rows of one configuration under several
software releases share their weight.  What is reported as error is always that of rows the fit did not see.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize
from scipy.special import ndtr

from evaluation.time_priors import (
    ARCHITECTURE_SPREAD,
    ARCHITECTURES,
    EFFECTS,
    FAMILY_SHARE,
    PRECISION_LOSS,
    PRIORS,
    PROFILE_ONLY,
    PROFILE_PRECISION,
    PROFILE_SHARE,
)
from evaluation.time_rows import TimeRow
from perfmodel.efficiency import Efficiencies, from_scale, to_scale
from perfmodel.step_time import TAIL, Priced, combine
from perfmodel.terms import Terms, step_terms
from perfmodel.workload import from_config, stack

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

#: Scatter of log(measured / estimate) beyond which a row counts as an outlier and pulls less and less.
SCATTER = 0.08
STEP = 1e-4
#: Relative gain of a step below which the fit has settled.
SETTLED = 5e-4
#: What a stall costs is read from pipelined rows SLOW times slower than estimated, of which there must be some; rows
#: that are SLOWER by just that much have stalled, too.
SLOW, SLOWER, FEWEST_STALLS = 2.0, 1.3, 20
#: What is believed of stalls: rate of slow hosts, share of the memory at which half stall, spread; and how firmly.
FULL_PRIOR, FULL_PRIOR_SPREAD = np.array([0.02, 1.0, 0.08]), np.array([1.0, 0.1, 0.5])
#: Steps of a fold that starts from the solution over all rows; it settles in fewer.
FOLD_STEPS = 8


@dataclass(frozen=True)
class Parameter:
    """One number the fit moves: a shift of `name`, on its scale, for the rows of `mask`; 0 is the prior's mean."""

    name: str
    key: str
    spread: float
    mask: Floats


@dataclass(frozen=True)
class Stalls:
    """What a slow host or a full memory costs a pipelined program.

    stall_s: seconds per micro-batch and full pipeline; per_host: rate of slow hosts; full_at: share of the memory at
    which half of the runs stall, full_spread: of its logarithm.
    """

    stall_s: float
    per_host: float
    full_at: float
    full_spread: float


@dataclass(frozen=True)
class Problem:
    """Rows of one kind of chip with their terms, and the parameters that explain them.

    held: efficiencies that stay at a value of their scale instead of their prior's.
    """

    kind: str
    rows: tuple[TimeRow, ...]
    terms: Terms
    parameters: tuple[Parameter, ...]
    held: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def measured_s(self) -> Floats:
        return np.array([row.step_time_s for row in self.rows])

    @cached_property
    def weights(self) -> Floats:
        """A configuration measured n times weighs as √n rows, not as n."""
        counts = Counter(row.configuration for row in self.rows)
        return np.array([counts[row.configuration] ** -0.25 for row in self.rows])

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Efficiencies that any parameter moves."""
        return tuple(dict.fromkeys(parameter.name for parameter in self.parameters))

    @cached_property
    def spreads(self) -> Floats:
        return np.array([parameter.spread for parameter in self.parameters])

    @cached_property
    def _masks(self) -> Floats:
        return np.array([parameter.mask for parameter in self.parameters])

    @cached_property
    def _column(self) -> npt.NDArray[np.int64]:
        return np.array([self.names.index(parameter.name) for parameter in self.parameters])

    @cached_property
    def _prior(self) -> dict[str, Floats]:
        loss = np.array([PRECISION_LOSS.get(row.precision, 0.0) for row in self.rows])
        return {
            name: np.full(len(self.rows), self.held.get(name, to_scale(name, prior.value)))
            + (loss if name == "matmul" else 0.0)
            for name, prior in PRIORS[self.kind].items()
        }

    def shifts(self, x: Floats) -> Floats:
        """Shift of every efficiency in `names` for every row: (names, rows)."""
        shifts = np.zeros((len(self.names), len(self.rows)))
        np.add.at(shifts, self._column, x[:, None] * self._masks)
        return shifts

    def efficiencies(self, shifts: Floats) -> Efficiencies:
        """Efficiencies of every row under shifts (…, names, rows); fields are (…, rows)."""
        values: dict[str, Floats] = dict(self._prior)
        for number, name in enumerate(self.names):
            values[name] = values[name] + shifts[..., number, :]
        return Efficiencies(**{name: from_scale(name, value) for name, value in values.items()})

    def price(self, x: Floats, stalls: Mapping[str, Stalls] | None = None) -> Priced:
        efficiencies = self.efficiencies(self.shifts(x))
        if stalls:
            profiles = [row.profile.name for row in self.rows]
            none = Stalls(0.0, 0.0, 1.0, 1.0)
            each = [stalls.get(name, none) for name in profiles]
            efficiencies = efficiencies.with_(
                stall_s=np.array([one.stall_s for one in each]),
                stall_per_host=np.array([one.per_host for one in each]),
                full_at=np.array([one.full_at for one in each]),
                full_spread=np.array([one.full_spread for one in each]),
            )
        return combine(self.terms, efficiencies)

    def log_error(self, x: Floats, stalls: Mapping[str, Stalls] | None = None) -> Floats:
        """log(estimate / measured) of every row."""
        return np.asarray(np.log(self.price(x, stalls).estimate_s / self.measured_s))

    def derivatives(self, x: Floats) -> tuple[Floats, Floats]:
        """log_error, and its derivative with respect to every parameter: (rows,), (rows, parameters).

        A parameter only shifts an efficiency on some rows, so one forward difference per efficiency serves all.
        """
        at = self.shifts(x)
        moved = np.broadcast_to(at, (len(self.names) + 1, *at.shape)).copy()
        for number in range(len(self.names)):
            moved[number + 1, number] += STEP
        errors = np.log(combine(self.terms, self.efficiencies(moved)).estimate_s / self.measured_s)
        slopes = (errors[1:] - errors[0]) / STEP
        return errors[0], (slopes[self._column] * self._masks).T


@dataclass(frozen=True)
class Fit:
    """What a fit on some of a problem's rows found."""

    problem: Problem
    x: Floats
    stalls: Mapping[str, Stalls]

    @cached_property
    def priced(self) -> Priced:
        return self.problem.price(self.x, self.stalls)

    @cached_property
    def log_error(self) -> Floats:
        """log(estimate / measured) of every row."""
        return np.asarray(np.log(self.priced.estimate_s / self.problem.measured_s))

    @cached_property
    def mode_error(self) -> Floats:
        """log(estimate / measured) with a row that may stall taken as stalled or not, whichever is nearer."""
        priced, measured = self.priced, self.problem.measured_s
        smooth = np.log(priced.smooth_s / measured)
        stalled = np.log((priced.smooth_s + priced.stall_s) / measured)
        may = np.broadcast_to(priced.stall_chance > TAIL, smooth.shape)
        return np.where(may & (np.abs(stalled) < np.abs(smooth)), stalled, smooth)


def fitted(p: Problem, train: Mask, start: Floats | None = None, max_steps: int = 40) -> Fit:
    x = solve(p, train, start, max_steps)
    return Fit(p, x, fit_stalls(p, x, train))


def problem(rows: Sequence[TimeRow]) -> Problem:
    """The fit of these rows, all of one kind of chip: which numbers move, for which rows."""
    kind = rows[0].chip.kind
    priors = PRIORS[kind]
    profiles = np.array([row.profile.name for row in rows])
    families = np.array([row.profile.family for row in rows])
    chips = np.array([row.silicon for row in rows])
    precisions = np.array([row.precision for row in rows])
    architectures = np.array([row.architecture for row in rows])
    parameters: list[Parameter] = []

    def add(name: str, key: str, spread: float, mask: Mask) -> None:
        if spread > 0 and mask.any():
            parameters.append(Parameter(name, key, spread, mask.astype(float)))

    everything = np.ones(len(rows), dtype=bool)
    for name, prior in priors.items():
        if name not in PROFILE_ONLY:
            add(name, f"kind.{kind}", prior.spread, everything)
            for family in sorted(set(families)) if len(set(families)) > 1 else ():
                add(name, f"family.{family}", FAMILY_SHARE * prior.spread, families == family)
        for profile in sorted(set(profiles)) if kind == "gpu" else ():
            add(name, f"profile.{profile}", PROFILE_SHARE * prior.spread, profiles == profile)
    plain = ("bf16", "fp16", "fp32")
    for name, effect in EFFECTS.items():
        for precision in sorted(set(precisions) - set(plain)):
            add(name, f"kind.{kind}.{precision}", effect.precision, precisions == precision)
        for chip in sorted(set(chips)):
            add(name, f"chip.{chip}", effect.chip, chips == chip)
            for precision in sorted(set(precisions[chips == chip]) - set(plain)):
                mask = (chips == chip) & (precisions == precision)
                add(name, f"chip.{chip}.{precision}", effect.chip_precision, mask)
    for profile in sorted(set(profiles)) if kind == "gpu" else ():
        for precision in sorted(set(precisions[profiles == profile]) - set(plain)):
            mask = (profiles == profile) & (precisions == precision)
            add("matmul", f"profile.{profile}.{precision}", PROFILE_PRECISION, mask)
    for family in ARCHITECTURES:
        add("architecture", f"architecture.{kind}.{family}", ARCHITECTURE_SPREAD, architectures == family)
    terms = step_terms(stack([from_config(row.config) for row in rows]))
    products, scores = np.array([row.repeated for row in rows]).T
    terms = replace(
        terms,
        dense_forward_s=terms.dense_forward_s * products,
        scores_forward_s=terms.scores_forward_s * scores,
    )
    return Problem(kind, tuple(rows), terms, tuple(parameters))


def solve(p: Problem, train: Mask, start: Floats | None = None, max_steps: int = 40) -> Floats:
    """Parameters that explain the rows of `train`: robust least squares of the log error, with the priors as rows.

    A row far off pulls with a force that falls (Cauchy): programs stall for reasons that no configuration shows.
    """
    weights = p.weights[train] / SCATTER

    def evaluated(u: Floats) -> tuple[float, Floats, Floats]:
        """Cost, its gradient and curvature (Gauss–Newton) in parameters of unit spread."""
        errors, slopes = p.derivatives(u * p.spreads)
        error = errors[train] * weights
        jacobian = slopes[train] * weights[:, None] * p.spreads
        pull = 1.0 / (1.0 + error * error)
        cost = float(np.log1p(error * error).sum() + u @ u)
        return cost, jacobian.T @ (pull * error) + u, (jacobian.T * pull) @ jacobian + np.eye(len(u))

    at = (np.zeros(len(p.parameters)) if start is None else start) / p.spreads
    cost, gradient, curvature = evaluated(at)
    damping = 1e-2
    for _ in range(max_steps):
        step = cho_solve(cho_factor(curvature + damping * np.diag(np.diag(curvature))), -gradient)
        trial = evaluated(at + step)
        if trial[0] >= cost:
            damping *= 10.0
            if damping > 1e6:
                break
            continue
        settled = cost - trial[0] < SETTLED * cost
        at, (cost, gradient, curvature), damping = at + step, trial, damping / 10.0
        if settled:
            break
    return at * p.spreads


def fit_stalls(p: Problem, x: Floats, train: Mask) -> dict[str, Stalls]:
    """Stalls of the programs whose pipelined runs show them.

    A row is stalled where what it takes beyond the estimate, per micro-batch and full pipeline, lies within a factor of
    two of the typical such excess.  Chances are the most likely ones under
    1 − exp(−rate · hosts) · (1 − Φ(log(share / at) / spread)).
    """
    terms = p.terms
    share = np.broadcast_to(
        terms.work.training.micro_batches * (1.0 - 1.0 / terms.work.mesh.pipeline), p.measured_s.shape
    )
    hosts = np.broadcast_to(terms.work.chip.hosts, p.measured_s.shape)
    filled = np.broadcast_to(terms.memory_share, p.measured_s.shape)
    smooth = p.price(x).smooth_s
    stalls = {}
    for profile in sorted({row.profile.name for row in p.rows}):
        mine = np.array([row.profile.name == profile for row in p.rows]) & train & (share > 0) & (hosts > 1)
        far = mine & (p.measured_s > SLOW * smooth)
        if far.sum() < FEWEST_STALLS:
            continue
        excess = (p.measured_s - smooth) / np.maximum(share, 1e-9)
        typical = float(np.median(excess[far]))
        stalled = (
            mine & (p.measured_s > SLOWER * smooth) & (np.abs(np.log(np.maximum(excess, 1e-9) / typical)) < np.log(2.0))
        )
        if stalled.sum() < FEWEST_STALLS:
            continue

        def unlikely(at: Floats, mine: Mask = mine, stalled: Mask = stalled) -> float:
            rate, full_at, spread = np.exp(at)
            full = ndtr(np.log(np.maximum(filled[mine], 1e-9) / full_at) / spread)
            quick = np.clip(np.exp(-rate * hosts[mine]) * (1.0 - full), 1e-9, 1.0 - 1e-9)
            pulled = ((at - np.log(FULL_PRIOR)) / FULL_PRIOR_SPREAD) ** 2 / 2.0
            return float(pulled.sum() - np.sum(np.where(stalled[mine], np.log1p(-quick), np.log(quick))))

        rate, full_at, spread = np.exp(minimize(unlikely, np.log(FULL_PRIOR), method="Nelder-Mead").x)
        stalls[profile] = Stalls(float(np.median(excess[stalled])), float(rate), float(full_at), float(spread))
    return stalls
