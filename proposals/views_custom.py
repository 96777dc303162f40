"""A mesh of one's own, or an edited proposal: priced while one types, and added as a proposal."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse

from accounts.models import Role
from accounts.pages import page_or_part
from accounts.permissions import MemberRequest, get_for, require
from diagnosis.models import DiagnosisRecord
from experiments.pages import experiment_page
from formatting.numbers import whole_number
from perfmodel.config import ConfigError
from proposals import custom_form, presentation
from proposals.candidate import Candidate
from proposals.models import PlanRecord, Proposal
from proposals.services import custom_mesh, plans

_FOUND = PlanRecord.objects.select_related("run__experiment", "run__profile")


@require(Role.VIEWER, "GET", htmx=True)
def own(request: MemberRequest, pk: int) -> HttpResponse:
    """The price of a configuration as it is typed (`?config=`), of a proposal (`?proposal=`), or of the current one."""
    plan = get_for(request.user, _FOUND, Role.VIEWER, pk=pk)
    text = request.GET.get("config", "").strip()
    if (chosen := whole_number(request.GET.get("proposal", ""))) is not None:
        text = custom_form.written(get_object_or_404(Proposal, plan=plan, pk=chosen).value)
    return _page(request, plan, text or custom_form.written(_current(plan)))


@require(Role.VIEWER, "POST")
def add(request: MemberRequest, pk: int) -> HttpResponse:
    """Add the configuration to the plan as a proposal."""
    plan = get_for(request.user, _FOUND, Role.ENGINEER, pk=pk)
    text = request.POST.get("config", "")
    try:
        made = custom_mesh.add(plan, request.user, custom_form.read(text, _current(plan).mesh))
    except custom_mesh.AlreadyProposed as error:  # also what the second of two clicks asks for
        messages.info(request, str(error))
        return redirect(error.proposal)
    except (ConfigError, custom_mesh.CustomMeshError) as error:
        return _page(request, plan, text, refused=str(error), status=422)
    messages.success(request, f"Added as proposal {made.rank}. A reviewer can decide on it.")
    return redirect(made)


def _current(plan: PlanRecord) -> Candidate:
    mesh = plan.priced_with.get("mesh") or {}
    return Candidate({place: mesh.get(place) or {} for place in ("ici", "dcn")})


def _page(request: MemberRequest, plan: PlanRecord, text: str, refused: str = "", status: int = 200) -> HttpResponse:
    page = experiment_page(request, plan.run.experiment_id)
    context = page.context("proposals", plan=plan, text=text, refused=refused, **_answer(plan, text))
    return page_or_part(request, "proposals/own.html", "proposals/_own_answer.html", context, status)


def _answer(plan: PlanRecord, text: str) -> dict[str, object]:
    """The price as a card, or the sentence why there is none."""
    try:
        evaluated = custom_mesh.evaluate(plan, custom_form.read(text, _current(plan).mesh))
    except (ConfigError, custom_mesh.CustomMeshError) as error:
        return {"problem": str(error), "back": _plan_address(plan)}
    record = DiagnosisRecord.objects.filter(run_id=plan.run_id).first()
    shown = presentation.ladder(plan, [plans.row(plan.run, plan, evaluated)], plan.priced_with, record)
    return {"found": evaluated, "card": shown.cards[0], "ladder": shown, "back": _plan_address(plan)}


def _plan_address(plan: PlanRecord) -> str:
    return f"{reverse('proposals', args=[plan.run.experiment_id])}?plan={plan.pk}"
