"""The labelled set: primary bottleneck and rules, over three seeds of every scenario and over noisy copies."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from diagnosis.analyzer import diagnose
from evaluation.steps import evaluate
from evaluation.steps.generated import made, profile
from evaluation.steps.scenario import Scenario, config
from evaluation.steps.scenarios import SCENARIOS
from evaluation.steps.variants import perturbed
from experiments.ingest import read_profile
from tests.diagnosis.as_xspace import write

IDS = [scenario.name for scenario in SCENARIOS]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=IDS)
def test_bottleneck_and_rules(scenario: Scenario) -> None:
    diagnosis = diagnose(profile(scenario), config(scenario))
    assert diagnosis.bottleneck.primary == scenario.label
    rules = {finding.rule for finding in diagnosis.findings}
    assert set(scenario.expected) <= rules
    assert not set(scenario.not_expected) & rules


@pytest.mark.parametrize("scenario", SCENARIOS, ids=IDS)
def test_stable_under_noise(scenario: Scenario) -> None:
    for seed in range(3):
        noisy = perturbed(profile(scenario, seed), seed)
        assert diagnose(noisy, config(scenario)).bottleneck.primary == scenario.label


@pytest.mark.parametrize("scenario", [one for one in SCENARIOS if not one.listed], ids=lambda one: one.name)
def test_books_balance(scenario: Scenario) -> None:
    """What the Analyzer adds up is what the generator put in."""
    made = profile(scenario)
    diagnosis = diagnose(made, config(scenario))
    assert made.step_time_s is not None
    assert sum(diagnosis.breakdown_s.values()) == pytest.approx(made.step_time_s)
    assert diagnosis.breakdown_share.get("input", 0.0) == pytest.approx(scenario.input, abs=1e-6)
    assert diagnosis.breakdown_share.get("host", 0.0) == pytest.approx(scenario.host, abs=1e-6)
    assert diagnosis.breakdown_share.get("idle", 0.0) == pytest.approx(scenario.idle, abs=1e-6)
    talking = sum(share for bar, share in diagnosis.breakdown_share.items() if bar.startswith("ici") or bar == "dcn")
    assert talking == pytest.approx(made.kpis["communication"], rel=0.01, abs=1e-4)
    assert "ici" not in diagnosis.breakdown_share, "a collective whose axis was not found"


def test_wires_are_given_back() -> None:
    """A generated synchronous collective ran at a stated share of what its links give: the Analyzer reads that
    share.
    """
    for scenario in SCENARIOS:
        if scenario.hidden:
            continue
        for row in diagnose(profile(scenario), config(scenario)).collectives:
            if row.achieved_bytes_per_s and row.axis != "dcn":
                assert row.achieved_bytes_per_s / row.possible_bytes_per_s == pytest.approx(scenario.links, rel=0.08)


THROUGH_XPROF = (
    "70B on 512 v5p, tuned",
    "one slow core",
    "unfused elementwise work",
    "8-way tensor parallelism in the open",
    "gathers of sharded weights, few tokens",
    "gradients over DCN",
    "expert dispatch",
    "slow input",
    "gaps",
)


@pytest.mark.slow
@pytest.mark.parametrize("name", THROUGH_XPROF)
def test_through_the_converter(name: str, tmp_path: Path) -> None:
    """The same step written as an XSpace and read by XProf: its tables in between change nothing."""
    scenario = next(scenario for scenario in SCENARIOS if scenario.name == name)
    write(profile(scenario), tmp_path / "host-0.xplane.pb")
    diagnosis = diagnose(read_profile([tmp_path / "host-0.xplane.pb"]), config(scenario))
    assert diagnosis.bottleneck.primary == scenario.label
    assert set(scenario.expected) <= {finding.rule for finding in diagnosis.findings}
    direct = diagnose(profile(scenario), config(scenario))
    for bar in ("compute", "hbm", "idle", "input", "dcn"):
        assert diagnosis.breakdown_share.get(bar, 0.0) == pytest.approx(direct.breakdown_share.get(bar, 0.0), abs=0.06)


def test_precision_and_recall_of_the_labelled_set() -> None:
    score = evaluate.labelled(range(2))
    assert len(SCENARIOS) >= 36
    assert score.accuracy >= 0.95 and score.precision >= 0.9 and score.recall >= 0.95


def test_steps_drawn_at_random() -> None:
    """Many of them lie near a threshold, so some verdicts must be wrong, and those must not have been sure."""
    score = evaluate.at_random(range(5000, 5120))
    assert score.accuracy >= 0.9 and score.precision >= 0.85 and score.recall >= 0.85
    sure = [right for stated, right in score.confidence if stated >= 0.9]
    unsure = [right for stated, right in score.confidence if stated < 0.9]
    assert sum(sure) >= 0.95 * len(sure) and len(unsure) >= 5
    assert sum(unsure) / len(unsure) < 1.0 or len(unsure) < 20


def test_the_published_report_is_of_this_analyzer() -> None:
    """docs/accuracy-diagnosis.md was written for these verdicts: the labelled part of it still comes out."""
    published = json.loads(evaluate.JSON_FILE.read_text())["labelled"]
    score = evaluate.labelled()
    assert published["verdicts"] == score.verdicts.total()
    assert published["accuracy"] == pytest.approx(score.accuracy)
    assert published["precision"] == pytest.approx(score.precision, abs=0.01)
    assert published["recall"] == pytest.approx(score.recall, abs=0.01)
    text = evaluate.REPORT.read_text()
    assert f"{len(SCENARIOS)} labelled steps" in text and all(f"`{rule}`" in text for rule in evaluate.CAUSES)


def test_the_generator_knows_nothing_of_the_analyzer() -> None:
    """Its physics is the performance model's; labels follow from its ledger by the contract."""
    for module in ("generated", "scenario", "scenarios", "writer", "drawn"):
        text = (Path(evaluate.__file__).parent / f"{module}.py").read_text()
        assert "diagnosis.analyzer" not in text and "from diagnosis" not in text
    for scenario in SCENARIOS:
        _, ledger = made(scenario)
        assert ledger.truth == scenario.label, scenario.name
        assert sum(ledger.resources.values()) == pytest.approx(1.0, abs=2e-3)
