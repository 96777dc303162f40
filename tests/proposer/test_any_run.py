"""Whatever ran and whatever is asked: proposals are legal, fit, keep to the constraints, and say finite numbers."""

from __future__ import annotations

from dataclasses import replace
from math import isfinite, prod
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from diagnosis.analyzer import diagnose
from evaluation.steps.generated import profile as profiled
from evaluation.steps.scenario import LARGE, MIDDLE, MIXTURE, SMALL, Scenario
from evaluation.steps.scenario import config as configured
from experiments.step_profile import StepProfile
from perfmodel import legality
from perfmodel.catalogue import get_model
from perfmodel.config import ConfigError, ExperimentConfig, Hardware, Mesh, ModelShape, Training
from perfmodel.prediction import predict
from perfmodel.roofline import mfu
from proposals.candidate import Candidate, candidate, keeps
from proposals.constraints import Constraints
from proposals.plan import Plan, ProposalPlan
from proposals.proposer import Pricer
from tests.proposer.sentences import check_sentences
from tests.proposer.test_propose import MATMUL, NORM, TENSOR, profile_of

pytestmark = pytest.mark.slow

#: Chip, topology, slices.
MACHINES = (
    ("v5e", (4, 4), 1), ("v5e", (16, 16), 2), ("v5p", (4, 4, 4), 1), ("v5p", (2, 2, 4), 4), ("v6e", (8, 8), 1),
    ("h100", (8, 4), 1), ("a100-80gb", (8, 1), 1), ("tpu7x", (4, 4, 4), 1),
)  # fmt: skip
CATALOGUE = ("llama3.1-8b", "llama2-7b", "gemma3-4b", "mixtral-8x7b", "llama3.2-1b", "deepseek-v3")


@st.composite
def runs(draw: st.DrawFn) -> ExperimentConfig:
    """A configuration with some of the usual gaps."""
    chip, topology, slices = draw(st.sampled_from(MACHINES))
    left = prod(topology)
    names = ["data", "seq", "model"]
    name = draw(st.sampled_from([None, *CATALOGUE]))
    model = get_model(name) if name else None
    if model is not None and model.experts:
        names.insert(2, "expert")
    if chip in ("h100", "a100-80gb"):
        names.insert(0, "pipeline")
    ici: dict[str, int] = dict.fromkeys(names, 1)
    while left > 1:
        axis = draw(st.sampled_from(names))
        ici[axis] *= 2
        left //= 2
    training = Training(
        global_batch=draw(st.sampled_from([None, 8, 64, 96, 512, 2048])),
        seq_len=draw(st.sampled_from([None, 2048, 8192])),
        remat=draw(st.sampled_from(["none", "minimal", "full", "offload"])),
        weight_sharding=draw(st.sampled_from(["none", "zero1", "fsdp"])),
        grad_accum=draw(st.sampled_from([1, 1, 2])),
    )
    dcn = (("data", slices),) if slices > 1 else ()
    return ExperimentConfig(Hardware(chip, topology, slices), Mesh(tuple(ici.items()), dcn), model, training)


TIMES = st.tuples(*[st.floats(0.01, 2.0)] * 3)


@st.composite
def asked(draw: st.DrawFn) -> Constraints:
    axes = st.sampled_from(["data", "seq", "model"])
    return Constraints(
        keep_batch=draw(st.booleans()),
        keep_axes=tuple(draw(st.lists(axes, max_size=1))),
        at_most=draw(st.dictionaries(axes, st.sampled_from([1, 2, 4, 64]), max_size=1)),
        at_least=draw(st.dictionaries(st.just("data"), st.sampled_from([1, 2]), max_size=1)),
        memory_margin=draw(st.sampled_from([0.0, 0.0, 0.1, 0.5])),
        keep_remat=draw(st.booleans()),
        no_flags=draw(st.booleans()),
    )


def profile_with(setup: ExperimentConfig, times: tuple[float, float, float], **facts: Any) -> StepProfile:
    """A profile of three ops of these times, all longer where the chips could not do the model's FLOPs in them."""
    parts = zip((MATMUL, NORM, TENSOR), times, strict=True)
    step_s = sum(op.self_time_s * t for op, t in parts) / 64
    slower = 1.05 * max(1.0, mfu(setup, step_s, setup.training.precision) or 0.0)
    times = (times[0] * slower, times[1] * slower, times[2] * slower)
    ops = [
        replace(item, self_time_s=item.self_time_s * t, total_time_s=item.total_time_s * t)
        for item, t in zip((MATMUL, NORM, TENSOR), times, strict=True)
    ]
    ran = profile_of(*ops, step_s=sum(op.self_time_s for op in ops) / 64, **facts)
    return replace(ran, device=replace(ran.device, chip=setup.hardware.chip))


def pricer(setup: ExperimentConfig, times: tuple[float, float, float], **facts: Any) -> Pricer:
    ran = profile_with(setup, times, **facts)
    return Pricer(ran, setup, diagnose(ran, setup))


def check(found: Plan, setup: ExperimentConfig, constraints: Constraints) -> None:
    """Three distinct, legal, fitting, obedient proposals with finite numbers."""
    assert [item.rank for item in found.proposals] == [1, 2, 3][: len(found.proposals)]
    worth = sum(item.kind != "keep" for item in found.proposals)
    assert found.proposals and (worth == 3) != any("worth a trial" in note for note in found.notes)
    kinds = {(repr(item.mesh), repr(sorted(item.changes.items()))) for item in found.proposals}
    assert len(kinds) == len(found.proposals)
    running = predict(setup)
    for item in found.proposals:
        assert 0.0 <= item.confidence <= 1.0
        assert all(
            isfinite(value)
            for value in (vars(item.predicted.step_time_s) if item.predicted.step_time_s else {}).values()
        )
        assert all(isfinite(row.before_s) and isfinite(row.after_s) for row in item.communication)
        lead = found.proposals[0]
        if lead.kind != "keep" and item.kind in ("safer", "bolder"):
            assert (round(100 * item.confidence) >= round(100 * lead.confidence)) is (item.kind == "safer")
        if item.kind == "keep":
            assert keeps(setup, item)
            continue
        assert 0.0 < item.confidence < 1.0
        assert not item.violations
        proposed = candidate(setup, item)
        stays = keeps(setup, Candidate(item.mesh))
        already = {rule.rule for rule in running.violations} if stays else set()
        assert {rule.rule for rule in legality.check(proposed)} - {"memory"} <= already
        used = item.predicted.hbm_per_chip_bytes  # as the run corrects it, which ran
        assert not used or used.total <= used.capacity * (1 + 1e-9) or needs(proposed) <= needs(setup)
        obeys(item, setup, constraints)
    for left_out in found.rejected:
        assert left_out.rule and left_out.reason.endswith(".")


def needs(setup: ExperimentConfig) -> float:
    return float((predict(setup).hbm_per_chip_bytes or {}).get("total") or 0.0)


def obeys(item: ProposalPlan, setup: ExperimentConfig, constraints: Constraints) -> None:
    before, after = dict(setup.mesh.ici), item.mesh["ici"]
    for axis in constraints.keep_axes:
        assert after.get(axis, 1) == before.get(axis, 1)
        assert item.mesh["dcn"].get(axis, 1) == dict(setup.mesh.dcn).get(axis, 1)
    for axis, size in constraints.at_most.items():
        assert after.get(axis, 1) <= size
    for axis, size in constraints.at_least.items():
        assert after.get(axis, 1) >= size
    assert not (constraints.keep_batch and "global_batch" in item.changes)
    assert not (constraints.keep_remat and "remat" in item.changes)
    assert not (constraints.no_flags and "xla_flags" in item.changes)
    used = item.predicted.hbm_per_chip_bytes
    if used:
        assert used.total <= (1.0 - constraints.memory_margin) * used.capacity or not constraints.memory_margin


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(setup=runs(), times=TIMES)
def test_any_run_gets_three_legal_proposals(setup: ExperimentConfig, times: tuple[float, float, float]) -> None:
    bench = pricer(setup, times)
    found = bench.propose()
    check_sentences(found, bench.diagnosis)
    check(found, setup, Constraints())
    if "global_batch" in found.proposals[0].changes:  # nothing at the same batch is more likely than not to gain
        assert bench.propose(Constraints(keep_batch=True)).proposals[0].kind == "keep"
    sensitivity_says_what_evaluate_says(bench, found.proposals[0])


def sensitivity_says_what_evaluate_says(bench: Pricer, first: ProposalPlan) -> None:
    again = bench.evaluate(first)
    assert again.predicted.speedup == pytest.approx(first.predicted.speedup, rel=1e-6)
    held, other = again.predicted.hbm_per_chip_bytes, first.predicted.hbm_per_chip_bytes
    assert held == other or (held and other and vars(held) == pytest.approx(vars(other)))
    assert first.sensitivity
    for step in first.sensitivity[:: max(1, len(first.sensitivity) // 4)]:
        own = bench.evaluate(step)
        assert own.predicted.speedup == pytest.approx(step.speedup, rel=1e-6)
        assert step.speedup == pytest.approx((step.relative or 0.0) * (first.predicted.speedup or 0.0), rel=1e-6)
        assert [item.rule for item in own.violations][:1] == ([step.rule] if step.rule and own.violations else [])


def test_a_run_that_the_model_holds_far_too_large_is_followed_by_nothing_larger() -> None:
    """DeepSeek-V3 on 16 chips: that is no reason to refuse what needs no more."""
    training = Training(64, 2048, precision="bf16", weight_sharding="fsdp", remat="offload")
    mesh = Mesh((("data", 16), ("seq", 1), ("expert", 1), ("model", 1)), ())
    setup = ExperimentConfig(Hardware("v5p", (4, 2, 2), 1), mesh, get_model("deepseek-v3"), training)
    found = pricer(setup, (1.0, 1.0, 1.0)).propose()
    check(found, setup, Constraints())
    assert all(needs(candidate(setup, item)) <= needs(setup) for item in found.proposals)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(setup=runs(), times=TIMES, constraints=asked())
def test_constraints_are_obeyed(
    setup: ExperimentConfig, times: tuple[float, float, float], constraints: Constraints
) -> None:
    """The current configuration may be among the three though it breaks one, and says so; else too tight is a
    sentence."""
    bench = pricer(setup, times)
    try:
        found = bench.propose(constraints)
    except ConfigError as error:
        message = str(error)
    else:
        message = "constraints"
        check(found, setup, constraints)
    assert message.startswith("constraints")
    assert Constraints.from_json(constraints.to_json()) == constraints


LAID_OUT: tuple[tuple[ModelShape, str, tuple[int, ...]], ...] = (
    (SMALL, "v5e", (4, 4)), (MIDDLE, "v5p", (4, 4, 4)), (LARGE, "v5p", (4, 8, 8)), (MIXTURE, "v6e", (8, 8)),
)  # fmt: skip


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    which=st.sampled_from(LAID_OUT),
    exponents=st.tuples(st.integers(0, 2), st.integers(0, 3)),
    remat=st.sampled_from(["none", "minimal", "full"]),
    batch=st.sampled_from([64, 256, 1024]),
    memory=st.floats(0.2, 0.95),
)
def test_steps_laid_out_from_first_principles(
    which: tuple[ModelShape, str, tuple[int, ...]],
    exponents: tuple[int, int],
    remat: str,
    batch: int,
    memory: float,
) -> None:
    model, chip, topology = which
    seq, tensor = 2 ** exponents[0], 2 ** exponents[1]
    chips = prod(topology)
    assume(chips % (seq * tensor) == 0)
    ici = (("data", chips // seq // tensor), ("seq", seq), ("model", tensor))
    run = Scenario("", "", (), chip, topology, ici, model, batch, 4096, remat=remat, memory=memory)
    setup = configured(run)
    assume(not [rule for rule in legality.check(setup) if rule.rule != "memory"])
    ran = profiled(run)
    check(Pricer(ran, setup, diagnose(ran, setup)).propose(), setup, Constraints())
