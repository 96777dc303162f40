"""Pairs of measured runs: what is compared, and how much each comparison counts."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import pytest

from evaluation.measured_pairs import MOST_RUNS, Pair, configuration_of, distinct, measured_pairs
from evaluation.sweeps import SOURCES, load_sweeps


def groups() -> dict[tuple[str, str], list[Pair]]:
    found = defaultdict(list)
    for pair in measured_pairs():
        found[pair.source, pair.group].append(pair)
    return found


def test_both_runs_of_a_pair_do_the_same_work_on_as_many_of_the_same_chips() -> None:
    for pair in measured_pairs():
        one, other = pair.one.config, pair.other.config
        assert (one.hardware.chip, one.hardware.chips) == (other.hardware.chip, other.hardware.chips)
        assert one.training.seq_len == other.training.seq_len
        if pair.source in SOURCES:
            assert one.training.global_batch == other.training.global_batch
            assert replace(one.model, name=None) == replace(other.model, name=None)
            assert pair.changes  # repeats of one configuration are no pair


def test_a_group_of_n_runs_counts_as_n_minus_1_comparisons_however_many_pairs_it_makes() -> None:
    for (source, name), pairs in groups().items():
        if source == "published":
            continue  # of each pair the releases that lie nearest
        runs = {id(run) for pair in pairs for run in (pair.one, pair.other)}
        weight = sum(pair.weight for pair in pairs)
        assert weight == pytest.approx(len(runs) - 1), (source, name)
        if source in SOURCES:
            assert len(runs) <= MOST_RUNS


def test_of_a_large_sweep_the_same_runs_are_drawn_each_time() -> None:
    runs = [run for run in load_sweeps("ultrascale") if run.usable and run.workload == "us 1B 128 GPUs"]
    drawn = groups()["ultrascale", runs[0].work]
    kept = {configuration_of(run.config) for pair in drawn for run in (pair.one, pair.other)}
    assert len(kept) == MOST_RUNS < len(runs)
    assert kept < {configuration_of(run.config) for run in runs}
    names = [(pair.one.config.name, pair.other.config.name) for pair in drawn]
    measured_pairs.cache_clear()
    again = groups()["ultrascale", runs[0].work]
    assert [(pair.one.config.name, pair.other.config.name) for pair in again] == names


def test_of_repeated_runs_the_median_counts() -> None:
    run = next(run for run in load_sweeps("vtrain-multi") if run.usable)
    times = (3.0, 1.0, 2.0)
    (found,) = distinct([replace(run, step_time_s=time) for time in times])
    assert found.step_time_s == 2.0
    assert len(distinct(load_sweeps("vtrain-multi"))) > 1


def test_families_share_a_model_and_a_source() -> None:
    models = defaultdict(set)
    for pair in measured_pairs():
        if pair.source in SOURCES:
            models[pair.family].add((pair.source, pair.one.config.model.layers, pair.one.config.model.d_model))
    assert len(models) > 10
    assert all(len(found) == 1 for found in models.values())
