"""Proposals for any run: legal, distinct, ranked, honest about what is not known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from diagnosis.analyzer import diagnose
from diagnosis.report import Bottleneck
from evaluation.steps.generated import profile as profiled
from evaluation.steps.scenario import MIDDLE, Scenario
from evaluation.steps.scenario import config as configured
from experiments.step_profile import Device, Op, Step, StepProfile
from perfmodel.catalogue import get_model
from perfmodel.config import ConfigError, ExperimentConfig, Hardware, Mesh, Training
from perfmodel.prediction import predict
from proposals.candidate import Candidate, candidate
from proposals.plan import Plan
from proposals.proposer import Pricer, propose

pytestmark = pytest.mark.slow

CORES, STEPS = 16, 4


def op(name: str, category: str, seconds: float, **facts: object) -> Op:
    """One op that takes `seconds` per step and core."""
    total = seconds * CORES * STEPS
    return Op(name, category, CORES * STEPS, total, total, 0.0, **facts)  # type: ignore[arg-type]


def profile_of(*ops: Op, step_s: float, **kpis: float) -> StepProfile:
    total = sum(item.self_time_s for item in ops)
    ranked = sorted((replace(item, time_share=item.self_time_s / total) for item in ops), key=lambda o: -o.self_time_s)
    return StepProfile(
        provenance="measured",
        source_kind="xplane",
        device=Device("TPU v5p", "v5p", CORES, 1, 4.59e14, 2.765e12),
        step_time_s=step_s,
        steps=tuple(Step(number, step_s) for number in range(STEPS)),
        kpis={"duty_cycle": 0.99, "idle": 0.01, **kpis},
        ops=tuple(ranked),
    )


MATMUL = op("fusion.1", "convolution fusion", 0.6, bound_by="Compute", roofline_efficiency=0.7, compute_efficiency=0.7)
NORM = op("fusion.2", "loop fusion", 0.1, bound_by="HBM", roofline_efficiency=0.8)
TENSOR = op(
    "all-reduce.1",
    "all-reduce",
    0.4,
    bound_by="HBM",
    roofline_efficiency=0.05,
    hlo="%all-reduce.1 = bf16[8192,4096] all-reduce(bf16[8192,4096] %x), replica_groups=[4,4]<=[16], to_apply=%add",
    op_name="jit(step)/jvp()/layer/mlp/dot_general",
)


def config(
    ici: dict[str, int],
    batch: int | None = 32,
    seq_len: int | None = 4096,
    model: str | None = "llama3.1-8b",
    **training: object,
) -> ExperimentConfig:
    return ExperimentConfig(
        hardware=Hardware("v5p", (2, 2, 4)),
        mesh=Mesh(tuple(ici.items())),
        model=get_model(model) if model else None,
        training=Training(global_batch=batch, seq_len=seq_len, **training),  # type: ignore[arg-type]
    )


def plan(profile: StepProfile, setup: ExperimentConfig) -> Plan:
    return propose(profile, setup, diagnose(profile, setup))


def test_exposed_tensor_collectives_lead_to_a_smaller_model_axis() -> None:
    profile = profile_of(MATMUL, NORM, TENSOR, step_s=1.1, communication=0.36)
    found = plan(profile, config({"data": 4, "seq": 1, "model": 4}))
    first = found.proposals[0]
    assert first.mesh["ici"]["model"] < 4
    assert first.predicted.speedup is not None and first.predicted.speedup > 1.1
    assert first.confidence > 0.6


def test_input_bound_step_keeps_its_mesh_first() -> None:
    profile = profile_of(MATMUL, NORM, step_s=1.4, input=0.5)
    profile = replace(profile, steps=tuple(Step(n, 1.4, {"compute": 0.7, "input": 0.7}) for n in range(STEPS)))
    found = plan(profile, config({"data": 16, "seq": 1, "model": 1}))
    assert found.proposals[0].kind == "keep"
    assert found.proposals[0].mesh["ici"] == {"data": 16, "seq": 1, "model": 1}


def test_profile_without_time_is_refused_in_one_sentence() -> None:
    empty = StepProfile("measured", "xplane", Device("TPU v5p", "v5p", CORES, 1))
    setup = config({"data": 16})
    with pytest.raises(ConfigError, match="neither a step time nor ops"):
        plan(empty, setup)


def test_profile_without_steps_gets_ratios_and_no_seconds() -> None:
    profile = replace(profile_of(MATMUL, NORM, TENSOR, step_s=1.1), step_time_s=None, steps=())
    found = plan(profile, config({"data": 4, "seq": 1, "model": 4}))
    for proposal in found.proposals:
        assert proposal.predicted.step_time_s is None
        assert proposal.predicted.breakdown_s == {}


def test_one_chip_fills_three_slots_with_what_it_has() -> None:
    setup = replace(config({"data": 1}, batch=4, model=None), hardware=Hardware("v5e", (1,)))
    found = plan(profile_of(MATMUL, NORM, step_s=0.7), setup)
    assert [item["kind"] for item in found.to_json()["proposals"]] == ["keep"] * 3


def test_baseline_is_what_was_measured() -> None:
    profile = profile_of(MATMUL, NORM, TENSOR, step_s=1.1)
    found = plan(profile, config({"data": 4, "seq": 1, "model": 4}))
    assert found.baseline.step_time_s is not None
    assert found.baseline.step_time_s.estimate == pytest.approx(1.1)
    assert sum(found.baseline.breakdown_s.values()) == pytest.approx(1.1, rel=0.02)
    for proposal in found.proposals:
        step = proposal.predicted.step_time_s
        assert step is not None and step.lower is not None and step.upper is not None
        assert step.lower <= step.low80 <= step.estimate <= step.high80 <= step.upper
        assert sum(proposal.predicted.breakdown_s.values()) == pytest.approx(step.estimate, rel=0.02)


def needs_bytes(setup: ExperimentConfig) -> float:
    return float((predict(setup).hbm_per_chip_bytes or {})["total"] or 0.0)


def test_what_ran_though_the_model_says_it_cannot_corrects_the_memory_of_all() -> None:
    """One chip whose computed memory exceeds it: it ran, so all are corrected, and no proposal needs more than it."""
    setup = replace(config({"data": 1}, batch=4, seq_len=2048, model="llama3.2-1b"), hardware=Hardware("v5e", (1, 1)))
    assert predict(setup).fits is False
    found = plan(profile_of(MATMUL, NORM, step_s=0.7), setup)
    for proposal in found.proposals:
        assert needs_bytes(candidate(setup, proposal)) <= needs_bytes(setup)
    assert any("yet it ran" in note for note in found.notes)


def test_a_profile_of_another_chip_is_said_beside_the_proposals() -> None:
    profile = profile_of(MATMUL, NORM, TENSOR, step_s=1.1, communication=0.36)
    setup = config({"data": 4, "seq": 1, "model": 4})
    assert not any("recorded on" in note for note in plan(profile, setup).notes)
    note, *_ = plan(replace(profile, device=replace(profile.device, kind="CPU", chip=None)), setup).notes
    assert "recorded on CPU" in note and "names v5p" in note


def test_waiting_does_not_hide_a_mesh_that_surely_gains() -> None:
    """A tenth of the step idle, and half of it in tensor collectives: keeping the mesh is not the answer."""
    profile = profile_of(MATMUL, NORM, replace(TENSOR, self_time_s=TENSOR.self_time_s * 2), step_s=1.7, idle=0.12)
    setup = config({"data": 4, "seq": 1, "model": 4})
    verdict = Bottleneck("idle", 0.7, "The device is idle 12.0 % of the step.")
    found = propose(profile, setup, replace(diagnose(profile, setup), bottleneck=verdict))
    assert found.proposals[0].kind == "recommendation" and found.proposals[0].confidence > 0.5
    assert not any("input or the host" in line for item in found.proposals for line in item.reasoning)


def test_a_proposal_called_keep_first_is_more_likely_right_than_not() -> None:
    profile = profile_of(MATMUL, NORM, step_s=1.4, input=0.5)
    profile = replace(profile, steps=tuple(Step(n, 1.4, {"compute": 0.7, "input": 0.7}) for n in range(STEPS)))
    first = plan(profile, config({"data": 16, "seq": 1, "model": 1})).proposals[0]
    assert first.kind == "keep" and first.confidence >= 0.5


def test_where_memory_rejects_every_mesh_another_policy_opens_them() -> None:
    """GPUs that keep all activations fill up on the mesh that ran; less tensor parallelism needs recomputation."""
    setup = ExperimentConfig(
        Hardware("h100", (8, 4)),
        Mesh((("data", 4), ("model", 8))),
        get_model("llama3.1-8b"),
        Training(global_batch=64, seq_len=8192, weight_sharding="zero1", remat="none"),
    )
    wider = replace(setup, mesh=Mesh((("data", 16), ("model", 2))))
    assert predict(setup).fits and not predict(wider).fits
    ran = profile_of(MATMUL, NORM, replace(TENSOR, self_time_s=TENSOR.self_time_s * 2), step_s=1.6, communication=0.5)
    found = plan(replace(ran, device=replace(ran.device, chip="h100")), setup)
    moved = [item for item in found.proposals if item.mesh["ici"].get("model", 1) < 8]
    assert moved and found.proposals[0] in moved
    for item in moved:
        assert item.changes
        assert predict(candidate(setup, item)).fits


def test_a_batch_is_never_changed_first_and_its_price_is_named() -> None:
    """Weights and gradients on the links most of the time: a larger batch would pay, and is ranked last if at all."""
    gradients = replace(TENSOR, hlo=TENSOR.hlo.replace("[4,4]<=[16]", "[1,16]<=[16]"), op_name="jit(step)/transpose")
    setup = config({"data": 16, "seq": 1, "model": 1}, batch=16, remat="minimal")
    found = plan(profile_of(MATMUL, NORM, gradients, step_s=1.1, communication=0.36), setup)
    assert "global_batch" not in found.proposals[0].changes
    for item in found.proposals:
        if "global_batch" in item.changes:
            assert any("different batch changes the training" in text for text in item.trade_offs)


def test_every_element_of_a_proposal_pays_and_none_dominates_another() -> None:
    """Without any one of its changes a proposal gains less, and no proposal beats another in time and memory."""
    setup = config({"data": 4, "model": 4})
    ran = profile_of(MATMUL, NORM, TENSOR, step_s=1.1, communication=0.36)
    bench = Pricer(ran, setup, diagnose(ran, setup))
    found = [item for item in bench.propose().proposals if item.kind != "keep"]
    for item in found:
        for name in item.changes:
            rest = {key: value for key, value in item.changes.items() if key != name}
            without = bench.evaluate(Candidate(item.mesh, rest))
            if not without.violations:
                assert without.predicted.speedup < item.predicted.speedup, (item.title, name)
    for one in found:
        for other in found:
            same_batch = one.changes.get("global_batch") == other.changes.get("global_batch")
            if one is not other and same_batch:
                faster = one.predicted.speedup >= other.predicted.speedup and one.confidence >= other.confidence
                smaller = one.predicted.hbm_per_chip_bytes.total <= other.predicted.hbm_per_chip_bytes.total
                assert not (faster and smaller)


def test_recomputation_that_the_profile_does_not_show_is_nothing_to_gain_from() -> None:
    """The same run twice, once recomputing; the configuration says it does both times."""
    run = Scenario(
        "", "", (), "v5p", (4, 4, 4), (("data", 16), ("seq", 1), ("model", 4)), MIDDLE, 256, 4096, remat="full"
    )  # fmt: skip
    setup = configured(run)
    lighter = {"remat": "none"}
    for ran, gains in ((profiled(run), True), (profiled(replace(run, remat="none")), False)):
        bench = Pricer(ran, setup, diagnose(ran, setup))
        own = bench.evaluate(Candidate(setup.mesh.to_json(), lighter))
        assert ((own.predicted.speedup or 0.0) > 1.1) is gains
        assert (own.predicted.speedup == pytest.approx(1.0)) is not gains
        assert any("no recompute;" in text for text in bench.propose().notes) is not gains
