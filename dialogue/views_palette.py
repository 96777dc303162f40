"""The palette as a part of the panel and of Ctrl K, or as a page; and computations, by GET unstored, by POST kept."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from accounts.models import Membership, Role
from accounts.permissions import MemberRequest, require
from dialogue import content, palette
from dialogue.computations import Computation, registry
from dialogue.links import link_of
from dialogue.models import Message, Thread
from dialogue.pages import chosen, is_full
from dialogue.services import asking, computing, holding
from dialogue.services.asking import DialogueError
from dialogue.views_ask import in_thread
from experiments.models import Experiment
from experiments.pages import ExperimentPage, experiment_page
from proposals.agents import chat
from proposals.agents.settings import typed_value
from proposals.agents.workbench import Workbench

#: Questions of a conversation that a typed text may follow.
EARLIER = 3


def result_context(request: HttpRequest, membership: Membership, experiment: Experiment | None) -> dict[str, Any]:
    """What a list of results shows for `?q=`."""
    query, problem = request.GET.get("q", "")[: asking.MOST_CHARACTERS], ""
    bench: Workbench | None = None
    before: list[str] = []
    if experiment is not None:
        thread = chosen(request, experiment, None)
        asked = thread.messages.filter(role=Message.Role.USER).order_by("-pk")[:EARLIER] if thread else ()
        before = [message.text for message in reversed(asked)]
        try:
            bench = computing.bench_of(experiment, membership.user, thread)
        except DialogueError as error:
            problem = str(error)
    model = chat.provider_name()
    groups = palette.results(query, membership, experiment, bench, model, before)
    return {"groups": groups, "q": query, "model": model, "problem": problem, "experiment": experiment}


@require(Role.VIEWER, "GET", htmx=True)
def results(request: MemberRequest, pk: int) -> HttpResponse:
    """What the typed text leads to; a part for htmx, else a page."""
    page = experiment_page(request, pk)
    context = {**result_context(request, page.membership, page.experiment), **_where(request, page)}
    if request.htmx:
        return render(request, "dialogue/_results.html", context)
    return render(request, "dialogue/palette.html", page.context("proposals", **context))


@require(Role.VIEWER, "GET", htmx=True)
def row(request: MemberRequest, pk: int, key: str) -> HttpResponse:
    """One result again, with its arguments as they were edited; for a browser the computation's page."""
    page = experiment_page(request, pk)
    of = registry().get(key)
    if of is None:
        raise Http404("No such computation.")
    given, thread = _given(request.GET.dict(), of), chosen(request, page.experiment, None)
    if not request.htmx:
        return redirect(content.question_url(pk, key, given))
    try:
        bench = computing.bench_of(page.experiment, request.user, thread)
        found = palette.row_of(page.experiment, bench, of, given)
    except DialogueError as error:
        found = palette.Row(of.title, "", str(error))
    context = {**_where(request, page), "row": found, "at": request.GET.get("at", "")[:10]}
    return render(request, "dialogue/_hit.html", context)


@require(Role.VIEWER, "GET", htmx=True)
def number(request: MemberRequest, pk: int) -> HttpResponse:
    """Return what the card of a number offers: where to look it up, and the questions of what it is of, `?target=`."""
    page = experiment_page(request, pk)
    target = request.GET.get("target", "")[:500]
    address = link_of(page.experiment)(target)
    if not request.htmx:
        return redirect(address or content.question_url(pk, "verdict"))
    questions = content.questions_about(page.experiment, target)
    context = {**_where(request, page), "address": address, "questions": questions}
    return render(request, "dialogue/_number.html", context)


@require(Role.VIEWER, "GET", "POST", htmx=True)
def computation(request: MemberRequest, pk: int, key: str) -> HttpResponse:
    """One computation: by GET its answer on a page, not kept; by POST kept in the thread, or in a new one."""
    of = registry().get(key)
    if of is None:
        raise Http404("No such computation.")
    given = _given({**request.GET.dict(), **request.POST.dict()}, of)
    if request.method == "POST":
        return in_thread(request, pk, lambda held: computing.keep(held, request.user, key, given), follows=True)
    page = experiment_page(request, pk)
    thread = chosen(request, page.experiment, None)
    context: dict[str, Any] = {"of": of, "given": given, "thread": thread, "form": _fields(of, given)}
    try:
        answered = computing.compute(page.experiment, request.user, key, given, thread)
        stored = content.of_computed(answered)
        context |= {
            "title": answered.title, "blocks": content.blocks(stored, page.experiment),
            "further": content.further(stored, page.experiment), "url": content.question_url(pk, key, given),
        }  # fmt: skip
    except DialogueError as error:
        context |= {"title": of.title, "problem": str(error)}
    return render(request, "dialogue/computation.html", page.context("proposals", **context))


def _where(request: HttpRequest, page: ExperimentPage) -> dict[str, Any]:
    """Return what a part needs to know of the panel or page that shows it."""
    return {
        "thread": chosen(request, page.experiment, None), "full": is_full(request), "in_panel": "panel" in request.GET,
        "membership": page.membership, "experiment": page.experiment,
    }  # fmt: skip


def _given(values: Any, of: Computation) -> dict[str, Any]:
    """The computation's own arguments among the values of a request, those that are empty left out; `mesh.fsdp` is a
    size within `mesh`."""
    given: dict[str, Any] = {}
    for name, value in values.items():
        field, _, inside = name.partition(".")
        if field not in of.arguments.model_fields or value == "":
            continue
        if not inside:
            given[field] = value
        elif isinstance(part := given.setdefault(field, {}), dict):
            part[inside] = typed_value(value)
    return given


def _fields(of: Computation, given: dict[str, Any]) -> list[dict[str, Any]]:
    """A text field for each argument."""
    return [
        {
            "name": name, "label": name.replace("_", " ").capitalize(), "value": content.as_typed(given.get(name, "")),
            "hint": info.description or "",
        }
        for name, info in of.arguments.model_fields.items()
    ]  # fmt: skip


@require(Role.VIEWER, "POST")
def hold(request: MemberRequest, pk: int) -> HttpResponse:
    """Hold what was typed for the whole conversation: an axis, the batch, remat, weight sharding, or a missing fact."""

    def hold_typed(thread: Thread) -> None:
        config = computing.bench_of(thread.experiment, request.user).config
        holding.hold_typed(thread, request.user, request.POST.get("text", ""), config)

    return in_thread(request, pk, hold_typed)
