"""Laws that every finding obeys: none contradicts a measurement, the configuration or its own evidence.

Rules yield claims; each passes through `failed_check` with its ops, so that a rule cannot state what the profile
refutes.  docs/accuracy-diagnosis.md lists how often each rejects a claim, per rule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from diagnosis.analyzer.facts import Facts, OpFacts
from diagnosis.analyzer.rules import base
from diagnosis.analyzer.rules.base import Claim
from diagnosis.analyzer.rules.links import ACHIEVED, POSSIBLE, SMALL_BYTES

#: A saving below this share of the step is nothing.
LEAST_SAVING = 1e-3
#: Rounding of sums of shares.
_SLACK = 1e-6
#: Times of a trace spread; a bandwidth up to this above what the links carry is within it.
LINK_TOLERANCE = 1.1


@dataclass(frozen=True)
class ConsistencyCheck:
    """name: as the documents have it.  says: the law in one sentence.  holds: whether a claim obeys it."""

    name: str
    says: str
    holds: Callable[[Facts, Claim], bool]


def _rests_on_something(facts: Facts, claim: Claim) -> bool:
    share = claim.finding.saving_share
    if not claim.finding.evidence:
        return False
    if share is None:
        return True
    # Of a list with gaps, what counts is its part of what is listed.
    least = LEAST_SAVING * (facts.coverage if facts.thin else 1.0)
    return share > 0 and share >= least and (any(op.share > 0 for op in claim.ops) or _stalled(facts, claim) > 0)


def _saves_what_it_rests_on(facts: Facts, claim: Claim) -> bool:
    share = claim.finding.saving_share
    if share is None:
        return True
    return share <= sum(_most(op, claim.part) for op in claim.ops) + _stalled(facts, claim) + _SLACK


def _most(op: OpFacts, part: str) -> float:
    """Share of the step that an op can give up at most."""
    match part:
        case base.EXPOSED:
            return op.exposed_share
        case base.BELOW_ROOF:
            return op.share * (1.0 - (op.efficiency or 0.0))
        case base.BELOW_LINKS:
            collective = op.collective
            if collective is None or not collective.achieved_bytes_per_s or not collective.possible_bytes_per_s:
                return 0.0
            return op.exposed_share * max(0.0, 1.0 - collective.achieved_bytes_per_s / collective.possible_bytes_per_s)
        case _:
            return op.share


def _stalled(facts: Facts, claim: Claim) -> float:
    """Share of the step of the stalls that a claim cites besides its ops."""
    total = 0.0
    for name in claim.stalls:
        if name == "step_time_spread":
            step, least = facts.step_time_s, facts.profile.step_time_min_s
            total += max(0.0, 1.0 - least / step) if step and least is not None else 0.0
        elif name == "stragglers":
            total += facts.kpis.get("stragglers") or 0.0
        else:
            total += facts.shares.get(name, 0.0)
    return total


def _waste_fits_efficiency(facts: Facts, claim: Claim) -> bool:
    return all(
        0.0 <= waste <= 1.0 and (op.efficiency is None or waste <= 1.0 - op.efficiency + _SLACK)
        for op, waste in claim.wasted
    )


def _links_carry_it(facts: Facts, claim: Claim) -> bool:
    rows = {row.label: row.value for row in claim.finding.evidence if row.unit == "bytes_per_s"}
    achieved, possible = rows.get(ACHIEVED), rows.get(POSSIBLE)
    return achieved is None or possible is None or achieved <= LINK_TOLERANCE * possible


def _axis_has_time(facts: Facts, claim: Claim) -> bool:
    axis = claim.finding.mesh_axis
    if axis is None or claim.finding.saving_share is None:
        return True
    if axis == "dcn":
        return any(op.over_dcn and op.share > 0 for op in claim.ops)
    if any(op.share > 0 and _runs_on(facts, op, axis) for op in claim.ops):
        return True
    role = facts.role_of(axis)
    if role == "pipeline":  # its bubble shows as idle time
        return _stalled(facts, claim) > 0
    return role == "expert" and any(op.module == "experts" and op.share > 0 for op in claim.ops)


def _runs_on(facts: Facts, op: OpFacts, axis: str) -> bool:
    if op.over_dcn:
        return facts.config is not None and dict(facts.config.mesh.dcn).get(axis, 1) > 1
    return axis in op.axes


def _advice_is_new(facts: Facts, claim: Claim) -> bool:
    if facts.config is None:
        return True
    training, given = facts.config.training, claim.advice
    set_already = {flag.partition("=")[0] for flag in training.xla_flags}
    if any(flag.partition("=")[0] in set_already for flag in claim.finding.flags):
        return False
    if base.SHARD_WEIGHTS in given and training.weight_sharding == "fsdp":
        return False
    axis = claim.finding.mesh_axis
    if base.SMALLER_AXIS in given and axis in dict(facts.config.mesh.ici) and dict(facts.config.mesh.ici)[axis] < 2:
        return False
    return not (base.LESS_REMAT in given and training.remat == "none")


def _small_means_small(facts: Facts, claim: Claim) -> bool:
    if base.COMBINE_SMALL not in claim.advice:
        return True
    sizes = [op.collective.payload_bytes if op.collective else None for op in claim.ops]
    return bool(sizes) and all(size is not None and size < SMALL_BYTES for size in sizes)


def _shares_are_shares(facts: Facts, claim: Claim) -> bool:
    shares = (row.value for row in claim.finding.evidence if row.unit == "share" and row.value is not None)
    return all(-_SLACK <= value <= 1.0 + _SLACK for value in shares)


def _parts_fit_the_whole(facts: Facts, claim: Claim) -> bool:
    if claim.whole is None or claim.whole.value is None:
        return True
    return sum(row.value or 0.0 for row in claim.parts) <= claim.whole.value * (1.0 + 1e-3) + _SLACK


CONSISTENCY_CHECKS = (
    ConsistencyCheck(
        "finding has evidence",
        "A finding saves at least 0.1 % of the step (of the listed ops, where a list has gaps) and cites ops or "
        "stalls that took time.",
        _rests_on_something,
    ),
    ConsistencyCheck(
        "saving is bounded by its evidence",
        "It saves at most the time of those ops: for collectives the exposed part, for ops below a roof or below their "
        "link bandwidth the gap to it.",
        _saves_what_it_rests_on,
    ),
    ConsistencyCheck(
        "padding fits efficiency",
        "Padding wastes at most one minus the measured efficiency.",
        _waste_fits_efficiency,
    ),
    ConsistencyCheck("bandwidth within links", "No collective exceeds its link bandwidth.", _links_carry_it),
    ConsistencyCheck("axis has time", "A finding on a mesh axis cites time spent on that axis.", _axis_has_time),
    ConsistencyCheck("advice is new", "It does not advise what the configuration already has.", _advice_is_new),
    ConsistencyCheck(
        "small collectives are small",
        "Combining small collectives is advised only where each of them is below 1 MB.",
        _small_means_small,
    ),
    ConsistencyCheck(
        "shares are shares",
        "A share is between 0 and 1: an efficiency above 1 is not a valid measurement.",
        _shares_are_shares,
    ),
    ConsistencyCheck("parts fit the whole", "Parts do not add up to more than the whole.", _parts_fit_the_whole),
)


def failed_check(facts: Facts, claim: Claim) -> ConsistencyCheck | None:
    """The first law that a claim breaks; None where it obeys all."""
    return next((law for law in CONSISTENCY_CHECKS if not law.holds(facts, claim)), None)
