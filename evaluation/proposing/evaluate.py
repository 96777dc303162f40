"""How good proposals are on cases with a known answer: `make accuracy`, docs/accuracy-proposals.md.

Cases with a known answer (`published_cases`), and the paper's three experiments; with everything the Proposer has, and
without its history, without the performance model, and without both.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from math import log
from pathlib import Path
from typing import Any

import numpy as np

from diagnosis.analyzer import diagnose
from evaluation import proposals_report
from evaluation.proposing.experiments import EXPERT, perturbed
from evaluation.proposing.experiments import case as experiment
from evaluation.proposing.published_cases import Case, cases, exact, sizes
from evaluation.report import rounded
from evaluation.steps import paper
from perfmodel import accounting
from perfmodel.chips import get_chip
from perfmodel.config import ConfigError, Mesh
from proposals.candidate import Candidate, candidate
from proposals.constraints import Constraints
from proposals.plan import Plan, ProposalPlan
from proposals.proposer.precedents import Precedent, published
from proposals.proposer.pricer import PricedCandidates, Pricer
from proposals.proposer.prices import confidence_of, rank
from proposals.proposer.space import Candidates

ROOT = Path(__file__).parents[2]
NUMBERS = ROOT / "proposals" / "accuracy.json"
#: Meshes alone; the rest of a run is pinned.
HELD = Constraints(keep_batch=True, keep_remat=True, keep_weight_sharding=True, keep_micro_batches=True, no_flags=True)
#: A sweep has no sequence axis either.
SWEEP = replace(HELD, fixed={"seq": 1})
#: Spread of every move's gain where the performance model does not price them.
BLIND_SPREAD = 0.15
SEEDS = range(4)


class BlindPricer(Pricer):
    """A Pricer without the performance model's gains: rules, costs and precedents alone rank the candidates."""

    def _priced(self, candidates: Candidates) -> PricedCandidates:
        field = super()._priced(candidates)
        ran = np.arange(len(candidates)) == candidates.baseline
        speedup, sigma = np.ones(len(candidates)), np.where(ran, 0.0, BLIND_SPREAD)
        prices = replace(field.prices, speedup=speedup, sigma=sigma)
        ranked = rank(candidates, prices, self._library, confidence_of(self.evidence, self.diagnosis))
        return replace(field, prices=prices, ranked=ranked)


@dataclass(frozen=True)
class Variant:
    """What the Proposer may use.  held: of recipes too, only meshes may change."""

    name: str
    history: bool = True
    roofline: bool = True
    held: bool = False

    def pricer(self, profile: Any, config: Any, precedents: Sequence[Precedent] | None = None) -> Pricer:
        made = Pricer if self.roofline else BlindPricer
        return made(profile, config, diagnose(profile, config), precedents if self.history else ())


VARIANTS = (
    Variant("everything"),
    Variant("history off", history=False),
    Variant("roofline off", roofline=False),
    Variant("both off", history=False, roofline=False),
)
PINNED = Variant("training keys pinned", held=True)


@dataclass(frozen=True)
class Claim:
    """One proposal: its confidence, and the log gain that its world measured, whether within the 80 % interval."""

    confidence: float
    gain: float
    inside: bool


@dataclass(frozen=True)
class Outcome:
    """One case.  place, family: rank of the first proposal with the answer's mesh, exactly and up to which batch axis
    carries what; 0 where none has it.  Times per token over the answer's: start, first, best of three in the case's
    world; predicted of the first; measured, None where the mesh was not run.  failed: the first ran out of memory.
    confidence: of the first; claims: of all that change what the world knows of."""

    case: Case
    place: int
    family: int
    start: float
    first: float
    best: float
    predicted: float | None
    measured: float | None
    measured_start: float | None
    failed: bool
    confidence: float
    moved: bool
    claims: tuple[Claim, ...]


def outcome(case: Case, variant: Variant) -> Outcome:
    pricer = variant.pricer(case.profile(), case.start, of_others(case))
    plan = pricer.propose(SWEEP if case.source == "sweep" else HELD if variant.held else None)
    answer = replace(case.start, mesh=case.answer)
    least = _per_token(case, answer)
    times = [_per_token(case, candidate(case.start, item)) for item in plan.proposals]
    first = plan.proposals[0]
    said = pricer.evaluate(Candidate(case.answer.to_json())).predicted.speedup if variant.roofline else None
    measured = case.measured_s.get(sizes(_mesh(first)))
    best = min((time for time in case.measured_s.values() if time), default=None)
    comparable = best is not None and case.source == "sweep"
    return Outcome(
        case=case,
        place=_place(plan, lambda mesh: exact(mesh) == exact(case.answer)),
        family=_place(plan, lambda mesh: sizes(mesh) == sizes(case.answer)),
        start=_per_token(case, case.start) / least,
        first=times[0] / least,
        best=min(times) / least,
        predicted=said / first.predicted.speedup if said and first.predicted.speedup else None,
        measured=measured / best if comparable and measured and best else None,
        measured_start=case.start_s / best if comparable and case.start_s and best else None,
        failed=comparable and sizes(_mesh(first)) in case.measured_s and measured is None,
        confidence=first.confidence,
        moved=sizes(_mesh(first)) != sizes(case.start.mesh),
        claims=_claims(case, plan, times),
    )


def _claims(case: Case, plan: Plan, times: Sequence[float]) -> tuple[Claim, ...]:
    """Of proposals that move the mesh: the worlds know of no flags, and of little else."""
    found = []
    for item, time in zip(plan.proposals, times, strict=True):
        low, high = item.predicted.speedup_low80, item.predicted.speedup_high80
        if sizes(_mesh(item)) != sizes(case.start.mesh) and "xla_flags" not in item.changes and low and high:
            speedup = _per_token(case, case.start) / time
            found.append(Claim(item.confidence, log(speedup), low <= speedup <= high))
    return tuple(found)


def of_others(case: Case) -> tuple[Precedent, ...]:
    """The precedents but for those of the same model on the same chip, which may hold the answer."""
    model, chip = case.start.model, case.start.hardware.chip
    assert model is not None
    size = accounting.parameters(model).total

    def same(item: Precedent) -> bool:
        known = item.case
        return known.chip == chip and known.parameters is not None and abs(known.parameters / size - 1.0) < 0.15

    return tuple(item for item in published() if not same(item))


def _mesh(item: ProposalPlan) -> Mesh:
    return Mesh(tuple(item.mesh["ici"].items()), tuple(item.mesh.get("dcn", {}).items()))


def _place(plan: Plan, is_answer: Callable[[Mesh], bool]) -> int:
    return next((item.rank for item in plan.proposals if is_answer(_mesh(item))), 0)


def _per_token(case: Case, config: Any) -> float:
    return case.world_s(config) / config.training.global_batch


def outcomes(
    variant: Variant, apart: bool | None = None, every: int = 1, source: str | None = None
) -> tuple[Outcome, ...]:
    """Of the development half, of the held-out half, or of both; of every so many only, and of one source or all."""
    chosen = [case for case in cases() if apart in (None, case.apart) and source in (None, case.source)]
    chosen = [case for case in chosen if case.source == "recipe"] if variant.held else chosen
    return tuple(one for case in chosen[::every] if (one := _outcome(case, variant)) is not None)


@cache
def _outcome(case: Case, variant: Variant) -> Outcome | None:
    """None where nothing can be proposed: with all keys pinned too few legal meshes are left, or the step of the drawn
    world is shorter than the model needs at peak."""
    try:
        return outcome(case, variant)
    except ConfigError:
        return None


def shares(found: Sequence[Outcome]) -> dict[str, Any]:
    """What the tables say of some cases."""

    def share(values: Iterable[bool]) -> float:
        return float(np.mean(list(values)))

    def middle(values: Iterable[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return float(np.mean(known)) - 1.0 if known else None

    moved = [one for one in found if one.moved]
    return {
        "cases": len(found),
        "top": share(one.place == 1 for one in found),
        "three": share(one.place > 0 for one in found),
        "family_top": share(one.family == 1 for one in found),
        "family_three": share(one.family > 0 for one in found),
        "lost": middle(one.start for one in found),
        "left": middle(one.first for one in found),
        "left_of_three": middle(one.best for one in found),
        "as_good": share(one.first <= 1.02 for one in found),
        "slower": share(one.first > one.start * 1.01 for one in found),
        "predicted": middle(one.predicted for one in found),
        "measured": sum(one.measured is not None for one in found),
        "measured_lost": middle(one.measured_start for one in found if one.measured is not None),
        "measured_left": middle(one.measured for one in found),
        "measured_near": share(one.measured <= 1.02 for one in found if one.measured is not None)
        if any(one.measured is not None for one in found)
        else None,
        "measured_faster": share(
            one.measured < one.measured_start for one in found if one.measured is not None and one.measured_start
        )
        if any(one.measured is not None for one in found)
        else None,
        "failed": sum(one.failed for one in found),
        "stated": float(np.mean([one.confidence for one in moved])) if moved else None,
        "faster": share(one.first < one.start for one in moved) if moved else None,
    }


def papers(variant: Variant) -> dict[int, tuple[int, int, int]]:
    """By experiment: profiles tried, expert's mesh on top, in three.  As reconstructed, as printed, and perturbed."""
    found = {}
    for number, answer in EXPERT.items():
        rebuilt, config = experiment(number)
        tries = [(rebuilt, config), (paper.profile(number), config)]
        tries += [(perturbed(rebuilt, seed), config) for seed in SEEDS]
        places = []
        for profile, setup in tries:
            plan = variant.pricer(profile, setup).propose()
            places.append(next((item.rank for item in plan.proposals if item.mesh["ici"] == answer), 0))
        found[number] = (len(places), sum(place == 1 for place in places), sum(place > 0 for place in places))
    return found


def groups(found: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    """The rows of the main table."""

    def part(test: Callable[[Case], bool]) -> list[Outcome]:
        return [one for one in found if test(one.case)]

    def kind(case: Case) -> str:
        return get_chip(case.start.hardware.chip).kind

    def mixture(case: Case) -> bool:
        return case.start.model is not None and case.start.model.experts > 0

    rows = {
        "recipes": part(lambda case: case.source == "recipe"),
        "recipes, TPU": part(lambda case: case.source == "recipe" and kind(case) == "tpu"),
        "recipes, GPU": part(lambda case: case.source == "recipe" and kind(case) == "gpu"),
        "recipes, dense": part(lambda case: case.source == "recipe" and not mixture(case)),
        "recipes, MoE": part(lambda case: case.source == "recipe" and mixture(case)),
        "sweeps": part(lambda case: case.source == "sweep"),
    }
    return {name: row for name, row in rows.items() if row}


#: Bins of stated confidence.
BINS = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 1.01)


def reliability(found: Sequence[Outcome]) -> list[dict[str, float]]:
    """By stated confidence of all proposals that move a mesh: how many came true in their worlds, and in range."""
    claims = [claim for one in found for claim in one.claims]
    rows = []
    for low, high in pairwise(BINS):
        part = [claim for claim in claims if low <= claim.confidence < high]
        if part:
            rows.append(
                {
                    "from": low,
                    "to": min(high, 1.0),
                    "proposals": len(part),
                    "stated": float(np.mean([claim.confidence for claim in part])),
                    "faster": float(np.mean([claim.gain > 0 for claim in part])),
                    "inside": float(np.mean([claim.inside for claim in part])),
                }
            )
    return rows


def numbers() -> dict[str, Any]:
    halves = {"development": False, "held out": True}
    return {
        "halves": {
            half: {
                **{name: shares(row) for name, row in groups(outcomes(VARIANTS[0], apart)).items()},
                **{
                    f"{name}: meshes alone": shares(row)
                    for name, row in groups(outcomes(PINNED, apart)).items()
                    if name in ("recipes, TPU", "recipes, GPU")
                },
            }
            for half, apart in halves.items()
        },
        "generated": reliability([one for one in outcomes(VARIANTS[0]) if one.case.source == "recipe"]),
        "ablation": {
            variant.name: {
                "papers": papers(variant),
                **{
                    name: shares(row)
                    for name, row in groups(outcomes(variant)).items()
                    if name in ("recipes", "sweeps")
                },
            }
            for variant in VARIANTS
        },
    }


def main() -> None:
    found = numbers()
    NUMBERS.write_text(json.dumps(rounded(found), indent=1) + "\n", encoding="utf-8")
    proposals_report.write()


if __name__ == "__main__":
    main()
