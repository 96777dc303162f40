"""Pages of launches: both arms of a proposal with their verdict, and where a team's launches run."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET

from accounts.models import Role
from accounts.pages import refusals_as_messages
from accounts.permissions import MemberRequest, get_for, require
from experiments.pages import experiment_page
from formatting.numbers import whole_number
from launches import backends
from launches.models import ArmRun, Launch
from launches.presentation import card
from launches.services import arms, bundles, choices, launching
from launches.settings_form import SettingsForm, filled, groups
from proposals import launch as launch_files
from proposals.models import Proposal
from proposals.services import measuring

_PROPOSALS = Proposal.objects.select_related("experiment", "plan__run__profile", "team", "measurement__experiment")
_ALL = Launch.objects.select_related("experiment", "proposal__plan", "created_by", "team")
#: Those with a page of their own; a trial's is in the pool of its campaign.
_LAUNCHES = _ALL.exclude(proposal=None)
#: Waves of one proposal that the page shows.
MOST_SHOWN = 20


@require(Role.VIEWER, "GET", "POST")
def launches(request: MemberRequest, pk: int) -> HttpResponse:
    """Both arms of every wave of a proposal; a POST launches another."""
    role = Role.ENGINEER if request.method == "POST" else Role.VIEWER
    proposal = get_for(request.user, _PROPOSALS, role, pk=pk)
    if request.method == "POST":
        with refusals_as_messages(request):
            made = launching.launch(
                proposal, request.user, tool=request.POST.get("tool", ""),
                repeats=whole_number(request.POST.get("repeats", "")) or 0,
                steps=whole_number(request.POST.get("steps", "")) or 0, server=request.build_absolute_uri("/"),
            )  # fmt: skip
            return redirect(made)
        return redirect("launches", proposal.pk)
    return _page(request, proposal)


def _page(request: HttpRequest, proposal: Proposal, **more: Any) -> HttpResponse:
    page = experiment_page(request, proposal.experiment_id)
    rows = _LAUNCHES.filter(proposal=proposal).prefetch_related("runs__experiment", "runs__files")[:MOST_SHOWN]
    context = page.context("launch", proposal=proposal, chosen=choices.of_team(proposal.team_id))
    context |= {
        "tools": choices.TOOLS, "cards": [card(item) for item in rows], "has_result": measuring.has_result(proposal),
        "most_repeats": choices.MOST_REPEATS, "most_steps": choices.MOST_STEPS,
        "open": any(item.is_open for item in rows), **more,
    }  # fmt: skip
    return render(request, "launches/launches.html", context)


@require(Role.VIEWER, "GET")
def part(request: MemberRequest, pk: int) -> HttpResponse:
    """One wave, as it is now: a part of the page, which asks again while it is open."""
    launch = get_for(request.user, _LAUNCHES, Role.VIEWER, pk=pk)
    if not request.htmx:
        return redirect(launch)
    return render(request, "launches/_launch.html", {"card": card(launch), "membership": request.membership})


@require(Role.VIEWER, "POST")
def cancel(request: MemberRequest, pk: int) -> HttpResponse:
    launch = get_for(request.user, _LAUNCHES, Role.ENGINEER, pk=pk)
    with refusals_as_messages(request):
        launching.cancel(launch, request.user)
        messages.success(request, "Cancelled; what was reported stays.")
    return redirect(launch)


@require(Role.VIEWER, "POST")
def token(request: MemberRequest, pk: int) -> HttpResponse:
    """A token that reports to this launch only, shown once."""
    launch = get_for(request.user, _LAUNCHES, Role.ENGINEER, pk=pk)
    with refusals_as_messages(request):
        text = launching.new_token(launch, request.user)
        return _page(request, arms.proposal_of(launch), new_token=text, token_of=launch)
    return redirect(launch)


@require(Role.VIEWER, "GET")
def bundle(request: MemberRequest, pk: int, arm: str) -> HttpResponse:
    """What an arm is run with, as a zip."""
    launch = get_for(request.user, _ALL, Role.VIEWER, pk=pk)
    if arm not in ArmRun.Arm.values:
        raise Http404
    try:
        packed = launch_files.archive(bundles.of_arm(launch, arm))
    except bundles.BundleError as error:
        raise Http404(str(error)) from error
    name = f"asap-{launch.pk}-{arm}.zip"
    return HttpResponse(
        packed, content_type="application/zip", headers={"Content-Disposition": f'attachment; filename="{name}"'}
    )


@require(Role.VIEWER, "GET", "POST")
def settings(request: MemberRequest) -> HttpResponse:
    """Where this team's launches run, and what every bundle begins with."""
    membership = request.membership
    team = membership.team
    chosen = choices.of_team(team)
    context: dict[str, Any] = {"here": "settings", "manual": backends.MANUAL, "membership": membership}
    key, form = chosen.backend, filled(chosen.values)
    if request.method == "POST":
        key, form = request.POST.get("backend", ""), SettingsForm(request.POST)
        try:
            choices.save(team, request.user, key, form.filled_values())
            messages.success(request, "Saved; it applies to the next launch.")
            return redirect(reverse("launch-settings"))
        except PermissionError as error:
            return render(request, "403.html", {"exception": str(error)}, status=403)
        except choices.ChoiceError as error:
            context["problem"] = str(error)
    try:
        context["keys"] = choices.enabled().keys_of(team.name)
    except choices.ChoiceError as error:
        context |= {"keys": (backends.MANUAL,), "problem": str(error)}
    context |= {"key": key, "form": form, "groups": groups(form, context["keys"])}
    return render(request, "launches/settings.html", context, status=422 if "problem" in context else 200)


@require_GET
def report_file(request: HttpRequest) -> HttpResponse:
    """`asap_report.py`: the one file that a cluster needs to report."""
    return HttpResponse(
        bundles.REPORT.read_bytes(), content_type="text/x-python; charset=utf-8",
        headers={"Content-Disposition": 'attachment; filename="asap_report.py"'},
    )  # fmt: skip
