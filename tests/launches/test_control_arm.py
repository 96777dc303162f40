"""The verdict on a proposal against its control arm, on simulated runs with a known truth."""

from __future__ import annotations

import json
from math import exp

import numpy as np
import pytest

from proposals.control_arm import ADOPT, NO_DIFFERENCE, REJECT, UNDECIDED, VERDICT, Arm, ArmRun, judge, warm_up


def simulated(rng, median_s, repeats, steps=60, between=0.01, within=0.02, name="arm", work=1.0):
    """Runs whose medians vary by `between`, with steps that resemble their neighbours and, rarely, stall."""
    runs = []
    for _ in range(repeats):
        centre = median_s * exp(rng.normal(0, between))
        noise = np.zeros(steps)
        for at in range(1, steps):
            noise[at] = 0.6 * noise[at - 1] + rng.normal(0, within)
        times = centre * np.exp(noise)
        times[rng.random(steps) < 0.03] *= 3.0
        times[0] *= 20.0  # compiles
        times[1:4] *= 1.5
        runs.append(ArmRun(tuple(times)))
    return Arm(name, tuple(runs), work)


def share(rng, trials, **truth):
    """Of which intervals hold the true ratio, over simulated waves."""
    speedup = truth.pop("speedup")
    held = 0
    for _ in range(trials):
        found = judge(simulated(rng, 1.0 / speedup, **truth), simulated(rng, 1.0, **truth))
        held += found.low <= speedup <= found.high
    return held / trials


@pytest.mark.slow
@pytest.mark.parametrize("repeats", [2, 3, 5])
def test_the_interval_holds_as_often_as_it_says(repeats):
    rng = np.random.default_rng(7)
    assert share(rng, 400, speedup=1.08, repeats=repeats) >= 0.93


def test_one_that_resampled_runs_would_claim_too_much():
    """Why three repeats are not bootstrapped: the interval of resampled run medians misses the truth far too often."""
    rng, held, trials = np.random.default_rng(3), 0, 400
    for _ in range(trials):
        medians = [np.log([np.median(run.step_times_s) for run in simulated(rng, 1.0, 3).runs]) for _ in range(2)]
        draws = rng.integers(0, 3, size=(500, 2, 3))
        ratios = medians[1][draws[:, 1]].mean(axis=1) - medians[0][draws[:, 0]].mean(axis=1)
        low, high = np.percentile(ratios, [2.5, 97.5])
        held += low <= 0 <= high
    assert held / trials < 0.88


def test_two_single_numbers_give_no_verdict_but_what_is_missing():
    rng = np.random.default_rng(0)
    found = judge(simulated(rng, 0.5, 1, name="Proposal"), simulated(rng, 1.0, 1, name="Control"))
    assert found.outcome == UNDECIDED and found.speedup is None and found.low is None
    assert "Proposal: 1 run" in found.missing[0] and "2 are needed" in found.missing[1]
    short = Arm("Proposal", (ArmRun((1.0,) * 6),) * 3)
    assert "0 runs with at least 10 steps" in judge(short, simulated(rng, 1.0, 3)).missing[0]


def test_a_clear_gain_a_clear_loss_and_none():
    rng = np.random.default_rng(1)
    control = simulated(rng, 1.0, 3)
    assert judge(simulated(rng, 0.8, 3), control).outcome == ADOPT
    assert judge(simulated(rng, 1.25, 3), control).outcome == REJECT
    same = judge(simulated(rng, 1.0, 3), control)
    assert same.outcome == NO_DIFFERENCE and same.low < 1 < same.high


def test_what_is_within_one_per_cent_is_no_difference_however_sure():
    steady = [Arm("a", (ArmRun((second,) * 30),) * 4) for second in (1.0, 1.004)]
    found = judge(*steady)
    assert found.outcome == NO_DIFFERENCE and found.low > 1


def test_the_same_medians_by_chance_do_not_make_it_certain():
    """Two repeats whose medians agree to the last digit still have the scatter of their steps."""
    rng = np.random.default_rng(2)
    times = tuple(float(value) for value in rng.normal(1.0, 0.2, 40))
    other = tuple(value * 0.97 for value in times)
    found = judge(Arm("a", (ArmRun(other, 0),) * 2), Arm("b", (ArmRun(times, 0),) * 2))
    assert found.outcome == NO_DIFFERENCE and found.resolution > 0.05


def test_noise_between_runs_widens_what_steps_alone_would_claim():
    rng = np.random.default_rng(5)
    found = judge(simulated(rng, 0.97, 3, steps=2000, between=0.05), simulated(rng, 1.0, 3, steps=2000, between=0.05))
    assert found.resolution > 0.03 > found.proposal.within


def test_arms_of_different_batch_compare_per_token():
    rng = np.random.default_rng(4)
    double = simulated(rng, 1.6, 3, work=2.0)
    found = judge(double, simulated(rng, 1.0, 3, work=1.0))
    assert found.outcome == ADOPT and found.speedup == pytest.approx(1.25, rel=0.05)


def test_no_difference_says_what_would_show_the_prediction():
    rng = np.random.default_rng(6)
    arms = [simulated(rng, 1.0, 2, between=0.1) for _ in range(2)]
    found = judge(*arms, expected=1.1)
    assert (
        found.outcome == NO_DIFFERENCE
        and "repeats of each arm would show a difference of 10\N{NO-BREAK SPACE}%" in found.missing[0]
    )


def test_a_proposal_that_failed_is_rejected_only_where_its_control_ran():
    rng = np.random.default_rng(8)
    failed = Arm("Proposal", (ArmRun(failure="Out of memory."),) * 2)
    found = judge(failed, simulated(rng, 1.0, 2))
    assert found.outcome == REJECT and "Out of memory." in found.sentence
    both = judge(failed, Arm("Control", (ArmRun(failure="The node was lost."),) * 2))
    assert both.outcome == UNDECIDED and "run both arms again" in both.missing[0]
    assert judge(failed, Arm("Control", ())).outcome == UNDECIDED


def test_a_failed_repeat_does_not_hide_those_that_ran():
    rng = np.random.default_rng(9)
    arm = simulated(rng, 0.7, 3)
    partly = Arm(arm.name, (*arm.runs, ArmRun(arm.runs[0].step_times_s, failure="Preempted.")))
    found = judge(partly, simulated(rng, 1.0, 3))
    assert found.outcome == ADOPT and found.proposal.repeats == 3 and found.proposal.failed == 1


@pytest.mark.parametrize(
    ("times", "left_out"),
    [((9.0, 1.0, 1.0, 1.0, 1.0, 1.0), 1), ((9.0, 3.0, 2.0, 1.0, 1.01, 0.99, 1.0, 1.0), 3), ((5.0,), 1), ((), 0)],
)
def test_warm_up_is_what_comes_before_the_steady_state(times, left_out):
    assert warm_up(times) == left_out


def test_warm_up_given_by_the_run_counts():
    arm = Arm("a", (ArmRun((1.0,) * 20, warm_up=5),) * 2)
    assert judge(arm, arm).proposal.steps == 30


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_a_step_time_that_is_none_is_refused(bad):
    with pytest.raises(ValueError, match="positive"):
        judge(Arm("a", (ArmRun((bad,) * 20),)), Arm("b", ()))
    with pytest.raises(ValueError, match="positive"):
        judge(Arm("a", (), work_per_step=bad), Arm("b", ()))


def test_it_reads_back_as_it_was_stored():
    rng = np.random.default_rng(10)
    found = judge(simulated(rng, 0.9, 3), simulated(rng, 1.0, 2))
    assert VERDICT.read(json.loads(json.dumps(VERDICT.write(found)))) == found
