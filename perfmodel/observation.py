"""Observation: what a profile measured of one step, and whose collectives its times are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from perfmodel.config import Mesh
from perfmodel.step_time import Priced
from perfmodel.workload import GROUPS

#: Collectives that a group of axes issues; a profile that names kinds is split by them.
KINDS: Mapping[str, frozenset[str]] = {
    "weights": frozenset({"all-gather", "reduce-scatter", "all-reduce"}),
    "expert_weights": frozenset({"all-gather", "reduce-scatter", "all-reduce"}),
    "replica": frozenset({"all-reduce", "reduce-scatter", "all-gather"}),
    "model": frozenset({"all-gather", "reduce-scatter", "all-reduce", "collective-permute"}),
    "seq": frozenset({"all-gather", "reduce-scatter", "all-reduce", "collective-permute", "all-to-all"}),
    "expert": frozenset({"all-to-all"}),
    "pipeline": frozenset({"collective-permute", "send", "recv"}),
}


@dataclass(frozen=True)
class ObservedCollective:
    """Time of one kind of collective on these axes, seconds per step and chip.  axes: names; across slices `dcn`.
    in_flight_s: from start to end, hidden or not; 0 where the profile has no intervals."""

    axes: tuple[str, ...]
    kind: str
    time_s: float
    in_flight_s: float = 0.0


@dataclass(frozen=True)
class Observation:
    """One step of the baseline as measured, in seconds per step and chip.

    parts_s: exclusive parts, keys `compute`, `hbm`, `ici:<axis>` or `ici:<axis>+<axis>`, `ici` (axis unknown), `dcn`,
    `input`, `host`, `idle`, `other`, as in Diagnosis.breakdown_s; they add up to the step, and what they leave out is
    `other`.  HBM time may be split into `hbm:weights` (products that wait for their weights), `hbm:activations` and
    `hbm:optimizer`, which scale differently; `hbm` alone is taken as activations.  collectives: their kinds, where
    known.  step_time_s: None where the profile has no steps; parts_s may then be shares, and prices are relative to the
    baseline.  memory_bytes: peak of the worst chip, flops: executed per step and chip; None if not measured.
    weights_arithmetic_s: what the products in `hbm:weights` would take if only their arithmetic bound them.
    attention_s: of `compute`, time in attention kernels, None if they were not distinguished.  Beside parts_s:
    unexplained_s, of collectives that no parallelism of the mesh needs, by the axes they run on, and copies_s, of bytes
    moved for layout alone.  recomputed_s: in any part, time of ops that repeat the forward pass, None where none is
    named so.  coverage: share of the step whose ops were listed.
    """

    step_time_s: float | None
    parts_s: Mapping[str, float]
    collectives: tuple[ObservedCollective, ...] = ()
    memory_bytes: float | None = None
    flops: float | None = None
    weights_arithmetic_s: float = 0.0
    attention_s: float | None = None
    unexplained_s: Mapping[tuple[str, ...], float] = field(default_factory=dict)
    copies_s: float = 0.0
    recomputed_s: float | None = None
    coverage: float = 1.0

    @property
    def beside_s(self) -> float:
        """Measured time that is in no part."""
        return sum(self.unexplained_s.values()) + self.copies_s

    @property
    def measured_s(self) -> float:
        """The step, or, where it has no time, all that was measured."""
        return self.step_time_s or sum(self.parts_s.values()) + self.beside_s

    def within_step(self) -> Observation:
        """The same where parts sum to no more than the step; else, as ops overlap, all of them share the excess."""
        named = sum(self.parts_s.values()) + self.beside_s
        if not self.step_time_s or named <= self.step_time_s:
            return self
        share = self.step_time_s / named
        return replace(
            self,
            parts_s={name: value * share for name, value in self.parts_s.items()},
            unexplained_s={axes: value * share for axes, value in self.unexplained_s.items()},
            attention_s=None if self.attention_s is None else self.attention_s * share,
            weights_arithmetic_s=self.weights_arithmetic_s * share,
            copies_s=self.copies_s * share,
            recomputed_s=None if self.recomputed_s is None else self.recomputed_s * share,
        )

    @property
    def gaps_s(self) -> float:
        """Idle and host time, and what no op explains."""
        named = sum(self.parts_s.values()) + self.beside_s
        known = sum(self.parts_s.get(name, 0.0) for name in ("idle", "host", "other"))
        return known + max(0.0, self.measured_s - named)

    @property
    def work_s(self) -> float:
        """Time on the chip itself: compute and HBM."""
        return sum(v for k, v in self.parts_s.items() if k == "compute" or k.split(":")[0] == "hbm")


def by_group(mesh: Mesh, observation: Observation, base: Priced) -> tuple[dict[str, float], float]:
    """Measured time by group, and what could not be placed: each bar goes to the groups that talk on its axes.

    Groups that share a bar divide it by their modelled time, among those that issue the kinds the profile names.
    """
    talking = communicating_axes(mesh)
    modelled = _modelled_s(talking, base)
    by_name: dict[str, float] = dict.fromkeys(talking, 0.0)
    unplaced = observation.parts_s.get("ici", 0.0)
    for _, _, seconds, groups in _heard(observation, talking, modelled):
        total = sum(modelled[name] for name in groups)
        for name in groups:
            by_name[name] += seconds * modelled[name] / total
        if not groups:
            unplaced += seconds
    return by_name, unplaced


def _modelled_s(groups: Iterable[str], base: Priced) -> dict[str, float]:
    return {name: float(base.resources_s[f"ici:{name}"].reshape(-1)[0]) for name in groups}


def _heard(
    observation: Observation, talking: Mapping[str, frozenset[str]], modelled: Mapping[str, float]
) -> Iterator[tuple[frozenset[str], str | None, float, list[str]]]:
    """Axes, kind, exposed seconds and groups of the collectives measured inside a slice."""
    for bar, seconds in observation.parts_s.items():
        if bar.startswith("ici:") and seconds > 0:
            axes = frozenset(bar.removeprefix("ici:").split("+"))
            for kind, share in _kinds_on(axes, observation.collectives).items():
                yield axes, kind, seconds * share, groups_on(axes, kind, talking, modelled)


#: Standard deviation of the logarithm of what was measured against what the model's form can express: matmuls and
#: attention, elementwise work, exposed transfers, transfers in flight, gaps, the step; and what attribution adds where
#: no op was listed.
SPREADS = {"work": 0.06, "hbm": 0.1, "exposed": 0.15, "flight": 0.2, "gaps": 0.3, "step": 0.02, "unlisted": 0.3}
#: Below this share of the step, durations mean nothing.
FLOOR = 0.004


def equations_of(
    mesh: Mesh, observation: Observation, base: Priced, unit_s: float, foreign_s: float = 0.0
) -> tuple[Equation, ...]:
    """What was measured, as equations on what the model expects.  base: the step as priced before; unit_s: seconds that
    a measured 1 stands for; foreign_s: of a step time alone, what is no part of the model's step."""
    seen = observation.parts_s
    step = observation.measured_s * unit_s
    floor = FLOOR * step
    if not any(value > 0 for value in seen.values()):
        return (Equation(("step",), step - foreign_s, SPREADS["step"], floor),)
    thin = SPREADS["unlisted"] * (1.0 - observation.coverage)

    def equation(keys: tuple[str, ...], seconds: float, kind: str, times: float = 1.0) -> Equation:
        return Equation(keys, seconds * unit_s, times * float(np.hypot(SPREADS[kind], thin)), floor)

    weights, attention = seen.get("hbm:weights", 0.0), observation.attention_s
    compute = seen.get("compute", 0.0)
    equations = []
    if attention is None:
        equations.append(equation(("matmul", "attention"), compute + weights, "work"))
        arithmetic: tuple[str, ...] = ("arithmetic", "attention")
    else:
        equations.append(equation(("matmul",), compute - attention + weights, "work"))
        equations.append(equation(("attention",), attention, "work"))
        compute -= attention
        arithmetic = ("arithmetic",)
    if weights > 0.02 * step / unit_s:
        # Products that wait for weights say what their arithmetic alone would take, less surely.
        equations.append(equation(arithmetic, compute + observation.weights_arithmetic_s, "work", 3.0))
    rest = sum(seen.get(name, 0.0) for name in ("hbm", "hbm:activations", "hbm:optimizer"))
    equations.append(equation(("hbm",), rest, "hbm"))
    for groups, seconds, flight in _bars(mesh, observation, base):
        equations.append(equation(tuple(f"ici:{name}" for name in groups), seconds, "exposed"))
        if flight:
            equations.append(equation(tuple(f"links:{name}" for name in groups), flight, "flight"))
    if float(base.resources_s["dcn"].reshape(-1)[0]) > 0:
        equations.append(equation(("dcn",), seen.get("dcn", 0.0), "exposed"))
        flight = sum(item.in_flight_s for item in observation.collectives if item.axes == ("dcn",))
        if flight:
            equations.append(equation(("links:dcn",), flight, "flight"))
    equations.append(equation(("gaps",), observation.gaps_s, "gaps"))
    return tuple(equations)


def _bars(mesh: Mesh, observation: Observation, base: Priced) -> list[tuple[tuple[str, ...], float, float]]:
    """(groups, exposed seconds, seconds in flight) of collectives that groups of axes issue together; groups of which
    nothing was seen count as zero."""
    talking = communicating_axes(mesh)
    modelled = _modelled_s(talking, base)
    by_groups: dict[tuple[str, ...], list[float]] = {}
    for axes, kind, seconds, issuing in _heard(observation, talking, modelled):
        if groups := _together(issuing, modelled):
            entry = by_groups.setdefault(groups, [0.0, 0.0])
            entry[0] += seconds
            entry[1] += sum(c.in_flight_s for c in observation.collectives if set(c.axes) == axes and c.kind == kind)
    heard = {name for groups in by_groups for name in groups}
    unheard = (name for name, seconds in modelled.items() if seconds > 0 and name not in heard)
    silent = dict.fromkeys(_together([name], modelled) for name in unheard)
    return [(groups, *by_groups.get(groups, (0.0, 0.0))) for groups in (*by_groups, *silent)]


def _together(groups: Sequence[str], modelled: Mapping[str, float]) -> tuple[str, ...]:
    """The weights of experts and of the rest are gathered by ops that nothing tells apart."""
    both = ("weights", "expert_weights")
    named = set(groups) | ({name for name in both if modelled[name] > 0} if set(groups) & set(both) else set())
    return tuple(sorted(named))


def communicating_axes(mesh: Mesh) -> dict[str, frozenset[str]]:
    """By group, the axes of a mesh on which it talks."""
    return {
        name: frozenset(axis for axis, size in mesh.ici if size > 1 and mesh.role(axis) in members)
        for name, members in GROUPS.items()
    }


def _kinds_on(axes: frozenset[str], collectives: Sequence[ObservedCollective]) -> dict[str | None, float]:
    """Shares of the bar's time by kind; {None: 1} where no kind is known."""
    times: dict[str | None, float] = {}
    for item in collectives:
        if frozenset(item.axes) == axes:
            times[item.kind] = times.get(item.kind, 0.0) + item.time_s
    total = sum(times.values())
    return {kind: value / total for kind, value in times.items()} if total > 0 else {None: 1.0}


def groups_on(
    axes: frozenset[str],
    kind: str | None,
    talking: Mapping[str, frozenset[str]],
    modelled: Mapping[str, float] | None = None,
) -> list[str]:
    """The groups whose collectives of a kind (None: any) run on these axes: those of exactly these, else those that
    touch them.  modelled: their time; those without any are left out."""
    present = [name for name in talking if talking[name] and (modelled is None or modelled[name] > 0)]
    exact = [name for name in present if talking[name] == axes]
    touching = [name for name in present if talking[name] & axes]
    for groups in (exact, touching):
        fitting = [name for name in groups if kind is None or kind in KINDS[name]]
        if fitting:
            return fitting
    return exact or touching


@dataclass(frozen=True)
class Equation:
    """One measured quantity.  key: of `expected`, or several that it sums; seconds; spread: standard deviation of its
    logarithm, attribution and what the model's form leaves out; floor_s: below it, durations mean nothing."""

    keys: tuple[str, ...]
    seconds: float
    spread: float
    floor_s: float
