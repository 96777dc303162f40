"""Calibration: what a profile says of few efficiencies, what it leaves unexplained, and how sure prices are."""

from dataclasses import replace

import numpy as np
import pytest

from perfmodel.accounting import forward_flops, parameters
from perfmodel.baseline import fill_in
from perfmodel.calibration import calibrate
from perfmodel.catalogue import get_model
from perfmodel.config import Mesh
from perfmodel.config_file import parse_config
from perfmodel.efficiency import load_efficiencies
from perfmodel.observation import Observation, ObservedCollective
from perfmodel.prediction import predict
from perfmodel.price import Evidence
from perfmodel.price import predict as predict_by
from perfmodel.step_time import combine
from perfmodel.terms import step_terms
from perfmodel.workload import from_config
from tests.perfmodel.cases import MIXTRAL, tpu

PARTS = {"compute": 5.0, "hbm": 1.0, "ici:model": 2.0, "ici:data+seq": 1.0, "input": 0.4, "idle": 0.3, "other": 0.3}
SEEN = Observation(10.0, PARTS, memory_bytes=50e9)


def mesh(data, seq, model, **more):
    return Mesh((("data", data), ("seq", seq), ("model", model), *more.items()))


def blind(config):
    """The same run with the model, batch and sequence length withheld."""
    return replace(config, model=None, training=replace(config.training, global_batch=None, seq_len=None))


def as_modelled(config, **more):
    """A profile that shows every part where and as long as the model has it."""
    resolved = load_efficiencies().for_config(config)
    priced = combine(step_terms(from_config(config)), resolved)
    parts = {}
    for name, value in priced.parts_s.items():
        key = {"bubble": "idle", "overhead": "other"}.get(name, name)
        if name.startswith("ici:"):
            roles = {"weights": "data+seq", "expert_weights": "data+seq"}
            key = f"ici:{roles.get(name[4:], name[4:])}"
        parts[key] = parts.get(key, 0.0) + float(value[0])
    parts = {name: seconds * more.get(name, 1.0) for name, seconds in parts.items() if seconds > 0}
    return Observation(sum(parts.values()), parts)


def known():
    return tpu({"data": 8, "seq": 8, "model": 8}, batch=1024)


@pytest.mark.parametrize(("times", "disagrees"), [(0.7, True), (0.9, False), (1.3, False), (1.9, True)])
def test_a_profile_of_other_flops_than_the_configuration_makes_is_doubted_with_both_numbers(times, disagrees):
    config = known()
    shape, tokens = config.model, config.training.global_batch_tokens
    # Matmuls alone: attention kernels may be counted or not, and so may a recomputed forward pass.
    flops = 3.0 * forward_flops(shape, config.training.seq_len).matmul * tokens / config.hardware.chips
    evidence = Evidence(config, replace(as_modelled(config), flops=times * flops))
    (said,) = evidence.doubts or ("",)
    found = evidence.calibration.disagreement
    assert (found is not None) == ("FLOP" in said) == disagrees
    if times < 1.0 and found:
        assert (found.of, found.recorded, found.modelled) == ("flops", times * flops, pytest.approx(flops, rel=0.01))


@pytest.mark.parametrize("times", [1.0, 3.0])
def test_without_remat_the_collectives_of_the_recomputation_are_gone_explained_or_not(times):
    """Of 11 gathers and scatters of activations in a recomputed layer 3 repeat the forward pass (book 5.1.3)."""
    seen = replace(as_modelled(known(), **{"ici:model": times}), recomputed_s=100.0)
    without = replace(known(), training=replace(known().training, remat="none"))
    sent = calibrate(known(), seen).price([known(), without]).parts_s["ici:model"]
    assert sent[0] == pytest.approx(seen.parts_s["ici:model"])
    assert sent[1] / sent[0] == pytest.approx(8 / 11, rel=0.03)


@pytest.mark.parametrize("times", [1.0, 4.0])
def test_matmuls_that_take_far_longer_than_the_model_expects_of_the_facts_are_doubted(times):
    evidence = Evidence(known(), as_modelled(known(), compute=times))
    found = evidence.calibration.disagreement
    assert (found is None) == (times == 1.0) == (not evidence.doubts)
    if times > 1.0:
        assert found.of == "work" and found.recorded > 1.28 * found.modelled


@pytest.mark.parametrize("config", [known(), blind(known())], ids=["known", "blind"])
def test_the_baseline_prices_as_measured(config):
    prices = calibrate(config, SEEN).price([config])
    assert prices.step_time_s[0] == pytest.approx(10.0)
    assert prices.speedup[0] == pytest.approx(1.0)
    assert prices.sigma[0] == 0
    ran = predict_by(config, Evidence(config, SEEN))
    assert ran.hbm_per_chip_bytes["total"] == pytest.approx(50e9)
    parts = {name: value[0] for name, value in prices.parts_s.items()}
    assert parts["compute"] == pytest.approx(5.0)
    assert parts["ici:model"] == pytest.approx(2.0)
    assert parts["ici:weights"] + parts["ici:seq"] == pytest.approx(1.0)


def test_tensor_traffic_follows_the_tokens_of_a_group_whatever_the_model():
    """Halving the tensor axis and doubling the data axis: half the tokens per group, so half the activations, on a
    quarter ring of four neighbours: three hops one way instead of four both ways."""
    config = known()
    candidate = replace(config, mesh=mesh(16, 8, 4))
    ratios = []
    for base in (config, blind(config)):
        prices = calibrate(base, SEEN).price([replace(base, mesh=candidate.mesh)])
        ratios.append(prices.parts_s["ici:model"][0] / 2.0)
    assert ratios[0] == pytest.approx(ratios[1], rel=0.02)
    line, ring = 3 / 4, 1 / 2
    assert ratios[0] == pytest.approx(0.5 * line / ring, rel=0.02)


def test_weights_gathered_grow_as_the_tensor_axis_shrinks():
    """Twice the weights per group over the same full dimensions, on links that the profile shows to be slow."""
    config = known()
    seen = as_modelled(config, **{"ici:data+seq": 2.0})
    prices = calibrate(config, seen).price([config, replace(config, mesh=mesh(8, 16, 4))])
    assert prices.parts_s["ici:weights"][1] > 1.5 * prices.parts_s["ici:weights"][0]


def test_larger_batches_amortise_what_does_not_depend_on_them():
    config = known()
    bigger = replace(config, training=replace(config.training, global_batch=2048))
    prices = calibrate(config, SEEN).price([bigger])
    assert 10 < prices.step_time_s[0] < 20
    assert prices.speedup[0] > 1


def test_input_time_follows_the_batch_and_grows_where_a_faster_step_waits_longer():
    """Twice the sequences take twice the input time, or as much as keeps the input pipeline the pace."""
    config = known()
    bigger = replace(config, training=replace(config.training, global_batch=2048))
    prices = calibrate(config, SEEN).price([config, bigger])
    assert prices.parts_s["input"][0] == pytest.approx(0.4)
    busy = prices.step_time_s[1] - prices.parts_s["input"][1]
    assert 0.8 <= prices.parts_s["input"][1] <= 2 * 10.0 - busy


@pytest.mark.parametrize(
    "change",
    [
        {"precision": "int8"},
        {"optimizer": "sgd"},
        {"remat": "none"},
        {"global_batch": 1024},
        {"weight_sharding": "zero1"},
    ],
    ids=str,
)
def test_only_what_ran_is_certain_any_other_setting_has_a_range(change):
    config = tpu({"data": 8, "seq": 8, "model": 8})
    prices = calibrate(config, SEEN).price([config, replace(config, training=replace(config.training, **change))])
    assert prices.low80_s[0] == prices.step_time_s[0] == prices.high80_s[0]
    assert prices.low80_s[1] < prices.step_time_s[1] < prices.high80_s[1]


def test_an_axis_the_baseline_lacked_is_uncertain_and_more_so_without_the_model():
    config = tpu({"data": 64, "seq": 8, "model": 1}, batch=1024)
    seen = as_modelled(config)
    candidate = mesh(16, 8, 4)
    spread = [calibrate(b, seen).price([replace(b, mesh=candidate)]).sigma[0] for b in (config, blind(config))]
    same_axes = calibrate(config, seen).price([replace(config, mesh=mesh(128, 4, 1))]).sigma[0]
    assert same_axes < spread[0] < spread[1]


def test_inferred_tokens_take_the_measured_time():
    """With the batch withheld, the batch that explains the compute time is close to the true one."""
    config = known()
    prediction = predict(config)
    parts = {name: prediction.parts_s[name] for name in ("compute", "hbm")}
    seen = Observation(prediction.step_time_s["estimate"], parts)
    hidden = replace(config, training=replace(config.training, global_batch=None))
    calibration = calibrate(hidden, seen)
    assert calibration.assumed == ("training.global_batch",)
    assert calibration.baseline.training.global_batch == pytest.approx(1024, rel=0.05)


def test_without_a_step_time_prices_are_relative():
    config = blind(known())
    shares = {name: value / 10 for name, value in PARTS.items()}
    prices = calibrate(config, Observation(None, shares)).price([config])
    assert prices.step_time_s[0] == pytest.approx(1.0)


def test_nothing_measured_cannot_calibrate():
    with pytest.raises(ValueError, match="no measured part"):
        calibrate(known(), Observation(None, {}))


def moves(config):
    return [replace(config, mesh=m) for m in (mesh(16, 8, 4), mesh(16, 16, 2), mesh(4, 8, 16), mesh(64, 8, 1))]


def test_a_step_time_alone_prices_the_baseline_as_measured_and_gains_almost_as_the_model():
    """A step half as long again tells of no part in particular, so gains stay near those of the step as modelled."""
    config = known()
    modelled = predict(config).step_time_s["estimate"]
    gains = []
    for times in (1.0, 1.5):
        prices = calibrate(config, Observation(times * modelled, {})).price([config, *moves(config)])
        assert prices.step_time_s[0] == pytest.approx(times * modelled)
        assert prices.sigma[0] == 0
        assert np.all(prices.sigma[1:] > 0)
        gains.append(np.log(prices.speedup[1:]))
    assert gains[1] == pytest.approx(gains[0], abs=0.1)


def test_a_profile_that_the_model_explains_leaves_it_as_it_is_and_narrows_the_range():
    config = known()
    seen = as_modelled(config)
    alone = calibrate(config, Observation(seen.step_time_s, {})).price(moves(config))
    full = calibrate(config, seen).price(moves(config))
    assert np.log(full.speedup) == pytest.approx(np.log(alone.speedup), abs=0.1)
    assert np.all(full.sigma < alone.sigma)


def test_the_slow_axis_is_learnt_and_named():
    """Activations take twice as long on the tensor axis as expected: halving it gains more than the model alone
    says."""
    config = known()
    slow, plain = (calibrate(config, as_modelled(config, **{"ici:model": times})) for times in (2.0, 1.0))
    candidate = replace(config, mesh=mesh(16, 8, 4))
    assert slow.price([candidate]).speedup[0] > plain.price([candidate]).speedup[0] + 0.01
    (one, _), (other, _) = (each.posterior.values.at(each.posterior.z) for each in (slow, plain))
    assert one.link < 0.95 * other.link or one.overlap_tensor < 0.9 * other.overlap_tensor
    assert one.matmul == pytest.approx(other.matmul, rel=0.1)


def test_resharding_goes_with_its_axis_and_does_not_scale_with_it():
    """A second of an all-to-all that no parallelism needs stays a second on twice the axis and goes with the axis."""
    config = known()
    seen = replace(as_modelled(config), unexplained_s={("model",): 1.0})
    seen = replace(seen, step_time_s=seen.step_time_s + 1.0)
    prices = calibrate(config, seen).price(
        [config, replace(config, mesh=mesh(4, 8, 16)), replace(config, mesh=mesh(64, 8, 1))]
    )
    assert prices.parts_s["ici"] == pytest.approx([1.0, 1.0, 0.0])


def test_what_is_unexplained_does_not_scale_with_the_part_it_was_booked_under():
    """Thirty times the tensor traffic that the model knows: doubling the axis does not double it all, and its range
    holds that it might."""
    config = known()
    seen = as_modelled(config, **{"ici:model": 30.0})
    prices = calibrate(config, seen).price([config, replace(config, mesh=mesh(2, 8, 32))])
    modelled = calibrate(config, as_modelled(config)).price([config, replace(config, mesh=mesh(2, 8, 32))])
    expected = modelled.parts_s["ici:model"][1] / modelled.parts_s["ici:model"][0]
    assert prices.parts_s["ici:model"][1] < 0.95 * expected * prices.parts_s["ici:model"][0]


def test_ops_that_overlap_sum_to_the_step():
    config = known()
    doubled = Observation(5.0, PARTS)
    assert calibrate(config, doubled).price([config]).step_time_s[0] == pytest.approx(5.0)


def test_all_to_all_belongs_to_the_expert_axis():
    config = tpu({"data": 64, "expert": 8}, shape=MIXTRAL, batch=1024)
    seen = Observation(5.0, {"compute": 4.0, "ici:expert": 1.0}, (ObservedCollective(("expert",), "all-to-all", 1.0),))
    calibration = calibrate(config, seen)
    assert calibration.group_s["expert"] == pytest.approx(1.0)


@pytest.mark.parametrize("times", [0.5, 2])
def test_a_hidden_collective_stays_hidden_behind_as_much_more_work(times):
    """Nothing of the tensor axis was seen, so the products hide it; with other tokens both grow or shrink alike."""
    config = known()
    seen = Observation(8.0, {name: value for name, value in PARTS.items() if name != "ici:model"})
    other = replace(config, training=replace(config.training, global_batch=int(times * config.training.global_batch)))
    prices = calibrate(config, seen).price([config, other])
    assert prices.parts_s["ici:model"][0] == 0
    assert prices.parts_s["ici:model"][1] == pytest.approx(0, abs=0.01 * prices.step_time_s[1])


@pytest.mark.parametrize(
    "name", ["mistral-7b", "qwen2.5-14b", "qwen2.5-32b", "llama2-70b", "gpt3-175b", "llama3.1-405b"]
)
@pytest.mark.parametrize("seq_len", [2048, 16384])
def test_the_size_of_an_unknown_model_is_inferred_from_its_flops(name: str, seq_len: int) -> None:
    """Six FLOPs per weight and token, attention beside them: within a quarter of what was trained, whatever its width.

    The shapes assumed have other widths and vocabularies, so that attention and head differ.
    """
    config, _ = parse_config(
        {
            "hardware": {"chip": "v5p", "topology": [8, 8, 8]},
            "mesh": {"ici": {"data": 64, "model": 8}},
            "training": {"global_batch": 512, "seq_len": seq_len, "remat": "none"},
        }
    )
    tokens = 512 * seq_len
    flops = 3.0 * forward_flops(get_model(name), seq_len).total * tokens / 512
    seen = Observation(step_time_s=1.0, parts_s={"compute": 0.8, "other": 0.2}, flops=flops)
    filled, assumed = fill_in(config, seen, load_efficiencies().for_config(config))
    assert "model" in assumed and filled.model is not None
    assert filled.model.name.startswith("assumed ")
    trained = parameters(get_model(name)).total
    assert parameters(filled.model).total == pytest.approx(trained, rel=0.25)
