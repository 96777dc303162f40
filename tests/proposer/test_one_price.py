"""The same configuration costs the same through every entry: commands, proposals, Explore, campaigns."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from diagnosis.analyzer import diagnose
from evaluation.one_price import disagreements, prices
from perfmodel.config import ExperimentConfig
from perfmodel.config_file import read_config
from proposals.candidate import Candidate
from proposals.plan import Plan
from proposals.proposer import Pricer
from proposals.proposer.observed import start

pytestmark = pytest.mark.slow
FIELD = Path(__file__).parents[1] / "field"
#: With a step time and a peak, with a step time far above the prediction, and with nothing measured.
CASES = ("micro_batch_8_a100", "unexplained_32_v4", "hsdp_32_a100")


def field(name: str) -> ExperimentConfig:
    return read_config(FIELD / f"{name}.json")[0]


def planned(config: ExperimentConfig) -> Plan:
    ran = start(config)
    return Pricer(ran, config, diagnose(ran, config)).propose()


@pytest.mark.parametrize("name", CASES)
def test_a_configuration_costs_the_same_through_every_entry(name: str) -> None:
    config = field(name)
    plan = planned(config)
    first = plan.proposals[0]
    asked = [Candidate(config.mesh.to_json()), Candidate(first.mesh, first.changes)]
    if len(first.mesh["ici"]) > 1:  # the order of axes is another configuration, and has one price too
        asked.append(
            Candidate({"ici": dict(reversed(first.mesh["ici"].items())), "dcn": first.mesh["dcn"]}, first.changes)
        )
    for of in asked:
        rows = list(prices(config, of))
        assert len(rows) >= 5
        assert disagreements(rows) == []


def test_a_plan_names_the_evidence_that_priced_it() -> None:
    config = field("micro_batch_8_a100")
    plan = planned(config)
    again = planned(replace(config, name="another name"))
    other = planned(replace(config, measured=replace(config.measured, step_time_s=3.0)))
    assert plan.evidence["name"] == "measured step time"
    assert plan.evidence["digest"] == again.evidence["digest"] != other.evidence["digest"]


def test_an_illegal_configuration_that_nobody_ran_is_illegal_through_every_entry() -> None:
    """Two sequences per micro-batch on shards of one: nothing was measured that would show that it runs."""
    config = field("micro_batch_8_a100")
    config = replace(config, measured=None, training=replace(config.training, micro_batch=2))
    rows = list(prices(config, Candidate(config.mesh.to_json())))
    assert disagreements(rows) == [] and rows[0].legal is False
    for item in (item for item in planned(config).proposals if item.kind != "keep"):
        shards = item.mesh["ici"].get("fsdp", 1) * item.mesh["ici"].get("data", 1) * item.mesh["ici"].get("replica", 1)
        assert item.changes.get("micro_batch", 2) * shards <= config.training.global_batch
