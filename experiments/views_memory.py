"""The pages of the Sharding Memory: the events of an experiment, one of them, and all of them to take away."""

from __future__ import annotations

import json

from django.http import HttpResponse, StreamingHttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse

from accounts.models import Role
from accounts.pages import page_or_part
from accounts.permissions import MemberRequest, require
from experiments import event_words, timeline
from experiments.models import Event
from experiments.pages import experiment_page
from experiments.services import events
from formatting.numbers import whole_number


@require(Role.VIEWER, "GET", htmx=True)
def memory(request: MemberRequest, pk: int) -> HttpResponse:
    """The Sharding Memory: the experiment's events, oldest first, narrowed as the address says."""
    page = experiment_page(request, pk)
    filters = timeline.found(page.experiment, request.GET)
    runs, seconds = timeline.took(page.experiment)
    context = page.context(
        "memory",
        page=timeline.page(page.experiment, filters, request.GET),
        summary=timeline.summary(page.experiment),
        threads=timeline.threads(page.experiment),
        runs=list(page.experiment.runs.order_by("-pk")[: timeline.MOST_CHOICES]) if runs > 1 else [],
        run_count=runs,
        seconds=seconds,
        filters=filters.asked,
        query=filters.query,
        named=whole_number(request.GET.get("at", "")),
    )
    return page_or_part(request, "experiments/memory.html", "experiments/_timeline.html", context)


@require(Role.VIEWER, "GET")
def event(request: MemberRequest, pk: int, event_pk: int) -> HttpResponse:
    """To the page that holds the event, at its place: the address by which sentences cite it."""
    page = experiment_page(request, pk)
    row = get_object_or_404(page.experiment.events.only("pk"), pk=event_pk)
    return redirect(f"{reverse('memory', args=[pk])}?at={row.pk}#event-{row.pk}")


@require(Role.VIEWER, "GET", htmx=True)
def event_data(request: MemberRequest, pk: int, event_pk: int) -> HttpResponse:
    """An event's data: into the list, or as JSON by itself."""
    page = experiment_page(request, pk)
    row: Event = get_object_or_404(page.experiment.events.select_related("user"), pk=event_pk)
    if not request.htmx:
        text = json.dumps(events.to_json(row), indent=2, ensure_ascii=False)
        return HttpResponse(text, content_type="application/json; charset=utf-8")
    return render(request, "experiments/_event_data.html", {"event": row, "data": event_words.pretty(row)})


@require(Role.VIEWER, "GET")
def memory_export(request: MemberRequest, pk: int) -> StreamingHttpResponse:
    """The events that the filters leave, as JSON Lines."""
    page = experiment_page(request, pk)
    rows = timeline.found(page.experiment, request.GET).qs
    response = StreamingHttpResponse(events.lines(rows), content_type="application/x-ndjson")
    response["Content-Disposition"] = f'attachment; filename="experiment-{pk}-events.jsonl"'
    return response
