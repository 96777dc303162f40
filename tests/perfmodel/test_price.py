"""Prices from a measured baseline: exact on the baseline, proportional to its step time, wider away from it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.config import ConfigError, Measured, Mesh
from perfmodel.config_file import config_to_json, parse_config
from perfmodel.legality import FADES_OVER
from perfmodel.prediction import predict
from perfmodel.price import baseline_of, predict_all
from perfmodel.search import search

pytestmark = pytest.mark.slow

H100 = {
    "hardware": {"chip": "h100", "topology": [8, 8]},
    "mesh": {"ici": {"data": 8, "model": 8}},
    "model": {"name": "llama3.1-8b"},
    "training": {"global_batch": 256, "seq_len": 4096, "remat": "full"},
}
V6E = {
    "hardware": {"chip": "v6e", "topology": [8, 8]},
    "mesh": {"ici": {"data": 16, "seq": 1, "model": 4}},
    "model": {"name": "llama3.1-8b"},
    "training": {"global_batch": 64, "seq_len": 8192},
}
SIZES = {"data": st.sampled_from([1, 2, 4, 8, 16, 32, 64]), "model": st.sampled_from([1, 2, 4, 8])}


def config(data, step_s=None, peak=None):
    read, _ = parse_config(data)
    return replace(read, measured=Measured(step_s, peak)) if step_s else read


def on(base, **sizes):
    """The same run on another mesh; what the named axes leave of the chips is `data`."""
    rest = base.hardware.chips
    for size in sizes.values():
        rest //= size
    return replace(base, mesh=Mesh((("data", rest), *sizes.items())), measured=None)


@pytest.mark.parametrize("data", [H100, V6E], ids=["h100", "v6e"])
@given(ratio=st.floats(0.6, 8.0))
@settings(max_examples=15, deadline=None)
def test_the_baseline_prices_as_measured(data, ratio):
    alone = predict(config(data))
    base = config(data, alone.step_time_s["estimate"] * ratio)
    priced = predict_all([base], baseline_of(base))[0]
    step = priced.step_time_s
    assert step["estimate"] == pytest.approx(base.measured.step_time_s)
    assert step["low80"] == step["high80"] == step["estimate"]
    assert priced.calibrated_from["speedup"]["estimate"] == pytest.approx(1.0)
    assert priced.calibrated_from["measured_over_predicted"] == pytest.approx(ratio)
    assert priced.mfu == pytest.approx(alone.mfu / ratio)


@given(model=st.sampled_from([1, 2, 4]), pipeline=st.sampled_from([1, 2, 4]), ratio=st.floats(0.7, 1.5))
@settings(max_examples=20, deadline=None)
def test_twice_the_measured_time_doubles_the_baseline_and_about_doubles_candidates(model, pipeline, ratio):
    """Nothing tells where the longer step goes, but its parts are not equally likely: what a candidate drops of what
    may well be slow, exposed communication above all, it gains; what more likely is no part of the step, it keeps."""
    alone = predict(config(H100)).step_time_s["estimate"]
    candidate = on(config(H100), pipeline=pipeline, model=model)
    once, twice = (
        predict_all([candidate], baseline_of(config(H100, alone * ratio * factor)))[0] for factor in (1.0, 2.0)
    )
    assert 1.1 < twice.step_time_s["estimate"] / once.step_time_s["estimate"] < 3.5
    assert sum(_leaves(twice.parts_s)) == pytest.approx(twice.step_time_s["estimate"])
    assert sum(_leaves(once.parts_s)) == pytest.approx(once.step_time_s["estimate"])


def _leaves(values):
    for value in values.values():
        if isinstance(value, dict):
            yield from _leaves(value)
        else:
            yield value


def test_what_a_calibration_does_not_carry_over_keeps_the_models_own_range():
    base = config(H100, 3.0)
    training = replace(base.training, precision="fp8")
    fp8 = replace(base, measured=None, training=training)
    flags = replace(base, measured=None, training=replace(base.training, xla_flags=("--xla_foo=true",)))
    for other in (fp8, flags):
        step = predict_all([other], baseline_of(base))[0].step_time_s
        own = predict(other).step_time_s
        assert step["high80"] / step["low80"] >= 0.99 * own["high80"] / own["low80"]


def test_another_chip_is_said_and_wider():
    base = config(H100, 3.0)
    other = replace(config(H100), hardware=replace(base.hardware, chip="h200"))
    found = predict_all([other], baseline_of(base))[0]
    own = predict(other).step_time_s
    assert found.step_time_s["high80"] / found.step_time_s["low80"] > own["high80"] / own["low80"]
    assert any("calibrated on h100 for h200" in line for line in found.warnings)


def test_what_a_candidate_leaves_open_is_the_baselines():
    base = config(H100, 3.0)
    bare = replace(on(base, model=4), model=None, training=replace(base.training, global_batch=None))
    whole = on(base, model=4)
    one, two = predict_all([bare, whole], baseline_of(base))
    assert one.step_time_s == two.step_time_s
    assert any("taken from the baseline" in line for line in one.warnings)


def test_a_measured_peak_corrects_activations_and_keeps_the_states():
    plain = config(H100)
    alone = predict(plain).hbm_per_chip_bytes
    states = alone["total"] - alone["activations"]
    peak = states + 2.0 * alone["activations"]
    base = config(H100, 3.0, peak)
    own, other, twice = predict_all(
        [
            base,
            on(base, model=4),
            replace(base, measured=None, training=replace(base.training, seq_len=2 * base.training.seq_len)),
        ],
        baseline_of(base),
    )
    assert own.hbm_per_chip_bytes["total"] == pytest.approx(peak)
    model = predict(on(base, model=4)).hbm_per_chip_bytes
    assert other.hbm_per_chip_bytes["params"] == model["params"]
    # All of it on the same shards; on others less, the further their states are from the run's.
    longer = predict(
        replace(plain, training=replace(plain.training, seq_len=2 * plain.training.seq_len))
    ).hbm_per_chip_bytes
    assert twice.hbm_per_chip_bytes["activations"] == pytest.approx(2.0 * longer["activations"])
    kept = np.exp(-abs(np.log((model["total"] - model["activations"]) / states)) / FADES_OVER)
    assert 0.0 < kept < 1.0
    assert other.hbm_per_chip_bytes["activations"] == pytest.approx(2.0**kept * model["activations"], rel=0.02)
    assert other.fits == (other.hbm_per_chip_bytes["total"] <= other.hbm_per_chip_bytes["capacity"])
    assert any(v.rule == "memory" for v in other.violations) == (not other.fits)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"measured": None}, "measured.step_time_s"),
        ({"measured": Measured(None, 40e9)}, "measured.step_time_s"),
        ({"measured": Measured(0.01)}, "measured.step_time_s"),
        ({"model": None}, "model"),
    ],
)
def test_a_baseline_that_says_too_little_is_refused_by_its_field(change, field):
    with pytest.raises(ConfigError) as refused:
        baseline_of(replace(config(H100, 3.0), **change))
    assert refused.value.field == field and len(str(refused.value)) <= 300


def test_a_step_that_no_configuration_takes_is_doubted_aloud():
    base = config(H100, 60.0)
    assert any("× the predicted" in line for line in predict_all([base], baseline_of(base))[0].warnings)


def test_a_precision_that_the_chip_lacks_is_priced_as_the_one_it_runs_in_and_said():
    times = {}
    for precision in ("fp8", "mxfp8", "nvfp4"):
        base = config(H100)
        asked = predict(replace(base, training=replace(base.training, precision=precision)))
        times[precision] = asked.step_time_s["estimate"]
        assert any(precision in line and "fp8" in line for line in asked.warnings) == (precision != "fp8")
    assert times["nvfp4"] == times["mxfp8"] == times["fp8"]


def test_a_search_from_a_measured_run_prices_from_it_and_repeats_itself():
    plain, base = config(H100), config(H100, 4.6)
    found, alone = search(base, top=5), search(plain, top=5)
    ratio = 4.6 / predict(plain).step_time_s["estimate"]
    assert [c.config.mesh for c in search(base, top=5).candidates] == [c.config.mesh for c in found.candidates]
    assert {str(c.config.mesh) for c in found.candidates} & {str(c.config.mesh) for c in alone.candidates}
    for one in found.candidates:
        own = predict(one.config).step_time_s["estimate"]
        assert one.config.measured is None  # nobody measured this one
        assert 0.6 * ratio < one.prediction.step_time_s["estimate"] / own < 1.5 * ratio
    listed = found.to_json()
    assert {row["calibrated_from"]["step_time_s"] for row in (listed, *listed["candidates"])} == {4.6}
    assert "calibrated_from" not in alone.to_json()
    assert config_to_json(base)["measured"] == {"step_time_s": 4.6}
