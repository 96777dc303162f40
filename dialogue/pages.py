"""What the pages of the dialogue share: which thread is shown, as a panel or on a page of its own."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from dialogue import presentation
from dialogue.models import Message, Thread
from experiments.models import Experiment
from experiments.pages import ExperimentPage
from formatting.numbers import whole_number


def answers() -> QuerySet[Message]:
    """Answers, with what their permission and their page need."""
    messages = Message.objects.filter(role=Message.Role.ASSISTANT)
    return messages.select_related("thread__experiment", "thread__team", "question__author")


def threads() -> QuerySet[Thread]:
    return Thread.objects.select_related("experiment", "created_by")


def chosen(request: HttpRequest, experiment: Experiment, pk: int | None) -> Thread | None:
    """The thread of the address, else `?thread=`, else the newest with a message; None for a new one.

    Raises Http404 for one that is not of this experiment.
    """
    of_experiment = threads().filter(experiment=experiment)
    text = str(pk) if pk is not None else request.POST.get("thread", "") or request.GET.get("thread", "")
    if text == "new":
        return None
    if not text:
        return of_experiment.exclude(messages=None).first()
    number = whole_number(text)
    thread = of_experiment.filter(pk=number).first() if number is not None else None
    if thread is None:
        raise Http404("No such conversation.")
    return thread


def is_full(request: HttpRequest) -> bool:
    """Whether the panel is a page of its own, not next to the proposals."""
    return bool(request.GET.get("full") or request.POST.get("full"))


def address(experiment: Experiment, thread: Thread | None, message: Message | None = None) -> str:
    """The page of a thread; of a message within it."""
    if thread is None:
        return reverse("dialogue", args=[experiment.pk]) + "?thread=new"
    url = reverse("dialogue-thread", args=[experiment.pk, thread.pk])
    return f"{url}#m-{message.pk}" if message is not None else url


def panel_context(request: HttpRequest, page: ExperimentPage, thread: Thread | None, **more: Any) -> dict[str, Any]:
    full = more.pop("full", is_full(request))
    return {**presentation.panel(page.experiment, page.membership, thread, full), **more}


def as_panel(
    request: HttpRequest, page: ExperimentPage, thread: Thread | None, status: int = 200, **more: Any
) -> HttpResponse:
    return render(request, "dialogue/_panel.html", panel_context(request, page, thread, **more), status=status)


def as_page(
    request: HttpRequest, page: ExperimentPage, thread: Thread | None, status: int = 200, **more: Any
) -> HttpResponse:
    context = page.context("proposals", **panel_context(request, page, thread, full=True, **more))
    return render(request, "dialogue/dialogue.html", context, status=status)
