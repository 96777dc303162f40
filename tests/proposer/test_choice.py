"""The three proposals: mesh and keys together, no more complicated than they must be, stalls beyond any mesh said."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from diagnosis.analyzer import diagnose
from perfmodel.catalogue import get_model
from perfmodel.config import ConfigError, ExperimentConfig, Hardware, Mesh, Training
from proposals.constraints import Constraints
from proposals.proposer import Pricer
from proposals.proposer.choose import simplest
from proposals.proposer.prices import Weights, steps, utility
from tests.proposer.test_any_run import TIMES, pricer, runs
from tests.proposer.test_propose import MATMUL, NORM, TENSOR, config, profile_of


def test_an_exposed_tensor_axis_is_made_smaller_by_one_of_the_three() -> None:
    setup = config({"data": 4, "seq": 1, "model": 4})
    ran = profile_of(MATMUL, NORM, TENSOR, step_s=1.1, communication=0.36)
    found = Pricer(ran, setup, diagnose(ran, setup)).propose()
    assert any(item.mesh["ici"]["model"] < 4 for item in found.proposals)


def test_input_stalls_are_said_to_be_beyond_any_mesh() -> None:
    ran = profile_of(MATMUL, NORM, step_s=1.4, input=0.5)
    ran = replace(ran, steps=tuple(replace(s, breakdown_s={"compute": 0.7, "input": 0.7}) for s in ran.steps))
    setup = config({"data": 16, "seq": 1, "model": 1})
    found = Pricer(ran, setup, diagnose(ran, setup)).propose()
    assert any(note.startswith("No mesh or training setting") for note in found.notes)


MESH_OF_GPUS = ExperimentConfig(
    Hardware("h100", (8, 4)),
    Mesh((("pipeline", 1), ("data", 4), ("model", 8))),
    get_model("llama3.1-8b"),
    Training(global_batch=256, seq_len=4096, weight_sharding="none", remat="full", grad_accum=16),
)


def test_a_mesh_and_several_keys_may_change_together() -> None:
    """Eight-way tensor parallelism, everything recomputed, many micro-batches: they conflict."""
    ran = profile_of(MATMUL, NORM, replace(TENSOR, self_time_s=3 * TENSOR.self_time_s), step_s=1.9, communication=0.6)
    ran = replace(ran, device=replace(ran.device, chip="h100"))
    bench = Pricer(ran, MESH_OF_GPUS, diagnose(ran, MESH_OF_GPUS))
    first = bench.propose().proposals[0]
    assert first.mesh["ici"].get("model", 1) < 8
    assert len(first.changes) >= 2
    held = bench.propose(Constraints(keep_remat=True, keep_weight_sharding=True, keep_micro_batches=True)).proposals[0]
    assert (first.predicted.speedup or 0.0) > 1.05 * (held.predicted.speedup or 0.0)


@pytest.mark.slow
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(setup=runs(), times=TIMES, share=st.sampled_from([0.0, 0.05, 0.2, 0.5]))
def test_simplifying_gives_up_no_more_than_it_may(
    setup: ExperimentConfig, times: tuple[float, float, float], share: float
) -> None:
    """Fewer steps on the same way, at most the share of the utility lost; with nothing to give up, none is."""
    field = pricer(setup, times)._searched(Constraints())
    candidates, ranked = field.candidates, field.ranked
    far = steps(candidates)
    best = int(np.argmax(ranked.utility))
    assume(best != candidates.baseline)
    simple = simplest(candidates, ranked, best, share)
    assert simple != candidates.baseline
    assert far[simple] <= far[best]
    assert ranked.utility[simple] >= (1.0 - share) * ranked.utility[best] - 1e-12
    home = candidates.sizes[candidates.home]
    to, on_the_way = (np.log2(candidates.sizes[candidates.mesh_of[i]] / home) for i in (best, simple))
    assert (np.abs(on_the_way) <= np.abs(to)).all() and (on_the_way * to >= 0).all()
    assert candidates.change(simple).items() <= candidates.change(best).items()


@pytest.mark.parametrize("discount", [0.0, 0.05, 0.2])
def test_a_gain_counts_less_the_less_likely_and_where_the_model_is_hidden_the_farther_it_is(discount: float) -> None:
    ran = profile_of(MATMUL, NORM, TENSOR, step_s=1.1)
    for model in ("llama3.1-8b", None):
        setup = config({"data": 4, "seq": 1, "model": 4}, model=model)
        candidates = Pricer(ran, setup, diagnose(ran, setup))._searched(Constraints()).candidates
        count = len(candidates)
        weights = Weights(discount, 0.05, 0.1)
        sure = utility(candidates, np.full(count, 0.2), np.ones(count), weights)
        moved = np.arange(count) != candidates.baseline
        assert sure[candidates.baseline] == 0.0
        order = np.argsort(steps(candidates)[moved], kind="stable")
        assert (np.diff(sure[moved][order]) <= 1e-12).all()
        assert (sure[moved] < 0.2).all() == (model is None and discount > 0)
        assert (utility(candidates, np.full(count, 0.2), np.full(count, 0.5), weights)[moved] < sure[moved]).all()


def test_too_tight_constraints_are_still_a_sentence() -> None:
    setup = replace(config({"data": 1}, batch=2), hardware=Hardware("v5e", (1,)))
    ran = profile_of(MATMUL, NORM, step_s=2.8)
    every = Constraints(
        keep_batch=True, keep_remat=True, keep_weight_sharding=True, keep_micro_batches=True, no_flags=True
    )
    with pytest.raises(ConfigError, match="constraints"):
        Pricer(ran, setup, diagnose(ran, setup)).propose(every)
