"""The experiment's configuration: prefilled from the profile, checked as one types, saved, and put to work."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from django.db import transaction
from django.utils import timezone

from accounts.models import User
from accounts.text import one_line
from experiments.consistency import Contradiction, Facts, Prefilled, contradictions, prefilled
from experiments.models import NAME_CHARACTERS, Experiment, Profile, RunStatus
from experiments.services import against_profile, events, runs
from perfmodel import config_file, price
from perfmodel.config import ConfigError, ExperimentConfig
from perfmodel.reading import MAX_BYTES, parse_text

#: A configuration larger than this is something else that was dropped into the field.
MAX_TEXT_BYTES = MAX_BYTES


@dataclass(frozen=True)
class Checked:
    """A configuration as checked.  config: None where there are errors.  errors: {dotted field: sentence}.

    against: what its profile contradicts; undecided: of these, what the user neither corrected nor keeps.
    """

    data: dict[str, Any]
    config: ExperimentConfig | None
    errors: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    against: tuple[Contradiction, ...] = ()
    undecided: tuple[Contradiction, ...] = ()

    @property
    def ok(self) -> bool:
        return self.config is not None and not self.errors and not self.undecided


def read_text(text: str) -> Checked:
    """JSON or YAML text, parsed and checked.  Text that is neither has one error under the key ``""``."""
    try:
        data = parse_text(text)
    except ConfigError as error:
        return Checked({}, None, {error.field: error.message})
    return check(data)


def check(data: Mapping[str, Any]) -> Checked:
    """Every error of a configuration by field, and its warnings (unknown keys, doubtful choices)."""
    try:
        text = json.dumps(data, allow_nan=False)
        text.encode()
    except (ValueError, TypeError) as error:  # NaN, a lone surrogate, a date that YAML made
        return Checked({}, None, {"": f"The configuration cannot be kept as JSON: {error}"})
    if "\\u0000" in text:
        return Checked({}, None, {"": "The configuration contains a NUL character; remove it."})
    plain = json.loads(text)
    errors: dict[str, str] = {}
    for complaint in config_file.all_errors(plain):
        errors.setdefault(complaint.field, complaint.message)
    if errors:
        return Checked(plain, None, errors)
    config, warnings = config_file.parse_config(plain)
    return Checked(plain, config, {}, tuple(warnings))


def check_without_profile(data: Mapping[str, Any]) -> Checked:
    """`check`, and that a step time is given which other configurations can be calibrated from."""
    checked = check(data)
    if checked.config is None:
        return checked
    lacking = price.lacking(checked.config)
    return Checked(checked.data, None, lacking) if lacking else checked


def load(experiment: Experiment) -> ExperimentConfig | None:
    """The experiment's configuration as values; None until one was saved."""
    if experiment.config is None:
        return None
    return check(experiment.config).config


def prefill(profile: Profile) -> Prefilled:
    """The contract's JSON as far as the profile contains it, with the evidence of each field.

    What the profile does not say is left to the user.
    """
    return prefilled(against_profile.facts(profile), profile.experiment.name)


def columns(config: ExperimentConfig) -> dict[str, Any]:
    """The experiment's columns that repeat its configuration, for lists."""
    return {
        "chip": config.hardware.chip,
        "chips": config.hardware.chips,
        "model_name": (config.model.name or "custom")[:100] if config.model is not None else "",
        "mesh": config.mesh.to_json(),
    }


def facts(checked: Checked) -> dict[str, Any]:
    """What the Event of a configuration holds.  mesh: also as text, to read."""
    mesh = checked.config.mesh.text() if checked.config is not None else None
    data = {"config": checked.data, "mesh": mesh, "errors": checked.errors, "warnings": list(checked.warnings)}
    kept = [item.sentence for item in checked.against]
    return {**data, "kept": kept} if kept else data


def keep(experiment: Experiment, checked: Checked) -> None:
    """Put a checked configuration, or a draft with its errors, on the experiment; saves nothing."""
    if checked.config is None:
        experiment.config_draft = checked.data or None
        experiment.config_errors = checked.errors
        return
    experiment.config = checked.data
    experiment.config_warnings = list(checked.warnings)
    experiment.config_draft = None
    experiment.config_errors = {}
    for name, value in columns(checked.config).items():
        setattr(experiment, name, value)


def default_name(checked: Checked) -> str:
    """`llama3-8b on 256 v5e`; empty where the configuration is not whole."""
    if checked.config is None:
        return ""
    hardware, model = checked.config.hardware, checked.config.model
    what = (model.name if model is not None else "") or "custom model"
    return f"{what} on {hardware.chips:,} {hardware.chip}"


def _rename(experiment: Experiment, checked: Checked) -> None:
    """A name that was changed in the configuration is the experiment's; one that stayed leaves it as it is."""
    before = (experiment.config or {}).get("name", experiment.name)
    after = one_line(str(checked.data.get("name") or ""), NAME_CHARACTERS)
    if after and after != before:
        experiment.name = after


def against(experiment: Experiment, checked: Checked, accept: Collection[str] = ()) -> Checked:
    """The checked configuration with what its newest profile contradicts in it.

    accept: fields whose contradictions the user keeps, beside those kept before.
    """
    newest = runs.newest(experiment)
    if newest is None or checked.config is None or runs.is_without_profile(newest):
        return checked
    contradicted = against_profile.contradicted(newest.profile, checked.data, checked.config)
    undecided = against_profile.undecided_contradictions(contradicted, experiment.config_kept, accept)
    return replace(checked, against=contradicted, undecided=undecided)


def hold_against(experiment_pk: int, facts: Facts) -> tuple[Contradiction, ...]:
    """Hold a stored configuration against what its profile, just read, tells; stores what its user keeps.

    Returns what the user has to decide on.
    """
    experiment = Experiment.objects.get(pk=experiment_pk)
    checked = check(experiment.config or {})
    if checked.config is None:
        return ()
    contradicted = contradictions(facts, checked.data, checked.config)
    undecided = against_profile.undecided_contradictions(contradicted, experiment.config_kept)
    kept = against_profile.as_kept(item for item in contradicted if item not in undecided)
    # What was accepted before the profile was read and is contradicted by nothing needs no word.
    Experiment.objects.filter(pk=experiment_pk).update(config_kept=kept)
    return undecided


def save(experiment: Experiment, user: User, data: Mapping[str, Any], accept: Collection[str] = ()) -> Checked:
    """Check and save the configuration, then start or restart the analysis with it; with errors nothing changes.

    Nor does it where the profile contradicts a field that is not in `accept` and was not kept before: the user decides.
    A run without a profile needs a measured step time.  A run that waits for the configuration goes on; one that is
    being ingested will find it; any other is followed by a new run from the diagnosis on.  The same configuration again
    starts nothing while its analysis is under way or done.
    """
    newest = runs.newest(experiment)
    no_files = newest is not None and runs.is_without_profile(newest)
    checked = check_without_profile(data) if no_files else against(experiment, check(data), accept)
    if not checked.ok:
        return checked
    with transaction.atomic():
        events.lock(experiment.pk)
        experiment.refresh_from_db()
        unchanged = json.dumps(experiment.config) == json.dumps(checked.data)  # the order of a mesh's axes counts
        _rename(experiment, checked)
        unchanged = unchanged and experiment.config_kept == against_profile.as_kept(checked.against)
        keep(experiment, checked)
        experiment.config_kept = against_profile.as_kept(checked.against)
        experiment.updated_at = timezone.now()
        experiment.save()
        if not unchanged:
            events.append(
                experiment,
                "config",
                "user",
                user=user,
                data=facts(checked),
            )
        run = runs.newest(experiment)
        if run is None:
            return checked
        status = RunStatus(run.status)
        if status == RunStatus.CONFIGURING:
            runs.move(run, status, RunStatus.DIAGNOSING, actor="user", user=user)
            runs.RUNS.enqueue(run.pk)
        elif status in (RunStatus.UPLOADED, RunStatus.INGESTING) or (unchanged and status != RunStatus.FAILED):
            pass  # the worker that reads the profile takes the configuration from the experiment
        elif not run.profile.data or runs.is_without_profile(run):
            # What was measured is read again: of a run without a profile it is part of the configuration.
            if status.is_working:
                runs.fail(run, "The configuration changed; a new analysis has been started.", actor="user")
            runs.start(experiment, run.profile, user=user)
        else:
            if status.is_working:
                runs.fail(run, "The configuration changed; a new analysis has been started.", actor="user")
            runs.start(experiment, run.profile, user=user, status=RunStatus.DIAGNOSING)
    return checked
