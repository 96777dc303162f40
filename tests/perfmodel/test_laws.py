"""Laws of one price: what holds of every price under any evidence, whoever asks (docs/performance-model.md, *Laws*)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from perfmodel import memory
from perfmodel.calibration import at_peak_s, foreign_share
from perfmodel.confidence import input_sets_pace
from perfmodel.config import ExperimentConfig, Measured, Mesh, config_key
from perfmodel.config_file import read_config
from perfmodel.legality import MemoryPosterior, MemoryRun, memory_posterior
from perfmodel.observation import Observation
from perfmodel.prediction import predict as predict_alone
from perfmodel.price import NOTHING, Evidence, evidence_of, predict, predict_all, price
from perfmodel.search import search
from perfmodel.space import build_space
from perfmodel.terms import step_terms
from perfmodel.workload import from_config
from tests.perfmodel.cases import LLAMA3_8B, MIXTRAL, a100, tpu
from tests.perfmodel.test_calibration import as_modelled

pytestmark = pytest.mark.slow
FIELD = Path(__file__).parents[1] / "field"

RUNS: dict[str, ExperimentConfig] = {
    "dense on v5p": tpu({"data": 8, "seq": 8, "model": 8}, batch=1024, remat="full"),
    "tensor axis outside": tpu({"model": 4, "data": 16}, chip="v6e", topology=(8, 8), batch=128, remat="full"),
    "mixture on v5e": tpu(
        {"data": 16, "expert": 8, "model": 2}, chip="v5e", topology=(16, 16), shape=MIXTRAL, batch=256, remat="full"
    ),
    "pipeline on a100": a100(2, 2),
    "two slices": tpu({"data": 64, "model": 4}, topology=(8, 8, 4), slices=2, dcn=(("data", 2),), remat="full"),
}
RATIOS = st.floats(1.02, 4.0)
SETTINGS = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def evidences(draw) -> Evidence:
    """A run, and what was measured of it: its step time, or that with its parts, and perhaps its peak."""
    config = draw(st.sampled_from(sorted(RUNS)).map(RUNS.__getitem__))
    alone = predict_alone(config)
    peak = draw(st.sampled_from([None, 0.7, 0.9, 1.0, 1.2]))
    peak = None if peak is None else peak * alone.hbm_per_chip_bytes["total"]
    if draw(st.booleans()):
        seen = Observation(alone.step_time_s["estimate"] * draw(RATIOS), {}, memory_bytes=peak, coverage=0.0)
    else:
        slower = {name: draw(st.floats(0.8, 2.5)) for name in ("compute", "hbm", "ici:model", "ici:data+seq")}
        seen = replace(as_modelled(config, **slower), memory_bytes=peak)
    return Evidence(config, seen, "drawn", peak)


@st.composite
def candidates(draw, config: ExperimentConfig) -> ExperimentConfig:
    """Another configuration of the same run: a factor moved between two axes, another policy or sharding, or both."""
    sizes = dict(config.mesh.ici)
    names = sorted(sizes)
    up, down = draw(st.permutations(names))[:2]
    factor = draw(st.sampled_from([1, 2, 4]))
    if sizes[down] % factor == 0:
        sizes[up], sizes[down] = sizes[up] * factor, sizes[down] // factor
    order = draw(st.sampled_from([names, list(sizes)]))
    training = replace(
        config.training,
        remat=draw(st.sampled_from(["none", "minimal", "full"])),
        weight_sharding=draw(st.sampled_from(["zero1", "fsdp"])),
    )
    return replace(
        config, mesh=replace(config.mesh, ici=tuple((axis, sizes[axis]) for axis in order)), training=training
    )


drawn = evidences().flatmap(lambda known: st.tuples(st.just(known), candidates(known.config)))


@SETTINGS
@given(drawn)
def test_notation_changes_no_price(pair) -> None:
    known, config = pair
    names = {"data": "fsdp", "model": "tensor"}
    renamed = replace(config.mesh, ici=tuple((names.get(axis, axis), n) for axis, n in config.mesh.ici if n > 1))
    other = replace(config, mesh=renamed, name="another name")
    assert config_key(other) == config_key(config)
    one, two = predict_all([config, other], known)
    assert one.step_time_s == pytest.approx(two.step_time_s, rel=1e-9)
    assert one.hbm_per_chip_bytes == pytest.approx(two.hbm_per_chip_bytes, rel=1e-9)
    assert [item.rule for item in one.violations] == [item.rule for item in two.violations]


@SETTINGS
@given(drawn)
def test_only_the_run_itself_is_certain_and_is_as_measured(pair) -> None:
    known, config = pair
    assume(known.is_run(known.config))
    ran, other = predict_all([known.config, config], known)
    assert ran.step_time_s["estimate"] == pytest.approx(known.step_time_s)
    assert ran.step_time_s["low80"] == pytest.approx(ran.step_time_s["high80"])
    assert (other.step_time_s["high80"] > other.step_time_s["low80"] * (1 + 1e-9)) == (
        config_key(config) != config_key(known.config)
    )


@SETTINGS
@given(drawn)
def test_parts_add_up_to_the_estimate(pair) -> None:
    known, config = pair
    prices = price([config], known)
    assert sum(float(values[0]) for values in prices.parts_s.values()) == pytest.approx(float(prices.step_time_s[0]))
    assert all(float(values[0]) >= -1e-12 for values in prices.parts_s.values())


@SETTINGS
@given(drawn)
def test_bounds_enclose_the_interval_and_no_step_beats_the_peak(pair) -> None:
    known, config = pair
    step = predict(config, known).step_time_s
    assert 0 < step["lower"] <= step["low80"] <= step["estimate"] <= step["high80"] <= step["upper"]
    least = float(at_peak_s(step_terms(from_config(config))).reshape(-1)[0])
    assert step["estimate"] >= 0.999 * least and step["lower"] >= 0.999 * min(least, step["low80"])
    mfu = predict(config, known).mfu
    assert 0 < mfu <= 1


@SETTINGS
@given(drawn, st.sampled_from(["input", "idle", "host", "compute", "ici:data+seq"]))
def test_a_price_is_continuous_in_every_part_that_was_measured(pair, part) -> None:
    known, config = pair
    assume(known.observation.parts_s)
    step = known.step_time_s
    little = 1e-7 * step  # a part that is small in the run may be hundreds of times as long in a candidate
    more = replace(
        known.observation,
        step_time_s=step + little,
        parts_s={**known.observation.parts_s, part: known.observation.parts_s.get(part, 0.0) + little},
    )
    before, after = (
        predict(config, each).step_time_s["estimate"] for each in (known, replace(known, observation=more))
    )
    assert after == pytest.approx(before, rel=2e-3)


@pytest.mark.parametrize("name", sorted(RUNS))
@pytest.mark.parametrize("with_parts", [False, True])
def test_evidence_that_the_model_expects_changes_no_price(name: str, with_parts: bool) -> None:
    config = RUNS[name]
    seen = as_modelled(config)
    known = Evidence(config, seen if with_parts else Observation(seen.step_time_s, {}, coverage=0.0))
    sizes = dict(config.mesh.ici)
    up, down = list(sizes)[-1], max(sizes, key=lambda axis: sizes[axis])
    others = [replace(config, training=replace(config.training, remat=policy)) for policy in ("none", "minimal")]
    if up != down:
        moved = {**sizes, up: sizes[up] * 2, down: sizes[down] // 2}
        others.append(replace(config, mesh=replace(config.mesh, ici=tuple(moved.items()))))
    for other, found in zip(others, predict_all(others, known), strict=True):
        assert found.step_time_s["estimate"] == pytest.approx(
            predict_alone(other).step_time_s["estimate"], rel=0.03 if with_parts else 0.005
        )


@SETTINGS
@given(st.sampled_from(sorted(RUNS)), st.floats(1.05, 9.0), st.sampled_from(["none", "minimal"]))
def test_time_that_nothing_explains_bounds_every_gain(name: str, ratio: float, remat: str) -> None:
    """Evidence is a step time alone; the batch stays, so that foreign time stays whole."""
    config = RUNS[name]
    step = predict_alone(config).step_time_s["estimate"] * ratio
    known = Evidence(config, Observation(step, {}, coverage=0.0))
    found = predict(replace(config, training=replace(config.training, remat=remat)), known)
    assert found.step_time_s["estimate"] >= known.calibration.foreign_s * (1 - 1e-9)
    if ratio > 4.0:  # far beyond what programs differ by: most of what the model does not expect is foreign
        assert known.calibration.foreign_s > 0.6 * step * (1.0 - 1.0 / ratio)


def test_foreign_time_grows_from_nothing() -> None:
    shares = [foreign_share(ratio, 1.0, 0.3) for ratio in (0.5, 1.0, 1.05, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0)]
    assert shares[:2] == [0.0, 0.0] and shares == sorted(shares)
    assert shares[3] < 0.02 and shares[-1] > 0.85


def test_a_stall_that_is_no_stall_sets_no_pace() -> None:
    assert input_sets_pace(0.0) == 0.0
    assert input_sets_pace(1e-5) < 2e-4
    assert 0.3 < input_sets_pace(0.5) < 0.5


@SETTINGS
@given(drawn)
def test_what_ran_is_legal_and_fits(pair) -> None:
    known, _ = pair
    ran = predict(known.config, known)
    assert ran.violations == () and ran.fits
    if known.peak_bytes is not None:
        assert ran.hbm_per_chip_bytes["total"] == pytest.approx(known.peak_bytes)


@SETTINGS
@given(drawn, st.floats(1.02, 1.5))
def test_a_larger_peak_makes_nothing_likelier_to_fit(pair, times: float) -> None:
    known, config = pair
    used, own = (memory.per_chip(from_config(each)) for each in (config, known.config))
    peak = float(own.total[0])
    chances = []
    for factor in (1.0, times):
        found = memory_posterior([MemoryRun(own, peak * factor)])
        chances.append(float(found.probability_fits(found.corrected(used)).reshape(-1)[0]))
    assert chances[1] <= chances[0] + 1e-9


def test_what_ran_on_a_chip_with_more_memory_does_not_fit_one_with_less() -> None:
    """46 GB of 98 GB ran on v5p; v6e has 33 GB."""
    ran = tpu({"fsdp": 8}, chip="v5p", topology=(2, 2, 2), batch=8, seq=8192, remat="minimal")
    known = evidence_of(replace(ran, measured=Measured(2.0)))
    other = replace(ran, hardware=replace(ran.hardware, chip="v6e", topology=(2, 4)))
    assert predict(ran, known).fits and not predict(other, known).fits


def test_a_run_that_ran_out_of_memory_lowers_what_is_larger() -> None:
    runs = [tpu({"data": 8, "model": 8}, topology=(8, 8), chip="v5e", batch=n, remat="none") for n in (64, 128, 256)]
    used = [memory.per_chip(from_config(each)) for each in runs]
    plain = MemoryPosterior()
    failed = memory_posterior([MemoryRun(used[1], None, 1.0)])
    for each in used:
        assert failed.probability_fits(each)[0] <= plain.probability_fits(each)[0] + 1e-12
    ran = memory_posterior([MemoryRun(used[1])])
    assert ran.probability_fits(ran.corrected(used[1]))[0] == pytest.approx(1.0)
    assert 0.95 < ran.probability_fits(ran.corrected(used[0]))[0] < 1.0
    assert ran.probability_fits(ran.corrected(used[2]))[0] >= plain.probability_fits(used[2])[0]


@pytest.mark.parametrize("name", sorted(RUNS))
def test_more_tokens_make_unexplained_time_no_more_certain(name: str) -> None:
    """Of a run that took five times as long as predicted, on another mesh, with and without twice its batch."""
    ran = RUNS[name]
    seen = Observation(5.0 * predict_alone(ran).step_time_s["estimate"], {}, coverage=0.0)
    space = build_space(ran, None)
    meshes = [space.config_at(row, 0) for row in range(0, len(space.sizes), 1 + len(space.sizes) // 12)]
    more = [replace(c, training=replace(c.training, global_batch=2 * c.training.global_batch)) for c in meshes]
    once, twice = (price(configs, Evidence(ran, seen, "drawn")).sigma for configs in (meshes, more))
    assert np.all(twice > 0.95 * once)


def test_nearly_full_memory_is_certain_of_the_run_alone() -> None:
    """Run at 99 % of the capacity: fewer states for more activations, or less of both, may need more than thought."""
    config = tpu({"fsdp": 64}, topology=(8, 8), chip="v5e", batch=64, remat="minimal")
    used = memory.per_chip(from_config(config))
    full = replace(used, capacity=used.total / 0.99)
    found = memory_posterior([MemoryRun(full)])

    def chance(states: float, rest: float) -> float:
        parts = {name: getattr(full, name) * states for name in ("params", "optimizer", "gradients")}
        each = replace(full, **parts, activations=full.activations * rest)
        return float(found.probability_fits(each)[0])

    assert chance(1.0, 1.0) == pytest.approx(1.0)
    alike, traded, other = chance(0.999, 0.999), chance(0.8, 1.04), chance(0.7, 1.0)
    assert 0.9 < alike < 1.0 and traded < 0.75
    assert traded < other < 1.0


def test_a_run_faster_than_the_model_is_believed_less_far_from_it_and_a_slower_one_all_the_way() -> None:
    """Half the data axis goes to the tensor axis, once and twice; distance makes no candidate look better."""
    ran = tpu({"data": 64, "model": 2}, topology=(4, 4, 8), batch=512, remat="full")
    steps = [tpu({"data": 64 // n, "model": 2 * n}, topology=(4, 4, 8), batch=512, remat="full") for n in (1, 2, 4)]
    alone = [predict_alone(each).step_time_s["estimate"] for each in steps]
    ratios = {}
    for times in (0.9, 1.2):
        known = Evidence(ran, Observation(times * alone[0], {}, coverage=0.0), "measured step time")
        ratios[times] = [predict(x, known).step_time_s["estimate"] / own for x, own in zip(steps, alone, strict=True)]
        assert ratios[times][0] == pytest.approx(times, rel=1e-6)
    assert ratios[0.9][0] < ratios[0.9][1] < ratios[0.9][2] < 1.0
    # Two steps away e^(-2/6) of it is left, besides what the efficiencies do differently on another mesh.
    assert np.log(ratios[0.9][2]) == pytest.approx(np.exp(-2 / 6) * np.log(0.9), rel=0.25)
    assert ratios[1.2] == pytest.approx([1.2, 1.2, 1.2], rel=0.03)


def test_a_measured_peak_says_all_of_the_same_shards_and_less_of_others() -> None:
    def used(mesh: dict[str, int], batch: int = 512) -> memory.MemoryUse:
        run = tpu(mesh, topology=(4, 4, 8), batch=batch, remat="full", weight_sharding="zero1")
        return memory.per_chip(from_config(run))

    own = used({"data": 64, "model": 2})
    peak = float(own.total[0] + 0.5 * own.activations[0])
    known = memory_posterior([MemoryRun(own, peak)])
    again = memory_posterior([MemoryRun(own, peak), MemoryRun(own, peak)])
    factors = []
    for other in (
        own,
        used({"data": 64, "model": 2}, 1024),
        used({"data": 32, "model": 4}),
        used({"data": 16, "model": 8}),
    ):
        factors.append(float(known.corrected(other).activations[0] / other.activations[0]))
        assert again.corrected(other).activations[0] == pytest.approx(known.corrected(other).activations[0], rel=0.05)
    assert factors[0] == pytest.approx(1.5) and factors[1] == pytest.approx(1.5)
    assert factors[1] > factors[2] > factors[3] > 1.0


# Cases from public reports: tests/field, whose sources are in ../shared/field.


def field(name: str) -> ExperimentConfig:
    return read_config(FIELD / f"{name}.json")[0]


def test_replicas_go_across_nodes_and_shards_inside() -> None:
    """Hybrid sharding on 4 nodes of 8: 1.34 times as fast as full sharding in the report, predicted 1.08."""
    ran = field("hsdp_32_a100")
    hybrid = replace(ran, mesh=Mesh((("replica", 4), ("fsdp", 8))))
    inside = replace(ran, mesh=Mesh((("fsdp", 8), ("replica", 4))))
    full_s, hybrid_s, inside_s = (predict(each).step_time_s["estimate"] for each in (ran, hybrid, inside))
    assert hybrid_s < full_s < inside_s
    found = search(ran, 50)
    assert any(config_key(item.config) == config_key(hybrid) for item in found.candidates)
    assert config_key(found.candidates[0].config) == config_key(hybrid)


def test_a_measured_peak_is_the_memory_of_the_run_and_moves_the_others() -> None:
    ran, other = field("peak_moe_64_h100"), field("peak_moe_candidate")
    known = evidence_of(ran)
    assert predict(ran, known).hbm_per_chip_bytes["total"] == pytest.approx(48.33e9)
    found = predict(other, known)
    assert found.hbm_per_chip_bytes["total"] == pytest.approx(86.4e9, rel=0.01)
    assert found.fits is False and [item.rule for item in found.violations] == ["memory"]
    used = known.memory.corrected(memory.per_chip(from_config(replace(other, measured=None))))
    assert float(known.memory.probability_fits(used)[0]) < 0.5


def test_a_micro_batch_larger_than_its_shard_is_refused() -> None:
    assert "batch" in [item.rule for item in predict(field("micro_batch_larger_than_shard")).violations]


def test_two_thirds_of_a_step_that_nothing_explains_are_promised_to_nobody() -> None:
    """170 s where the model expects 50: remat saves at most 7.5 of the 50."""
    ran = field("unexplained_32_v4")
    known = evidence_of(ran)
    lighter = predict(replace(ran, measured=None, training=replace(ran.training, remat="none")), known)
    assert known.calibration.foreign_s > 100
    assert lighter.step_time_s["estimate"] > 157


@pytest.mark.parametrize("name", ["tp8b_256", "trlo_8b_1m"])
def test_a_prediction_asks_for_no_less_than_flops_at_peak_and_no_overhead_beyond_the_step(name: str) -> None:
    config = field(name)
    found = predict_alone(config)
    at_peak = found.mfu * found.step_time_s["estimate"]
    assert found.step_time_s["lower"] >= at_peak * (1 - 1e-9)
    assert found.breakdown_s["compute"] >= at_peak * (1 - 1e-9)
    assert found.breakdown_s["overhead"] <= found.step_time_s["estimate"]


def test_a_file_with_a_measured_step_is_its_own_evidence() -> None:
    ran = field("tp8b_256")
    assert predict(ran, evidence_of(ran)).step_time_s["estimate"] == pytest.approx(ran.measured.step_time_s)
    bare = replace(ran, measured=None)
    assert evidence_of(bare) is NOTHING and predict(bare).step_time_s == predict_alone(bare).step_time_s
    impossible = replace(ran, measured=Measured(1e-6))
    assert evidence_of(impossible) is NOTHING


def test_what_ran_is_among_the_candidates_of_a_search_whatever_the_model_says_of_its_memory() -> None:
    """Llama 3 8B on 8 v6e ran although the model expects 41.9 of 32.9 GB."""
    config = tpu({"fsdp": 8}, chip="v6e", topology=(2, 4), shape=LLAMA3_8B, batch=32, seq=8192, remat="full")
    assert predict_alone(config).fits is False
    found = search(replace(config, measured=Measured(5.2)), 50)
    assert any(config_key(item.config) == config_key(config) for item in found.candidates)
    assert all(item.prediction.fits for item in found.candidates)


def test_prices_are_arrays_of_what_single_predictions_say() -> None:
    config = RUNS["dense on v5p"]
    known = Evidence(config, Observation(predict_alone(config).step_time_s["estimate"] * 1.3, {}, coverage=0.0))
    others = [replace(config, mesh=Mesh((("data", 512 // n), ("model", n)))) for n in (1, 2, 4, 8)]
    arrays = price(others, known)
    singles = [predict(each, known).step_time_s["estimate"] for each in others]
    assert np.asarray(arrays.step_time_s) == pytest.approx(singles)
