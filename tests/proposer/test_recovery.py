"""From a poor mesh back to a good one, on steps laid out from first principles (evaluation/steps/generated.py).

The same generator then runs what was proposed, its mesh and the training keys that it knows of (recomputation in full,
of elementwise work alone or none, micro-batches, batch), so the gain
is what that world would measure per token, not what we predicted.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from diagnosis.analyzer import diagnose
from evaluation.steps.generated import profile
from evaluation.steps.scenario import LARGE, MIDDLE, SMALL, Scenario, config
from perfmodel import legality
from perfmodel.config import ModelShape
from proposals.plan import ProposalPlan
from proposals.proposer import propose

pytestmark = pytest.mark.slow

Sizes = tuple[int, int, int]
#: model, chip, topology, batch, sequence length, poor meshes (data, seq, model)
WORKLOADS: tuple[tuple[ModelShape, str, tuple[int, ...], int, int, tuple[Sizes, ...]], ...] = (
    (MIDDLE, "v5p", (4, 4, 4), 256, 8192, ((2, 4, 8), (8, 2, 4), (16, 1, 4))),
    (MIDDLE, "v6e", (8, 8), 128, 8192, ((8, 2, 4), (16, 2, 2))),
    (LARGE, "v5p", (4, 8, 8), 512, 4096, ((32, 1, 8), (16, 2, 8))),
    (LARGE, "v5e", (16, 16), 256, 4096, ((32, 2, 4), (16, 4, 4))),
    (SMALL, "v5e", (4, 4), 64, 2048, ((2, 2, 4), (8, 1, 2))),
)


def scenario(number: int, sizes: Sizes) -> Scenario:
    model, chip, topology, batch, seq_len, _ = WORKLOADS[number]
    ici = tuple(zip(("data", "seq", "model"), sizes, strict=True))
    return Scenario("", "", (), chip, topology, ici, model, batch, seq_len, remat="full")


def proposed_s(number: int, proposal: ProposalPlan) -> float:
    """What the world takes for a proposal, for the tokens of the step that ran."""
    changes, ici = proposal.changes, proposal.mesh["ici"]
    ran = scenario(number, (ici.get("data", 1), ici.get("seq", 1), ici.get("model", 1)))
    run = replace(
        ran,
        batch=changes.get("global_batch", ran.batch),
        grad_accum=changes.get("grad_accum", ran.grad_accum),
        # Offloading recomputes as much as full rematerialisation.
        remat={"none": "none", "minimal": "minimal"}.get(changes.get("remat", ""), "full"),
    )
    return (profile(run).step_time_s or 0.0) * ran.batch / run.batch


@cache
def step_s(number: int, sizes: Sizes) -> float:
    """What the generator's world takes."""
    return profile(scenario(number, sizes)).step_time_s or 0.0


@cache
def best_s(number: int) -> float:
    chips = 1
    for size in WORKLOADS[number][2]:
        chips *= size
    meshes = [(chips // s // m, s, m) for s in (1, 2, 4) for m in (1, 2, 4, 8) if chips % (s * m) == 0]
    legal = [sizes for sizes in meshes if not legality.check(config(scenario(number, sizes)))]
    return min(step_s(number, sizes) for sizes in legal)


@cache
def outcomes() -> tuple[tuple[float, float, float], ...]:
    """Per poor mesh: its time, that of the first proposal and of the best of three, over that of the best mesh with the
    keys that ran."""
    found = []
    for number, workload in enumerate(WORKLOADS):
        for poor in workload[-1]:
            run = scenario(number, poor)
            ran, setup = profile(run), config(run)
            plan = propose(ran, setup, diagnose(ran, setup))
            times = [proposed_s(number, proposal) for proposal in plan.proposals]
            best = best_s(number)
            found.append((step_s(number, poor) / best, times[0] / best, min(times) / best))
    return tuple(found)


def test_the_first_proposal_is_never_slower_than_what_ran() -> None:
    for before, first, _ in outcomes():
        assert first <= before * 1.01


def test_first_proposals_recover_most_of_what_was_lost() -> None:
    lost = sum(before - 1 for before, _, _ in outcomes())
    left = sum(first - 1 for _, first, _ in outcomes())
    assert left < 0.4 * lost


def test_one_of_three_is_nearly_the_best() -> None:
    near = [best <= 1.05 for _, _, best in outcomes()]
    assert sum(near) >= 0.7 * len(near)
