"""Pages of the measured loop: upload the run of a proposal, confirm it, say that it failed, see how predictions did."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpResponse
from django.shortcuts import redirect, render

from accounts.models import Role
from accounts.pages import page_or_part, refusals_as_messages
from accounts.permissions import MemberRequest, get_for, require
from experiments import views, views_step_time
from experiments.models import Experiment
from formatting.numbers import whole_number
from perfmodel.reading import parse_text
from proposals import measured
from proposals.drawing import reliability_plot
from proposals.failures import CAUSES
from proposals.models import FAILURE_WORDS, Measurement, Proposal
from proposals.services import failing, launching, measuring, unmeasured

_FOUND = Proposal.objects.select_related("experiment", "plan__run__profile", "team", "measurement__experiment")
#: Rows of the list of approved proposals that wait.
MOST_WAITING = 50
RESULTS_ON_PAGE = 50


def _back(proposal: Proposal) -> HttpResponse:
    return redirect(proposal)


@require(Role.VIEWER, "GET", "POST")
def upload(request: MemberRequest, pk: int) -> HttpResponse:
    """Upload the profile of the run that a proposal led to; its configuration is filled in, and the two are linked."""
    proposal = get_for(request.user, _FOUND, Role.ENGINEER, pk=pk)

    def linked(experiment: Experiment) -> None:
        try:
            measuring.link(proposal, experiment, request.user)
        except measuring.MeasureError as error:
            messages.error(request, f"Uploaded, but not linked to the proposal: {error}")

    if request.method == "POST":
        return views.receive(request, proposal.team, linked, measures=proposal)
    context: dict[str, Any] = {"way": "file"}
    try:
        context["config_text"] = launching.configuration_text(proposal)
    except launching.LaunchError as error:
        context = {"way": "later", "problem": str(error)}
    if measuring.has_result(proposal):
        context["problem"] = "This proposal already has a result; this upload is not linked to it."
    return views.upload_page(request, measures=proposal, **context)


@require(Role.VIEWER, "GET", "POST")
def step_time(request: MemberRequest, pk: int) -> HttpResponse:
    """Enter the step time of the run that a proposal led to, where there is no profile of it; the two are linked."""
    proposal = get_for(request.user, _FOUND, Role.ENGINEER, pk=pk)
    more: dict[str, object] = {"measures": proposal}
    if measuring.has_result(proposal):
        more["problem"] = "This proposal already has a result; this entry is not linked to it."
    if request.method == "POST":
        experiment, checked = views_step_time.start(request, proposal.team)
        if experiment is None:
            return views_step_time.page(request, proposal.team, checked, **more)
        try:
            measuring.link(proposal, experiment, request.user)
        except measuring.MeasureError as error:
            messages.error(request, f"Started, but not linked to the proposal: {error}")
        return redirect("experiment", experiment.pk)
    try:
        data = parse_text(launching.configuration_text(proposal))
    except launching.LaunchError as error:
        data, more["problem"] = {}, str(error)
    return render(request, "experiments/step_time.html", views_step_time.context(proposal.team, data) | more)


@require(Role.VIEWER, "POST")
def link(request: MemberRequest, pk: int) -> HttpResponse:
    """Count an experiment as the run of the proposal."""
    proposal = get_for(request.user, _FOUND, Role.ENGINEER, pk=pk)
    number = whole_number(request.POST.get("experiment", "")) or 0
    experiment = get_for(request.user, Experiment.objects.all(), Role.ENGINEER, pk=number)
    with refusals_as_messages(request):
        made = measuring.link(proposal, experiment, request.user)
        done = made.status == Measurement.Status.MEASURED
        messages.success(request, "Measured." if done else "Linked; the result appears after the analysis.")
    return _back(proposal)


@require(Role.VIEWER, "POST")
def unlink(request: MemberRequest, pk: int) -> HttpResponse:
    """Take back a link that has no result yet."""
    proposal = get_for(request.user, _FOUND, Role.ENGINEER, pk=pk)
    with refusals_as_messages(request):
        measuring.unlink(proposal, request.user)
    return _back(proposal)


@require(Role.VIEWER, "POST")
def failed(request: MemberRequest, pk: int) -> HttpResponse:
    """Keep that the proposed configuration did not run, and why: as chosen, else as the log says."""
    proposal = get_for(request.user, _FOUND, Role.ENGINEER, pk=pk)
    failure, comment = request.POST.get("failure", ""), request.POST.get("comment", "")
    with refusals_as_messages(request):
        cause = failing.analyse(proposal, request.FILES.getlist("logs"), comment)
        measuring.report_failure(proposal, request.user, failure, comment, cause)
        messages.success(request, "Saved as failed and added to the history.")
    return _back(proposal)


@require(Role.VIEWER, "POST", htmx=True)
def failure_cause(request: MemberRequest, pk: int) -> HttpResponse:
    """The cause in the log of a failed run, before anything is saved."""
    proposal = get_for(request.user, _FOUND, Role.ENGINEER, pk=pk)
    context: dict[str, object] = {"p": proposal, "failures": FAILURE_WORDS, "causes": CAUSES}
    try:
        cause = failing.analyse(proposal, request.FILES.getlist("logs"), request.POST.get("comment", ""))
        context |= {"found": cause, "read": True}
        said = str(cause.sentence) if cause is not None else "Paste the log or choose its file first."
    except measuring.MeasureError as error:
        context["problem"] = said = str(error)
    if request.htmx:
        return render(request, "proposals/_failure.html", context)
    messages.info(request, said)
    return _back(proposal)


@require(Role.VIEWER, "GET")
def measurements(request: MemberRequest) -> HttpResponse:
    """Predicted against measured, for all results of the team."""
    team = request.membership.team
    results = measuring.results(team)
    page = Paginator(results, RESULTS_ON_PAGE).get_page(request.GET.get("page"))
    shown = measured.results(results, page)
    context = {
        "here": "measurements",
        "page": page,
        "results": shown,
        "reliability_plot": partial(reliability_plot, shown.reliability),
        "waiting": unmeasured.waiting(team).count(),
    }
    return render(request, "proposals/measurements.html", context)


@require(Role.VIEWER, "GET", htmx=True)
def waiting(request: MemberRequest) -> HttpResponse:
    """Approved proposals that wait for their measurement, for the History page."""
    team = request.membership.team
    rows = unmeasured.waiting(team)
    # Primary keys first: what is sorted by the day of its review are not whole plans and profiles.
    keys = list(rows.values_list("pk", flat=True)[:MOST_WAITING])
    context = {"here": "history", "loops": list(rows.filter(pk__in=keys)), "total": rows.count()}
    return page_or_part(request, "proposals/waiting.html", "proposals/_waiting.html", context)
