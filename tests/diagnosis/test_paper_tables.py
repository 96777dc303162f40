"""The paper's three diagnoses, from nothing but the tables it prints."""

from __future__ import annotations

from dataclasses import replace

import pytest

from diagnosis.analyzer import diagnose
from evaluation.steps import paper
from evaluation.steps.variants import perturbed


@pytest.mark.parametrize("number", [1, 2, 3])
def test_bottleneck_from_printed_tables(number: int) -> None:
    diagnosis = diagnose(paper.profile(number), paper.config(number))
    assert diagnosis.bottleneck.primary == paper.BOTTLENECK[number]
    assert diagnosis.bottleneck.evidence


@pytest.mark.parametrize("number", [1, 2, 3])
def test_five_ops_are_no_more_than_a_leaning(number: int) -> None:
    """The printed tables list 0.05 to 11 % of op time: what they bear out is said with how much of the step it is."""
    bottleneck = diagnose(paper.profile(number), paper.config(number)).bottleneck
    assert bottleneck.confidence <= 0.6
    assert "point to" in bottleneck.statement and "not in the profile" in bottleneck.statement


def test_the_third_table_promises_no_more_than_it_shows() -> None:
    """All five listed ops are collectives, yet known communication is 5.35 % of the step: no saving beyond it."""
    diagnosis = diagnose(paper.profile(3), paper.config(3))
    assert "5.35 %" in diagnosis.bottleneck.statement
    assert all((finding.saving_share or 0.0) <= 0.0536 for finding in diagnosis.findings)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_bottleneck_without_configuration(number: int) -> None:
    assert diagnose(paper.profile(number)).bottleneck.primary == paper.BOTTLENECK[number]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("number", [1, 2, 3])
def test_bottleneck_is_stable_under_noise(number: int, seed: int) -> None:
    profile = perturbed(paper.profile(number), seed)
    assert diagnose(profile, paper.config(number)).bottleneck.primary == paper.BOTTLENECK[number]


@pytest.mark.parametrize("seed", range(20))
def test_third_table_read_as_fractions(seed: int) -> None:
    """The third table prints fractions of one with a % sign: 0.017 is 1.7 % then, and its five ops explain the KPI."""
    rows = tuple((n, c, s * 100, k, b, r * 100, o and o * 100, m and m * 100) for n, c, s, k, b, r, o, m in paper.THREE)
    profile = perturbed(paper.profile(3, rows), seed)
    assert diagnose(profile, paper.config(3)).bottleneck.primary == "communication"


def test_kpis_are_those_printed() -> None:
    for number in (1, 2, 3):
        kpis = diagnose(paper.profile(number), paper.config(number)).kpis
        assert kpis["duty_cycle"] == pytest.approx(paper.DUTY[number])
        assert kpis["communication"] == pytest.approx(paper.COMMUNICATION[number])
        assert kpis["idle"] == pytest.approx(1 - paper.DUTY[number])
        assert kpis["mfu"] is None
        assert kpis["input"] is None


def test_reasons_for_everything_not_measured() -> None:
    for number in (1, 2, 3):
        diagnosis = diagnose(paper.profile(number), paper.config(number))
        for key, value in diagnosis.kpis.items():
            assert (value is None) == (key in diagnosis.not_measured)


def test_observations_of_experiment_1() -> None:
    diagnosis = diagnose(paper.profile(1), paper.config(1))
    rules = {finding.rule for finding in diagnosis.findings}
    assert {"opaque_custom_calls", "async_collective_waits", "record_more"} <= rules
    opaque = next(finding for finding in diagnosis.findings if finding.rule == "opaque_custom_calls")
    assert opaque.saving_share is None and opaque.evidence[1].value == pytest.approx(0.0115)
    assert any("HBM-bound" in text and "waits" in text for text in diagnosis.bottleneck.contradictions)


def test_observations_of_experiment_2() -> None:
    diagnosis = diagnose(paper.profile(2), paper.config(2))
    whole = next(finding for finding in diagnosis.findings if finding.rule == "whole_weight_matmuls")
    assert "tensor axis" in whole.action
    # The configuration says nothing of how weights are sharded; under its default they are not replicated.
    assert "replicated_weights" not in {finding.rule for finding in diagnosis.findings}
    assert any("duty cycle" in text for text in diagnosis.bottleneck.contradictions)
    assert any("7.37 %" in text and "7.52 %" in text for text in diagnosis.bottleneck.contradictions)


def test_observations_of_experiment_3() -> None:
    diagnosis = diagnose(paper.profile(3), paper.config(3))
    leading = next(finding for finding in diagnosis.findings if finding.rule == "collectives_of_unknown_axis")
    assert leading.mesh_axis is None and "model (4 chips)" in leading.insight
    assert [op.collective for op in diagnosis.ops] == [
        "all-reduce", "reduce-scatter", "collective-permute", "all-reduce", "reduce-scatter",
    ]  # fmt: skip


def test_a_fused_matmul_is_no_collective() -> None:
    ops = {op.name: op for op in diagnose(paper.profile(1), paper.config(1)).ops}
    assert ops["All-gather matrix multiplication"].collective is None
    assert ops["All-gather matrix multiplication"].resource == "compute"
    assert ops["Asynchronous collective completion"].collective == "collective"


def test_breakdown_sums_to_the_step() -> None:
    for number in (1, 2, 3):
        diagnosis = diagnose(paper.profile(number), paper.config(number))
        assert sum(diagnosis.breakdown_s.values()) == pytest.approx(paper.STEP_S[number])
        assert min(diagnosis.breakdown_s.values()) >= 0


def test_order_and_names_do_not_matter() -> None:
    """Nothing is recognised by name: other names for the same kinds of op give the same answer."""
    renamed = {
        "Bitcast add fusion": "fusion.17",
        "Custom forward operation": "call.3",
        "All-reduce operation": "all-reduce.9",
    }
    profile = paper.profile(2)
    ops = tuple(replace(op, name=renamed.get(op.name, op.name)) for op in reversed(profile.ops))
    assert diagnose(replace(profile, ops=ops), paper.config(2)).bottleneck.primary == "memory"
