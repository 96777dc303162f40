"""The three proposals: mesh and keys together, no more complicated than they must be, and the verdict answered."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from diagnosis.analyzer import diagnose
from diagnosis.report import BOTTLENECKS, Bottleneck
from perfmodel.catalogue import get_model
from perfmodel.config import ConfigError, ExperimentConfig, Hardware, Mesh, Training
from proposals.candidate import Candidate
from proposals.constraints import Constraints
from proposals.plan import Plan, ProposalPlan
from proposals.proposer import Pricer
from proposals.proposer.choose import simplest
from proposals.proposer.prices import Weights, steps, utility
from tests.proposer.test_any_run import TIMES, pricer, profile_with, runs
from tests.proposer.test_propose import MATMUL, NORM, TENSOR, config, profile_of

#: How a note begins that says why a verdict is not answered.
EXCUSES = ("The bottleneck is ", "No mesh or training setting")
#: What counts as less of something.
LESS = 0.9


def judged(setup: ExperimentConfig, times: tuple[float, float, float], verdict: str) -> Pricer:
    ran = profile_with(setup, times)
    found = Bottleneck(verdict, 0.9, "As the test has it.")
    return Pricer(ran, setup, replace(diagnose(ran, setup), bottleneck=found))


def per_token(bench: Pricer, item: ProposalPlan, part: str) -> float:
    batch = bench.config.training.global_batch or 1
    return item.predicted.breakdown_s.get(part, 0.0) * batch / item.changes.get("global_batch", batch)


def answers(bench: Pricer, found: Plan, verdict: str) -> bool:
    """Whether one of the three takes less of what the verdict names than the mesh that ran, by its own numbers."""
    ran = bench.evaluate(Candidate(bench.config.mesh.to_json()))
    if verdict in ("compute", "memory", "idle"):
        part = {"memory": "hbm"}.get(verdict, verdict)
        return any(per_token(bench, item, part) < LESS * per_token(bench, ran, part) for item in found.proposals)
    batch = bench.config.training.global_batch or 1
    for item in found.proposals:
        rows = [row for row in item.communication if row.before_s]
        if not rows and "xla_flags" in item.changes:
            return True
        most = max(rows, key=lambda row: row.before_s or 0.0, default=None)
        more = item.changes.get("global_batch", batch) / batch
        if most is not None and (most.after_s or 0.0) / more < LESS * (most.before_s or 0.0):
            return True
    return False


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(setup=runs(), times=TIMES, verdict=st.sampled_from([one for one in BOTTLENECKS if one != "unknown"]))
def test_the_three_give_what_the_verdict_asks_for_or_say_why_not(
    setup: ExperimentConfig, times: tuple[float, float, float], verdict: str
) -> None:
    bench = judged(setup, times, verdict)
    found = bench.propose()
    said = any(note.startswith(EXCUSES) for note in found.notes)
    if verdict in ("input", "host"):
        assert said
    elif not (verdict == "idle" and setup.mesh.size("pipeline") == 1):
        assert said or answers(bench, found, verdict)


def test_an_exposed_tensor_axis_is_made_smaller_by_one_of_the_three() -> None:
    setup = config({"data": 4, "seq": 1, "model": 4})
    ran = profile_of(MATMUL, NORM, TENSOR, step_s=1.1, communication=0.36)
    found = Pricer(ran, setup, diagnose(ran, setup)).propose()
    assert any(item.mesh["ici"]["model"] < 4 for item in found.proposals)
    assert not any(note.startswith(EXCUSES) for note in found.notes)


def test_input_stalls_are_said_to_be_beyond_any_mesh() -> None:
    ran = profile_of(MATMUL, NORM, step_s=1.4, input=0.5)
    ran = replace(ran, steps=tuple(replace(s, breakdown_s={"compute": 0.7, "input": 0.7}) for s in ran.steps))
    setup = config({"data": 16, "seq": 1, "model": 1})
    found = Pricer(ran, setup, diagnose(ran, setup)).propose()
    assert any(note.startswith(EXCUSES[1]) for note in found.notes)


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
    field = pricer(setup, times)._field(Constraints())
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
        candidates = Pricer(ran, setup, diagnose(ran, setup))._field(Constraints()).candidates
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
