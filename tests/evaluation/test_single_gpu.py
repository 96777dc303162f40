"""Steps measured on one H200, none of which a fit has seen: what the product predicts of them from each other."""

from __future__ import annotations

import numpy as np
import pytest

from diagnosis.analyzer import diagnose
from evaluation.single_gpu import SETS, Run, load_runs, predicted
from experiments.consistency import facts_of
from perfmodel.confidence import shipped
from proposals.proposer.observed import evidence_of, observe
from proposals.proposer.precedents import Library, situation
from proposals.proposer.prices import price, rank
from proposals.proposer.space import side_by_side

FRAMEWORK = "huggingface"


@pytest.mark.parametrize("which", SETS[:3], ids=lambda each: each.title)
def test_the_gain_of_another_remat_policy_is_predicted_from_a_profile(which) -> None:
    pairs = [pair for pair in predicted(which) if pair.change == "remat"]
    errors = np.array([abs(pair.predicted / pair.measured - 1.0) for pair in pairs])
    by_flops = np.array([abs(pair.naive / pair.measured - 1.0) for pair in pairs])
    assert errors.max() < 0.07
    assert errors.mean() < 0.85 * by_flops.mean()


def test_the_remat_policy_is_read_from_the_profile_where_a_graph_is_compiled_too() -> None:
    """The reference step recomputes attention under every policy: its `none` shows as `minimal`."""
    for run in load_runs():
        if run.step_times_s:
            expected = {"none": "minimal"}.get(run.remat, run.remat) if run.program == "reference" else run.remat
            assert facts_of(run.profile).known["remat"].value == expected, run.key


def test_a_batch_that_ran_out_of_memory_is_not_expected_to_fit() -> None:
    failed = next(run for run in load_runs() if run.step_times_s is None)
    ran = next(run for run in load_runs() if (run.model, run.remat, run.batch) == (failed.model, failed.remat, 4))
    more, fewer = _probability_of_running(ran, {failed.batch, 2})
    assert more < 0.5 < 0.99 < fewer


def _probability_of_running(run: Run, batches: set[int]) -> list[float]:
    """By the measured peak of a run, for other batches, largest first."""
    config = run.config(FRAMEWORK)
    diagnosis = diagnose(run.profile, config)
    changes = [(config.mesh, {"global_batch": batch}) for batch in sorted(batches, reverse=True)]
    observed = observe(run.profile, config, diagnosis)
    evidence = evidence_of(config, run.profile, observed, shipped())
    candidates = side_by_side(config, evidence.calibration.baseline, changes, evidence.memory)
    library = Library((), situation(config, diagnosis))
    priced = price(candidates, evidence, [None] * len(candidates.changes))
    return list(rank(candidates, priced, library, shipped()).runs[1:])
