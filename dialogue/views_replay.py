"""Replays: the recorded answers of an experiment, one step by step, and one given again by today's code."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET, require_POST
from django.views.decorators.vary import vary_on_headers

from accounts.models import Role
from accounts.permissions import require
from dialogue.services import replaying
from experiments import event_words, timeline
from experiments.pages import ExperimentPage, experiment_page
from proposals.agents.replaying import NoRecording


@require(Role.VIEWER)
@require_GET
def replays(request: HttpRequest, pk: int) -> HttpResponse:
    """Which answers are on record."""
    page = experiment_page(request, pk, Role.ENGINEER)
    thread = timeline.whole(request.GET.get("thread"))
    found = replaying.answers(page.experiment, thread)
    return render(request, "replay/replays.html", page.context("memory", answers=found, thread=thread))


@require(Role.VIEWER)
@require_GET
@vary_on_headers("HX-Request")
def replay(request: HttpRequest, pk: int, message: int) -> HttpResponse:
    """The steps of one answer: one after the other, or all."""
    page = experiment_page(request, pk, Role.ENGINEER)
    context = _steps(page, message, request.GET.get("step", ""))
    part = "replay/_replay.html" if request.htmx else "replay/replay.html"  # type: ignore[attr-defined]
    return render(request, part, page.context("memory", **context))


@require(Role.VIEWER)
@require_POST
def rerun(request: HttpRequest, pk: int, message: int) -> HttpResponse:
    """Give the answer again; shows whether it is the same, or where it differs.  Nothing is stored."""
    page = experiment_page(request, pk, Role.ENGINEER)
    context = _steps(page, message, "")
    try:
        context["result"] = replaying.rerun(page.experiment, message, request.user)  # type: ignore[arg-type]
    except NoRecording as error:
        context["problem"] = str(error)
    part = "replay/_rerun.html" if request.htmx else "replay/replay.html"  # type: ignore[attr-defined]
    return render(request, part, page.context("memory", **context))


def _steps(page: ExperimentPage, message: int, asked: str) -> dict[str, Any]:
    """What the page of an answer shows.  asked: the number of a step, or `all`."""
    found = replaying.replayed(page.experiment, message)
    if found is None:
        raise Http404("No step of such an answer is on record.")
    lines = [event_words.describe(event, page.experiment) for event in found.events]
    number = timeline.whole(asked)
    at = min(max(number or 1, 1), max(len(found.steps), 1))
    rows = list(zip(lines, found.steps, strict=False))
    return {
        "message": message,
        "found": found,
        "rows": rows,
        "shown": rows if asked == "all" else rows[at - 1 : at],
        "everything": asked == "all",
        "at": at,
        "previous": at - 1 if at > 1 else None,
        "next": at + 1 if at < len(rows) else None,
    }
