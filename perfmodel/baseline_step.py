"""The baseline step of a calibration: what was measured of it, and what the model makes of it at the most likely
efficiencies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from perfmodel.config import ExperimentConfig
from perfmodel.efficiency import Efficiencies
from perfmodel.evidence import LAUNCHES, Asked, Posterior, asked_by, scaled
from perfmodel.observation import Observation
from perfmodel.step_time import combine
from perfmodel.topology import Floats
from perfmodel.workload import Workload, from_config

#: Efficiencies, and the factors on what a step asks for.
Point = tuple[Efficiencies, Mapping[str, Floats]]


class Shares(NamedTuple):
    """Of work, what waits for weights; of gaps, what is pipeline bubble and what is waiting for kernel launches."""

    streaming: Floats
    bubble: Floats
    launches: Floats


@dataclass(frozen=True)
class BaselineStep:
    """A baseline, what was measured on it, and what had to be assumed.

    baseline: the configuration with every gap filled.  assumed: dotted names of what was filled in.  group_s: measured
    time by group of axes (keys of `workload.GROUPS`), group_dcn_s: the same across slices; unplaced_s: of collectives
    that no group issues.  posterior: of the efficiencies.  unit_s: seconds that a measured 1 stands for (1 where the
    profile has a step time).  foreign_s: of a step time alone, what more likely is no part of the model's step at all
    (an input stall, a checkpoint, another program) than an error of the model; in seconds, it stays whatever changes.
    """

    baseline: ExperimentConfig
    observation: Observation
    assumed: tuple[str, ...]
    posterior: Posterior
    group_s: Mapping[str, float]
    group_dcn_s: Mapping[str, float]
    unplaced_s: float
    unit_s: float = 1.0
    foreign_s: float = 0.0

    @cached_property
    def efficiencies(self) -> Efficiencies:
        """The most likely ones."""
        return self._likely[0]

    @cached_property
    def unexplained_s(self) -> Mapping[str, float]:
        """Measured less what the posterior explains, by part, where it is positive; beyond it `unplaced`
        collectives."""
        modelled = self._base_parts
        rest = {name: seen - modelled.get(name, 0.0) for name, seen in self._seen_s.items()}
        rest["ici"], rest["other"] = self.unplaced_s, self.foreign_s
        return {name: seconds for name, seconds in rest.items() if seconds > 0}

    @cached_property
    def _base_work(self) -> Workload:
        return from_config(self.baseline)

    @cached_property
    def _base_asked(self) -> Asked:
        return asked_by(self._base_work)

    @cached_property
    def _likely(self) -> Point:
        """The most likely efficiencies and factors."""
        return self.posterior.values.at(self.posterior.z)

    @cached_property
    def _base_parts(self) -> dict[str, float]:
        parts, _ = self._modelled(self._base_asked, self._likely)
        return {name: float(np.asarray(value).reshape(-1)[0]) for name, value in parts.items()}

    @cached_property
    def _base_shares(self) -> Shares:
        return self._modelled(self._base_asked, self._likely)[1]

    @cached_property
    def _sigma_points(self) -> tuple[Point, dict[str, Floats]]:
        """Points one standard deviation from the most likely one, along each column of the covariance's root, and the
        baseline's parts there; arrays (points)."""
        root: Floats = np.asarray(np.linalg.cholesky(self.posterior.covariance), dtype=np.float64)
        points = self.posterior.values.at(self.posterior.z + root.T)
        parts, _ = self._modelled(self._base_asked, points)
        return points, {name: np.broadcast_to(value, len(root)) for name, value in parts.items()}

    @property
    def _divided(self) -> bool:
        """Whether parts of the step were measured."""
        return any(value > 0 for value in self.observation.parts_s.values())

    @cached_property
    def _seen_s(self) -> dict[str, float]:
        """Measured seconds by the parts of `_modelled`.  Of a step time alone all parts take their share."""
        seen = self.observation.parts_s
        if not self._divided:
            whole = (self.observation.measured_s * self.unit_s - self.foreign_s) / sum(self._base_parts.values())
            return {name: seconds * whole for name, seconds in self._base_parts.items()}
        by_name = {
            "work": seen.get("compute", 0.0) + seen.get("hbm:weights", 0.0),
            "hbm": sum(seen.get(name, 0.0) for name in ("hbm", "hbm:activations", "hbm:optimizer")),
            "dcn": sum(self.group_dcn_s.values()),
            **{f"ici:{name}": seconds for name, seconds in self.group_s.items()},
        }
        by_name["gaps"] = self.observation.gaps_s
        return {name: seconds * self.unit_s for name, seconds in by_name.items()}

    def _modelled(self, asked: Asked, point: Point) -> tuple[dict[str, Floats], Shares]:
        """The model's parts at a point: work (with what waits for weights), hbm, ici:<group>, dcn, gaps; and the share
        of work that waits for weights."""
        efficiencies, factors = point
        moved = scaled(asked, factors)
        priced = combine(moved, efficiencies)
        parts = priced.parts_s
        work = parts["compute"]
        waiting: Floats = np.zeros(1)
        if self._launches_matter:
            silent = replace(efficiencies, **dict.fromkeys(LAUNCHES, 0.0))
            waiting = work - combine(moved, silent).parts_s["compute"]
        modelled = {"work": work - waiting, "hbm": parts["hbm"]}
        modelled |= {name: value for name, value in parts.items() if name.startswith("ici:")}
        gaps = parts["bubble"] + parts["overhead"] + waiting
        modelled |= {"dcn": parts["dcn"], "gaps": gaps}
        streamed = np.maximum(priced.hbm_s - parts["hbm"], 0.0)
        alone = np.cbrt(np.maximum(work * work * work - streamed * streamed * streamed, 0.0))
        whole = np.maximum(gaps, 1e-30)
        return modelled, Shares(1.0 - alone / np.maximum(work, 1e-30), parts["bubble"] / whole, waiting / whole)

    @cached_property
    def _launches_matter(self) -> bool:
        efficiencies = self.posterior.values.efficiencies
        silent = replace(efficiencies, **dict.fromkeys(LAUNCHES, 0.0))
        loud, quiet = (combine(self._base_asked.terms, e).estimate_s for e in (efficiencies, silent))
        return float(loud.reshape(-1)[0] / quiet.reshape(-1)[0]) > 1.005
