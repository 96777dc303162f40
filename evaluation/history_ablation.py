"""What proposals are worth with and without history, on sweeps whose own records are left out.

Of every workload some measured runs are starts; the Proposer chooses among the configurations of it that were tried,
priced by efficiencies that have not seen it, with the precedents of other models alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

import numpy as np

from diagnosis.analyzer import diagnose
from evaluation.fit_ranking import NOTHING
from evaluation.sweep_candidates import NOTHING_LIKE_IT, Sweep, unseen_s
from evaluation.sweep_groups import Group, groups
from evaluation.sweep_scores import Outcomes, joined, outcome
from experiments.without_profile import without_profile
from history import moves
from history.case import Case
from history.labels import BOUND
from history.record import Side
from history.similarity import rate
from history.term_effects import price
from perfmodel.config import ExperimentConfig, Measured
from perfmodel.efficiency import EfficiencyTable
from proposals.proposer.choose import choose, in_order
from proposals.proposer.precedents import Library, Precedent, published, situation
from proposals.proposer.prices import shipped_weights

#: Starts of a workload, drawn by hash.
STARTS = 6
VARIANTS = ("without history", "as shipped")


@dataclass(frozen=True)
class Start:
    """One start: what each variant comes to, and whether the first proposal has a precedent above the bound."""

    outcomes: dict[str, Outcomes]
    cited: bool


def starts(group: Group) -> list[Start]:
    sweep = Sweep(group, unseen_s(group))
    chosen = sorted(group.starts, key=lambda i: sha256(group.runs[i].id.encode()).hexdigest())[:STARTS]
    return [_start(sweep, index) for index in chosen]


def _start(sweep: Sweep, start: int) -> Start:
    group = sweep.group
    config = replace(group.configs[start], measured=Measured(step_time_s=float(group.time_s[start])))
    case = situation(config, diagnose(without_profile(config), config))
    others = [item for item in published() if not same_work(item, case)]
    found, cited = {}, False
    for name, library in zip(VARIANTS, (NOTHING_LIKE_IT, Library(others, case)), strict=True):
        c, ranked = sweep.ranked(start, NOTHING, library)
        listed = [i for i in in_order(c, ranked) if i != c.baseline]
        three = [*listed, c.baseline]
        if len(c) >= 3:
            three = [choice.index for choice in choose(c, ranked, weights=shipped_weights())]
        if name == "as shipped":
            first = group.configs[int(c.mesh_of[three[0]])]
            cited = three[0] != c.baseline and _cited(others, config, first)
        rows = c.mesh_of
        found[name] = outcome(group, start, [int(rows[i]) for i in three], [int(rows[i]) for i in listed])
    return Start(found, cited)


def changed(before: ExperimentConfig, after: ExperimentConfig, table: EfficiencyTable | None = None) -> Case:
    """The case of a change from one measured configuration to another.  table: what it is priced by."""
    start = situation(before, diagnose(without_profile(before), before))
    move = moves.change_of((), _side(before), _side(after)) or {}
    return replace(start, move=move, after=after, mechanism=price([(before, after)], table)[0])


def _side(config: ExperimentConfig) -> Side:
    training = config.training
    keys = ("global_batch", "grad_accum", "micro_batch", "remat", "weight_sharding", "precision")
    values = {key: value for key in keys if (value := getattr(training, key)) is not None}
    return Side(mesh=config.mesh.to_json(), axis_roles=config.mesh.axis_roles, training=values)


def _cited(others: Sequence[Precedent], before: ExperimentConfig, after: ExperimentConfig) -> bool:
    """Whether a change has a precedent above the bound."""
    held = [item.case for item in others if not item.failure]
    return max(rate(held, changed(before, after)), default=0.0) >= BOUND


def same_work(item: Precedent, start: Case) -> bool:
    """The same model on the same chip, whatever the source, the number of chips and the batch."""
    known = item.case
    return known.chip == start.chip and (
        not known.parameters or not start.parameters or abs(known.parameters / start.parameters - 1.0) < 0.05
    )


def lines(every: Sequence[Group] | None = None) -> list[str]:
    """The table."""
    found = [start for group in every or groups() for start in starts(group)]
    rows = [
        "| | first: gain | of three: gain | first: regret | failed |",
        "|---|--:|--:|--:|--:|",
    ]
    for name in VARIANTS:
        one = joined([start.outcomes[name] for start in found])
        rows.append(
            f"| {name} | {100 * float(np.mean(one.first)):.1f} % | {100 * float(np.mean(one.three)):.1f} % | "
            f"{100 * float(np.nanmean(one.left)):.1f} % | {100 * float(np.mean(one.crashed)):.1f} % |"
        )
    cited = 100 * float(np.mean([start.cited for start in found]))
    return [
        *rows,
        "",
        f"{len(found):,} starts; {cited:.0f} % of the first proposals have a precedent above the threshold.",
    ]
