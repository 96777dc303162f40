"""The palette beside the text field: what can be computed, searchable, with a form each; posting one asks it."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpResponse
from django.shortcuts import render
from django_htmx.http import reswap, retarget

from accounts.models import Role
from accounts.permissions import MemberRequest, require
from dialogue import palette
from dialogue.pages import chosen, is_full
from dialogue.services import asking
from dialogue.services.asking import DialogueError
from dialogue.views_ask import shown
from experiments.pages import ExperimentPage, experiment_page
from proposals.agents.capabilities import registry

#: Characters of a search that are looked at.
LONGEST = 80


@require(Role.VIEWER, "GET", htmx=True)
def listing(request: MemberRequest, pk: int) -> HttpResponse:
    """All capabilities by area, or those that `?q=` finds; as a page, or as a part of the panel for htmx."""
    page = experiment_page(request, pk)
    query = request.GET.get("q", "")[:LONGEST]
    more = {
        "areas": palette.found(query),
        "query": query,
        "thread": chosen(request, page.experiment, None),
        "full": is_full(request),
    }
    if request.htmx:
        part = "_capabilities.html" if "q" in request.GET else "_palette.html"
        return render(
            request, f"dialogue/{part}", {"experiment": page.experiment, "membership": page.membership, **more}
        )
    return render(request, "dialogue/palette.html", page.context("proposals", **more))


@require(Role.VIEWER, "GET", "POST", htmx=True)
def capability(request: MemberRequest, pk: int, key: str) -> HttpResponse:
    """The form of one capability; posted, it asks for it in the thread, or in a new one."""
    page = experiment_page(request, pk, Role.ENGINEER if request.method == "POST" else Role.VIEWER)
    of = registry().get(key)
    if of is None:
        raise Http404("No such capability.")
    form = palette.CapabilityForm(of, request.POST if request.method == "POST" else None)
    thread = chosen(request, page.experiment, None)
    if request.method == "POST" and form.is_valid():
        is_new = thread is None
        try:
            thread = thread or asking.open_thread(page.experiment, request.user)
            asking.ask(thread, request.user, form.message)
            return shown(request, page, thread, new_address=is_new)
        except DialogueError as error:
            thread = None if is_new else thread
            form.add_error(None, str(error))
    return _form(request, page, {"capability": of, "form": form, "thread": thread, "full": is_full(request)})


def _form(request: MemberRequest, page: ExperimentPage, more: dict[str, Any]) -> HttpResponse:
    """The form, with what is wrong where it is; for htmx in its place in the list."""
    status = 422 if request.method == "POST" else 200
    if not request.htmx:
        return render(request, "dialogue/capability.html", page.context("proposals", **more), status=status)
    known = {"experiment": page.experiment, "membership": page.membership, **more}
    answer = render(request, "dialogue/_capability.html", known, status=status)
    if status == 200:
        return answer
    return reswap(retarget(answer, f"#cap-{more['capability'].key}"), "innerHTML")
