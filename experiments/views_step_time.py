"""The page that starts an experiment from a step time, without a profile."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from django.http import HttpResponse
from django.shortcuts import redirect, render

from accounts.models import Role, Team
from accounts.permissions import MemberRequest, require
from experiments.models import Experiment
from experiments.services import configuration as configurations
from experiments.services import starting
from experiments.services.configuration import Checked
from experiments.views import form_context, posted
from perfmodel.config import ConfigError
from perfmodel.reading import parse_text

#: A configuration in an address longer than this is none that a page of ours wrote.
MAX_ADDRESS = 20_000


@require(Role.ENGINEER, "GET", "POST")
def step_time(request: MemberRequest) -> HttpResponse:
    """The form, filled in from `?config=` where another page hands its configuration over; a POST starts the run."""
    team = request.membership.team
    if request.method == "POST":
        experiment, checked = start(request, team)
        return redirect("experiment", experiment.pk) if experiment is not None else page(request, team, checked)
    data = handed_over(request.GET.get("config", ""))
    return render(request, "experiments/step_time.html", context(team, data))


def start(request: MemberRequest, team: Team) -> tuple[Experiment | None, Checked]:
    """The experiment of a posted form; None and what is wrong where there are errors."""
    checked = posted(request, handed_over(request.POST.get("kept", "")))
    user: Any = request.user
    return (None, checked) if checked.errors else starting.from_step_time(team, user, checked.data)


def page(request: MemberRequest, team: Team, checked: Checked, **more: Any) -> HttpResponse:
    """The form again, with what is wrong."""
    way = request.POST.get("config_way", "form")
    said = context(team, checked.data, checked.errors) | more
    if way == "file":
        field, sentence = next(iter(checked.errors.items()))
        said |= {"file_error": f"{field}: {sentence}" if field else sentence}
        said |= {"config_text": request.POST.get("config_text", "")}
    return render(request, "experiments/step_time.html", {**said, "way": way}, status=422)


def context(team: Team, data: Mapping[str, Any], errors: dict[str, str] | None = None) -> dict[str, Any]:
    """What the page shows for a configuration.  kept: what of it the form has no field for, as JSON."""
    return {
        "here": "upload",
        "team": team,
        "without_profile": True,
        "kept": json.dumps(data) if data else "",
        **form_context(data, errors),
    }


def handed_over(text: str) -> dict[str, Any]:
    """A configuration in an address or a hidden field; empty where it is none.  What is wrong in it, the form shows."""
    if not text.strip() or len(text) > MAX_ADDRESS:
        return {}
    try:
        return configurations.check(parse_text(text)).data
    except ConfigError:
        return {}
