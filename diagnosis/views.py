"""Pages of a diagnosis: the diagnosis itself, its ops, one op, the evidence behind a number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from django.http import Http404, HttpResponse, HttpResponseBadRequest
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse

from accounts.models import Role
from accounts.pages import page_or_part, refusals_as_messages
from accounts.permissions import MemberRequest, require
from diagnosis import evidence as behind
from diagnosis import presentation, services
from diagnosis.analyzer import report
from diagnosis.models import DiagnosisRecord
from diagnosis.recording import KINDS, PROGRAMS
from diagnosis.report import Diagnosis
from experiments import bars
from experiments.models import RunStatus
from experiments.pages import ExperimentPage, experiment_page
from experiments.templatetags.components import BOTTLENECK_CLASS
from experiments.views import progress_context, waiting_form
from formatting.numbers import whole_number

#: What bounds an op, in the words of the legend.
BOUNDS = {"compute": "Compute", "Compute": "Compute", "MXU": "Compute"}
OPS_ON_PAGE = 25
#: On the diagnosis page itself.
OPS_IN_REPORT = 10
GROUPS_ON_PAGE = 50
GROUP_WORDS = (
    ("category", "Category"), ("module", "Module"), ("source", "Source line"), ("bound_by", "Bound"),
    ("mesh_axis", "Axis"), ("phase", "Phase"), ("scope", "Framework path"),
)  # fmt: skip
#: Filters that the form itself shows; the others are chips next to it.
_IN_FORM = frozenset(("q", "category", "mesh_axis", "bound_by"))
#: Beside an op: others of its module.
NEIGHBOURS = 12


@require(Role.VIEWER, "GET")
def experiment(request: MemberRequest, pk: int) -> HttpResponse:
    """An experiment's first page: its diagnosis, or what is being done and what it waits for."""
    page = experiment_page(request, pk)
    context = page.context("diagnosis", **progress_context(page))
    if page.experiment.state == RunStatus.CONFIGURING:
        context |= waiting_form(page)
    record = services.newest(page.experiment)
    if record is not None:
        context |= diagnosis_context(page, record) | ops_context(request, record, OPS_IN_REPORT)
    return render(request, "diagnosis/experiment.html", context)


@require(Role.VIEWER, "POST")
def state_recording(request: MemberRequest, pk: int) -> HttpResponse:
    """Correct what was recorded, and diagnose it again."""
    page = experiment_page(request, pk, Role.ENGINEER)
    kind, program = request.POST.get("kind", ""), request.POST.get("program", "")
    if page.run is None or kind not in ("", *KINDS) or program not in ("", *PROGRAMS):
        return HttpResponseBadRequest("kind or program is none of the list.")
    with refusals_as_messages(request):
        services.state_recording(page.run, request.user, kind, program)
    return redirect("experiment", pk)


def diagnosis_context(page: ExperimentPage, record: DiagnosisRecord) -> dict[str, Any]:
    diagnosis = record.value
    config = page.experiment.config or {}
    mesh = config.get("mesh") or page.experiment.mesh or {}
    step_s = diagnosis.kpis.get("step_time_s")
    in_seconds = bool(diagnosis.breakdown_s)
    predicted = not diagnosis.measured
    parts = diagnosis.breakdown_s or diagnosis.breakdown_share
    terms = bars.step_terms(parts, mesh.get("axis_roles"))
    total = sum(term.value for term in terms)
    summary = record.run.profile.summary or {}
    tiles = presentation.tiles(diagnosis)
    missing = diagnosis.not_measured
    notes = presentation.further_notes(diagnosis, summary)
    ops_url = reverse("ops", args=[page.experiment.pk])
    return {
        "record": record,
        "diagnosis": diagnosis,
        "is_older": page.run is not None and record.run_id != page.run.pk,
        "recording_choices": (
            ("kind", "Kind", KINDS, diagnosis.recording.kind),
            ("program", "Program", PROGRAMS, diagnosis.recording.program),
        ),
        "verdict_class": BOTTLENECK_CLASS.get(diagnosis.bottleneck.primary, "idle"),
        "tiles": tiles,
        "more_tiles": sum(not tile.main for tile in tiles),
        "ceiling": presentation.ceiling(diagnosis),
        "report": _by_heading(diagnosis),
        "core_steps": presentation.core_steps(diagnosis.timeline),
        "no_steps": missing.get("step_time_s") or missing.get("step_time") or "No core of the profile marks its steps.",
        "sources_base": f"{ops_url}?q=",
        "terms": terms,
        "terms_total": total,
        "terms_largest": max((term.value for term in terms), default=0.0),
        "matrix": presentation.matrix(diagnosis, mesh, step_s),
        "roofline": presentation.roofline(diagnosis, record.ops.all(), BOUNDS),
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
    sums = [line for line in diagnosis.report.get(report.IDENTIFICATION, ()) if whole_number(line[:1]) is None]
    details = [line.partition(": ") for line in diagnosis.report.get(report.DETAILS, ())]
    return {"details": [(head, rest) if rest else ("", head) for head, _, rest in details], "sums": sums}


def ops_context(request: MemberRequest, record: DiagnosisRecord, size: int = OPS_ON_PAGE) -> dict[str, Any]:
    """One page of the ops table, as the address asks for it."""
    filters = services.OpFilters(request.GET, record.ops.all()).asked
    sort = filters.pop("sort") or "-time_share"
    number = request.GET.get("page")
    categories, axes, bounds = services.choices(record, "category", "mesh_axis", "bound_by")
    context: dict[str, Any] = {
        "sort": sort,
        "filters": filters,
        "chips": [(key, value) for key, value in filters.items() if value and key not in _IN_FORM],
        "categories": categories,
        "axes": axes,
        "bounds": bounds,
        "group": "",
        "filtered": any(filters.values()),
        "group_words": GROUP_WORDS,
        "full": size != OPS_IN_REPORT,
        "short_size": OPS_IN_REPORT if size == OPS_IN_REPORT else "",
    }
    group = request.GET.get("group", "")
    if group in services.GROUPS:
        sort = request.GET.get("sort", "")  # groups have others
        sort = sort if sort.removeprefix("-") in services.GROUP_SORTS else "-time_share"
        groups = services.groups(record, group, filters, sort, number, GROUPS_ON_PAGE)
        return context | {
            "group": group,
            "group_head": dict(GROUP_WORDS)[group],
            "groups": groups,
            "op_count": sum(row["count"] for row in groups.paginator.object_list),
            "sort": sort,
            "largest_share": max((row["share"] or 0.0 for row in groups), default=0.0),
        }
    # Ranks follow the shares, and have the index.
    order = "rank" if sort == "-time_share" else sort
    page = services.ops(record, filters | {"sort": order}, number, size)
    largest = max((row.time_share for row in page), default=0.0)
    return context | {"ops": page, "op_count": page.paginator.count, "largest_share": largest}


@require(Role.VIEWER, "GET", htmx=True)
def ops(request: MemberRequest, pk: int) -> HttpResponse:
    """All ops of the newest diagnosis, sorted, filtered and paged; grouped by a column where asked."""
    page = experiment_page(request, pk)
    record = record_of(page, without=["data"])
    # The table within the report is short; its links lead to the next rows of the same length.
    size = OPS_IN_REPORT if request.GET.get("size") == str(OPS_IN_REPORT) else OPS_ON_PAGE
    context = page.context("diagnosis", record=record, **ops_context(request, record, size))
    return page_or_part(request, "diagnosis/ops.html", "diagnosis/_ops.html", context)


@require(Role.VIEWER, "GET", htmx=True)
def op(request: MemberRequest, pk: int, rank: int) -> HttpResponse:
    """One op: its numbers, HLO text, framework path and source line, and the ops of the same module."""
    page = experiment_page(request, pk)
    record = record_of(page, without=["data"])
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
    return page_or_part(request, "diagnosis/op.html", "diagnosis/_op.html", context)


@require(Role.VIEWER, "GET", htmx=True)
def evidence(request: MemberRequest, pk: int, ref: str) -> HttpResponse:
    """Evidence of one number: in the drawer, or as a page of its own."""
    page = experiment_page(request, pk)
    record = record_of(page)
    panel = behind.find(record, ref)
    if panel is None:
        raise Http404("No such evidence in this diagnosis.")
    context = page.context("diagnosis", record=record, panel=panel, files=record.run.profile.files.all())
    return page_or_part(request, "diagnosis/evidence.html", "diagnosis/_evidence.html", context)


def record_of(page: ExperimentPage, without: Sequence[str] = ()) -> DiagnosisRecord:
    record = services.newest(page.experiment, without)
    if record is None:
        raise Http404("This experiment has no diagnosis yet.")
    return record
