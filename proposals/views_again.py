"""Propose again within constraints, and follow the work until the plan is there."""

from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse

from accounts.models import Role
from accounts.pages import refusals_as_messages
from accounts.permissions import MemberRequest, require
from experiments.pages import experiment_page
from formatting.numbers import whole_number
from proposals import constraint_form
from proposals.constraints import Constraints
from proposals.models import Measurement, PlanRequest, Proposal
from proposals.services import failing, regenerating


@require(Role.VIEWER, "POST")
def propose_again(request: MemberRequest, pk: int) -> HttpResponse:
    """Ask for another plan: with the form's constraints, with those of a plan less one, or without one of its meshes.

    `plan`: the plan whose constraints are taken; `without`: the one to drop; `exclude`: the proposal whose mesh is left
    out from now on; `failed`: the proposal whose failed run says what to leave out.  With none of them the form counts.
    """
    page = experiment_page(request, pk, Role.ENGINEER)
    constraints = constraint_form.from_form(request.POST)
    given, excluded, failed = (whole_number(request.POST.get(name, "")) for name in ("plan", "exclude", "failed"))
    if given is not None:
        plan = get_object_or_404(regenerating.of_experiment(page.experiment), pk=given)
        base = plan.asked
        if "without" in request.POST:
            constraints = base.without(request.POST["without"]).to_json()
        elif excluded is not None:
            mesh = get_object_or_404(Proposal, plan=plan, pk=excluded).value.mesh
            constraints = base.joined(Constraints(excluded=(mesh,))).to_json()
        elif failed is not None:
            constraints = failing.learnt(
                get_object_or_404(Measurement, proposal__plan=plan, proposal=failed), base
            ).to_json()
        elif base.excluded:  # the form does not show them, their chips do
            constraints["excluded"] = base.to_json()["excluded"]
    with refusals_as_messages(request):
        regenerating.request(page.experiment, request.user, constraints)
        return redirect("proposals", pk)
    return redirect(reverse("proposals", args=[pk]) + "#constraints")


@require(Role.VIEWER, "GET", htmx=True)
def request_state(request: MemberRequest, pk: int) -> HttpResponse:
    """How far the newest request is; once it is done the page is loaded again."""
    page = experiment_page(request, pk)
    asked = regenerating.newest(page.experiment)
    if not request.htmx or asked is None:
        return redirect("proposals", pk)
    response = render(request, "proposals/_asked.html", page.context("proposals", **asked_context(asked)))
    if asked.status in (PlanRequest.Status.DONE, PlanRequest.Status.FAILED):
        response["HX-Redirect"] = reverse("proposals", args=[pk])
    return response


def asked_context(asked: PlanRequest | None) -> dict[str, object]:
    """What the page shows of the newest request: that it is under way, or why it failed."""
    if asked is None or asked.status == PlanRequest.Status.DONE:
        return {}
    said = asked.run.events.filter(kind="progress", created_at__gte=asked.created_at).order_by("-pk").first()
    return {
        "asked": asked,
        "asked_chips": constraint_form.chips(asked.asked),
        "asked_said": said.data.get("text", "") if said is not None else "",
    }
