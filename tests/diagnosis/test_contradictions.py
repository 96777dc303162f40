"""What no finding may do, whatever the profile: contradict a measurement, the configuration or itself.

Stated from the outside, of the diagnosis alone, for arbitrary profiles and for every real one at hand.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from diagnosis.analyzer import bottleneck, diagnose, read_facts
from diagnosis.report import Diagnosis, Finding, SourcedValue
from evaluation.steps import real
from evaluation.steps.generated import profile as generated
from evaluation.steps.scenario import config as config_of
from evaluation.steps.scenarios import SCENARIOS
from experiments.step_profile import Op, StepProfile
from perfmodel.chips import get_chip
from perfmodel.config import ExperimentConfig
from tests.diagnosis.arbitrary import configs, profiles
from tests.diagnosis.build import collective, config, find, matmul, op, profile

#: Findings about an axis whose cost shows elsewhere: a bubble as idle time, full experts as their own time.
BESIDE_AXIS = {"pipeline_bubble", "expert_imbalance"}
OVER_DATA = "replica_groups=[4,4]<=[4,4]T(1,0)"


def rows_of(finding: Finding, words: str) -> list[SourcedValue]:
    return [row for row in finding.evidence if words in row.label]


def check(diagnosis: Diagnosis, profile: StepProfile, run: ExperimentConfig | None) -> None:
    shares = {entry.key: entry for entry in diagnosis.ops}
    verdict = bottleneck.decide(read_facts(profile, run))
    largest = max(diagnosis.findings, key=lambda finding: finding.saving_share or 0.0, default=None)
    if diagnosis.recording.is_program and largest is not None and verdict.by in ("threshold", "larger"):
        # The bottleneck is the largest bound of the page, or its statement says why not.
        bound, named = largest.saving_share or 0.0, verdict.groups[verdict.primary]
        assert bound <= 1.0101 * named or largest.title in diagnosis.bottleneck.statement
    for finding in diagnosis.findings:
        assert finding.evidence
        for row in finding.evidence:
            assert row.unit != "share" or row.value is None or -1e-6 <= row.value <= 1 + 1e-6, (finding.rule, row)
            for key in row.ops:
                assert key in shares
        saved = finding.saving_share
        if saved is not None:
            assert saved > 0
            assert finding.saving_s is None or finding.saving_s > 0
        _check_padding(finding, diagnosis)
        _check_links(finding, profile, run)
        if run is not None:
            _check_configuration(finding, diagnosis, run)
    for row in diagnosis.collectives:
        if row.hidden_share is not None:
            assert 0 <= row.hidden_share <= 1
            hidden = row.in_flight_s - row.exposed_s if row.in_flight_s is not None else 0.0
            assert hidden >= -1e-9 * max(1.0, row.in_flight_s or 0.0)
    _check_verdict(diagnosis)


def _check_padding(finding: Finding, diagnosis: Diagnosis) -> None:
    """Padding waste is at most one minus the measured efficiency."""
    efficiency = {entry.key: entry.roofline_efficiency for entry in diagnosis.ops}
    for row in rows_of(finding, "padded FLOPs of"):
        measured = efficiency[row.ops[0]]
        assert measured is None or measured > 1.0 or (row.value or 0.0) <= 1.0 - measured + 1e-6


def _check_links(finding: Finding, profile: StepProfile, run: ExperimentConfig | None) -> None:
    """No bandwidth above what the links carry, in any number that is shown."""
    name = run.hardware.chip if run is not None else profile.device.chip
    for achieved in rows_of(finding, "achieved bandwidth per chip"):
        possible = rows_of(finding, "link bandwidth per chip")[0]
        assert (achieved.value or 0.0) <= 1.1 * (possible.value or 0.0)
    if name:
        try:
            chip = get_chip(name)
        except KeyError:
            return
        for row in rows_of(finding, "host transfers per core"):
            assert (row.value or 0.0) <= 1.1 * chip.host_link_bytes_per_s / chip.devices_per_chip


def _check_configuration(finding: Finding, diagnosis: Diagnosis, run: ExperimentConfig) -> None:
    """No advice to do what the run does already; no finding on an axis that carries nothing."""
    assert not (finding.rule == "replicated_weights" and run.training.weight_sharding == "fsdp")
    if finding.mesh_axis and finding.saving_share is not None and finding.rule not in BESIDE_AXIS:
        on_axis = [entry for entry in diagnosis.ops if _runs_on(entry.mesh_axis, finding.mesh_axis, run)]
        assert any(entry.time_share > 0 for entry in on_axis), finding


def _runs_on(axes: object, axis: str, run: ExperimentConfig) -> bool:
    if axes == "dcn":
        return axis == "dcn" or dict(run.mesh.dcn).get(axis, 1) > 1
    return axis == axes or (isinstance(axes, list | tuple) and axis in axes)


def _check_verdict(diagnosis: Diagnosis) -> None:
    """A step that loses 30 % or more is not said to be bound by its work, nor by the smaller part of it."""
    if not diagnosis.breakdown_share or "point to" in diagnosis.bottleneck.statement:
        return
    terms: dict[str, float] = {}
    groups = {"hbm": "memory", "dcn": "communication", "ici": "communication", "host_transfer": "host"}
    for bar, value in diagnosis.breakdown_share.items():
        name = groups.get(bar.partition(":")[0], bar)
        terms[name] = terms.get(name, 0.0) + value
    primary = diagnosis.bottleneck.primary
    if primary in ("compute", "memory"):
        assert terms.get(primary, 0.0) >= max(terms.get("compute", 0.0), terms.get("memory", 0.0)) - 1e-9
        assert sum(terms.get(name, 0.0) for name in ("input", "host", "idle", "communication")) < 0.3 + 1e-9


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(profiles(), configs())
def test_no_finding_contradicts_an_arbitrary_profile(made: StepProfile, run: ExperimentConfig | None) -> None:
    check(diagnose(made, run), made, run)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.name)
def test_no_finding_contradicts_a_generated_step(scenario) -> None:  # type: ignore[no-untyped-def]
    check(diagnose(generated(scenario), config_of(scenario)), generated(scenario), config_of(scenario))


@pytest.mark.slow
def test_no_finding_contradicts_a_real_profile() -> None:
    """Every profile at hand, with its configuration or without: those that ship, and others where present."""
    seen = 0
    for _, made, run in real.profiles():
        check(diagnose(made, run), made, run)
        check(diagnose(made), made, None)
        seen += 1
    assert seen >= 5


MESH = config({"data": 4, "model": 4}, (4, 4))


def wide_gather(operand: str, share: float, count: int = 10, **more: float) -> Op:
    return collective("all-gather", share, "replica_groups=[4,4]<=[16]", operand, count=count, operand=operand, **more)


def test_small_collectives_are_combined_and_large_ones_are_not() -> None:
    """An all-gather of 1 GB at a tenth of its links' bandwidth is no small message."""
    small = profile(matmul("fusion.1", 0.7), wide_gather("bf16[64,64]", 0.3, count=100))
    large = profile(matmul("fusion.1", 0.7), wide_gather("bf16[65536,8192]", 0.3, count=1))
    assert "Combine small" in find(diagnose(small, MESH), "low_link_bandwidth").action
    assert all("Combine" not in finding.action for finding in diagnose(large, MESH).findings)


def test_a_bandwidth_above_the_links_is_not_stated() -> None:
    """16.8 GB in 0.2 s over four chips of v5e would need 126 GB/s from links of 45 GB/s."""
    fast = wide_gather("bf16[131072,65536]", 0.2, count=1, in_flight_s=0.2 * 16, exposed_s=0.2 * 16)
    diagnosis = diagnose(profile(matmul("fusion.1", 0.8), fast), MESH)
    entry = next(entry for entry in diagnosis.ops if entry.collective)
    assert entry.achieved_bytes_per_s is None
    assert all(row.achieved_bytes_per_s is None and row.hidden_share is None for row in diagnosis.collectives)
    assert any("more bytes than the links can carry" in text for text in diagnosis.warnings)


def test_fully_sharded_weights_are_not_replicated() -> None:
    reduce = collective("all-reduce", 0.2, "replica_groups=[1,8]<=[8]", op_name="jit(s)/transpose(jvp(l))/mlp/psum")
    update = op("fusion.2", "loop fusion", 0.2, op_name="jit(s)/adamw/mul")
    made = profile(matmul("fusion.1", 0.6), reduce, update)
    for sharding, wanted in (("none", True), ("zero1", False), ("fsdp", False)):
        found = diagnose(made, config({"data": 8, "model": 1}, weight_sharding=sharding)).findings
        assert ("replicated_weights" in {finding.rule for finding in found}) is wanted


def test_an_efficiency_above_the_roof_measures_nothing() -> None:
    """At 272 % of the roof the counts are not what the op did: no mean, no saving and no waste uses them."""
    made = profile(matmul("fusion.1", 0.5, 2.72), matmul("fusion.2", 0.5, 0.3))
    found = find(diagnose(made, MESH), "low_matrix_efficiency")
    assert found.saving_share == pytest.approx(0.5 * 0.7)
    values = [row.value for row in found.evidence if row.label == "their mean efficiency"]
    assert values == [pytest.approx(0.3)]
