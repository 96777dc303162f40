"""What is offered, and how sure: one set for proposals and keeping, nothing that is beaten, nothing without effect."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import log

import numpy as np
import pytest

from diagnosis.analyzer import diagnose
from diagnosis.report import Bottleneck
from perfmodel.catalogue import get_model
from perfmodel.config import ExperimentConfig, Hardware, Measured, Mesh, ModelShape, Training
from proposals.candidate import Candidate
from proposals.constraints import Constraints
from proposals.plan import Plan, ProposalPlan
from proposals.proposer import Pricer
from proposals.proposer.changes import further_changes
from proposals.proposer.observed import start
from proposals.proposer.space import enumerate_meshes
from tests.proposer.test_propose import MATMUL, NORM, TENSOR, config, op, profile_of

pytestmark = pytest.mark.slow

#: A mixture on GPUs in small micro-batches: the model expects a third of the step to be waiting for kernel launches.
LAUNCHES = ExperimentConfig(
    Hardware("h100", (8, 2)),
    Mesh((("expert", 16),)),
    get_model("qwen3-30b-a3b"),
    Training(global_batch=1024, seq_len=4096, weight_sharding="zero1", micro_batch=1, remat="none"),
)
#: More stages than a pipeline of so few micro-batches can keep busy.
PIPELINE = ExperimentConfig(
    Hardware("h100", (8, 8)),
    Mesh((("pipeline", 8), ("data", 1), ("model", 8))),
    get_model("llama3.1-70b"),
    Training(global_batch=32, seq_len=4096, weight_sharding="zero1", grad_accum=32, remat="full"),
)
RUNS = (
    LAUNCHES,
    PIPELINE,
    replace(LAUNCHES, training=replace(LAUNCHES.training, micro_batch=4)),
    replace(config({"data": 4, "seq": 1, "model": 4}), hardware=Hardware("v5p", (2, 2, 4))),
)


def bench(setup: ExperimentConfig) -> Pricer:
    ran = start(setup)
    return Pricer(ran, setup, diagnose(ran, setup))


def plans() -> list[tuple[Pricer, Plan]]:
    return [(made, made.propose()) for made in map(bench, RUNS)]


def batch_of(made: Pricer, item: ProposalPlan) -> int:
    return int(item.changes.get("global_batch", made.config.training.global_batch))


def tried(setup: ExperimentConfig, key: str, ran: int) -> set[int]:
    return {change.get(key, ran) for change in further_changes(setup, Constraints())}


def test_every_size_of_a_micro_batch_that_divides_a_shard_is_tried() -> None:
    setup = config({"data": 4, "seq": 1, "model": 4}, batch=4 * 18)
    divisors = {1, 2, 3, 6, 9, 18}
    assert tried(setup, "grad_accum", 1) == {size * factor for size in divisors for factor in (1, 2, 4, 8)}
    sized = replace(setup, training=replace(setup.training, micro_batch=9))
    assert tried(sized, "micro_batch", 9) == tried(setup, "grad_accum", 1)


def on_gpus(framework: str, year: float | None = None) -> ExperimentConfig:
    extra = {"software_framework": framework} | ({"software_year": year} if year else {})
    training = Training(global_batch=1024, seq_len=2048, weight_sharding="zero1", micro_batch=2, remat="full")
    shape = get_model("llama2-7b")
    return ExperimentConfig(Hardware("h100", (8, 8)), Mesh((("data", 64),)), shape, training, extra=extra)


@pytest.mark.parametrize(
    ("framework", "year", "axes", "remats", "fsdp"),
    [
        ("llm-foundry (Composer, FSDP)", None, {"replica", "data"}, {"none", "full"}, True),
        ("Megatron-LM", 2022.4, {"data", "model", "pipeline"}, {"none", "minimal", "full"}, False),
        ("Megatron-LM", None, {"data", "seq", "model", "pipeline"}, {"none", "minimal", "full"}, True),
    ],
)
def test_only_what_the_program_has_is_tried(framework, year, axes, remats, fsdp) -> None:
    setup = on_gpus(framework, year)
    space = enumerate_meshes(setup, setup)
    assert {axis for row in range(len(space.sizes)) for axis, n in space.mesh(row).ici if n > 1} == axes
    changes = further_changes(setup, Constraints())
    assert {change.get("remat", "full") for change in changes} == remats
    assert ("fsdp" in {change.get("weight_sharding", "zero1") for change in changes}) is fsdp
    if "replica" in axes:  # a replica on every node, weights sharded inside it
        assert space.row_of(Mesh((("replica", 8), ("data", 8)))) is not None


def test_a_variant_that_keeps_most_of_the_gain_at_less_risk_is_the_safer_one() -> None:
    """Without recomputation the memory is nearly full; `minimal` gains a little less and is likelier to run."""
    training = Training(global_batch=256, seq_len=8192, weight_sharding="fsdp", remat="full")
    setup = ExperimentConfig(
        Hardware("tpu7x", (4, 4, 4)), Mesh((("fsdp", 64),)), get_model("llama3.1-70b"), training,
        measured=Measured(step_time_s=12.2),
    )  # fmt: skip
    first, second = bench(setup).propose().proposals[:2]
    gains = [log(item.predicted.speedup or 1.0) for item in (first, second)]
    assert (second.kind, second.mesh) == ("safer", first.mesh)
    assert second.confidence > first.confidence + 0.02 and gains[1] > 0.7 * gains[0]


def test_keeping_and_a_proposal_are_never_both_likely() -> None:
    """Keeping is right where nothing gains a hundredth.  One that surely gains makes that unlikely; between nothing and
    a hundredth both are true, which is seldom."""
    for made, found in plans():
        keeping = made.evaluate(Candidate(made.config.mesh.to_json())).confidence
        for item in found.proposals:
            if item.kind != "keep" and batch_of(made, item) >= (made.config.training.global_batch or 0):
                assert keeping + item.confidence <= 1.05
        assert found.proposals[0].confidence >= 0.5


def test_nothing_offered_is_beaten_in_time_memory_and_confidence_at_its_batch() -> None:
    for made, found in plans():
        rows = []
        for item in found.proposals:
            assert item.predicted.hbm_per_chip_bytes
            needed = item.predicted.hbm_per_chip_bytes.total
            rows.append((batch_of(made, item), item.predicted.speedup or 0.0, item.confidence, needed))
        for batch, speedup, confidence, memory in rows:
            assert not any(
                b == batch and s > speedup * 1.001 and c > confidence + 0.005 and m < memory * 0.999
                for b, s, c, m in rows
            )


def waits(parts: dict[str, float]) -> float:
    return parts.get("idle", 0.0) + parts.get("kernel_launches", 0.0)


def test_predicted_launch_waits_are_the_programs_not_the_inputs() -> None:
    """Larger micro-batches launch fewer kernels for the same tokens: waits for them fall, so keeping does not lead."""
    made = bench(LAUNCHES)
    idle = replace(made.diagnosis, bottleneck=Bottleneck("idle", 0.9, "The chips are mostly idle."))
    found = Pricer(made.profile, LAUNCHES, idle).propose()
    first = found.proposals[0]
    assert first.kind == "recommendation"
    assert waits(first.predicted.breakdown_s) < 0.7 * waits(found.baseline.breakdown_s)
    texts = [*found.notes, *(text for item in found.proposals for text in item.reasoning)]
    assert not any("input or the host" in text or "what the chips wait for" in text for text in texts)


def test_interleaving_shrinks_the_bubble_by_the_number_of_virtual_stages() -> None:
    """Narayanan et al. 2021: bubble (p-1)/m of the work, with v virtual stages (p-1)/(v·m); with no more confidence."""
    made = bench(PIPELINE)
    once, twice = (made.evaluate(Candidate(PIPELINE.mesh.to_json(), {"virtual_stages": v})).predicted for v in (2, 4))
    before = made.evaluate(Candidate(PIPELINE.mesh.to_json())).predicted.breakdown_s["idle"]
    gaps = [before, once.breakdown_s["idle"], twice.breakdown_s["idle"]]
    assert all(one > other for one, other in pairwise(gaps))
    assert gaps[1] == pytest.approx(0.5 * gaps[0], rel=0.25)
    assert (once.speedup_high80 or 0.0) > 1.02 * (once.speedup_low80 or 0.0)
    tried = {change.get("virtual_stages", 1) for change in further_changes(PIPELINE, Constraints())}
    assert tried == {1, 2, 4}
    flat = replace(PIPELINE, mesh=Mesh((("data", 8), ("model", 8))))
    assert not any("virtual_stages" in change for change in further_changes(flat, Constraints()))


def test_compiler_flags_have_no_price_and_are_not_proposed() -> None:
    """Nobody measured what they do here: the estimate stays, the interval is wider, and none of the three sets any."""
    setup = config({"data": 4, "seq": 1, "model": 4})
    gather = op(
        "all-gather.1", "all-gather", 0.4, op_name="jit(step)/jvp()/layer/mlp",
        hlo="%all-gather.1 = bf16[8192,4096] all-gather(bf16[2048,4096] %x), replica_groups=[4,4]<=[4,4]T(1,0)",
    )  # fmt: skip
    ran = profile_of(MATMUL, NORM, gather, step_s=1.1, communication=0.36)
    made = Pricer(ran, setup, diagnose(ran, setup))
    assert not any("xla_flags" in item.changes for item in made.propose().proposals)
    mesh = {"ici": {"data": 8, "seq": 1, "model": 2}}
    flags = {"xla_flags": ["--xla_tpu_enable_async_collective_fusion=true"]}
    plain, flagged = (made.evaluate(Candidate(mesh, change)).predicted.step_time_s for change in ({}, flags))
    assert flagged.estimate == pytest.approx(plain.estimate)
    assert flagged.high80 / flagged.low80 > plain.high80 / plain.low80


def test_one_chip_has_nothing_to_shard_weights_over() -> None:
    setup = replace(config({"data": 1}, batch=4, model=None, seq_len=None), hardware=Hardware("v5p", (1, 1, 1)))
    ran = profile_of(MATMUL, NORM, step_s=0.7)
    found = Pricer(ran, setup, diagnose(ran, setup)).propose()
    assert not any("weight_sharding" in item.changes for item in found.proposals)


def test_what_is_assumed_of_an_unknown_model_stands_beside_the_proposals() -> None:
    ran = profile_of(MATMUL, NORM, TENSOR, step_s=1.1)
    for model, said in (("llama3.1-8b", False), (None, True)):
        setup = config({"data": 4, "seq": 1, "model": 4}, model=model)
        notes = Pricer(ran, setup, diagnose(ran, setup)).propose().notes
        assert any("The model is unknown" in note and "LLaMA-3" in note for note in notes) == said


def test_twice_the_batch_is_twice_the_work_and_as_many_gradients() -> None:
    """Far from what the model expects: what it does not explain scales as what it is does."""
    reduce = op(
        "all-reduce.2", "all-reduce", 0.5, op_name="jit(step)/transpose(jvp())/layer/mlp",
        hlo="%all-reduce.2 = bf16[8192,4096] all-reduce(bf16[8192,4096] %x), replica_groups=[1,16]<=[16]",
    )  # fmt: skip
    setup = config({"data": 16, "seq": 1, "model": 1})
    setup = replace(setup, training=replace(setup.training, weight_sharding="none"))
    ran = profile_of(replace(MATMUL, self_time_s=9 * MATMUL.self_time_s), NORM, reduce, step_s=6.0, communication=0.08)
    made = Pricer(ran, setup, diagnose(ran, setup))
    batch = setup.training.global_batch or 0
    before, after = (
        made.evaluate(Candidate(setup.mesh.to_json(), change)).predicted.breakdown_s
        for change in ({}, {"global_batch": 2 * batch})
    )
    assert after["compute"] == pytest.approx(2.0 * before["compute"], rel=0.03)
    assert after["ici:data"] == pytest.approx(before["ici:data"], rel=0.03)


def test_waiting_for_input_takes_what_is_sure_of_any_gain() -> None:
    """An input pipeline that runs beside the chips determines the step time: whatever they save, they wait longer.  The
    more of the step waits for it, the likelier that is."""
    setup = config({"data": 4, "seq": 1, "model": 4})
    most = []
    for input_s in (0.0, 1e-6, 0.1, 1.1):
        ran = profile_of(MATMUL, NORM, TENSOR, step_s=1.1 + input_s, input=input_s / (1.1 + input_s))
        made = Pricer(ran, setup, diagnose(ran, setup))
        field = made._searched(Constraints())
        candidates, ranked = field.candidates, field.ranked
        moved = np.arange(len(candidates)) != candidates.baseline
        most.append(float(ranked.faster[moved].max()))
    assert most[1] == pytest.approx(most[0], abs=1e-3)  # a microsecond says nothing
    assert most[1] > most[2] > most[3]
    assert most[3] < 0.6


def test_renaming_data_to_fsdp_is_another_mesh_and_is_called_so() -> None:
    setup = config({"data": 4, "fsdp": 4})
    item = bench(with_step(setup)).evaluate(Candidate({"ici": {"data": 2, "fsdp": 8}}))
    assert item.title == "data 4 → 2 and fsdp 4 → 8"
    assert not any("No risk" in text for text in item.trade_offs)


def with_step(setup: ExperimentConfig) -> ExperimentConfig:
    return replace(setup, training=replace(setup.training, remat="offload"))


def test_twice_the_batch_in_twice_the_micro_batches_makes_none_of_them_smaller() -> None:
    """As many tokens in each: no matmul shrinks, and weights are gathered as often per token."""
    made = bench(with_step(config({"data": 16, "seq": 1, "model": 1})))
    batch = made.config.training.global_batch or 0
    item = made.evaluate(Candidate(made.config.mesh.to_json(), {"global_batch": 2 * batch, "grad_accum": 2}))
    texts = [*item.reasoning, *item.trade_offs]
    assert not any(
        "Smaller matmuls" in text or "smaller micro-batches" in text or "amortised" in text for text in texts
    )
    smaller = made.evaluate(Candidate(made.config.mesh.to_json(), {"grad_accum": 2}))
    assert any("Smaller matmuls" in text for text in smaller.trade_offs)


def test_full_recomputation_instead_of_offloading_takes_memory() -> None:
    made = bench(with_step(config({"data": 16, "seq": 1, "model": 1})))
    item = made.evaluate(Candidate(made.config.mesh.to_json(), {"remat": "full"}))
    before, after = (side.hbm_per_chip_bytes for side in (made.propose().baseline, item.predicted))
    assert before and after and (after.activations or 0.0) > (before.activations or 0.0)
    assert any("back to HBM" in text for text in item.reasoning)
    assert not any("frees" in text for text in item.reasoning)


def planned_by_step(config: ExperimentConfig, framework: str, step_time_s: float) -> Plan:
    setup = replace(config, extra={"software_framework": framework}, measured=Measured(step_time_s=step_time_s))
    profile = start(setup)
    return Pricer(profile, setup, diagnose(profile, setup)).propose()


def test_memory_that_surely_fits_makes_no_slower_proposal() -> None:
    """A run of nanotron with sixteen stages of sixteen tensor shards: everything faster by eight times fits by far, so
    recomputing for more room is slower for nothing."""
    config = ExperimentConfig(
        Hardware("h100", (8, 32)), Mesh((("pipeline", 16), ("model", 16))),
        ModelShape(32, 4096, 14_336, 32, 32, 128, 131_072),
        Training(256, 4096, weight_sharding="none", remat="none", micro_batch=8, grad_accum=32),
    )  # fmt: skip
    first, *others = (item for item in planned_by_step(config, "nanotron", 49.35).proposals if item.kind != "keep")
    for item in others:
        surer = round(item.confidence, 2) > round(first.confidence, 2)
        assert surer or item.predicted.speedup > 0.99 * first.predicted.speedup


def test_of_two_that_no_trial_tells_apart_the_surer_is_recommended() -> None:
    """Without recomputation a run of MaxText is 1 % faster than with the policy `minimal`, but twice as likely to
    fail: minimal is the first trial, and no second one that differs in this alone is offered."""
    config = ExperimentConfig(
        Hardware("v4", (4, 4, 4), 2), Mesh((("fsdp", 64),), (("data", 2),)),
        ModelShape(48, 6144, 24_576, 24, 24, 256, 32_000, mlp="plain"), Training(1664, 2048, remat="full"),
    )  # fmt: skip
    found = planned_by_step(config, "MaxText", 24.327).proposals
    assert [(item.kind, item.changes.get("remat")) for item in found] == [("recommendation", "minimal"), ("keep", None)]
