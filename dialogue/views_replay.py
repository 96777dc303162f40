"""Replays: the recorded answers of an experiment, and one step by step."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from accounts.models import Role
from accounts.pages import page_or_part
from accounts.permissions import MemberRequest, require
from accounts.text import whole_number
from dialogue.services import recorded_answers
from experiments import event_words
from experiments.pages import ExperimentPage, experiment_page


@require(Role.VIEWER, "GET")
def replays(request: MemberRequest, pk: int) -> HttpResponse:
    """Which answers are on record."""
    page = experiment_page(request, pk, Role.ENGINEER)
    thread = whole_number(request.GET.get("thread", ""))
    answers = recorded_answers.answers(page.experiment, thread)
    works = recorded_answers.works(page.experiment) if thread is None else []
    return render(request, "replay/replays.html", page.context("memory", answers=answers, works=works, thread=thread))


@require(Role.VIEWER, "GET", htmx=True)
def replay(request: MemberRequest, pk: int, message: int) -> HttpResponse:
    """The steps of one answer: one after the other, or all."""
    page = experiment_page(request, pk, Role.ENGINEER)
    context = {
        "found": recorded_answers.replayed(page.experiment, message=message), "what": f"answer {message}",
        "replay_url": reverse("replay", args=[pk, message]),
    }  # fmt: skip
    return _recording_page(request, page, context)


@require(Role.VIEWER, "GET", htmx=True)
def replay_work(request: MemberRequest, pk: int, run: int, agent: str) -> HttpResponse:
    """The steps of what an agent did with a run."""
    page = experiment_page(request, pk, Role.ENGINEER)
    context = {
        "found": recorded_answers.replayed(page.experiment, run=run, actor=agent),
        "what": f"{event_words.ACTORS.get(agent, agent)}, run {run}",
        "replay_url": reverse("replay-work", args=[pk, run, agent]),
    }
    return _recording_page(request, page, context)


def _recording_page(request: MemberRequest, page: ExperimentPage, context: dict[str, Any]) -> HttpResponse:
    """The page of what is on record.  `?step=` is the number of a step, or `all`."""
    shown, asked = context["found"], request.GET.get("step", "")
    if shown is None:
        raise Http404("There is no such recorded step.")
    lines = [event_words.describe(event, page.experiment) for event in shown.events]
    at = min(max(whole_number(asked) or 1, 1), max(len(shown.steps), 1))
    rows = list(zip(lines, shown.steps, strict=False))
    context |= {
        "rows": rows,
        "shown": rows if asked == "all" else rows[at - 1 : at],
        "everything": asked == "all",
        "at": at,
        "previous": at - 1 if at > 1 else None,
        "next": at + 1 if at < len(rows) else None,
    }
    return page_or_part(request, "replay/replay.html", "replay/_replay.html", page.context("memory", **context))
