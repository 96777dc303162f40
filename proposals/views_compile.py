"""Ask for the compile check of a plan, follow it, cancel it."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse

from accounts.models import Role
from accounts.pages import refusals_as_messages
from accounts.permissions import MemberRequest, get_for, require
from proposals import compiled
from proposals.models import PlanRecord
from proposals.services import compiling


def context(plan: PlanRecord) -> dict[str, Any]:
    """What the page shows of the checks of a plan: each by the key of its proposal, None for the baseline's."""
    rows = compiling.of_plan(plan)
    proposals = {item.pk: item for item in plan.proposals.all()}
    configs = {
        key: compiling.config_of(plan, proposals[key] if key is not None else None)
        for key, row in rows.items()
        if row.value is not None
    }
    checks = compiled.by_proposal(rows, configs)
    is_open = any(item.made.is_open for item in checks.values())
    return {
        "compiled": checks,
        "compiling": is_open,
        "compile_missing": None if checks else compiling.missing(compiling.config_of(plan, None)),
    }


@require(Role.VIEWER, "POST")
def ask(request: MemberRequest, pk: int) -> HttpResponse:
    """Compile baseline and proposals of the plan."""
    plan = get_for(request.user, PlanRecord.objects.select_related("run"), Role.ENGINEER, pk=pk)
    with refusals_as_messages(request):
        compiling.request(plan, request.user)
    return _back(plan)


@require(Role.VIEWER, "POST")
def cancel(request: MemberRequest, pk: int) -> HttpResponse:
    """Stop what is waiting or being compiled."""
    plan = get_for(request.user, PlanRecord.objects.select_related("run"), Role.ENGINEER, pk=pk)
    if not compiling.cancel(plan, request.user):
        messages.error(request, "Nothing in this plan is being compiled any more.")
    return _back(plan)


@require(Role.VIEWER, "GET", htmx=True)
def state(request: MemberRequest, pk: int) -> HttpResponse:
    """How far the checks are; once they are done the page is loaded again."""
    plan = get_for(request.user, PlanRecord.objects.select_related("run"), Role.VIEWER, pk=pk)
    if not request.htmx:
        return _back(plan)
    shown = context(plan)
    membership = request.user.memberships.filter(team_id=plan.team_id).first()
    response = render(request, "proposals/_compiling.html", {**shown, "plan": plan, "membership": membership})
    if not shown["compiling"]:
        response["HX-Redirect"] = _address(plan)
    return response


def _address(plan: PlanRecord) -> str:
    return f"{reverse('proposals', args=[plan.run.experiment_id])}?plan={plan.pk}"


def _back(plan: PlanRecord) -> HttpResponse:
    return redirect(_address(plan))
