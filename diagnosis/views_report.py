"""The report to take away: as a page to read and print, as Markdown, as the contract's JSON."""

from __future__ import annotations

import json
import re

from django.http import HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.text import slugify

from accounts.models import Role
from accounts.permissions import MemberRequest, require
from diagnosis import presentation, services
from diagnosis.models import DiagnosisRecord
from diagnosis.views import OPS_ON_PAGE, diagnosis_context, record_of
from experiments.models import Experiment
from experiments.pages import experiment_page
from experiments.services import against_profile

MARKDOWN_OPS = 20


@require(Role.VIEWER, "GET")
def report(request: MemberRequest, pk: int) -> HttpResponse:
    """The four sections as running text with their tables; what the printer gets."""
    page = experiment_page(request, pk)
    record = record_of(page)
    ops = list(record.ops.order_by("rank")[:OPS_ON_PAGE])
    sections = presentation.sections(record.value)
    context = page.context("diagnosis", sections=sections, top_ops=ops, **diagnosis_context(page, record))
    return render(request, "diagnosis/report.html", context)


@require(Role.VIEWER, "GET")
def markdown(request: MemberRequest, pk: int) -> HttpResponse:
    """The report as one Markdown file."""
    page = experiment_page(request, pk)
    record = record_of(page)
    context = page.context(
        "diagnosis",
        made=f"{record.created_at:%d %B %Y, %H:%M}",
        address=request.build_absolute_uri(reverse("experiment", args=[pk])),
        caveats=against_profile.caveats(page.experiment),
        sections=record.value.report.items(),
        most_ops=MARKDOWN_OPS,
        top_ops=list(record.ops.defer("data").order_by("rank")[:MARKDOWN_OPS]),
        **diagnosis_context(page, record),
    )
    text = re.sub(r"\n{3,}", "\n\n", render_to_string("diagnosis/report.md", context)).strip() + "\n"
    return _file(page.experiment, record, text, "md", "text/markdown")


@require(Role.VIEWER, "GET")
def contract(request: MemberRequest, pk: int) -> HttpResponse:
    """The object of `asap diagnose --json`."""
    page = experiment_page(request, pk)
    record = record_of(page)
    text = json.dumps(services.contract(record), ensure_ascii=False, indent=1)
    return _file(page.experiment, record, text, "json", "application/json")


def _file(experiment: Experiment, record: DiagnosisRecord, text: str, ending: str, kind: str) -> HttpResponse:
    response = HttpResponse(text, content_type=f"{kind}; charset=utf-8")
    name = slugify(experiment.name)[:80] or "experiment"
    response["Content-Disposition"] = f'attachment; filename="{name}-diagnosis-{record.pk}.{ending}"'
    return response
