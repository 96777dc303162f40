"""What proposals cite: a passage for each change in its direction, none whose condition is false here, each with a line
that says what it supports."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings

from diagnosis.analyzer import diagnose
from diagnosis.analyzer.rules import RULES
from evaluation.steps.generated import profile as profiled
from evaluation.steps.scenario import config as configured
from evaluation.steps.scenarios import SCENARIOS
from evaluation.steps.shipped import sample
from experiments.without_profile import without_profile
from knowledge.passage_file import read_all
from knowledge.supports import SupportError, read
from perfmodel.chips import get_chip, load_chips
from perfmodel.config import ConfigError, ExperimentConfig, Mesh
from perfmodel.config_file import parse_config
from proposals.candidate import Candidate
from proposals.plan import Plan, ProposalPlan
from proposals.proposer import Pricer
from proposals.proposer.build import MOST, citable, cite, supporting
from proposals.proposer.case import Case, Changed
from proposals.proposer.facts import BEFORE, facts
from proposals.proposer.words import sections, worded
from tests.proposer.test_any_run import runs

PASSAGES = {passage.id: passage for file in read_all() for passage in file.passages}
LINES = [pytest.param(passage.id, line, id=f"{passage.id}-{n}") for n, (passage, line) in enumerate(citable())]


# The statements


@cache
def some_facts() -> frozenset[str]:
    """Names of all facts."""
    bench = labelled("gathers on v6e")
    plan = bench.propose()
    return frozenset(facts(case_of(bench, plan, plan.proposals[0])))


@pytest.mark.parametrize(("key", "line"), LINES)
def test_a_statement_names_quantities_that_are_computed_and_words_that_they_can_be(key: str, line: Any) -> None:
    words = {
        "verdict": {"compute", "memory", "communication", "input", "host", "idle", "unknown"},
        "chip": set(load_chips()),
        "kind": {"tpu", "gpu"},
        "remat": {"none", "minimal", "full", "offload"},
        "weight_sharding": {"none", "zero1", "fsdp"},
        "links": {"equal", "unequal"},
        "chunks": {"whole", "uneven"},
        **{f"{part}_falls": {"yes", "no"} for part in ("communication", "compute", "dcn")},
    }
    for condition in line.conditions:
        assert set(condition.names) <= some_facts(), condition
        allowed = words.get(condition.name.removeprefix(BEFORE))
        if isinstance(condition.value, frozenset) and allowed:
            assert condition.value <= allowed, condition
    assert not line.words.endswith(".")


def test_no_fact_is_there_that_neither_a_passage_nor_a_sentence_asks_for() -> None:
    asked = {name for _, line in citable() for condition in line.conditions for name in condition.names}
    for bullet in (each for section in sections().values() for each in section):
        asked |= {name for each in bullet.alternatives for condition in each for name in condition.names}
        asked |= set(re.findall(r"{(\w+)}", bullet.text))
    unasked = {name.removeprefix(BEFORE) for name in some_facts()} - {name.removeprefix(BEFORE) for name in asked}
    assert unasked <= {"chips"}


def test_sentences_compare_and_print_facts_that_are_there() -> None:
    bench = labelled("gathers on v6e")
    plan = bench.propose()
    there = set(worded(case_of(bench, plan, plan.proposals[0])))
    there |= {"role", "direction", "Name", "go", "step", "element", "seen", "alone"}  # of a move, of a dispute
    there |= {"policy", *(f"policy_{name}" for name in ("step", "measured", "trials", "failed"))}
    # Printed only where `known` has their subject.
    there |= {f"{of}_{what}" for of in ("precedent", "warning") for what in ("title", "effect", "source")}
    for section, bullets in sections().items():
        if section == "Notes":  # of a run, not of a proposal
            continue
        for bullet in bullets:
            asked = {name for each in bullet.alternatives for condition in each for name in condition.names}
            assert asked | set(re.findall(r"{(\w+)}", bullet.text)) <= there, (section, bullet)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("model down", "write change direction"),
        ("colour up: it is brighter", "names 'colour'"),
        ("verdict up: it is", "no direction 'up'"),
        ("model down if model: it is", "'model' is not a condition"),
        ("model down if model > 2 or seq > 1: it is", "is not a condition"),
    ],
)
def test_a_statement_that_is_not_understood_is_refused(line: str, says: str) -> None:
    with pytest.raises(SupportError, match=says):
        read(line)


@pytest.mark.slow
def test_nothing_is_said_of_a_chip_on_which_the_run_was_not_recorded() -> None:
    """The recording is of CPUs; the chip in its configuration is a placeholder."""
    profile, config = sample("cpu-data2-seq2-model2")
    bench = Pricer(profile, config, diagnose(profile, config))
    about = {"tensor-parallel-bound", "critical-batch-table", "data-parallel-bound", "memory-at-scale"}
    for item in bench.propose().proposals:
        assert not about & {source.key for source in item.citations}
    assert any(item.citations for item in bench.propose().proposals)


def test_what_is_not_known_holds_nowhere() -> None:
    for operator in ("<", "<=", ">", ">=", "=", "!="):
        (condition,) = read(f"model up if tokens_per_chip {operator} 5: it is").conditions
        assert not condition.holds(lambda name: None)
    (between,) = read("model up if tokens_per_chip < data_bound: it is").conditions
    assert not between.holds(lambda name: None if name == "data_bound" else 1.0)


# Hand-derived cases: llama3-70b (d_ff 28,672, 64 heads, 8 KV heads) unless said otherwise


def run(chip: str, topology: list[int], ici: dict[str, int], model: str = "llama3-70b", **training: Any) -> Pricer:
    data = {"hardware": {"chip": chip, "topology": topology}, "mesh": {"ici": ici}, "model": {"name": model}}
    values = {"global_batch": 512, "seq_len": 4096, "weight_sharding": "fsdp", "remat": "full", **training}
    config, _ = parse_config({**data, "training": values})
    profile = without_profile(config)
    return Pricer(profile, config, diagnose(profile, config))


def labelled(name: str) -> Pricer:
    scenario = next(item for item in SCENARIOS if item.name == name)
    profile, config = profiled(scenario), configured(scenario)
    return Pricer(profile, config, diagnose(profile, config))


def cited(bench: Pricer, ici: dict[str, int], **changes: Any) -> dict[str, str]:
    found = bench.evaluate(Candidate({"ici": ici, "dcn": {}}, changes))
    return {source.key: source.supports for source in found.citations}


def bearing(name: str, item: Changed) -> set[str]:
    """Passages that bear on a change of a labelled step."""
    bench = labelled(name)
    plan = bench.propose()
    fits = supporting(item, facts(case_of(bench, plan, plan.proposals[0])))
    return {passage.id for passage, _ in fits}


def test_the_batch_is_too_small_only_below_the_bound_of_the_best_mix() -> None:
    """v6e: α = 918e12 / (2 · 9e10) = 5,100 tokens, 4 α² / F at the best mix.  F = 28,672: 3,629, FSDP alone 2,550; the
    step has 1,024.  F = 14,336: 7,257, FSDP alone 2,550; the step has 8,192."""
    more = Changed("global_batch", "up", "", 0.0)
    assert "batch-too-small" in bearing("gathers on v6e", more)
    assert "batch-too-small" not in bearing("8-way tensor parallelism in the open", more)


def test_that_no_mesh_saves_it_is_not_said_for_another_mesh() -> None:
    for item in labelled("gathers on v6e").propose().proposals:
        found = {source.key for source in item.citations}
        assert "batch-too-small" not in found or "global_batch" in item.changes or item.kind == "keep"


def test_the_tokens_that_hide_gathers_are_not_cited_for_a_move_that_leaves_them() -> None:
    """Weights are sharded over the sequence axis, too: 16 × 4 → 64 × 1 gathers over 64 shards as before, with 8,192
    tokens in each; without the tensor axis 4,096 are left of them, still above 2,550 on one axis of v5p."""
    bench = run("v5p", [4, 4, 8], {"data": 16, "seq": 4, "model": 2}, global_batch=128)
    assert "critical-batch-table" not in cited(bench, {"data": 64, "seq": 1, "model": 2})
    assert "critical-batch-table" in cited(bench, {"data": 32, "seq": 4, "model": 1})


def test_a_tensor_axis_below_its_bound_is_not_said_to_be_above() -> None:
    """v5p hides 28,672 / 2,550 = 11 shards on an axis."""
    for shards, above in ((8, False), (16, True)):
        bench = run("v5p", [8, 8, 8], {"data": 512 // shards, "model": shards})
        assert ("tensor-parallel-bound" in cited(bench, {"data": 512, "model": 1})) is above


def test_a_verdict_is_argued_only_by_what_acts_on_it() -> None:
    """Less tensor parallelism takes what the tensor axis costs away, flags and micro-batches do not."""
    bench = labelled("8-way tensor parallelism in the open")
    said = "Communication limits the step"
    narrower = dict(bench.config.mesh.ici) | {"model": 1}
    narrower["data"] = bench.config.hardware.chips
    assert any(said in line for line in cited(bench, narrower).values())
    assert not any(said in line for line in cited(bench, dict(bench.config.mesh.ici), grad_accum=2).values())


def test_to_keep_what_runs_is_argued_with_products_near_their_roof_only_where_they_are() -> None:
    for name, near in (("idle just below the threshold", True), ("half memory, half compute", False)):
        bench = labelled(name)
        assert ("keep-what-runs" in cited(bench, dict(bench.config.mesh.ici))) is near


def test_a_sequence_axis_that_stays_cites_nothing_on_sequences() -> None:
    found = cited(run("v5p", [8, 8, 8], {"data": 16, "seq": 4, "model": 8}), {"data": 32, "seq": 4, "model": 4})
    assert not {"seq-to-data-lesson", "sequence-too-fine", "sequence-as-data", "context-parallel"} & set(found)


def test_a_sequence_shard_is_too_fine_below_2000_tokens_only() -> None:
    before, after = {"data": 64, "seq": 4, "model": 2}, {"data": 256, "seq": 1, "model": 2}
    short = cited(run("v5p", [8, 8, 8], before, seq_len=4096), after)
    long = cited(run("v5p", [8, 8, 8], before, seq_len=32768), after)
    assert "sequence-too-fine" in short and short["sequence-too-fine"].startswith("seq 4 → 1: ")
    assert "sequence-too-fine" not in long and "sequence-as-data" in long


def test_pipelines_are_cited_only_where_there_are_stages() -> None:
    plain = run("h100", [8, 8], {"data": 8, "model": 8}, grad_accum=8)
    assert not {"micro-batches-per-stage", "pipelining"} & set(cited(plain, {"data": 8, "model": 8}, grad_accum=16))
    stages = run("h100", [8, 8], {"pipeline": 4, "data": 2, "model": 8}, grad_accum=8, weight_sharding="zero1")
    found = cited(stages, {"pipeline": 4, "data": 2, "model": 8}, grad_accum=32)
    assert found["micro-batches-per-stage"].startswith("micro-batches per step 8 → 32: ")


def test_an_expert_axis_that_shrinks_is_not_said_to_grow() -> None:
    bench = run("h100", [8, 8], {"data": 4, "expert": 16}, "mixtral-8x7b")
    assert "expert-parallel" not in cited(bench, {"data": 16, "expert": 4})


def test_recomputation_is_cited_in_its_direction() -> None:
    mesh = {"data": 64, "model": 8}
    none, full = (run("v5p", [8, 8, 8], mesh, remat=policy, global_batch=1024) for policy in ("none", "full"))
    assert "remat-communication" not in cited(none, mesh, remat="minimal")
    assert cited(none, mesh, remat="minimal")["remat-minimal"].startswith("remat none → minimal: memory would not")
    assert cited(full, mesh, remat="minimal")["remat-minimal"].startswith("remat full → minimal: almost no matmul")
    assert "remat-minimal" not in cited(full, mesh, remat="none")


def test_offload_is_said_to_hide_only_where_a_layer_computes_long_enough() -> None:
    """TPU7x: 2.307e15 FLOP/s over its host link need 72,000; 70B has 104,000 and 8B 53,000 parameters per d_model."""
    wide = run("tpu7x", [4, 4, 4], {"data": 64}, global_batch=2048)
    narrow = run("tpu7x", [4, 4, 4], {"data": 64}, "llama3.1-8b", global_batch=8192)
    assert "remat-offload" in cited(wide, {"data": 64}, remat="offload")
    assert "remat-offload" not in cited(narrow, {"data": 64}, remat="offload")


def test_what_saves_memory_is_cited_only_where_memory_would_not_suffice_without() -> None:
    """64 TPU7x chips hold 70B with layer inputs saved at a batch of 512 three times over, at 2,048 not at all."""
    saving: tuple[dict[str, Any], ...] = ({"remat": "offload"}, {"grad_accum": 2})
    about = {"remat-offload", "oom-ladder", "gradient-accumulation", "host-offload-flags"}
    for batch, short in ((512, False), (2048, True)):
        bench = run("tpu7x", [4, 4, 4], {"data": 64}, global_batch=batch)
        for change in saving:
            assert bool(about & set(cited(bench, {"data": 64}, **change))) is short, (batch, change)


def test_a_run_that_was_measured_to_have_room_is_not_said_to_lack_it() -> None:
    """By the model the step needs 1.9 times the memory; its profile shows a peak of 0.6."""
    bench = labelled("half memory, half compute")
    assert bench.diagnosis.kpis["memory_peak_share"] == pytest.approx(0.6)
    assert not cited(bench, dict(bench.config.mesh.ici), grad_accum=2)


def test_a_wider_shard_is_not_cited_for_where_shards_were_wide() -> None:
    """28,672 / 8 = 3,584 columns a shard are many tiles."""
    assert "narrow-shards" not in cited(run("v5p", [8, 8, 8], {"data": 64, "model": 8}), {"data": 128, "model": 4})


def test_interleaving_is_cited_only_for_counts_that_divide_the_layers_of_a_stage() -> None:
    """80 layers on 4 stages: 20 a stage, so that 2 and 4 virtual stages are valid and 8 are not."""
    mesh = {"data": 16, "pipeline": 4}
    bench = run("h100", [8, 8], mesh, global_batch=128, micro_batch=1, weight_sharding="zero1")
    for virtual, valid in ((2, True), (4, True), (8, False)):
        assert ("interleaved-pipeline" in cited(bench, mesh, virtual_stages=virtual)) is valid, virtual


def test_fsdp_is_set_against_tensor_parallelism_only_on_links_of_one_kind() -> None:
    """8,192 tokens per data rank and more against a shard width of 28,672 / 8 = 3,584: activations are the traffic."""
    less = {"data": 32, "model": 2}
    assert "tensor-versus-fsdp" in cited(run("v5p", [4, 4, 4], {"data": 8, "model": 8}), less)
    assert "tensor-versus-fsdp" not in cited(run("h100", [8, 8], {"data": 8, "model": 8}), less)


def test_cutting_sequences_is_not_cited_where_there_are_more_than_ranks() -> None:
    bench = run("v5p", [4, 4, 4], {"data": 8, "model": 8})
    assert "context-parallel" not in cited(bench, {"data": 8, "seq": 4, "model": 2})


# Any run


def case_of(bench: Pricer, plan: Plan, item: ProposalPlan) -> Case:
    mesh = Mesh(tuple(item.mesh["ici"].items()), tuple(item.mesh["dcn"].items()), bench.config.mesh.axis_roles)
    return Case(
        item.rank, item.kind, bench.config, bench.diagnosis, bench.observed, plan.baseline, mesh, item.changes,
        item.predicted, faster=item.confidence, runs=1.0, keeping=0.5, exposed_s=0.0, utility=0.0, missing=(),
    )  # fmt: skip


def check(bench: Pricer, plan: Plan) -> None:
    for item in plan.proposals:
        case = case_of(bench, plan, item)
        _check_independently(bench.config, item)
        of = facts(case)
        found = {source.key: source.supports for source in cite(case, of)}
        said = " ".join(found.values())
        for one in case.changed:
            if supporting(one, of) and len(found) < MOST:
                assert f"{one.words}: " in said, (one, found)


def _check_independently(config: ExperimentConfig, item: ProposalPlan) -> None:
    """By what the proposal says of itself, not by the evaluator."""
    own = [source for source in item.citations if source.source != "history"]
    assert len(own) <= MOST and len({source.key for source in own}) == len(own)
    sizes = {place: (dict(getattr(config.mesh, place)), item.mesh[place]) for place in ("ici", "dcn")}
    kind, mixture = get_chip(config.hardware.chip).kind, config.model is None or config.model.experts > 0
    stages = max(item.mesh["ici"].get("pipeline", 1), config.mesh.size("pipeline"))
    tokens = config.training.global_batch_tokens
    for source in own:
        passage = PASSAGES[source.key]
        assert {kind, "any"} & set(passage.hardware)
        assert "expert" not in passage.tags or mixture
        assert "pipeline_bubble" not in passage.tags or stages > 1
        assert not {"precision", "inference"} & set(passage.tags)
        assert passage.id != "batch-too-small" or (tokens and tokens / config.hardware.chips < 12_000)
        assert source.supports.endswith(".")
        change = source.supports.partition(": ")[0]
        if " → " in change:
            words = change.split()
            name, was, becomes = words[0], words[-3], words[-1]
            if name in sizes["ici"][0] and "DCN" not in change and config.hardware.slices == 1:
                assert int(was) == sizes["ici"][0][name] and int(becomes) == sizes["ici"][1].get(name, 1)
            elif name == "remat":
                assert (was, becomes) == (config.training.remat, item.changes["remat"])
            elif change.startswith("weight sharding"):
                assert (was, becomes) == (config.training.weight_sharding, item.changes["weight_sharding"])


@pytest.mark.slow
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(runs())
def test_whatever_runs_each_change_is_cited_where_a_passage_bears_on_it_and_none_that_does_not(
    config: ExperimentConfig,
) -> None:
    try:
        profile = without_profile(config)
        bench = Pricer(profile, config, diagnose(profile, config))
        plan = bench.propose()
    except ConfigError:
        assume(False)
    check(bench, plan)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS[::6], ids=lambda item: item.name)
def test_so_it_is_with_a_profile(scenario: Any) -> None:
    profile, config = profiled(scenario), configured(scenario)
    bench = Pricer(profile, config, diagnose(profile, config))
    check(bench, bench.propose())


def test_findings_that_conditions_name_are_rules_of_the_analyzer() -> None:
    seen: set[str] = set()
    for scenario in SCENARIOS:
        profile = profiled(scenario)
        seen |= {finding.rule for finding in diagnose(profile, configured(scenario)).findings}
    named = {
        word
        for _, line in citable()
        for condition in line.conditions
        if condition.name == "finding" and isinstance(condition.value, frozenset)
        for word in condition.value
    }
    assert RULES and named <= seen, named - seen
