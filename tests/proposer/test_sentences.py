"""Every number that a proposal's sentences say equals the field that it names."""

from __future__ import annotations

import json
from typing import Any

import pytest

from diagnosis.analyzer import diagnose
from evaluation.steps import paper
from evaluation.steps.drawn import step
from evaluation.steps.scenario import config as configured
from evaluation.steps.shipped import sample
from experiments.samples.samples import SAMPLES
from experiments.sentences import spans_of
from proposals.plan import PLAN
from proposals.proposer import Pricer
from tests.proposer.sentences import check_sentences
from tests.proposer.test_step_time import GPU, MEASURED, TPU, pricer, read

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("key", [item.key for item in SAMPLES])
def test_every_value_of_a_shipped_sample_equals_the_field_it_names(key: str) -> None:
    profile, config = sample(key)
    diagnosis = diagnose(profile, config)
    bench = Pricer(profile, config, diagnosis)
    plan = bench.propose()
    own = [bench.evaluate(row) for item in plan.proposals for row in item.sensitivity[:3]]
    assert check_sentences(plan, diagnosis, *own) > 10
    again = PLAN.read(json.loads(json.dumps(PLAN.write(plan))))
    for before, after in zip(plan.proposals, again.proposals, strict=True):
        for one, two in zip(before.reasoning + before.lowers, after.reasoning + after.lowers, strict=True):
            assert spans_of(one) == spans_of(two)
    assert plan.to_json()["proposals"][0]["reasoning"] == " ".join(plan.proposals[0].reasoning)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_so_does_every_value_of_a_thin_profile(number: int) -> None:
    profile, config = paper.profile(number), paper.config(number)
    diagnosis = diagnose(profile, config)
    assert check_sentences(Pricer(profile, config, diagnosis).propose(), diagnosis) >= 2


@pytest.mark.parametrize("data", [TPU, TPU | {"measured": MEASURED}, GPU, GPU | {"measured": {"step_time_s": 9.0}}])
def test_so_does_every_value_without_a_profile(data: dict[str, Any]) -> None:
    bench = pricer(read(data))
    assert check_sentences(bench.propose(), bench.diagnosis) >= 5


def test_what_measurement_and_model_disagree_on_is_said_with_both_numbers() -> None:
    """By this profile sharding the optimizer state alone gains on the best meshes; by the model alone it costs."""
    scenario, profile, _ = step(3026)
    config = configured(scenario)
    diagnosis = diagnose(profile, config)
    bench = Pricer(profile, config, diagnosis)
    disputed = [item for item in map(bench.evaluate, bench.search(top=12)) if item.disputed]
    assert disputed
    for item in disputed:
        for element, by in item.disputed.items():
            assert (by["measured"] - 1.0) * (by["model"] - 1.0) < 0
            sentence = next(text for text in item.lowers if "decides" in text and text.startswith(element))
            assert f"{by['measured']:.2f}× by the profile" in sentence.replace("\N{NO-BREAK SPACE}", " ")
            assert f"{by['model']:.2f}× by the performance model alone" in sentence
