"""The challenge panel beside the proposals, the same on a page of its own, and what is loaded into them."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render

from accounts.models import Role
from accounts.pages import page_or_part
from accounts.permissions import MemberRequest, get_for, require
from agent.strict_json import loads
from dialogue import presentation
from dialogue.models import Message
from dialogue.pages import address, answers, as_page, as_panel, chosen, panel_context
from experiments.models import Event
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


@require(Role.VIEWER, "GET", htmx=True)
def step(request: MemberRequest, pk: int, number: int) -> HttpResponse:
    """Input and result of an answer's tool call, from the events that hold them whole."""
    answer = get_for(request.user, answers(), Role.VIEWER, pk=pk)
    if not 1 <= number <= len(answer.steps):
        raise Http404("No such step.")
    page = experiment_page(request, answer.thread.experiment_id)
    shown = presentation.row(answer).steps[number - 1]
    event = Event.objects.select_related("user", "experiment").filter(experiment=answer.thread.experiment)
    called = get_object_or_404(event, pk=shown["event"])
    returned = event.filter(pk=shown["returned"]).first() if shown.get("returned") else None
    context = page.context(
        "proposals", step=shown, answer=answer, given=_pretty(called.data.get("call", called.data)),
        returned=_pretty(returned.data) if returned is not None else "",
        removed_at=called.removed_at or (returned.removed_at if returned is not None else None),
    )  # fmt: skip
    return page_or_part(request, "dialogue/step.html", "dialogue/_step.html", context)


def _pretty(data: Any) -> str:
    """What went in or came out, as JSON with line breaks; all of it where it is not as expected."""
    value = data
    if isinstance(data, dict) and "result" in data:
        value = data.get("error") or data["result"]
    elif isinstance(data, dict) and "arguments" in data:
        value = data["arguments"]
        if isinstance(value, str):
            with suppress(ValueError):
                value = loads(value)
    return json.dumps(value, indent=1, ensure_ascii=False)
