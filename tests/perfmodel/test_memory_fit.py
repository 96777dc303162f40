"""The memory fit on measured sweeps: error on models it has not seen, and the basis of the shipped constants."""

import numpy as np
import pytest

from evaluation import fit_memory, memory_rows
from perfmodel import memory
from perfmodel.execution import constants, load_memory_profiles, load_profiles


def test_peaks_of_a_model_left_out_are_within_ten_percent_at_the_median():
    error = fit_memory.out_of_fold("models")
    assert len(error) > 800
    assert np.median(np.abs(error)) < 0.1
    assert abs(np.median(error)) < 0.05


def test_failures_are_recognised_and_runs_that_ran_seldom_refused():
    rows = memory_rows.sweep_rows("ultrascale")
    caught, refused = [], []
    for (_, mask), (_, found) in zip(fit_memory.folds("models"), fit_memory.left_out_fits("models"), strict=True):
        part = rows.take(mask)
        no = ~memory.per_chip(part.work, found.constants).fits | memory_rows.unrunnable_rows(part)
        caught += list(no[~part.ran])
        refused += list(no[part.ran])
    assert np.mean(caught) > 0.85
    assert np.mean(refused) < 0.05


def test_megatron_lm_is_within_two_percent_though_nothing_is_fitted_on_it():
    error = np.abs(fit_memory.unseen_source("simumax"))
    assert np.median(error) < 0.02
    assert max(error) < 0.12


def test_all_sweeps_that_ran_elsewhere_are_predicted_to_fit():
    for source in ("vtrain-single", "vtrain-multi", "llm-foundry"):
        rows = memory_rows.sweep_rows(source)
        assert memory.per_chip(rows.work).fits.all()


def test_the_shipped_fit_is_the_one_of_these_rows():
    shipped, fitted = load_memory_profiles()["nanotron"], fit_memory.whole_fit().profiles["nanotron"]
    for name in fit_memory.PEAK_PRIORS["nanotron"]:
        assert shipped[name] == pytest.approx(fitted[name], rel=0.02)


def test_fitted_sizes_stay_near_what_the_source_says():
    for name in ("logit_bytes", "transient_gradient_bytes", "optimizer_gather_bytes"):
        said = load_memory_profiles(fitted=False)["nanotron"][name]
        assert load_memory_profiles()["nanotron"][name] == pytest.approx(said, rel=0.3)


def test_every_execution_profile_says_what_it_allocates():
    assert set(load_memory_profiles(fitted=False)) == set(load_profiles())


def test_more_of_any_term_never_lowers_the_peak():
    """Every constant but those of what fits is an amount."""
    rows = memory_rows.peak_rows("ultrascale")
    own = load_memory_profiles(fitted=False)["nanotron"]
    before = memory_rows.peak(rows, constants(load_memory_profiles(fitted=False)))
    outside = ("runtime_bytes", "unfilled", "held_needed")
    for name in (name for name in own if name not in outside and "spread" not in name):
        more = {**own, name: own[name] * 1.1}
        after = memory_rows.peak(rows, constants({**load_memory_profiles(fitted=False), "nanotron": more}))
        assert (after >= before * (1 - 1e-3)).all(), name
