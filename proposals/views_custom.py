"""A mesh of one's own, or an edited proposal: priced while one types, and added as a proposal."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse

from accounts.models import Role
from accounts.permissions import MemberRequest, get_for, require
from accounts.text import whole_number
from diagnosis.models import DiagnosisRecord
from experiments.pages import experiment_page
from proposals import custom_form, presentation
from proposals.candidate import Candidate
from proposals.models import PlanRecord, Proposal
from proposals.services import custom_mesh, plans

_FOUND = PlanRecord.objects.select_related("run__experiment", "run__profile")


@require(Role.VIEWER, "GET")
def own(request: MemberRequest, pk: int) -> HttpResponse:
    """The form with its price: of the current configuration, of a proposal (`?proposal=`), or of a mesh in the
    URL."""
    plan = get_for(request.user, _FOUND, Role.VIEWER, pk=pk)
    return _page(request, plan, _start(request, plan))


def _start(request: MemberRequest, plan: PlanRecord) -> Candidate:
    if (chosen := whole_number(request.GET.get("proposal", ""))) is not None:
        value = get_object_or_404(Proposal, plan=plan, pk=chosen).value
        return Candidate(value.mesh, value.changes)
    mesh = plan.priced_with.get("mesh") or {}
    now = Candidate({place: dict(mesh.get(place) or {}) for place in ("ici", "dcn")})
    return custom_form.from_query(request.GET) or now


@require(Role.VIEWER, "POST")
def price(request: MemberRequest, pk: int) -> HttpResponse:
    """The price of the form; stores nothing."""
    plan = get_for(request.user, _FOUND, Role.VIEWER, pk=pk)
    given = custom_form.from_form(request.POST)
    if not request.htmx:
        return _page(request, plan, given)
    page = experiment_page(request, plan.run.experiment_id)
    return render(request, "proposals/_own_answer.html", page.context("proposals", plan=plan, **_answer(plan, given)))


@require(Role.VIEWER, "POST")
def add(request: MemberRequest, pk: int) -> HttpResponse:
    """Add the form's configuration to the plan as a proposal."""
    plan = get_for(request.user, _FOUND, Role.ENGINEER, pk=pk)
    given = custom_form.from_form(request.POST)
    try:
        made = custom_mesh.add(plan, request.user, given)
    except custom_mesh.AlreadyProposed as error:  # also what the second of two clicks asks for
        messages.info(request, str(error))
        return redirect(error.proposal)
    except custom_mesh.CustomMeshError as error:
        return _page(request, plan, given, refused=str(error), status=422)
    messages.success(request, f"Added as proposal {made.rank}. A reviewer can decide on it.")
    return redirect(made)


def _page(
    request: MemberRequest, plan: PlanRecord, given: Candidate, refused: str = "", status: int = 200
) -> HttpResponse:
    page = experiment_page(request, plan.run.experiment_id)
    config = plan.priced_with
    shown = custom_form.axes(config, given.mesh)
    context = page.context(
        "proposals",
        plan=plan,
        axes=shown,
        offered=custom_form.offered(config, shown),
        form=custom_form.filled(config.get("training") or {}, given.changes),
        refused=refused,
        **_answer(plan, given),
    )
    return render(request, "proposals/own.html", context, status=status)


def _answer(plan: PlanRecord, given: Candidate) -> dict[str, object]:
    """The price as a card, or the sentence why there is none."""
    try:
        evaluated = custom_mesh.evaluate(plan, given)
    except custom_mesh.CustomMeshError as error:
        return {"problem": str(error), "back": _plan_address(plan)}
    record = DiagnosisRecord.objects.filter(run_id=plan.run_id).first()
    config = plan.priced_with
    shown = presentation.ladder(plan, [plans.row(plan.run, plan, evaluated)], config, record)
    return {"found": evaluated, "card": shown.cards[0], "ladder": shown, "back": _plan_address(plan)}


def _plan_address(plan: PlanRecord) -> str:
    return f"{reverse('proposals', args=[plan.run.experiment_id])}?plan={plan.pk}"
