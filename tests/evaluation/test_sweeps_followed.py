"""Following a ranking through measured runs: what is gained, what fails, and what is never told."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from evaluation.fit_ranking import NOTHING, Start, value
from evaluation.held_out import FOLDINGS
from evaluation.sweep_baselines import fold_of, naive_s
from evaluation.sweep_candidates import Sweep
from evaluation.sweep_groups import Group, groups
from evaluation.sweep_scores import follow, outcome, rank_correlation, scores
from evaluation.time_rows import load_rows


@pytest.fixture(scope="module")
def group() -> Group:
    """Eight GPUs, with runs that failed."""
    return next(each for each in groups("ultrascale") if not each.ran.all())


def test_a_configuration_stands_once_and_fails_only_if_it_never_ran(group: Group) -> None:
    seen = {(c.mesh.text(), c.training.micro_batch, c.training.weight_sharding) for c in group.configs}
    assert len(seen) == len(group)
    assert np.isfinite(group.time_s[list(group.starts)]).all()
    assert np.isnan(group.time_s[~group.ran]).all()


def test_the_measured_order_itself_leaves_no_regret(group: Group) -> None:
    per_token = np.where(group.ran, group.per_token, np.inf)
    best = follow(group, -np.log(per_token)[None, :] + np.log(group.best) + 0.0 * per_token[:, None].clip(0, 0))
    said = scores(best)
    assert said["left_median"] == said["left_mean"] == 0.0
    assert said["crashed"] == said["slower"] == 0.0
    assert said["trials"] <= 1.0
    assert rank_correlation(group, group.time_s) == pytest.approx(1.0)


def test_the_reverse_order_is_slower_and_takes_long(group: Group) -> None:
    per_token = np.where(group.ran, group.per_token, np.nan)
    worst = np.nan_to_num(np.log(per_token), nan=-np.inf)
    utility = np.broadcast_to(worst, (len(group), len(group))).copy()
    np.fill_diagonal(utility, -1e9)
    said = scores(follow(group, utility))
    assert said["slower"] > 0.9 and said["first"] < 1.0
    assert said["trials"] > len(group.starts) / 2


def test_what_fails_gains_nothing_and_what_is_kept_costs_nothing(group: Group) -> None:
    start, failed = group.starts[0], int(np.flatnonzero(~group.ran)[0])
    crashed = outcome(group, start, [failed], [failed])
    assert crashed.crashed[0] == 1.0 and crashed.first[0] == crashed.three[0] == 0.0
    kept = outcome(group, start, [start, failed], [failed])
    assert kept.keeps[0] == 1.0 and kept.crashed[0] == 0.0 and kept.three_crashed[0] == 1.0
    assert value(crashed) < value(kept) <= 0.0


def test_proposals_do_not_depend_on_what_the_others_measured(group: Group) -> None:
    """Only the baseline's own step time is given, and one factor on all predictions changes nothing."""
    price = np.linspace(1.0, 2.0, len(group))
    lied = replace(group, runs=tuple(replace(r, step_time_s=r.step_time_s and 1.0) for r in group.runs))
    for start in group.starts[::7]:
        rows = [Sweep(each, scale * price).ranked(start, NOTHING)[1] for each, scale in ((group, 1.0), (lied, 3.0))]
        np.testing.assert_allclose(rows[0].utility, rows[1].utility)
        assert Start(Sweep(group, price), start).outcome(NOTHING).first.shape == (1,)


def test_baselines_are_left_out_in_the_folds_of_the_time_model() -> None:
    every = groups()
    folds = fold_of(every)
    key_of, count = FOLDINGS["workload"]
    assert len(set(folds.values())) == count
    rows = {row.id: key_of(row) for row in load_rows("gpu")}
    for each in every:
        assert rows[each.runs[each.starts[0]].id] == f"{each.source} {each.workload}"


def test_the_naive_model_does_not_see_its_own_fold() -> None:
    every = groups("vtrain-single")
    before = naive_s(every)[0]
    fold = fold_of(every)[every[0].workload]
    changed = [
        replace(each, runs=tuple(replace(r, step_time_s=9.0 * (r.step_time_s or 1.0)) for r in each.runs))
        if fold_of(every)[each.workload] == fold
        else each
        for each in every
    ]
    np.testing.assert_allclose(naive_s(changed)[0], before)
