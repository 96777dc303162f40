"""Start an experiment without a profile, from the step time that its configuration says was measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import transaction

from accounts.models import Team, User
from accounts.text import one_line
from experiments.models import NAME_CHARACTERS, Experiment, Origin, Profile
from experiments.services import configuration, events, runs
from experiments.services.configuration import Checked


def from_step_time(
    team: Team, user: User | None, data: Mapping[str, Any], name: str = ""
) -> tuple[Experiment | None, Checked]:
    """The experiment with its queued run, and the checked configuration; None, and nothing stored, where it has errors.

    data: the contract's JSON with a `measured` block.
    """
    checked = configuration.check_without_profile(data)
    if not checked.ok:
        return None, checked
    with transaction.atomic():
        experiment = Experiment(
            team=team,
            created_by=user,
            origin=Origin.STEP_TIME,
            name=one_line(name, NAME_CHARACTERS) or _name(checked),
        )
        configuration.keep(experiment, checked)
        experiment.save()
        profile = Profile.objects.create(team=team, experiment=experiment)
        events.append(experiment, "config", "user", user=user, data=configuration.facts(checked))
        runs.start(experiment, profile, user=user)
    return experiment, checked


def _name(checked: Checked) -> str:
    """The configuration's name, else model and hardware."""
    given = one_line(str(checked.data.get("name") or ""), NAME_CHARACTERS)
    return given or one_line(configuration.default_name(checked), NAME_CHARACTERS) or "Unnamed experiment"
