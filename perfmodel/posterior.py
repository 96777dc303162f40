"""What a profile can say of the efficiencies: the few numbers it informs, how sure the fit is of each, and what the
model expects to be measured for given values of them.

A number is a field of `Efficiencies`, or a factor on terms of the step that differs between programs and machines
(`link:<group>`: link time of one kind of traffic).  All are moved on the scale on which their prior is normal:
logarithms, log-odds for shares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from perfmodel.arrays import Floats
from perfmodel.efficiency import NUMBERS, Efficiencies
from perfmodel.observation import Equation
from perfmodel.step_time import combine
from perfmodel.terms import Terms
from perfmodel.workload import GROUPS


@dataclass(frozen=True)
class Informed:
    """A number that a profile informs.  spread: standard deviation, on its scale, of one program's value around the
    fitted one; assumed: the same where the model's shape is assumed, if another; share: whether it is in log-odds."""

    name: str
    spread: float
    assumed: float | None = None
    share: bool = False

    def of(self, assumed: bool) -> float:
        """Its spread.  assumed: whether the model's shape is."""
        return self.spread if self.assumed is None or not assumed else self.assumed


_WORK = ("dense_s", "dense_forward_s", "experts_s", "experts_forward_s", "head_s")
_SCORES = ("scores_s", "scores_forward_s", "softmax_s", "softmax_forward_s")
_ACTIVATIONS, _WEIGHTS = ("hbm_activations_s", "hbm_recompute_s"), ("hbm_weights_s", "hbm_optimizer_s")
#: Factors on terms: the fields of `Terms` and the kinds of traffic that each multiplies.
FACTORS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "work": (_WORK, ()),
    "scores": (_SCORES, ()),
    "activations": (_ACTIVATIONS, ()),
    "weights": (_WEIGHTS, ("weights", "expert_weights", "replica")),
    "streaming": (("hbm_weights_s",), ()),
    "bubble": (("bubble",), ()),
    "whole": ((*_WORK, *_SCORES, *_ACTIVATIONS, *_WEIGHTS), tuple(GROUPS)),
    **{f"link:{group}": ((), (group,)) for group in GROUPS},
}

#: What a program may do that no term of the model knows, as shares, with what is believed without a profile:
#: `contiguous`: a causal sequence is cut into contiguous parts, so that of S parts the last does (2S − 1)/S times the
#: mean work; `replicated`: elementwise work on the whole width is repeated on every tensor shard.
STRUCTURE: Mapping[str, float] = {"contiguous": 0.5, "replicated": 0.08}

INFORMED: tuple[Informed, ...] = (
    *(Informed(name, row.spread, share=row.scale == "share") for name, row in NUMBERS.items() if row.spread),
    Informed("work", 0.0, 1.0),
    Informed("scores", 0.0, 1.0),
    Informed("activations", 0.3, 1.0),
    Informed("weights", 0.0, 1.0),
    Informed("streaming", 0.0, 1.5),
    Informed("bubble", 0.2),
    Informed("whole", 0.3),
    Informed("contiguous", 1.5, share=True),
    Informed("replicated", 1.5, share=True),
    *(Informed(f"link:{group}", 0.1, 0.3) for group in GROUPS),
)


@dataclass(frozen=True)
class Values:
    """Points in the space of what is informed: z has shape (points, names), in prior standard deviations from the fit's
    values (`efficiencies`)."""

    efficiencies: Efficiencies
    informed: tuple[Informed, ...]
    spreads: Floats

    def at(self, z: Floats) -> tuple[Efficiencies, dict[str, Floats]]:
        """Efficiencies and factors at the points z; arrays over the points, or numbers where z is one point."""
        moved = np.asarray(z) * self.spreads
        shifts = {item.name: moved[..., number] for number, item in enumerate(self.informed)}
        fields: dict[str, Floats] = {}
        factors: dict[str, Floats] = {}
        for item in self.informed:
            shift = shifts[item.name]
            if item.name in FACTORS:
                factors[item.name] = np.exp(shift)
                continue
            known = item.name not in STRUCTURE
            value = getattr(self.efficiencies, item.name) if known else STRUCTURE[item.name]
            if item.share:
                if item.name.startswith("overlap_"):
                    shift = shift + shifts.get("scheduler", 0.0)
                odds = np.log(np.clip(value, 1e-4, 1 - 1e-4) / (1.0 - np.clip(value, 1e-4, 1 - 1e-4)))
                (fields if known else factors)[item.name] = 1.0 / (1.0 + np.exp(-(odds + shift)))
            else:
                most = np.maximum(1.0, value) if NUMBERS[item.name].capped else np.inf
                fields[item.name] = np.minimum(value * np.exp(shift), most)
        return self.efficiencies.with_(**fields), factors


def informed_by(efficiencies: Efficiencies, assumed: bool, informed: Sequence[Informed] | None = None) -> Values:
    """What a profile may inform around these efficiencies.  assumed: whether the model's shape is; informed: all of
    INFORMED by default."""
    items = tuple(item for item in (INFORMED if informed is None else informed) if item.of(assumed))
    return Values(efficiencies, items, np.array([item.of(assumed) for item in items]))


def scaled(terms: Terms, factors: Mapping[str, Floats]) -> Terms:
    """The terms with every factor applied to what it multiplies."""
    factors = dict(factors)
    # Relative to what is believed without evidence, which the fit's efficiencies hold already: a measurement that says
    # what the model says changes no price.
    for name, scaled_factor, more in (
        ("contiguous", "scores", 1.0 - 1.0 / terms.work.mesh.seq),
        ("replicated", "activations", terms.work.mesh.model - 1.0),
    ):
        if name in factors:
            relative = (1.0 + factors.pop(name) * more) / (1.0 + STRUCTURE[name] * more)
            factors[scaled_factor] = factors.get(scaled_factor, 1.0) * relative
    # Factors by each other first: they are few, the candidates many.
    times: dict[str, Floats] = {}
    carried: dict[str, tuple[Floats | float, Floats | float]] = {}
    for name, factor in factors.items():
        own, groups = FACTORS[name]
        for field in own:
            times[field] = times.get(field, 1.0) * factor
        for group in groups:
            links, across = carried.get(group, (1.0, 1.0))
            carried[group] = links * factor, across if name.startswith("link:") else across * factor
    fields: dict[str, Any] = {field: getattr(terms, field) * factor for field, factor in times.items()}
    traffic = dict(terms.traffic)
    for group, (links, across) in carried.items():
        if group in traffic:
            one = traffic[group]
            traffic[group] = replace(
                one, ici_s=one.ici_s * links, network_s=one.network_s * links, dcn_s=one.dcn_s * across
            )
    return replace(terms, **fields, traffic=traffic)


def expected(terms: Terms, efficiencies: Efficiencies) -> dict[str, Floats]:
    """What a profile of this step would show, in seconds: `matmul`, `arithmetic` (the same if weights came at once),
    `attention`, `hbm`, exposed `ici:<group>`, `links:<group>` (in flight), `dcn`, `links:dcn`, `gaps` (bubble, launches
    that the chip waits for, overhead) and `step`."""
    priced = combine(terms, efficiencies)
    nothing = np.zeros(1)
    no_scores = replace(terms, scores_s=nothing, scores_forward_s=nothing)
    others = (combine(each, efficiencies) for each in (no_scores, replace(no_scores, hbm_weights_s=nothing)))
    work, matmul, arithmetic = (one.parts_s["compute"] - one.waiting_s for one in (priced, *others))
    parts = priced.parts_s
    times = {
        "matmul": matmul,
        "arithmetic": arithmetic,
        "attention": work - matmul,
        "hbm": parts["hbm"],
        "gaps": parts["bubble"] + parts["overhead"] + parts["compute"] - work,
        "step": priced.estimate_s,
    }
    for name, seconds in parts.items():
        if name.startswith("ici:"):
            times[name] = seconds
            times[f"links:{name.removeprefix('ici:')}"] = priced.links_s[name]
    times["dcn"], times["links:dcn"] = parts["dcn"], priced.links_s["dcn"]
    return times


@dataclass(frozen=True)
class Posterior:
    """z: the most likely point; covariance: around it, both in prior standard deviations."""

    values: Values
    z: Floats
    covariance: Floats


#: Factors that a measured part alone suggests where the model's shape is assumed, and what it is compared with.
_SUGGESTED = {"work": "arithmetic", "streaming": "matmul", "scores": "attention", "activations": "hbm"}


def _start(values: Values, terms: Terms, equations: Sequence[Equation]) -> Floats:
    """Where to start: at the fit, but for factors of an assumed shape, which may be far from it."""
    z = np.zeros(len(values.informed))
    names = {item.name: i for i, item in enumerate(values.informed)}
    seen = {equation.keys[0]: equation.seconds for equation in equations}
    if "streaming" not in names:
        return z
    modelled_terms = expected(scaled(terms, values.at(z)[1]), values.at(z)[0])
    streamed = terms.hbm_weights_s / np.asarray(values.efficiencies.hbm)
    for name, key in _SUGGESTED.items():
        measured = seen.get(key, seen.get("matmul", 0.0) if name == "work" else 0.0)
        modelled = float(np.asarray(streamed if name == "streaming" else modelled_terms[key]).reshape(-1)[0])
        if name == "streaming" and "arithmetic" not in seen:
            continue
        if name in names and measured > 0 and modelled > 0:
            at = names[name]
            z[at] = float(np.clip(np.log(measured / modelled) / values.spreads[at], -3.0, 3.0))
    return z


def solve(values: Values, terms: Terms, equations: Sequence[Equation], steps: int = 8) -> Posterior:
    """The posterior by Gauss–Newton steps on the logarithms of what was measured; the prior is standard normal in z.

    Residuals count with Student's weights (four degrees of freedom), so that one part which nothing explains does not
    drag the efficiencies along.
    """
    count = len(values.informed)
    z = _start(values, terms, equations)
    if not equations:
        return Posterior(values, z, np.eye(count))
    spread = np.array([item.spread for item in equations])
    floor = np.array([item.floor_s for item in equations])
    seen = np.log(np.array([item.seconds for item in equations]) + floor)

    def predicted(points: Floats) -> Floats:
        efficiencies, factors = values.at(points)
        shown = expected(scaled(terms, factors), efficiencies)
        rows = [sum((shown[key] for key in item.keys), np.zeros(1)) for item in equations]
        return np.asarray(np.log(np.stack([np.broadcast_to(row, (len(points),)) for row in rows], axis=1) + floor))

    delta = 0.05
    weight = np.ones(len(equations))
    jacobian = np.zeros((len(equations), count))
    precision = np.eye(count)
    for _ in range(steps):
        points = np.concatenate([z[None], z + delta * np.eye(count)])
        at = predicted(points)
        jacobian = ((at[1:] - at[0]) / delta).T
        off = (seen - at[0]) / spread
        weight = 5.0 / (4.0 + off**2)
        scaled_rows = jacobian / spread[:, None] * np.sqrt(weight)[:, None]
        precision = np.eye(count) + scaled_rows.T @ scaled_rows
        target = scaled_rows.T @ (np.sqrt(weight) * off + scaled_rows @ z)
        moved = np.linalg.solve(precision, target) - z
        z = np.clip(z + moved * min(1.0, 1.5 / max(np.abs(moved).max(), 1e-9)), -4.0, 4.0)
    return Posterior(values, z, np.asarray(np.linalg.inv(precision), dtype=np.float64))
