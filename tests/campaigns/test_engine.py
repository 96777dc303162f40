"""The loop of a campaign: what it tries, what it never tries, what it learns, when it ends."""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO

import numpy as np
import pytest

from campaigns.engine.acquisition import allowed
from campaigns.engine.candidates import PARTS
from campaigns.engine.loop import iterate
from campaigns.engine.pool import Pool, Trial
from campaigns.engine.posteriors import learn, posterior_of, shipped
from campaigns.engine.space import key_of, searched, settings_of
from perfmodel.config import ConfigError
from perfmodel.config_file import parse_config
from proposals.failures import read_failure
from tests.campaigns.worlds import CONFIG, config, played, slowed, space

OUT_OF_MEMORY = b"jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 1 bytes."


@pytest.fixture(scope="module")
def v6e():
    return space()


def test_the_space_has_every_candidate_once_and_what_runs_among_them(v6e):
    keys = [key_of(each) for each in v6e.candidates.configs]
    assert len(set(keys)) == len(keys) > 100
    assert keys[v6e.baseline] == key_of(config())
    batches = {each.training.global_batch for each in v6e.candidates.configs}
    assert batches == {32}  # another batch trains another model


def test_data_and_fsdp_are_one_axis_inside_a_slice_and_are_tried_once():
    ran = parse_config({**CONFIG, "mesh": {"ici": {"data": 2, "fsdp": 8}}})[0]
    found = searched(ran)
    once = {
        (*(each.mesh.size(role) for role in ("seq", "model", "expert", "replica", "pipeline")), str(settings_of(each)))
        for each in found.candidates.configs
    }
    assert len(once) == len(found.candidates)
    assert found.candidates.configs[found.baseline].mesh == ran.mesh  # the current configuration is unchanged


def test_all_candidates_multiply_to_the_chips(v6e):
    assert {each.mesh.ici_product for each in v6e.candidates.configs} == {16}


def test_a_configuration_without_a_batch_is_refused_by_its_field():
    data = {**CONFIG, "training": {"seq_len": 8192}}
    with pytest.raises(ConfigError, match=r"training\.global_batch"):
        searched(parse_config(data)[0])


@pytest.mark.parametrize("part", ["compute", "weights", "tensor"])
def test_a_campaign_finds_the_best_of_a_world_that_is_not_the_model(v6e, part):
    c = v6e.candidates
    outcome = slowed(c, PARTS.index(part), 3.0)
    times = np.array([outcome(row).step_time_s or np.inf for row in range(len(c))])
    pool = played(c, outcome, v6e.baseline, 15, least_gain=0.0)
    assert pool.fastest(c.tokens).step_time_s <= 1.02 * times[c.legal].min()


def test_nothing_is_tried_twice_and_nothing_illegal(v6e):
    c = v6e.candidates
    pool = played(c, slowed(c, 0, 1.5), v6e.baseline, 30, least_gain=0.0)
    tried = [trial.candidate for trial in pool.trials]
    assert len(set(tried)) == len(tried) == 31
    assert c.legal[tried[1:]].all()


def test_trials_at_the_same_time_are_different_ones(v6e):
    pool = Pool((Trial(v6e.baseline, "done", 3.0), Trial(int(np.argmin(v6e.candidates.time_s)), "running")))
    chosen = [choice.candidate for choice in iterate(v6e.candidates, pool, 8).choices]
    assert len(set(chosen)) == 8
    assert not set(chosen) & {trial.candidate for trial in pool.trials}


def test_out_of_memory_forbids_what_needs_more_and_nothing_else(v6e):
    c = v6e.candidates
    as_full = (c.fill[:, None] == c.fill[None, :]) & c.legal[None, :]
    row = int(np.argmax(as_full.sum(axis=1) * c.legal))  # of several whose demand is the same
    assert as_full[row].sum() > 5
    failure = read_failure(BytesIO(OUT_OF_MEMORY), c.configs[row])
    assert failure.verdict == "forbid"
    rows = allowed(c, Pool((Trial(row, "failed", failure=failure),))).rows
    others = c.legal & (np.arange(len(c)) != row)
    assert not rows[row]
    assert not rows[c.fill > c.fill[row]].any()
    assert rows[others & (c.fill <= c.fill[row])].all()


def test_several_that_ran_out_of_memory_forbid_what_the_least_of_them_does(v6e):
    c = v6e.candidates
    order = np.argsort(c.fill)
    low, high = int(order[len(c) // 3]), int(order[len(c) // 2])
    failures = [
        Trial(row, "failed", failure=read_failure(BytesIO(OUT_OF_MEMORY), c.configs[row])) for row in (high, low)
    ]
    forbidden = allowed(c, Pool(failures)).forbidden
    least = np.array([row in (low, high) for row in range(len(c))]) | (c.fill > c.fill[low])
    assert (forbidden == least).all()


def test_a_failure_without_a_log_makes_fuller_candidates_less_likely_to_run(v6e):
    c = v6e.candidates
    row = int(np.argmin(np.abs(c.fill + 0.05)))
    before = posterior_of(c, Pool((Trial(v6e.baseline, "done", 3.0),)), shipped())
    after = posterior_of(c, Pool((Trial(v6e.baseline, "done", 3.0), Trial(row, "failed"))), shipped())
    fuller = c.fill > c.fill[row]
    assert (after.fits[fuller] <= before.fits[fuller]).all()
    assert after.runs[row] < before.runs[row]


def test_a_preemption_says_nothing_against_the_configuration_and_may_come_again_once(v6e):
    c = v6e.candidates
    row = int(np.argmin(c.time_s))
    log = b"slurmstepd: error: *** JOB 4242 ON node1 CANCELLED AT 2026-01-01T00:00:00 DUE TO PREEMPTION ***"
    failure = read_failure(BytesIO(log), c.configs[row])
    assert failure.cause == "preemption"
    once = Pool((Trial(v6e.baseline, "done", 3.0), Trial(row, "failed", failure=failure)))
    assert allowed(c, once).rows[row]
    twice = Pool((Trial(v6e.baseline, "done", 3.0), Trial(row, "failed", failure=failure, runs=2)))
    assert not allowed(c, twice).rows[row]


def test_what_is_measured_is_believed_and_far_candidates_stay_open(v6e):
    c = v6e.candidates
    mean, sd = learn(c, np.array([v6e.baseline]), np.array([0.2]), shipped())
    assert mean[v6e.baseline] == pytest.approx(0.2, abs=0.1)
    assert sd[v6e.baseline] == sd.min()
    assert np.abs(mean).max() <= 0.2 + 1e-9


def test_one_absurd_measurement_does_not_move_the_others(v6e):
    c = v6e.candidates
    rows = np.array([v6e.baseline, *np.argsort(c.time_s)[:4]])
    calm, _ = learn(c, rows[:-1], np.zeros(4), shipped())
    wild, _ = learn(c, rows, np.array([0.0, 0.0, 0.0, 0.0, 4.0]), shipped())
    assert np.abs(wild[v6e.baseline] - calm[v6e.baseline]) < 0.1


def test_it_ends_where_nothing_is_left_to_gain(v6e):
    c = v6e.candidates
    pool = played(c, slowed(c, 0, 1.0), v6e.baseline, 100)
    found = iterate(c, pool)
    assert not found.choices
    assert "Converged" in str(found.ended)
    assert len(pool) < 40


@pytest.mark.parametrize("step_time_s", [1e-3, 1e-6])
def test_a_campaign_to_its_budget_goes_on_where_nothing_is_expected_of_what_is_left(v6e, step_time_s):
    """The best so far is out of reach, so that no candidate is expected to improve on it."""
    pool = Pool((Trial(v6e.baseline, "done", step_time_s),))
    found = iterate(v6e.candidates, pool, 40, least_gain=-1.0)
    chosen = {choice.candidate for choice in found.choices}
    assert len(chosen) == 40
    assert v6e.baseline not in chosen
    assert v6e.candidates.legal[list(chosen)].all()


def test_a_campaign_to_its_budget_ends_when_everything_has_been_tried(v6e):
    few = v6e.candidates.take(np.union1d(np.flatnonzero(v6e.candidates.legal)[:12], [v6e.baseline]))
    pool = played(few, slowed(few, 0, 1.0), 0, 100, least_gain=-1.0)
    assert sorted(trial.candidate for trial in pool.trials) == list(range(len(few)))
    assert "Every legal candidate" in str(iterate(few, pool, 8, least_gain=-1.0).ended)


def test_every_choice_says_what_changes_what_it_brings_and_how_likely(v6e):
    found = iterate(v6e.candidates, Pool((Trial(v6e.baseline, "done", 3.0),)))
    text = str(found.choices[0].why)
    assert "→" in text and "predicted against" in text and "probability" in text
    choice = found.choices[0]
    assert choice.low_s < choice.step_time_s < choice.high_s


def test_a_slower_machine_changes_no_choice_by_its_unit(v6e):
    """Whatever the speed of the machine, the same ratios lead to the same trials."""
    c = v6e.candidates
    first = iterate(c, Pool((Trial(v6e.baseline, "done", 3.0),))).choices[0]
    slower = replace(c, time_s=c.time_s * 100.0, stalled_s=c.stalled_s * 100.0)
    same = iterate(slower, Pool((Trial(v6e.baseline, "done", 300.0),))).choices[0]
    assert same.candidate == first.candidate
