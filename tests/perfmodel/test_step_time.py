"""Limits and monotonicity of the step time, over random meshes and by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.config import ConfigError, ExperimentConfig, Hardware, Mesh, Training
from perfmodel.efficiency import Efficiencies
from perfmodel.prediction import predict
from perfmodel.step_time import combine
from perfmodel.terms import step_terms
from perfmodel.workload import from_config, stack
from tests.perfmodel.cases import LLAMA3_8B, MIXTRAL, a100, tpu

AXES = ("replica", "data", "seq", "model", "expert")


def numbers(tree):
    """All numbers of a nested mapping."""
    for value in tree.values():
        if isinstance(value, dict):
            yield from numbers(value)
        else:
            yield value


def resources(prediction):
    breakdown = dict(prediction.breakdown_s)
    breakdown.pop("exposed_comms")
    return breakdown


@st.composite
def runs(draw):
    """A random mesh of a random slice, with random training."""
    chip, topology = draw(
        st.sampled_from([("v5e", (16, 16)), ("v6e", (8, 8)), ("v5p", (8, 8, 8)), ("v4", (4, 4, 4)), ("h100", (8, 8))])
    )
    left = int(np.log2(np.prod(topology)))
    sizes = {}
    for axis in AXES[:-1]:
        power = draw(st.integers(0, left))
        sizes[axis], left = 2**power, left - power
    sizes[AXES[-1]] = 2**left
    slices = draw(st.sampled_from([1, 1, 2, 4])) if chip != "h100" else 1
    return ExperimentConfig(
        Hardware(chip, topology, slices),
        Mesh(tuple(sizes.items()), (("data", slices),)),
        draw(st.sampled_from([LLAMA3_8B, MIXTRAL])),
        Training(
            draw(st.sampled_from([64, 512, 4096])),
            draw(st.sampled_from([2048, 8192])),
            remat=draw(st.sampled_from(["none", "minimal", "full", "offload"])),
            weight_sharding=draw(st.sampled_from(["none", "zero1", "fsdp"])),
            grad_accum=draw(st.sampled_from([1, 4])),
        ),
    )


@settings(max_examples=60, deadline=None)
@given(runs())
def test_bounds_enclose_the_estimate_and_rest_on_the_terms(config):
    prediction = predict(config)
    time = prediction.step_time_s
    assert 0 < time["lower"] <= time["low80"] <= time["estimate"] <= time["high80"] <= time["upper"] < math.inf
    breakdown = resources(prediction)
    assert all(value >= 0 for value in numbers(breakdown))
    assert time["upper"] <= sum(numbers(breakdown)) * (1 + 1e-9)
    overlappable = [breakdown["compute"], breakdown["hbm"], breakdown["dcn"], *breakdown["ici"].values()]
    assert time["lower"] >= max(overlappable) * (1 - 1e-9)


@settings(max_examples=40, deadline=None)
@given(runs())
def test_parts_add_up_to_the_estimate(config):
    prediction = predict(config)
    assert sum(numbers(prediction.parts_s)) == pytest.approx(prediction.step_time_s["estimate"])


@settings(max_examples=40, deadline=None)
@given(
    runs(),
    st.sampled_from(["hbm_bytes_per_s", "ici_bytes_per_s", "nvlink_bytes_per_s", "dcn_bytes_per_s"]),
)
def test_more_bandwidth_never_costs_time(config, key):
    base = {"hbm_bytes_per_s": 1e12, "ici_bytes_per_s": 5e10, "nvlink_bytes_per_s": 4e11, "dcn_bytes_per_s": 2e10}[key]
    times = []
    for factor in (1, 2, 8):
        hardware = replace(config.hardware, overrides={key: base * factor})
        times.append(predict(replace(config, hardware=hardware)).step_time_s["estimate"])
    assert times[0] >= times[1] * (1 - 1e-9)
    assert times[1] >= times[2] * (1 - 1e-9)


@settings(max_examples=30, deadline=None)
@given(runs())
def test_layer_inputs_on_the_host_spare_memory_and_no_work(config):
    """`offload` computes again what `full` does, and copies its layer inputs besides."""
    on_chip, on_host = (
        predict(replace(config, training=replace(config.training, remat=remat))) for remat in ("full", "offload")
    )
    assert on_host.parts_s["compute"] >= on_chip.parts_s["compute"] * (1 - 1e-9)
    assert on_host.step_time_s["estimate"] > on_chip.step_time_s["estimate"]
    assert on_host.hbm_per_chip_bytes["total"] <= on_chip.hbm_per_chip_bytes["total"]


@settings(max_examples=30, deadline=None)
@given(runs())
def test_axes_of_one_chip_cost_nothing(config):
    breakdown = predict(config).breakdown_s
    for axis, size in config.mesh.ici:
        if size == 1:
            assert breakdown["ici"][axis] == 0
    if config.hardware.slices == 1:
        assert breakdown["dcn"] == 0


@settings(max_examples=30, deadline=None)
@given(runs())
def test_rank_of_a_row_does_not_depend_on_its_neighbours(config):
    """A stack of workloads is priced as each alone."""
    other = tpu()
    effs = Efficiencies()
    together = combine(step_terms(stack([from_config(other), from_config(config)])), effs)
    alone = combine(step_terms(from_config(config)), effs)
    assert together.estimate_s[1] == pytest.approx(alone.estimate_s[0], rel=1e-9)
    assert together.upper_s[1] == pytest.approx(alone.upper_s[0], rel=1e-9)


def test_one_chip_takes_at_least_its_flops_at_peak():
    config = tpu({"data": 1}, chip="v5p", topology=(1, 1, 1), batch=1, seq=4096)
    prediction = predict(config)
    flops = 6 * 7.5e9 * 4096
    assert prediction.step_time_s["lower"] > flops / 4.59e14
    assert sum(prediction.breakdown_s["ici"].values()) == 0
    assert prediction.breakdown_s["bubble"] == 0


def test_twice_the_batch_takes_nearly_twice_as_long():
    one, two = (predict(tpu(batch=batch)).step_time_s["estimate"] for batch in (1024, 2048))
    assert 1.8 * one < two < 2.05 * one


def test_recomputing_costs_about_a_third_more_work():
    none, full = (predict(tpu({"data": 512}, batch=4096, remat=r)).parts_s["compute"] for r in ("none", "full"))
    assert 1.15 < full / none < 1.4


def test_a_pipeline_pays_its_bubble_and_more_micro_batches_shrink_it():
    """Bubble over busy time is (stages - 1) / micro-batches (Megatron-LM, arXiv 2104.04473, 2.2)."""
    few, many = (predict(a100(1, 4, batch=batch)) for batch in (8, 512))
    assert few.parts_s["bubble"] > 0
    share = few.parts_s["bubble"] / (few.parts_s["compute"] + few.parts_s["hbm"])
    assert share == pytest.approx(3 / 4, rel=0.05)
    assert many.parts_s["bubble"] / many.step_time_s["estimate"] < 0.02


def test_slices_pay_for_the_network_and_a_faster_network_pays_less():
    slow = tpu(slices=4, dcn=(("data", 4),), batch=2048)
    fast = replace(slow, hardware=replace(slow.hardware, overrides={"dcn_bytes_per_s": 2.5e11}))
    assert predict(slow).breakdown_s["dcn"] == pytest.approx(10 * predict(fast).breakdown_s["dcn"])


def test_no_schedule_hides_the_exchanges_of_experts_that_are_recomputed():
    """Megatron-Core asserts that full recomputation is off where it hides them: forward, backward and forward again,
    six of them then take all of their time, four are hidden in part."""
    mesh = Mesh((("data", 2), ("expert", 8)))
    config = ExperimentConfig(Hardware("h100", (8, 2)), mesh, MIXTRAL, Training(64, 4096, remat="minimal"))
    for remat, exchanges, is_hidden in (("minimal", 4, True), ("full", 6, False)):
        terms = step_terms(from_config(replace(config, training=replace(config.training, remat=remat))))
        expert = terms.traffic["expert"]
        assert expert.calls.item() == exchanges * 32
        priced = combine(terms, Efficiencies())
        in_flight, shown = priced.in_flight_s["ici:expert"].item(), priced.parts_s["ici:expert"].item()
        assert (shown < 0.9 * in_flight) is is_hidden
        assert is_hidden or shown == pytest.approx(in_flight)


def test_custom_names_mean_their_roles():
    named = predict(tpu({"data": 64, "model": 8}))
    config = tpu({"batch": 64, "mdl": 8})
    custom = replace(config, mesh=replace(config.mesh, axis_roles={"batch": "data", "mdl": "tensor"}))
    assert predict(custom).step_time_s == named.step_time_s
    assert set(predict(custom).breakdown_s["ici"]) == {"batch", "mdl"}


@pytest.mark.parametrize(
    ("missing", "names"),
    [
        ({"model": None}, ("model",)),
        ({"training": Training()}, ("training.global_batch", "training.seq_len")),
    ],
)
def test_missing_facts_give_a_partial_answer_that_says_so(missing, names):
    prediction = predict(replace(tpu(), **missing))
    assert prediction.missing == names
    assert prediction.step_time_s is None
    assert prediction.mfu is None
    memory = prediction.hbm_per_chip_bytes
    if "model" in names:
        assert memory is None
    else:
        assert memory["params"] > 0
        assert memory["activations"] is None
        assert prediction.fits is None


def test_states_that_exceed_the_chip_do_not_fit_whatever_the_batch():
    config = tpu({"replica": 512}, weight_sharding="none", overrides={"hbm_bytes": 16e9})
    assert predict(replace(config, training=replace(config.training, global_batch=None))).fits is False


def test_wrong_products_are_the_users_error():
    with pytest.raises(ConfigError, match=r"mesh\.ici"):
        predict(tpu({"data": 8}))
    with pytest.raises(ConfigError, match=r"mesh\.dcn"):
        predict(tpu(slices=2))


def test_mfu_and_throughput_agree_with_the_step():
    config = tpu({"data": 512}, batch=4096)
    prediction = predict(config)
    tokens = 4096 * 4096 / 512
    time = prediction.step_time_s["estimate"]
    assert prediction.tokens_per_s_per_chip == pytest.approx(tokens / time)
    per_token = 6 * 7.5e9 + 3 * 4 * 32 * 4096 * 2048
    assert prediction.mfu == pytest.approx(tokens * per_token / time / 4.59e14, rel=0.01)
    assert prediction.mfu < 1


def test_hardware_utilisation_counts_what_is_computed_again():
    """Full recomputation runs the forward pass twice: four thirds of the model's FLOPs (book 4.4.2), here with the
    scores that the attention kernel forms once more."""
    none, full = (predict(tpu({"data": 512}, batch=4096, remat=remat)) for remat in ("none", "full"))
    assert none.hfu == pytest.approx(none.mfu, rel=0.05)
    assert full.hfu / full.mfu == pytest.approx(4 / 3, rel=0.1)
