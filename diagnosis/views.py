"""Pages of a diagnosis: the diagnosis itself, its ops, one op, the evidence behind a number."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_GET
from django.views.decorators.vary import vary_on_headers

from accounts.models import Role
from accounts.permissions import require
from diagnosis import evidence as behind
from diagnosis import presentation, services
from diagnosis.models import DiagnosisRecord
from experiments import bars
from experiments.models import RunStatus
from experiments.pages import ExperimentPage, experiment_page
from experiments.views import progress_context, waiting_form

#: What bounds an op, in the words of the legend.
BOUNDS = {"compute": "Matrix units", "Compute": "Matrix units", "MXU": "Matrix units"}
OPS_ON_PAGE = 25


@require(Role.VIEWER)
@require_GET
def experiment(request: HttpRequest, pk: int) -> HttpResponse:
    """An experiment's first page: its diagnosis, or what is being done and what it waits for."""
    page = experiment_page(request, pk)
    context = page.context("diagnosis", **progress_context(page))
    if page.experiment.state == RunStatus.CONFIGURING:
        context |= waiting_form(page)
    record = services.newest(page.experiment)
    if record is not None:
        context |= diagnosis_context(page, record) | ops_context(request, record)
    return render(request, "diagnosis/experiment.html", context)


def diagnosis_context(page: ExperimentPage, record: DiagnosisRecord) -> dict[str, Any]:
    data = record.data
    config = page.experiment.config or {}
    mesh = config.get("mesh") or page.experiment.mesh or {}
    step_s = data.get("kpis", {}).get("step_time_s")
    in_seconds = bool(data.get("breakdown_s"))
    parts = data.get("breakdown_s") or data.get("breakdown_share") or {}
    terms = bars.step_terms(parts, mesh.get("axis_roles"))
    modules, module_unit = presentation.modules(record.ops.all())
    total = sum(term.value for term in terms)
    summary = record.run.profile.summary or {}
    tiles = presentation.tiles(data)
    return {
        "record": record,
        "diagnosis": data,
        "is_older": page.run is not None and record.run_id != page.run.pk,
        "tiles": tiles,
        "more_tiles": sum(not tile.main for tile in tiles),
        "ceiling": presentation.ceiling(data),
        "report": presentation.report(data),
        "terms": terms,
        "terms_total": total,
        "matrix": presentation.matrix(data, mesh, step_s),
        "roofline": presentation.roofline(data, record.ops.all(), BOUNDS),
        "modules": modules,
        "module_unit": module_unit,
        "terms_unit": "s" if in_seconds else "share",
        "profile": summary,
        "notes": summary.get("notes") or [],
        "note_count": len(data.get("warnings") or ())
        + len(summary.get("notes") or ())
        + len(page.experiment.config_warnings or ()),
    }


def ops_context(request: HttpRequest, record: DiagnosisRecord, size: int = OPS_ON_PAGE) -> dict[str, Any]:
    """One page of the ops table, as the address asks for it."""
    filters = {key: request.GET.get(key, "") for key in (*services.FILTERS, "q")}
    sort = request.GET.get("sort", "-time_share")
    # Ranks follow the shares, and have the index.
    order = "rank" if sort == "-time_share" else sort
    found = services.ops(record, filters, order, request.GET.get("page", "1"), size)
    return {
        "ops": found,
        "sort": sort,
        "filters": filters,
        "categories": services.choices(record, "category"),
        "axes": services.choices(record, "mesh_axis"),
        "largest_share": max((row.time_share for row in found.rows), default=0.0),
        "group": request.GET.get("group", ""),
    }


@require(Role.VIEWER)
@require_GET
@vary_on_headers("HX-Request")
def ops(request: HttpRequest, pk: int) -> HttpResponse:
    """All ops of the newest diagnosis, sorted, filtered and paged; grouped by a column where asked."""
    page = experiment_page(request, pk)
    record = _record(page)
    context = page.context("diagnosis", record=record, **ops_context(request, record))
    if context["group"] in ("category", "module", "bound_by", "mesh_axis"):
        context["groups"] = presentation.group_counts(record.ops.all(), context["group"])
    part = "diagnosis/_ops.html" if request.htmx else "diagnosis/ops.html"  # type: ignore[attr-defined]
    return render(request, part, context)


@require(Role.VIEWER)
@require_GET
@vary_on_headers("HX-Request")
def op(request: HttpRequest, pk: int, rank: int) -> HttpResponse:
    """One op: its numbers, HLO text, framework path and source line."""
    page = experiment_page(request, pk)
    record = _record(page)
    row = get_object_or_404(record.ops, rank=rank)
    context = page.context("diagnosis", record=record, op=row, facts=row.data)
    part = "diagnosis/_op.html" if request.htmx else "diagnosis/op.html"  # type: ignore[attr-defined]
    return render(request, part, context)


@require(Role.VIEWER)
@require_GET
@vary_on_headers("HX-Request")
def evidence(request: HttpRequest, pk: int, ref: str) -> HttpResponse:
    """What stands behind one number: in the drawer, or as a page of its own."""
    page = experiment_page(request, pk)
    record = _record(page)
    panel = behind.find(record, ref)
    if panel is None:
        raise Http404("No such evidence in this diagnosis.")
    context = page.context("diagnosis", record=record, panel=panel, files=record.run.profile.files.all())
    part = "diagnosis/_evidence.html" if request.htmx else "diagnosis/evidence.html"  # type: ignore[attr-defined]
    return render(request, part, context)


def _record(page: ExperimentPage) -> DiagnosisRecord:
    record = services.newest(page.experiment)
    if record is None:
        raise Http404("This experiment has no diagnosis yet.")
    return record
