"""Campaigns of an experiment, and the pool of one: every trial with why it was chosen and what came of it."""

from __future__ import annotations

import csv
from typing import Any

from django.core.paginator import Paginator
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render

from accounts.models import Role
from accounts.pages import refusals_as_messages
from accounts.permissions import MemberRequest, get_for, require
from campaigns import presentation
from campaigns.forms import CampaignForm
from campaigns.models import Campaign, Trial
from campaigns.services import campaigns as services
from experiments.pages import experiment_page
from experiments.services import configuration
from formatting.numbers import whole_number
from perfmodel.config import missing_facts
from proposals import facts

#: What the table can be ordered by.
ORDERS = ("number", "-number", "time", "-time")


@require(Role.VIEWER, "GET", "HEAD", "POST")
def campaigns(request: MemberRequest, pk: int) -> HttpResponse:
    """The campaigns of an experiment; POST begins one."""
    posted = request.method == "POST"
    page = experiment_page(request, pk, Role.ENGINEER if posted else Role.VIEWER)
    form = CampaignForm(request.POST, request.FILES) if posted else CampaignForm()
    at_fault = ""
    if posted and form.is_valid():
        try:
            return redirect(
                services.begin(page.experiment, request.user, form.drafted(request.build_absolute_uri("/")))
            )
        except services.CampaignError as error:
            form.add_error(error.field if error.field in form.fields else None, str(error))
            at_fault = error.field.replace(".", "-") if error.field.startswith("measured.") else ""
    config = configuration.load(page.experiment)
    context = page.context(
        "campaigns",
        campaigns=page.experiment.campaigns.select_related("created_by"),
        form=form,
        at_fault=at_fault,
        lacks=facts.in_words(missing_facts(config)) if config else "",
        unreadable=config is None,
    )
    return render(request, "campaigns/campaigns.html", context, status=400 if posted else 200)


@require(Role.VIEWER, "GET", htmx=True)
def campaign(request: MemberRequest, pk: int) -> HttpResponse:
    """The trials of a campaign."""
    row = _campaign(request, pk)
    page = experiment_page(request, row.experiment_id)
    known = row.trials.defer("worker", "heartbeat_at").select_related("launch").prefetch_related("launch__runs")
    trials = list(known)
    order = request.GET.get("order", "number")
    order = order if order in ORDERS else "number"
    state = request.GET.get("state", "")
    rows = [trial for trial in trials if not state or trial.status == state]
    rows = _ordered(rows, order)
    listed = Paginator(rows, presentation.PAGE).get_page(request.GET.get("page"))
    names = list(presentation.varying_parameters(trials))[:MOST_COLUMNS]
    context = page.context(
        "campaigns",
        campaign=row,
        over=presentation.overview(row, trials),
        plot=presentation.plotted(row, trials),
        importance=presentation.importance(trials),
        memory=presentation.memory_of(row),
        page=listed,
        rows=[presentation.row(trial, names) for trial in listed],
        names=names,
        order=order,
        state=state,
        states={trial.status: trial.state for trial in trials}.items(),
        columns=[],
    )
    part = request.htmx and not request.htmx.boosted
    return render(request, "campaigns/_pool.html" if part else "campaigns/campaign.html", context)


#: Parameters with a column of their own; all of them are in the difference and the export.
MOST_COLUMNS = 8


def _ordered(rows: list[Trial], order: str) -> list[Trial]:
    sign = -1 if order.startswith("-") else 1
    if order.endswith("number"):
        return rows[::sign]
    return sorted(rows, key=lambda row: (not row.step_time_s, sign * (row.step_time_s or 0.0)))


@require(Role.VIEWER, "POST")
def change(request: MemberRequest, pk: int) -> HttpResponse:
    """Pause, resume or cancel."""
    row = _campaign(request, pk, Role.ENGINEER)
    with refusals_as_messages(request):
        services.change(row, request.user, request.POST.get("change", ""))
    return redirect(row)


@require(Role.VIEWER, "POST")
def retry(request: MemberRequest, pk: int, number: int) -> HttpResponse:
    row = _campaign(request, pk, Role.ENGINEER)
    trial = get_object_or_404(row.trials.select_related("campaign"), number=number)
    with refusals_as_messages(request):
        services.retry(trial, request.user)
    return redirect(row)


@require(Role.VIEWER, "GET")
def difference(request: MemberRequest, pk: int) -> HttpResponse:
    """What differs between two trials: `a` (default: the current configuration) and `b` (default: the best)."""
    row = _campaign(request, pk)
    page = experiment_page(request, row.experiment_id)
    trials = list(row.trials.all())
    by_number = {trial.number: trial for trial in trials}
    one = by_number.get(_number(request, "a"), trials[0])  # number 0 begins with the campaign
    other = by_number.get(_number(request, "b"), presentation.overview(row, trials)["best"] or one)
    context = page.context(
        "campaigns",
        campaign=row,
        one=one,
        other=other,
        rows=presentation.differences(one, other),
        whys=[(trial, presentation.stored_sentence(trial.why)) for trial in dict.fromkeys((one, other))],
        ratio=one.step_time_s / other.step_time_s if one.step_time_s and other.step_time_s else None,
    )
    return render(request, "campaigns/difference.html", context)


@require(Role.VIEWER, "GET")
def as_csv(request: MemberRequest, pk: int) -> HttpResponse:
    shown = _campaign(request, pk)
    rows = [_flat(trial) for trial in shown.trials.all()]
    names = list(dict.fromkeys(name for row in rows for name in row))
    name = f"campaign-{shown.pk}.csv"
    response = HttpResponse(
        content_type="text/csv; charset=utf-8", headers={"Content-Disposition": f'attachment; filename="{name}"'}
    )
    writer = csv.DictWriter(response, names)
    writer.writeheader()
    writer.writerows(rows)
    return response


#: Columns of the export, before the parameters.
EXPORTED = (
    "number", "status", "step_time_s", "mfu", "peak_bytes", "predicted_step_time_s", "predicted_low_s",
    "predicted_high_s", "gain", "faster", "runs_probability", "modelled", "runs", "chosen_by",
)  # fmt: skip


def _flat(trial: Trial) -> dict[str, Any]:
    failure = trial.failure or {}
    return {
        **{name: getattr(trial, name) for name in EXPORTED},
        "why": presentation.stored_sentence(trial.why),
        "failure": failure.get("cause", ""),
        "failure_confidence": failure.get("confidence", ""),
        **{name: presentation.shown(value) for name, value in trial.parameters.items()},
    }


def _campaign(request: MemberRequest, pk: int, role: Role = Role.VIEWER) -> Campaign:
    return get_for(request.user, Campaign.objects.select_related("experiment"), role, pk=pk)


def _number(request: MemberRequest, name: str) -> int:
    """Return a number of the address; -1, which no trial has, where it is none."""
    number = whole_number(request.GET.get(name, ""))
    return -1 if number is None else number
