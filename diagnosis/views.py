"""Pages of a diagnosis: the diagnosis itself, its ops, one op, the evidence behind a number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.views.decorators.http import require_GET
from django.views.decorators.vary import vary_on_headers

from accounts.models import Role
from accounts.permissions import require
from diagnosis import evidence as behind
from diagnosis import presentation, services, strips
from diagnosis.analyzer import report
from diagnosis.models import DiagnosisRecord
from diagnosis.report import Diagnosis
from experiments import bars
from experiments.models import RunStatus
from experiments.pages import ExperimentPage, experiment_page
from experiments.views import progress_context, waiting_form

#: What bounds an op, in the words of the legend.
BOUNDS = {"compute": "Compute", "Compute": "Compute", "MXU": "Compute"}
OPS_ON_PAGE = 25
#: On the diagnosis page itself: ops of its table, and the part of the module tree that is worth its space there.
OPS_IN_REPORT = 10
SMALLEST_MODULE = 0.004
GROUPS_ON_PAGE = 50
GROUP_WORDS = (
    ("category", "Category"), ("module", "Module"), ("source", "Source line"), ("bound_by", "Bound"),
    ("mesh_axis", "Axis"), ("phase", "Phase"),
)  # fmt: skip
#: Filters that the form itself shows; the others are chips next to it.
_IN_FORM = frozenset(("q", "category", "mesh_axis", "bound_by"))
#: Beside an op: others of its module.
NEIGHBOURS = 12


@require(Role.VIEWER)
@require_GET
def experiment(request: HttpRequest, pk: int) -> HttpResponse:
    """An experiment's first page: its diagnosis, or what is being done and what it waits for."""
    page = experiment_page(request, pk)
    context = page.context("diagnosis", **progress_context(page))
    if page.experiment.state == RunStatus.CONFIGURING:
        context |= waiting_form(page)
    record = services.newest(page.experiment, without=())
    if record is not None:
        context |= diagnosis_context(page, record) | ops_context(request, record, OPS_IN_REPORT)
    return render(request, "diagnosis/experiment.html", context)


def diagnosis_context(page: ExperimentPage, record: DiagnosisRecord) -> dict[str, Any]:
    diagnosis = record.value
    config = page.experiment.config or {}
    mesh = config.get("mesh") or page.experiment.mesh or {}
    step_s = diagnosis.kpis.get("step_time_s")
    in_seconds = bool(diagnosis.breakdown_s)
    predicted = not diagnosis.measured
    parts = diagnosis.breakdown_s or diagnosis.breakdown_share
    terms = bars.step_terms(parts, mesh.get("axis_roles"))
    modules, module_unit = presentation.modules(record.ops.all())
    total = sum(term.value for term in terms)
    summary = record.run.profile.summary or {}
    tiles = presentation.tiles(diagnosis)
    missing = diagnosis.not_measured
    notes = presentation.further_notes(diagnosis, summary)
    return {
        "record": record,
        "diagnosis": diagnosis,
        "is_older": page.run is not None and record.run_id != page.run.pk,
        "tiles": tiles,
        "more_tiles": sum(not tile.main for tile in tiles),
        "ceiling": presentation.ceiling(diagnosis),
        "report": _by_heading(diagnosis),
        "strips": strips.strips(diagnosis.timeline, bars.collectives_class(terms)),
        "no_steps": missing.get("step_time_s") or missing.get("step_time") or "No core of the profile marks its steps.",
        "sources_base": f"{reverse('ops', args=[page.experiment.pk])}?q=",
        "tree": record.modules,
        "least_module": SMALLEST_MODULE * (record.modules.get("share") or 1.0),
        "terms": terms,
        "terms_total": total,
        "terms_largest": max((term.value for term in terms), default=0.0),
        "matrix": presentation.matrix(diagnosis, mesh, step_s),
        "roofline": presentation.roofline(diagnosis, record.ops.all(), BOUNDS),
        "modules": modules,
        "module_unit": module_unit,
        "terms_unit": "s" if in_seconds else "share",
        "terms_origin": "predicted" if predicted else "computed",
        "terms_predicted": predicted,
        "terms_how": "by the performance model" if predicted else "sum over its ops",
        "profile": summary,
        "notes": notes,
        "note_count": len(diagnosis.warnings) + len(notes) + len(page.experiment.config_warnings or ()),
    }


def _by_heading(diagnosis: Diagnosis) -> dict[str, list[Any]]:
    """The sentences that the page's figures do not already show: the configuration, and the sums by family and
    module."""
    sums = [line for line in diagnosis.report.get(report.IDENTIFICATION, ()) if not line[:1].isdigit()]
    details = [line.partition(": ") for line in diagnosis.report.get(report.DETAILS, ())]
    return {"details": [(head, rest) if rest else ("", head) for head, _, rest in details], "sums": sums}


def ops_context(request: HttpRequest, record: DiagnosisRecord, size: int = OPS_ON_PAGE) -> dict[str, Any]:
    """One page of the ops table, as the address asks for it."""
    filters = {key: request.GET.get(key, "") for key in (*services.FILTERS, *services.MORE_FILTERS)}
    sort = request.GET.get("sort", "-time_share")
    number = request.GET.get("page", "1")
    categories, axes, bounds = services.choices(record, "category", "mesh_axis", "bound_by")
    context: dict[str, Any] = {
        "sort": sort,
        "filters": filters,
        "chips": [(key, value) for key, value in filters.items() if value and key not in _IN_FORM],
        "categories": categories,
        "axes": axes,
        "bounds": bounds,
        "group": "",
        "group_words": GROUP_WORDS,
        "full": size != OPS_IN_REPORT,
        "short_size": OPS_IN_REPORT if size == OPS_IN_REPORT else "",
    }
    group = request.GET.get("group", "")
    if group in services.GROUPS:
        summed = services.groups(record, group, filters, sort, number, GROUPS_ON_PAGE)
        largest = max((row["share"] or 0.0 for row in summed.rows), default=0.0)
        head = dict(GROUP_WORDS)[group]
        return context | {
            "group": group, "group_head": head, "groups": summed, "sort": summed.sort, "largest_share": largest
        }  # fmt: skip
    # Ranks follow the shares, and have the index.
    order = "rank" if sort == "-time_share" else sort
    page = services.ops(record, filters, order, number, size)
    return context | {"ops": page, "largest_share": max((row.time_share for row in page.rows), default=0.0)}


@require(Role.VIEWER)
@require_GET
@vary_on_headers("HX-Request")
def ops(request: HttpRequest, pk: int) -> HttpResponse:
    """All ops of the newest diagnosis, sorted, filtered and paged; grouped by a column where asked."""
    page = experiment_page(request, pk)
    record = record_of(page, without=["data", "modules"])
    # The table within the report is short; its links lead to the next rows of the same length.
    size = OPS_IN_REPORT if request.GET.get("size") == str(OPS_IN_REPORT) else OPS_ON_PAGE
    context = page.context("diagnosis", record=record, **ops_context(request, record, size))
    part = "diagnosis/_ops.html" if request.htmx else "diagnosis/ops.html"  # type: ignore[attr-defined]
    return render(request, part, context)


@require(Role.VIEWER)
@require_GET
@vary_on_headers("HX-Request")
def op(request: HttpRequest, pk: int, rank: int) -> HttpResponse:
    """One op: its numbers, HLO text, framework path and source line, and the ops of the same module."""
    page = experiment_page(request, pk)
    record = record_of(page, without=["data", "modules"])
    row = get_object_or_404(record.ops, rank=rank)
    beside, where = services.neighbours(row, NEIGHBOURS)
    context = page.context(
        "diagnosis",
        record=record,
        op=row,
        facts=row.data,
        crossed=services.crossed(row),
        neighbours=beside,
        neighbourhood={"name": next(iter(where.values()), ""), "query": urlencode(where)},
        ranks=services.ranks_beside(row),
    )
    part = "diagnosis/_op.html" if request.htmx else "diagnosis/op.html"  # type: ignore[attr-defined]
    return render(request, part, context)


@require(Role.VIEWER)
@require_GET
@vary_on_headers("HX-Request")
def evidence(request: HttpRequest, pk: int, ref: str) -> HttpResponse:
    """Evidence of one number: in the drawer, or as a page of its own."""
    page = experiment_page(request, pk)
    record = record_of(page)
    panel = behind.find(record, ref)
    if panel is None:
        raise Http404("No such evidence in this diagnosis.")
    context = page.context("diagnosis", record=record, panel=panel, files=record.run.profile.files.all())
    part = "diagnosis/_evidence.html" if request.htmx else "diagnosis/evidence.html"  # type: ignore[attr-defined]
    return render(request, part, context)


@require(Role.VIEWER)
@require_GET
def modules(request: HttpRequest, pk: int) -> HttpResponse:
    """The whole tree of modules, as far as it was kept."""
    page = experiment_page(request, pk)
    record = record_of(page, without=["data"])
    return render(request, "diagnosis/modules.html", page.context("diagnosis", record=record, tree=record.modules))


def record_of(page: ExperimentPage, without: Sequence[str] = ("modules",)) -> DiagnosisRecord:
    record = services.newest(page.experiment, without)
    if record is None:
        raise Http404("This experiment has no diagnosis yet.")
    return record
