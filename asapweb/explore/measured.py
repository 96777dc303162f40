"""Measurements of the experiment that Explore started from: the evidence for its predictions, and a bar."""

from __future__ import annotations

from contextlib import suppress

from asapweb.explore.answer import Bar
from diagnosis.models import DiagnosisRecord
from experiments import bars
from experiments.bars import Term
from experiments.pages import ExperimentPage
from experiments.services import profiles
from perfmodel.config import ConfigError, ExperimentConfig
from perfmodel.price import NOTHING, Evidence
from proposals.services import context, plans


def baseline(page: ExperimentPage, config: ExperimentConfig | None) -> Bar | None:
    """The profiled step by term, undivided where the diagnosis could not divide it; None if not measured."""
    total = page.experiment.step_time_s
    if not total:
        return None
    record = DiagnosisRecord.objects.filter(run__experiment=page.experiment).order_by("-pk").first()
    diagnosis = record.value if record is not None else None
    breakdown = diagnosis.breakdown_s if diagnosis is not None and diagnosis.measured else {}
    roles = config.mesh.axis_roles if config is not None else None
    terms = bars.step_terms(breakdown, roles) or [Term("other", "Not divided", "idle", total)]
    return Bar("Measured", terms, total, "measured")


def evidence_of(page: ExperimentPage) -> Evidence:
    """Return the evidence by which the proposals of the experiment are priced; NOTHING before there are any."""
    plan = plans.newest(page.experiment)
    if plan is None:
        return NOTHING
    with suppress(ConfigError, profiles.NotIngested):
        return context.pricer(plan).evidence
    return NOTHING
