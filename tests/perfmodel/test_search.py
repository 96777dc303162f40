"""The search prices the same as `predict`, misses nothing, and respects its constraints."""

from dataclasses import replace
from itertools import pairwise
from math import comb, prod

import numpy as np
import pytest

from perfmodel import legality
from perfmodel.config import ConfigError
from perfmodel.prediction import predict
from perfmodel.search import price_space, search
from perfmodel.space import SearchBounds, build_space, count_factorisations, factorisations
from tests.perfmodel.cases import MIXTRAL, a100, tpu


@pytest.mark.parametrize("number", [1, 2, 7, 12, 64, 360, 8960])
@pytest.mark.parametrize("axes", [1, 2, 4])
def test_every_ordered_factorisation_once(number, axes):
    found = factorisations(number, axes)
    assert np.all(np.prod(found, axis=1) == number)
    assert len({tuple(row) for row in found}) == len(found)
    powers, rest, prime = [], number, 2
    while rest > 1:
        power = 0
        while rest % prime == 0:
            rest, power = rest // prime, power + 1
        powers.append(power)
        prime += 1
    assert len(found) == prod(comb(power + axes - 1, axes - 1) for power in powers)
    assert len(found) == count_factorisations(number, axes)


@pytest.mark.parametrize(
    "config",
    [
        tpu(topology=(4, 4, 4), mesh={"data": 64}, batch=256),
        tpu(topology=(4, 4, 4), mesh={"data": 64}, batch=256, shape=MIXTRAL),
        a100(2, 1),
    ],
)
def test_arrays_and_single_predictions_agree(config):
    changes = tuple({"remat": remat, "global_batch": batch} for remat in ("none", "full") for batch in (256, 1024))
    space = build_space(config, SearchBounds(changes=changes))
    priced = price_space(space)
    rng = np.random.default_rng(1)
    for flat in rng.choice(space.count, 25, replace=False):
        prediction = predict(priced.config(flat))
        assert priced.estimate_s[flat] == pytest.approx(prediction.step_time_s["estimate"], rel=1e-9)
        assert priced.memory_bytes[flat] == pytest.approx(prediction.hbm_per_chip_bytes["total"], rel=1e-9)
        number = priced.broken[flat]
        assert (legality.RULES[number] if number >= 0 else None) == next((v.rule for v in prediction.violations), None)


def test_candidates_are_legal_fit_and_ascend():
    result = search(tpu(batch=512), top=20)
    times = [c.prediction.step_time_s["estimate"] for c in result.candidates]
    assert len(times) == 20
    assert all(b > 0.998 * a for a, b in pairwise(times))
    assert all(c.prediction.fits and not c.prediction.violations for c in result.candidates)
    counted = sum(result.rejected_by_rule.values())
    assert result.considered == factorisations(512, 3).shape[0]
    assert counted + 20 <= result.considered
    assert {rule for _, rule in result.rejected} <= set(legality.RULES)


def test_best_candidate_is_no_worse_than_the_configuration():
    config = tpu({"data": 64, "seq": 2, "model": 4})
    best = search(config, top=1).candidates[0]
    assert best.prediction.step_time_s["estimate"] <= 1.001 * predict(config).step_time_s["estimate"]


def test_batches_are_ranked_per_token():
    result = search(tpu(), top=5, constraints=SearchBounds(changes=({"global_batch": 512}, {"global_batch": 4096})))
    rate = [c.prediction.tokens_per_s_per_chip for c in result.candidates]
    assert rate == sorted(rate, reverse=True) or min(rate) > 0.998 * max(rate)
    assert result.candidates[0].config.training.global_batch == 4096


def test_missing_facts_and_unknown_axes_are_the_users_error():
    with pytest.raises(ConfigError, match=r"training\.seq_len"):
        search(replace(tpu(), training=replace(tpu().training, seq_len=None)))
    with pytest.raises(ConfigError, match="banana"):
        search(tpu(), constraints=SearchBounds(axes=("banana", "model")))


def test_absurdly_many_candidates_are_refused_before_they_are_built():
    config = tpu(dict.fromkeys("abcdefghijkl", 1), topology=(10_000_000,))
    roles = dict.fromkeys("abcdefghijkl", "data")
    config = replace(config, mesh=replace(config.mesh, axis_roles=roles))
    with pytest.raises(ConfigError, match="fewer axes"):
        build_space(config)


def test_the_mesh_keeps_its_slices():
    config = tpu(slices=2, dcn=(("data", 2),), batch=1024)
    result = search(config, top=3)
    assert all(c.config.mesh.dcn == (("data", 2),) for c in result.candidates)
