"""Computations: each answers on every kind of run, of exactly its arguments, with the product's own numbers."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from agent.tools import ToolError
from dialogue.computations import registry, run
from dialogue.computations.matching import OF_SETTINGS, matches, probabilities
from dialogue.computations.mentions import mentions_of
from evaluation.quality.evidence import PROFILES, bench
from experiments.without_profile import without_profile
from perfmodel.config_file import parse_config
from proposals.agents.settings import parse
from proposals.agents.tools.look import NOTABLE
from proposals.agents.values import Value
from proposals.agents.workbench import Workbench
from proposals.candidate import Candidate

CONFIG: dict[str, Any] = {
    "name": "llama3.1-8b on 64 H100",
    "hardware": {"chip": "h100", "topology": [8, 8]},
    "mesh": {"ici": {"data": 8, "model": 8}},
    "model": {"name": "llama3.1-8b"},
    "training": {"global_batch": 256, "seq_len": 4096},
}
RUNS = (*PROFILES, "step time alone", "nothing measured")


@cache
def of(name: str) -> Workbench:
    if name in PROFILES:
        return bench(name)
    measured = {"measured": {"step_time_s": 3.0, "peak_memory_bytes": 41e9}} if name == "step time alone" else {}
    config, _ = parse_config({**CONFIG, **measured})
    return Workbench.of_values(without_profile(config), config)


@pytest.mark.parametrize("name", RUNS)
def test_every_computation_answers_on_every_run(name: str) -> None:
    for key in registry():
        answered = run(of(name), key, {})
        assert answered.rendered.complaints == (), (key, answered.rendered.complaints)
        assert answered.rendered.plain.strip() and "{" not in answered.rendered.plain, (key, answered.rendered.plain)
        for further, _, given in answered.next:
            run(of(name), further, given)  # each further question can be answered


@pytest.mark.parametrize("name", RUNS)
def test_the_price_of_an_answer_is_the_price_everywhere(name: str) -> None:
    which = of(name)
    for state in which.proposals:
        plan, mesh = state.proposal, {}
        mesh = {**plan.mesh["ici"], **{f"dcn.{axis}": size for axis, size in plan.mesh.get("dcn", {}).items()}}
        (it,) = run(which, "price", {"mesh": mesh, "changes": dict(plan.changes)}).results["found"].configurations
        expected = which.pricer.evaluate(Candidate(plan.mesh, plan.changes), which.constraints).predicted
        time, memory = expected.step_time_s, expected.hbm_per_chip_bytes
        speed = it.speedup_per_token
        assert (it.step_time_s.estimate if it.step_time_s else None) == pytest.approx(time.estimate if time else None)
        assert (speed.estimate if speed else None) == pytest.approx(expected.speedup)
        assert it.memory_bytes == pytest.approx(memory.total if memory else None)


def test_what_is_predicted_is_never_called_measured() -> None:
    for name in ("step time alone", "nothing measured"):
        for key in registry():
            for part in run(of(name), key, {}).rendered.parts:
                if isinstance(part, Value) and not isinstance(part.value, str) and part.origin == "measured":
                    assert name == "step time alone", (key, part)
                    assert any(
                        word in part.subject.lower()
                        for word in ("step time", "memory", "cores", "speed", "steps", "mfu", "ops")
                    ), part


def test_worked_values_of_a_finding_fixed() -> None:
    which = of("asap-experiment-1")
    finding = which.diagnosis.findings[0]
    step = which.diagnosis.kpis["step_time_s"]
    answered = run(which, "if_fixed", {"finding": 1})
    left, speedup = answered.rendered.values[:2]
    assert left.value == pytest.approx(step - finding.saving_s)
    assert speedup.value == pytest.approx(step / (step - finding.saving_s))


def test_the_first_of_the_four_turns_is_the_first_proposal() -> None:
    which = of("step time alone")
    found = run(which, "which_first", {}).results["found"]
    assert found.proposals[0].number == 1
    speedups = [item.proposal.predicted.speedup or 0 for item in which.proposals]
    lead = speedups[found.leads.gain - 1]
    assert lead == speedups[0] >= max(speedups) / NOTABLE or lead == max(speedups)


def test_a_run_of_tokens_takes_what_its_parts_multiply_to() -> None:
    which = of("step time alone")
    answered = run(which, "spending", {"tokens": 1e12, "price_per_chip_hour": 2.0})
    days, hours, cost = answered.rendered.values[3:6]
    seconds = 1e12 / (256 * 4096) * 3.0
    assert (days.value, hours.value) == (pytest.approx(seconds), pytest.approx(seconds * 64))
    assert cost.value == pytest.approx(seconds * 64 / 3600 * 2.0) and cost.unit == "usd"


def test_a_name_from_a_profile_stays_text() -> None:
    which = of("asap-experiment-1")
    html = run(which, "ops", {"words": which.diagnosis.ops[0].name}).rendered.html()
    assert which.diagnosis.ops[0].name in html and "<script" not in html


@pytest.mark.parametrize(("key", "given", "words"), [
    ("nothing", {}, "no computation"), ("price", {"mesh": "warp=2"}, "warp"),
    ("price", {"changes": "remat=maybe"}, "remat"), ("why_finding", {"finding": 99}, "99"),
    ("confidence", {"proposal": 99}, "99"), ("vary", {"key": "colour"}, "colour"),
    ("figure", {"number": "beauty"}, "beauty"), ("price", {"mesh": "data=x"}, "mesh"),
    ("price", {"colour": "red"}, "colour"),
])  # fmt: skip
def test_what_cannot_be_answered_is_refused_in_a_sentence(key: str, given: dict[str, Any], words: str) -> None:
    with pytest.raises(ToolError, match=words):
        run(of("step time alone"), key, given)


SETTINGS = [
    ("turn off remat. 18 % for free?", {}, {"remat": "none"}), ("room for 16k sequences?", {}, {"seq_len": 16384}),
    ("remat_policy=none fsdp=16", {"data": 16}, {"remat": "full"}),
    ("remat_policy=minimal_with_context fsdp=16", {"data": 16}, {"remat": "none"}),
    ("data=16 tp=4 remat none", {"data": 16, "model": 4}, {"remat": "none"}),
    ("dp 16, tp4", {"data": 16, "model": 4}, {}),
    ("--tensor-model-parallel-size 4 --global-batch-size 512 --recompute-granularity selective --seq-length 8192",
     {"model": 4}, {"global_batch": 512, "remat": "minimal", "seq_len": 8192}),
    ("python3 train.py ici_fsdp_parallelism=32 ici_tensor_parallelism=2 per_device_batch_size=4 remat_policy=full "
     "max_target_length=8k", {"data": 32, "model": 2}, {"global_batch": 256, "remat": "full", "seq_len": 8192}),
    ("no remat, batch 512", {}, {"global_batch": 512, "remat": "none"}),
    ("micro batch 2, gradient accumulation of 16", {}, {"micro_batch": 2, "grad_accum": 16}),
    ("data=8→16, remat = none → full", {"data": 16}, {"remat": "full"}),
    ("mbs 4 -> 8, global batch from 256 to 512", {}, {"micro_batch": 8, "global_batch": 512}),
    ("tp4 mbs1 ga16", {"model": 4}, {"micro_batch": 1, "grad_accum": 16}),
    ("remat full not minimal", {}, {"remat": "full"}), ("micro_batch 2 not micro_batch 4", {}, {"micro_batch": 2}),
    ("why not tp=4?", {"model": 4}, {}), ("does it not fit at batch 512", {}, {"global_batch": 512}),
    ("remat=full/batch=512", {}, {"remat": "full", "global_batch": 512}),
    ("why is it slow", {}, {}), ("proposal 2", {}, {}), ("batch", {}, {}), ("tp=0", {}, {}), ("²", {}, {}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "ici", "changes"), SETTINGS)
def test_settings_are_read_as_people_write_them(text: str, ici: dict[str, int], changes: dict[str, Any]) -> None:
    found = parse(text, of("step time alone").config)
    assert (dict(found.ici), dict(found.changes)) == (ici, changes)


@pytest.mark.parametrize(("text", "ici", "changes"), [row for row in SETTINGS if row[1] or row[2]])
def test_settings_always_lead_to_their_price(text: str, ici: dict[str, int], changes: dict[str, Any]) -> None:
    which = of("step time alone")
    first = next(match for match in matches(which, text)[:2] if match.computation.key in OF_SETTINGS)
    assert not first.problem
    assert {axis: first.arguments["mesh"].get(axis, 1) for axis in ici} == ici
    now = which.config.training
    assert first.arguments.get("changes", {}) == {k: v for k, v in changes.items() if getattr(now, k) != v}
    assert run(which, "price", first.arguments).results["found"].configurations[0].mesh


def test_several_configurations_are_priced_each() -> None:
    for text in ("data=2 model=4 vs data=1 model=8", "dp2 tp4 or tp8, which is better?"):
        found = [match for match in matches(of("step time alone"), text) if match.computation.key == "price"]
        assert [match.arguments["mesh"]["model"] for match in found] == [4, 8]


def test_an_op_that_is_named_is_asked_about() -> None:
    which = of("asap-experiment-3")
    name = which.diagnosis.ops[2].name
    found = {match.computation.key: match.arguments for match in matches(which, f"what is {name} doing so long?")[:2]}
    assert found["op"] == {"op": name}


def test_what_is_only_spoken_of_is_not_asked_for() -> None:
    """The policy of the run as it is, a number that is no proposal's, a word that is no optimizer."""
    which = of("step time alone")
    now = which.config.training.remat
    for text in (
        f"with {now} remat, what is our HFU?",
        "Is one of the 64 hosts slow? A finding says so",
        "the optimizer step",
    ):
        for match in matches(which, text):
            assert not match.arguments.get("changes") and match.arguments.get("finding", 1) == 1, (text, match)


@pytest.mark.parametrize("key", registry())
def test_a_title_leads_to_its_computation(key: str) -> None:
    found = [match.computation.key for match in matches(of("step time alone"), registry()[key].title)]
    assert key in found[:3], found


@pytest.mark.parametrize(("text", "key", "given"), [
    ("how sure are you about proposal 2", "confidence", {"proposal": 2}),
    ("why finding 2", "why_finding", {"finding": 2}), ("is #2 sure", "confidence", {"proposal": 2}),
    ("would h200 be faster", "other_chip", {"chip": "h200"}), ("collectives on tp", "axis", {"axis": "model"}),
    ("how many days for 300B tokens", "spending", {"tokens": 3e11}),
    ("budget: 1.20 $ per chip hour, 1T tokens", "spending", {"tokens": 1e12, "price_per_chip_hour": 1.2}),
    ("$3.50 per GPU hour, 15T tokens", "spending", {"tokens": 1.5e13, "price_per_chip_hour": 3.5}),
    ("4 dollars/GPUh and 2B tokens", "spending", {"tokens": 2e9, "price_per_chip_hour": 4.0}),
    ("props 1 and 3, what differs?", "compare", {"proposal": 1, "other": 3}),
    ("has anybody tried this before", "precedents", {"proposal": 1}),
    ("where does duty cycle come from", "figure", {"number": "duty_cycle"}),
])  # fmt: skip
def test_what_the_words_name_fills_the_arguments(text: str, key: str, given: dict[str, Any]) -> None:
    found = {match.computation.key: match.arguments for match in matches(of("step time alone"), text)[:3]}
    assert found.get(key) == given, found


def test_what_was_learned_from_questions_is_of_these_computations() -> None:
    text = "why is the MFU so low?"
    shares = probabilities(text, mentions_of(of("step time alone"), text))
    assert set(shares) == set(registry()) and max(shares, key=lambda key: shares[key]) == "mfu"


def test_a_text_may_change_what_was_asked_before() -> None:
    found = matches(of("step time alone"), "and remat full?", ["data 16 model 4, what then?"])
    first, second = (each.arguments for each in found if each.arguments.get("changes") == {"remat": "full"})
    assert (first["mesh"], second["mesh"]) == ({"data": 16, "model": 4}, {"data": 8, "model": 8})


def test_a_configuration_may_change_a_proposal_that_a_text_names() -> None:
    which = of("step time alone")
    for said in ("proposal 1", "your first pick", "prop #1"):
        found = matches(which, f"{said} with batch 512?")[0]
        own = which.proposals[0].proposal
        mesh = {axis: size for axis, size in own.mesh["ici"].items() if size > 1}
        assert {axis: size for axis, size in found.arguments["mesh"].items() if size > 1} == mesh
        assert found.arguments["changes"] == {**own.changes, "global_batch": 512}


def test_an_axis_may_be_left_out_and_hosts_are_chips() -> None:
    which = of("step time alone")
    assert dict(parse("no tp, remat full", which.config).ici) == {"model": 1}
    counts = {text: mentions_of(which, text).counts for text in ("on 4 nodes", "32 idle GPUs", "64 GPUs", "2x H200")}
    assert counts == {"on 4 nodes": [32], "32 idle GPUs": [32], "64 GPUs": [], "2x H200": [2]}


def test_words_of_a_title_name_the_finding() -> None:
    which = of("asap-experiment-1")
    number = next(n for n, each in enumerate(which.diagnosis.findings, 1) if "rematerialisation" in each.title.lower())
    named = mentions_of(which, "is the rematerialisation overhead of 19 % our fault?")
    assert named.about == number and not named.findings


def test_a_number_of_something_else_changes_nothing_that_was_asked_before() -> None:
    which = of("step time alone")
    for text in ("on 128 chips?", "why is finding 3 so big?"):
        found = [each.arguments.get("mesh", {}).get("model") for each in matches(which, text, ["tp=4"])]
        assert not {3, 128} & set(found)
