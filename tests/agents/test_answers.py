"""What answers hold, against numbers derived by hand: figures that a message names, cost and time, flags, steps,
confidence and memory."""

from __future__ import annotations

import json
from dataclasses import replace
from math import ceil, sqrt
from typing import Any

import pytest

from agent.events import TextDelta, ToolReturned
from diagnosis.compare import Comparison, compare
from evaluation.quality.evidence import ask, bench
from experiments.step_profile import Step
from experiments.without_profile import without_profile
from formatting import plain
from perfmodel import known_flags
from perfmodel.chips import get_chip
from perfmodel.config_file import parse_config
from proposals.agents import amounts
from proposals.agents.capabilities import AnswerContext, answer, arguments, registry
from proposals.agents.conversation import Question
from proposals.agents.figures import Figure, by_words, figures_of, look_up, relations
from proposals.agents.retrieval import Peer
from proposals.agents.shipped import Shipped
from proposals.agents.workbench import Workbench

pytestmark = pytest.mark.slow

GPU = "tensor axis across NVLink domains"


def said(of: Workbench, key: str, message: str, *earlier: str, **values: Any) -> tuple[str, list[Any], list[str]]:
    """The text of a capability for a message, the results of its tools, and what it asks back."""
    ctx = AnswerContext(of, (message, *earlier))
    given = {**({"text": message} if "text" in registry()[key].fields else {}), **values}
    events = list(answer(ctx, registry()[key], arguments(registry()[key], given)))
    text = "".join(e.text for e in events if isinstance(e, TextDelta))
    results = [e.result for e in events if isinstance(e, ToolReturned)]
    return text, results, [e.text for e in events if isinstance(e, Question)]


def configured(framework: str, **training: Any) -> Workbench:
    """A run of 64 H100 whose step took 2 s, without a profile."""
    config, _ = parse_config(
        {
            "hardware": {"chip": "h100", "topology": [8, 8]},
            "mesh": {"ici": {"data": 8, "model": 8}},
            "model": {"name": "llama3.1-8b"},
            "training": {"global_batch": 256, "seq_len": 4096, **training},
            "software": {"framework": framework},
            "measured": {"step_time_s": 2.0},
        }
    )
    return Workbench.of_values(without_profile(config), config)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10,000 steps at $4.20 per chip hour", {"steps": 1e4, "price": 4.2, "currency": "$"}),
        (
            "we rent 16 h100 at 2.1 eur. 500B tokens: weeks",
            {"chips": 16, "price": 2.1, "currency": "€", "tokens": 5e11},
        ),
        ("100k more steps, 2.70 USD per GPU-hour", {"steps": 1e5, "price": 2.7, "currency": "$"}),
        ("64 £ per node hour", {"price": 8.0, "currency": "£"}),
        ("640 CHF per hour for the whole cluster", {"currency": "CHF "}),
        ("i have 90 days only", {"days": 90.0}),
        ("two weeks left, 3 weeks at most", {"days": 21.0}),
        ("2 slices of the same", {"chips": 128}),
        ("a step takes 2.0 s and 8 GB/s", {"steps": None, "price": None, "tokens": None, "days": None, "chips": None}),
    ],
)
def test_amounts_are_read_with_their_units_and_currency(text: str, expected: dict[str, Any]) -> None:
    found = amounts.read(text, configured("jax").config)
    assert {key: getattr(found, key) for key in expected} == pytest.approx(expected)


def test_steps_and_a_price_make_a_bill_with_its_range_and_what_is_saved() -> None:
    text, results, asked = said(configured("jax"), "cost", "We have 10,000 steps to do. At €3.00 per chip-hour?")
    (data,) = [each for each in results if each and "price_per_chip_hour" in each]
    now, *others = data["rows"]
    hours = 2.0 * 64 / 3600 * 10_000  # step time × chips × steps
    assert now["chip_hours_of_the_run"] == pytest.approx(hours) and now["cost_of_the_run"] == pytest.approx(3 * hours)
    assert now["days_of_the_run"] == pytest.approx(2.0 * 10_000 / 86_400)
    for row in others:
        low, high = row["saved_cost_of_the_run_range"]
        assert row["saved_cost_of_the_run"] == pytest.approx(now["cost_of_the_run"] - row["cost_of_the_run"])
        assert low <= row["saved_cost_of_the_run"] <= high
    assert f"€{3 * hours:,.0f}" in text and "$" not in text and not asked


def test_the_hours_of_a_run_need_no_price() -> None:
    text, _, asked = said(configured("jax"), "cost", "how many dollars for 1 million of these steps?")
    assert f"{2.0 * 64 / 3600 * 1e6:,.0f} chip-hours" in text and len(asked) == 1
    _, _, asked = said(configured("jax"), "cost", "1T tokens in chip-hours?")
    assert not asked


def test_days_and_tokens_said_before_give_a_number_of_chips() -> None:
    text, results, _ = said(
        configured("jax"), "training_time", "i have 3 days only. how many gpus", "300B tokens of pretraining: days?"
    )
    tokens_per_s = 256 * 4096 / 2.0
    chips = ceil(64 * 3e11 / tokens_per_s / 86_400 / 3)
    assert f"**{chips:,} chips**" in text
    assert any(each and each.get("reached_with_chips", 0) >= 64 for each in results)


def test_a_number_is_looked_up_as_the_figure_that_it_is_with_its_formula() -> None:
    of = bench("asap-experiment-3")
    part, seconds = max(of.diagnosis.breakdown_s.items(), key=lambda item: item[1])
    (found,) = look_up(f"why {seconds:.3g} s?", figures_of(of))
    assert found.found[0].field == f"term-{part}" and "self times" in found.found[0].formula
    text, _, _ = said(of, "explain_figure", f"where do {seconds:.3g} s come from")
    assert f"{seconds:.3g} s" in text and "breakdown of the step" in text and "computed" in text


def test_numbers_without_units_take_the_unit_of_those_beside_them_and_gb_may_be_gib() -> None:
    figures = (
        Figure("nominal HBM", 16 * 2.0**30, "bytes", "sourced", "chip data"),
        Figure("link bandwidth", 45e9, "bytes_per_s", "sourced", "chip data"),
        Figure("ring bandwidth", 90e9, "bytes_per_s", "computed", "chip data"),
    )
    found = {
        item.said: [each.label for each in item.found] for item in look_up("45 or 90 GB/s of a 16 GB part", figures)
    }
    assert found == {"45": ["link bandwidth"], "90 GB/s": ["ring bandwidth"], "16 GB": ["nominal HBM"]}


def test_a_share_that_two_figures_give_is_said_to_follow_from_them() -> None:
    figures = (
        Figure("predicted alone", 76.4, "s", "predicted", "verdict"),
        Figure("measured step time", 71.5, "s", "measured", "verdict"),
    )
    *_, last = look_up("the model says 76.4 s, measured is 71.5 s, so 7 % off", figures)
    assert not last.found and "6.85 %" in last.follows  # 76.4 ÷ 71.5 = 1.0685


def test_two_numbers_relate_by_unit_or_by_what_they_count() -> None:
    time = Figure("idle, per step", 0.107, "s", "computed", "breakdown", counts="exclusive part of the step")
    share = Figure("idle", 0.05, "share", "measured", "key figures", counts="of the step")
    gaps = Figure("idle on core 0", 0.0963, "s", "measured", "steps", counts="gaps of this core")
    assert relations((time, share), 2.14) == ["107 ms is 5.00 % of the step of 2.14 s: the same thing in two units."]
    (sentence,) = relations((time, gaps), 2.14)
    assert "counted differently" in sentence and "10.7 ms" in sentence and "gaps of this core" in sentence


def test_a_number_of_nobody_is_called_the_users_own() -> None:
    text, _, _ = said(bench("asap-experiment-3"), "explain_figure", "who measured 123,456 GB/s here?")
    assert "taken as yours" in text


def test_figures_are_found_by_the_op_that_words_name() -> None:
    of = bench("asap-experiment-3")
    op = of.diagnosis.ops[0]
    assert any(op.name in item.of for item in by_words(f"what about {op.name}, its share?", figures_of(of)))


def test_an_objection_on_an_axis_that_the_mesh_lacks_is_right_and_on_one_that_it_has_is_not() -> None:
    of = bench("asap-experiment-3")
    text, _, _ = said(of, "doubt", "a bubble? I have no pipeline here")
    assert "**You are right**" in text and "no pipeline parallelism" in text
    text, _, _ = said(of, "doubt", "there is no tensor parallelism in this run")
    assert "does not hold" in text and "16" not in text.partition("does not hold")[0][-1:]


def test_a_doubt_without_a_profile_says_what_would_decide_it() -> None:
    text, _, _ = said(configured("jax"), "doubt", "I do not believe that compute limits this")
    assert "No further evidence" in text and "profile" in text and "Evidence" in text


def test_every_flag_says_what_it_does_and_cites_where_that_stands() -> None:
    for flag in known_flags.load().values():
        assert flag.citation and not flag.does.endswith(".")
        assert flag.on and all(held.startswith("--") for held in flag.holds)


def test_named_flags_are_found_whole_by_a_star_by_their_end_and_by_other_names() -> None:
    def names(text: str) -> list[tuple[str, int]]:
        return [(name, len(found)) for name, found in known_flags.named(text)]

    assert names("--xla_tpu_enable_async_collective_fusion* go where") == [
        ("--xla_tpu_enable_async_collective_fusion*", 5)
    ]
    assert names("max_concurrent_host_send_recv=100") == [("max_concurrent_host_send_recv", 1)]
    assert names("is DeepEP on?") == [("moe-enable-deepep", 1)]
    assert names("NVTE_CK_USES_BWD_V3=1 helps") == [("NVTE_CK_USES_BWD_V3", 0)]
    assert names("XLA_FLAGS or LIBTPU_INIT_ARGS for a well-known first-class step_time") == []


def test_a_program_that_xla_did_not_compile_is_told_that_it_reads_no_xla_flag() -> None:
    text, _, _ = said(configured("pytorch"), "flags", "which flags hide the all-reduces?")
    assert "does not read XLA flags" in text and "--xla_gpu" not in text
    text, _, _ = said(configured("pytorch"), "flags", "--xla_gpu_enable_pipelined_all_reduce=true?")
    assert "ignores it" in text


def test_a_flag_without_the_axis_it_acts_on_has_nothing_to_act_on() -> None:
    text, _, _ = said(configured("Megatron-LM"), "flags", "DeepEP dispatcher, effect?")
    assert "nothing to act on here" in text and "expert" in text
    text, _, _ = said(configured("Megatron-LM"), "flags", "would --tp-comm-overlap help?")
    assert "nothing to act on" not in text and "predicted" in text


def test_a_flag_on_tpu_goes_into_libtpu_init_args_and_what_is_set_is_said() -> None:
    of = bench("asap-experiment-3")
    text, _, _ = said(of, "flags", "would --xla_tpu_scoped_vmem_limit_kib=98304 move anything?")
    assert "LIBTPU_INIT_ARGS" in text and "VMEM" in text and "not predicted" in text
    unknown, _, _ = said(of, "flags", "does --xla_tpu_make_it_fast=true help?")
    assert "is unknown here" in unknown and "```" not in unknown


def test_the_launch_file_is_of_the_tool_and_the_proposal_that_are_named() -> None:
    text, _, _ = said(bench(GPU), "launch", "megatron-lm arguments for 2")
    assert "`megatron.sh` of proposal 2" in text
    text, _, _ = said(configured("Megatron-LM"), "launch", "give me the arguments")
    assert text.count("`megatron.sh`") == 1


def with_steps(*times: float) -> Workbench:
    of = bench("asap-experiment-3")
    steps = tuple(Step(number, time) for number, time in enumerate(times))
    return Workbench.of_values(replace(of.profile, steps=steps), of.config, of.diagnosis, of.plan)


def test_steps_have_a_median_and_a_standard_error_and_a_warm_up_is_named() -> None:
    times = (3.05, 2.56, 2.52, 2.47, 2.35)
    found = ask(with_steps(*times), "steps")
    mean = sum(times) / 5
    deviation = sqrt(sum((t - mean) ** 2 for t in times) / 5)
    assert found["median_s"] == 2.52 and found["trend"] == "falling"
    assert found["standard_error_s"] == pytest.approx(deviation / sqrt(5))
    text, _, _ = said(with_steps(*times), "step_time", "is it warming up?")
    assert "warm-up" in text and "2.48 s" in text  # mean of the last four
    text, _, _ = said(with_steps(2.5, 2.6, 2.5, 2.6), "step_time", "is it warming up?")
    assert "warm-up" not in text


def test_a_module_that_is_named_is_answered_first_with_its_phases() -> None:
    of = bench("asap-experiment-2")
    text, results, _ = said(of, "modules", "how much is attention?")
    (row,) = [row for row in results[0]["rows"] if row["module"] == "attention"]
    assert row["time_share"] == pytest.approx(sum(part["time_share"] for part in row["parts"]))
    assert text.split("\n\n")[1].startswith("**Attention** takes")


def test_two_ops_that_are_named_stand_side_by_side_and_runs_per_call_follow_from_the_steps() -> None:
    of = bench("asap-experiment-2")
    one, other = (op.name for op in of.diagnosis.ops[:2])
    text, _, _ = said(of, "op", f"why is {one} slower than {other}?")
    assert text.count(f"`{one}`") >= 2 and f"`{other}`" in text
    op = of.diagnosis.ops[0]
    row = ask(of, "op", op=op.key)
    runs = len(of.profile.steps) * of.profile.device.measured_cores
    assert row["calls_per_step_and_core"] == pytest.approx(op.occurrences / runs)
    assert row["time_per_call_s"] == pytest.approx((op.time_s or 0.0) * runs / op.occurrences)


def test_a_gain_is_set_beside_the_noise_that_is_stated() -> None:
    of = bench(GPU)
    row = ask(of, "proposals", number=1)["proposal"]
    gain, low = row["speedup_per_token"] - 1, row["speedup_low80"] - 1
    text, _, _ = said(of, "confidence", "our runs vary by +-500 % from run to run", proposal=1)
    assert "no larger than it" in text
    text, _, _ = said(of, "confidence", "noise is 0.01 %", proposal=1)
    assert ("even the low end" in text) == (low > 1e-4) and gain > 1e-4
    contains = row["speedup_low80"] < 1 < row["speedup_high80"]
    assert ("cannot be told from no change" in text) == contains


def test_accuracy_is_one_number_with_the_runs_behind_it() -> None:
    of = configured("jax")
    error = of.plan.model_error
    assert error is not None
    text, _, _ = said(of, "accuracy", "how far off? one number")
    assert f"{error['rows']:,} held-out runs" in text and f"**{error['median'] * 100:.3g} %**" in text


def test_a_measured_peak_is_taken_up_and_carried_to_the_proposals() -> None:
    of = configured("jax")
    base = of.plan.baseline.hbm_per_chip_bytes
    assert base is not None
    text, results, _ = said(of, "memory", "you show less, nvidia-smi says 71. where is the rest?")
    (data,) = [each for each in results if each and "unaccounted_bytes" in each]
    assert data["unaccounted_bytes"] == pytest.approx(71e9 - base.total)
    for row in data["rows"]:
        assert row["projected_bytes"] == pytest.approx(71e9 + row["total_bytes"] - base.total)
    assert "71.0 GB" in text and "caching allocator" in text
    later, _, _ = said(of, "memory", "so is proposal 2 still safe with that?", "nvidia-smi says 71 GB")
    assert "71.0 GB" in later


def test_one_replica_shards_no_optimizer_state() -> None:
    of = configured("Megatron-LM", weight_sharding="zero1")
    assert ask(of, "memory_use")["optimizer_sharded_over_replicas"] == 8  # the data axis
    config, _ = parse_config(
        {
            "hardware": {"chip": "h100", "topology": [8, 1]}, "mesh": {"ici": {"model": 8}},
            "model": {"name": "llama3.1-8b"},
            "training": {"global_batch": 8, "seq_len": 4096, "weight_sharding": "zero1"},
            "measured": {"step_time_s": 2.0},
        }
    )  # fmt: skip
    alone = Workbench.of_values(without_profile(config), config)
    text, _, _ = said(alone, "memory_parts", "zero1, so the optimizer is sharded 8 ways, right?")
    assert "one replica, so nothing is sharded" in text


def test_an_unknown_model_still_has_chips_to_compare() -> None:
    of = bench("asap-experiment-1")
    assert of.config.model is None
    found = ask(of, "without_model", chip="h100")
    own, there = get_chip(of.config.hardware.chip), get_chip("h100")
    assert found["peak_flops_over_own"] == pytest.approx(there.peak("bf16") / own.peak("bf16"))
    assert found["hbm_bandwidth_over_own"] == pytest.approx(there.hbm_bytes_per_s / own.hbm_bytes_per_s)
    text, _, _ = said(of, "change_precision", "would fp8 help?", precision="fp8")
    assert "no native fp8 matmul support" in text and "memory per chip: not predicted, since" in text


def test_an_answer_takes_up_the_figures_that_the_message_names_by_their_numbers() -> None:
    from proposals.agents import reasoner
    from proposals.agents.conversation import Ask

    of = bench("asap-experiment-1")
    part = plain(of.diagnosis.breakdown_s["idle"], "s")
    gaps = plain(of.diagnosis.timeline.parts_s["idle"][0][0], "s")
    events = reasoner.answer(of, Ask(f"How much idle time is there between ops, {part} or {gaps}?"))
    text = "".join(e.text for e in events if isinstance(e, TextDelta))
    assert part in text and gaps in text
    assert "counted differently" in text or part == gaps


@pytest.mark.parametrize(
    ("run", "key", "message"),
    [
        ("asap-experiment-3", "explain_figure", "is 40.9 % exposed, and is it 7.35 s?"),
        ("asap-experiment-1", "doubt", "why is the step 35.7 s, I do not believe that compute limits it"),
        ("gradients over DCN", "cost", "250,000 steps at 3.10 EUR per chip-hour, saved by the proposals?"),
        (GPU, "memory", "nvidia-smi says 71 GB, does it still fit?"),
        ("expert dispatch", "flags", "--xla_gpu_enable_latency_hiding_scheduler=true?"),
    ],
)
def test_each_number_of_an_answer_to_a_message_is_of_its_tools_or_of_the_message(
    run: str, key: str, message: str
) -> None:
    from tests.agents.test_capabilities import unbacked

    text, results, _ = said(bench(run), key, message)
    assert unbacked(text, [*results, message], {}) == [], json.dumps(text)


def test_a_configuration_on_other_chips_is_no_proposal_to_be_compared() -> None:
    text, results, _ = said(configured("MaxText"), "why_not", "Why not on twice the chips?", chips=128)
    assert "on 128 h100 chips" in text and "per token and chip" in text
    assert results[0]["there"]["chips"] == 128


def test_the_costliest_collective_may_be_on_an_axis_that_is_not_known() -> None:
    of = bench("cpu-data8")
    rows = tuple(replace(row, axis="") for row in of.diagnosis.collectives)
    text, _, _ = said(replace(of, diagnosis=replace(of.diagnosis, collectives=rows)), "communication", "")
    assert "on an unattributed axis" in text


class Team(Shipped):
    """One other experiment, as a team has them."""

    def experiments(self, text: str, k: int) -> tuple[Peer, ...]:
        return (Peer(7, "the run before"),)

    def compare(self, other: int) -> Comparison:
        sides = (bench("cpu-data8"), bench("cpu-data2-seq2-model2"))
        one, two = ((of.profile, of.config, of.diagnosis) for of in sides)
        return compare(one, two)


def test_a_comparison_with_another_experiment_lists_what_is_configured_otherwise() -> None:
    own = bench("cpu-data2-seq2-model2")
    of = Workbench.of_values(own.profile, own.config, own.diagnosis, retrieval=Team())
    assert "7: the run before" in said(of, "against", "What changed since the last run?")[0]
    text, (result,), _ = said(of, "against", "What changed?", experiment=7)
    assert "mesh.ici.data: 8 → 2" in text and "mesh.ici.seq: not set → 2" in text
    assert result["bottleneck"]["after"] == own.diagnosis.bottleneck.primary and len(result["ops"]) == 5
