"""Ask the language model to read a run, and follow what it does."""

from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import redirect, render

from accounts.models import Role
from accounts.pages import refusals_as_messages
from accounts.permissions import MemberRequest, require
from experiments.pages import experiment_page
from formatting.numbers import whole_number
from proposals.consulted import state
from proposals.services import consulting, regenerating

#: Where the button and the state stand: the name of the page, by its word.
PAGES = {"diagnosis": "experiment", "proposals": "proposals"}


@require(Role.VIEWER, "POST")
def consult(request: MemberRequest, pk: int) -> HttpResponse:
    """Ask the model to read the newest run."""
    page = experiment_page(request, pk, Role.ENGINEER)
    with refusals_as_messages(request):
        consulting.request(page.experiment, request.user)
    return redirect(PAGES.get(request.POST.get("where", ""), "proposals"), pk)


@require(Role.VIEWER, "GET", htmx=True)
def consultation(request: MemberRequest, pk: int) -> HttpResponse:
    """How far the model is; the part of the page that says so asks for it again while it reads."""
    page = experiment_page(request, pk)
    where = request.GET.get("where", "")
    if not request.htmx or where not in PAGES:
        return redirect(PAGES.get(where, "proposals"), pk)
    # The plan on the page stays there when another one comes.
    given = whole_number(request.GET.get("plan", ""))
    shown = regenerating.of_experiment(page.experiment).filter(pk=given).first() if given is not None else None
    context = page.context(where, **state(page.experiment, where, shown))
    return render(request, "proposals/_consulting.html", context)
