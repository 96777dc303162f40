"""Runs of approved proposals, uploaded and analysed as the Coordinator leaves them, with the step time asked for."""

from __future__ import annotations

import copy
import dataclasses
import json

from django.db import transaction

from diagnosis import services as diagnosis_services
from experiments.models import RunStatus
from experiments.services import profiles, runs, uploads
from experiments.step_profile import Step
from proposals.candidate import HARDWARE_KEYS
from proposals.services import measuring, plans
from tests.backend.factories import CONFIG, diagnosis, plan, step_profile, upload


def config_of(proposal, **training):
    """The configuration that the proposal would run, as its launch file writes it."""
    data = copy.deepcopy(CONFIG)
    data["name"] = "the changed run"
    data["mesh"] = proposal.data["mesh"]
    changes = dict(proposal.data["changes"])
    data["hardware"] |= {key: changes.pop(key) for key in HARDWARE_KEYS if key in changes}
    data["training"] = {**data["training"], **changes, **training}
    return data


def step_of(seconds):
    return dataclasses.replace(
        step_profile(), step_time_s=seconds, step_time_stdev_s=0.001, steps=(Step(1, seconds), Step(2, seconds))
    )


def make_run(people, config, seconds=1.0, ready=True, name="the changed run", profile=None):
    """An uploaded run with this configuration, analysed up to `ready` if asked."""
    experiment = uploads.receive(people.team, people.engineer, [upload()], json.dumps(config), name)
    return analyse(experiment, profile or step_of(seconds)) if ready else experiment


def analyse(experiment, value):
    run = runs.newest(experiment)
    assert runs.move(run, RunStatus.UPLOADED, RunStatus.INGESTING, actor="coordinator")
    with transaction.atomic():
        profiles.store(run.profile, value, profiles.write(run, value))
    assert runs.move(run, RunStatus.INGESTING, RunStatus.DIAGNOSING, actor="coordinator")
    diagnosis_services.store(run, diagnosis(value))
    assert runs.move(run, RunStatus.DIAGNOSING, RunStatus.PROPOSING, actor="coordinator")
    plans.store(run, plan())
    assert runs.move(run, RunStatus.PROPOSING, RunStatus.CHECKING, actor="coordinator")
    assert runs.move(run, RunStatus.CHECKING, RunStatus.READY, actor="coordinator")
    measuring.on_ready(run)
    experiment.refresh_from_db()
    return experiment
