"""Calibration: the profile's own time, rescaled; what follows from ratios alone, and how sure it is."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.calibration import Observation, ObservedCollective, calibrate, observed_weight_sharding
from perfmodel.config import Mesh
from tests.perfmodel.cases import MIXTRAL, tpu

PARTS = {"compute": 5.0, "hbm": 1.0, "ici:model": 2.0, "ici:data+seq": 1.0, "input": 0.4, "idle": 0.3, "other": 0.3}
SEEN = Observation(10.0, PARTS, memory_bytes=50e9)


def mesh(data, seq, model, **more):
    return Mesh((("data", data), ("seq", seq), ("model", model), *more.items()))


def blind(config):
    """The same run with the model, batch and sequence length withheld."""
    return replace(config, model=None, training=replace(config.training, global_batch=None, seq_len=None))


def known():
    return tpu({"data": 8, "seq": 8, "model": 8}, batch=1024)


@pytest.mark.parametrize("config", [known(), blind(known())], ids=["known", "blind"])
def test_the_baseline_prices_as_measured(config):
    prices = calibrate(config, SEEN).price([config])
    assert prices.step_time_s[0] == pytest.approx(10.0)
    assert prices.speedup[0] == pytest.approx(1.0)
    assert prices.sigma[0] == 0
    assert prices.memory_low_bytes[0] == pytest.approx(50e9)
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
    assert ratios[0] == pytest.approx(ratios[1], rel=0.01)
    line, ring = 3 / 4, 1 / 2
    assert ratios[0] == pytest.approx(0.5 * line / ring, rel=0.02)


def test_weights_gathered_grow_as_the_tensor_axis_shrinks():
    """Twice the weights per group over the same full dimensions."""
    config = known()
    seen = replace(SEEN, collectives=(ObservedCollective(("data", "seq"), "reduce-scatter", 1.0),))
    prices = calibrate(config, seen).price([replace(config, mesh=mesh(8, 16, 4))])
    assert prices.parts_s["ici:weights"][0] > 1.5 * 0.9


def test_larger_batches_amortise_what_does_not_depend_on_them():
    config = known()
    bigger = replace(config, training=replace(config.training, global_batch=2048))
    prices = calibrate(config, SEEN).price([bigger])
    assert 10 < prices.step_time_s[0] < 20
    assert prices.speedup[0] > 1
    assert prices.parts_s["input"][0] == pytest.approx(0.8)


def test_uncertainty_grows_with_distance():
    config = blind(known())
    near, far = (replace(config, mesh=m) for m in (mesh(16, 8, 4), mesh(64, 8, 1)))
    prices = calibrate(config, SEEN).price([config, near, far])
    assert list(prices.distance) == [0, 1, 3]
    assert prices.sigma[0] < prices.sigma[1] < prices.sigma[2]
    assert np.all(prices.low80_s <= prices.step_time_s)
    assert np.all(prices.step_time_s <= prices.high80_s)


def test_an_axis_the_baseline_lacked_is_uncertain_and_more_so_without_the_model():
    config = tpu({"data": 64, "seq": 8, "model": 1}, batch=1024)
    seen = Observation(10.0, {"compute": 7.0, "hbm": 2.0, "ici:data+seq": 1.0})
    spread = []
    for base in (config, blind(config)):
        prices = calibrate(base, seen).price([replace(base, mesh=mesh(16, 8, 4))])
        new = prices.parts_s["ici:model"][0]
        assert new > 0
        spread.append(prices.sigma[0] * prices.step_time_s[0] / new)
    assert 0.4 < spread[0] < spread[1]


def test_confidence_follows_the_range():
    config = known()
    candidates = [replace(config, mesh=m) for m in (mesh(8, 8, 8), mesh(16, 8, 4), mesh(4, 8, 16), mesh(64, 8, 1))]
    prices = calibrate(config, SEEN).price(candidates)
    for i in range(1, len(candidates)):
        faster = prices.speedup[i] > 1
        assert (prices.probability_faster[i] > 0.5) == faster
        assert (prices.probability_faster[i] > 0.9) == (prices.speedup_low80[i] > 1)


def test_inferred_tokens_take_the_measured_time():
    """With the batch withheld, the batch that explains the compute time is close to the true one."""
    from perfmodel.step_time import predict

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


def test_memory_without_the_model_is_a_range():
    config = blind(known())
    prices = calibrate(config, SEEN).price([replace(config, mesh=mesh(32, 8, 2))])
    assert prices.memory_low_bytes[0] < prices.memory_high_bytes[0]


def test_kinds_on_the_batch_axes_tell_how_weights_are_sharded():
    def observed(*kinds):
        return Observation(1.0, {"compute": 1.0}, tuple(ObservedCollective(("data",), k, 0.1) for k in kinds))

    assert observed_weight_sharding(observed("all-reduce"), known().mesh) == "none"
    assert observed_weight_sharding(observed("all-gather", "reduce-scatter"), known().mesh) == "fsdp"
    assert observed_weight_sharding(observed(), known().mesh) is None


def test_nothing_measured_cannot_calibrate():
    with pytest.raises(ValueError, match="no measured part"):
        calibrate(known(), Observation(None, {}))


def test_all_to_all_belongs_to_the_expert_axis():
    config = tpu({"data": 64, "expert": 8}, shape=MIXTRAL, batch=1024)
    seen = Observation(5.0, {"compute": 4.0, "ici:expert": 1.0}, (ObservedCollective(("expert",), "all-to-all", 1.0),))
    calibration = calibrate(config, seen)
    assert calibration.group_s["expert"] == pytest.approx(1.0)


sizes = st.integers(0, 5).map(lambda power: 2**power)


@settings(max_examples=40, deadline=None)
@given(sizes, sizes, st.booleans())
def test_parts_add_up_and_time_stays_positive(data, seq, unknown):
    if 512 % (data * seq):
        return
    config = blind(known()) if unknown else known()
    prices = calibrate(config, SEEN).price([replace(config, mesh=mesh(data, seq, 512 // data // seq))])
    assert prices.step_time_s[0] > 0
    assert sum(value[0] for value in prices.parts_s.values()) == pytest.approx(prices.step_time_s[0])
    assert all(value[0] >= 0 for value in prices.parts_s.values())


@pytest.mark.parametrize("times", [0.5, 2])
def test_a_hidden_collective_stays_hidden_behind_as_much_more_work(times):
    """Nothing of the tensor axis was seen, so the products hide it; with other tokens both grow or shrink alike."""
    config = known()
    seen = Observation(8.0, {name: value for name, value in PARTS.items() if name != "ici:model"})
    other = replace(config, training=replace(config.training, global_batch=int(times * config.training.global_batch)))
    prices = calibrate(config, seen).price([config, other])
    assert prices.parts_s["ici:model"][0] == 0
    assert prices.parts_s["ici:model"][1] == pytest.approx(0, abs=0.01 * prices.step_time_s[1])
