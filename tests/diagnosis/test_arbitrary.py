"""Whatever a profile holds, the Analyzer answers, and its books balance."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import HealthCheck, given, settings

from diagnosis.analyzer import diagnose
from diagnosis.report import BOTTLENECKS
from experiments.step_profile import STEP_PROFILE, StepProfile
from perfmodel.config import ExperimentConfig
from tests.diagnosis.arbitrary import configs, profiles

#: KPIs that are no share, or exceed one where a capacity, a model or an interval is stated wrongly.
UNBOUNDED = {"step_time_s", "mfu", "memory_peak_share", "step_time_spread", "stragglers", "communication_exposed",
             "communication_overlapped"}  # fmt: skip


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(profiles(), configs())
def test_any_profile_is_answered(profile: StepProfile, config: ExperimentConfig | None) -> None:
    assert STEP_PROFILE.read(json.loads(json.dumps(STEP_PROFILE.write(profile)))) == profile
    diagnosis = diagnose(profile, config)
    json.dumps(diagnosis.to_json(top=5), allow_nan=False)
    assert diagnosis.bottleneck.primary in BOTTLENECKS and 0 <= diagnosis.bottleneck.confidence <= 1
    assert diagnosis.bottleneck.statement
    for key, value in diagnosis.kpis.items():
        if value is None:
            assert diagnosis.not_measured[key]
        else:
            assert value >= 0 and math.isfinite(value)
            assert key in UNBOUNDED or value <= 1 + 1e-9, key
    shares = diagnosis.breakdown_share
    assert all(-1e-12 <= share <= 1 + 1e-9 for share in shares.values())
    if shares:
        assert sum(shares.values()) == pytest.approx(1.0)
    if diagnosis.breakdown_s:
        assert sum(diagnosis.breakdown_s.values()) == pytest.approx(profile.step_time_s)
    assert len(diagnosis.ops) == len(profile.ops)
    for op in diagnosis.ops:
        assert 0 <= op.time_share <= 1 + 1e-9
    for finding in diagnosis.findings:
        assert finding.title and finding.insight and finding.action and finding.impact
        assert finding.saving_share is None or 0 <= finding.saving_share <= 1
        assert finding.saving_s is None or finding.saving_s <= (profile.step_time_s or 0.0) * (1 + 1e-9)
    assert len(diagnosis.report) == 4
