"""The challenge panel beside the proposals, the same on a page of its own, and what is loaded into them."""

from __future__ import annotations

from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render

from accounts.models import Role
from accounts.permissions import MemberRequest, get_for, require
from dialogue import presentation
from dialogue.models import Message
from dialogue.pages import address, answers, as_page, as_panel, chosen, panel_context
from experiments.pages import experiment_page


@require(Role.VIEWER, "GET")
def dialogue(request: MemberRequest, pk: int, thread_pk: int | None = None) -> HttpResponse:
    """The dialogue on a page of its own: a thread, else the newest; `?thread=new` begins another."""
    page = experiment_page(request, pk)
    thread = chosen(request, page.experiment, thread_pk)
    return as_page(request, page, thread)


@require(Role.VIEWER, "GET", htmx=True)
def panel(request: MemberRequest, pk: int) -> HttpResponse:
    """The panel alone, for htmx; `?thread=` a thread's number or `new`.  With `?state=`, 204 unless the thread has
    changed since: others see what is asked here."""
    page = experiment_page(request, pk)
    thread = chosen(request, page.experiment, None)
    if not request.htmx:
        return redirect(address(page.experiment, thread))
    if request.GET.get("state") == presentation.state_of(thread):
        return HttpResponse(status=204)
    return as_panel(request, page, thread)


@require(Role.VIEWER, "GET", htmx=True)
def message(request: MemberRequest, pk: int) -> HttpResponse:
    """One answer, with what changes with it: constraints and facts, and the form to ask."""
    answer: Message = get_for(request.user, answers(), Role.VIEWER, pk=pk)
    thread = answer.thread
    if not request.htmx:
        return redirect(address(thread.experiment, thread, answer))
    page = experiment_page(request, thread.experiment_id)
    context = panel_context(request, page, thread)
    row = next((item for item in context["rows"] if item.message.pk == pk), None)
    if row is None:  # deleted between two statements
        raise Http404
    return render(request, "dialogue/_message.html", {**context, "row": row, "beside": True})
