"""The replay of a recorded answer, or of what an agent did with a run, step by step."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpResponse
from django.urls import reverse

from accounts.models import Role
from accounts.pages import page_or_part
from accounts.permissions import MemberRequest, require
from dialogue.services import recorded_answers
from experiments import event_words
from experiments.pages import experiment_page
from formatting.numbers import whole_number


@require(Role.VIEWER, "GET", htmx=True)
def replay(
    request: MemberRequest, pk: int, message: int | None = None, run: int | None = None, agent: str = ""
) -> HttpResponse:  # fmt: skip
    """The steps of one answer, or of what an agent did with a run.  `?step=` is the number of a step, or `all`."""
    page = experiment_page(request, pk, Role.ENGINEER)
    if message is not None:
        steps = recorded_answers.replayed(page.experiment, message=message)
        what, url = f"answer {message}", reverse("replay", args=[pk, message])
    else:
        steps = recorded_answers.replayed(page.experiment, run=run, actor=agent)
        what, url = f"{event_words.ACTORS.get(agent, agent)}, run {run}", reverse("replay-work", args=[pk, run, agent])
    if not steps:
        raise Http404("There is no such recorded step.")
    asked = request.GET.get("step", "")
    at = min(max(whole_number(asked) or 1, 1), len(steps))
    is_removed = any(step.event.removed_at for step in steps)
    rows = [] if is_removed else [(event_words.describe(step.event, page.experiment), step) for step in steps]
    context: dict[str, Any] = {
        "thread": steps[0].event.thread, "what": what, "replay_url": url, "rows": rows, "at": at,
        "everything": asked == "all", "shown": rows if asked == "all" else rows[at - 1 : at],
        "previous": at - 1 if at > 1 else None,
        "next": at + 1 if at < len(rows) else None,
    }  # fmt: skip
    return page_or_part(request, "replay/replay.html", "replay/_replay.html", page.context("memory", **context))
