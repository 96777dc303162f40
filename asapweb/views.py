"""Pages that look over everything: home, the list of experiments, the jump box."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.core.paginator import Paginator
from django.db.models import Count, Q, QuerySet
from django.http import HttpResponse, QueryDict, StreamingHttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django_filters import CharFilter, ChoiceFilter

from accounts.filters import SortFilter
from accounts.models import Role
from accounts.pages import page_or_part
from accounts.permissions import MemberRequest, require
from asapweb import run_list
from asapweb.waiting import waiting, with_review_state
from diagnosis.report import BOTTLENECKS
from dialogue.views_palette import result_context
from experiments import bars
from experiments.filters import ExperimentSearch
from experiments.models import Event, Experiment, Run, RunStatus, SavedView
from experiments.progress import PROGRESS_EVENTS, steps_of
from formatting.numbers import whole_number
from formatting.text import clean
from proposals.models import Proposal

EXPERIMENTS_ON_PAGE = 25
#: Experiments that wait for this person, shown on the first page; all are counted.
DUE_SHOWN = 20
#: Experiments that can be looked at together.
PICKED = 50
#: What of the list's address a saved view keeps.
VIEWED = ("q", "state", "chip", "bottleneck", "sort", "col", "only")
WORKING = [status for status in RunStatus if status.is_working]

STATES = (
    ("review", "Needs review", Q(open_review=True)),
    ("running", "Running", Q(state__in=WORKING)),
    ("configuring", "Needs configuration", Q(state=RunStatus.CONFIGURING)),
    ("approved", "Approved", Q(approved=True)),
    ("ready", "Ready", Q(state=RunStatus.READY, open_review=False, approved=False)),
    ("failed", "Failed", Q(state=RunStatus.FAILED)),
)
#: Of `team`, which the index that is read holds.
_OF_STATES = {key: Count("team", filter=condition) for key, _, condition in STATES}


class PageFilters(ExperimentSearch):
    state = ChoiceFilter(choices=[(key, word) for key, word, _ in STATES], method="in_state")
    sort = SortFilter({
        "name": "name", "hardware": "chip", "model": "model_name", "bottleneck": "bottleneck", "step": "step_time_s",
        "gain": "best_speedup", "updated": "updated_at",
    })  # fmt: skip

    only = CharFilter(method="among")

    def among(self, rows: QuerySet[Experiment], name: str, keys: str) -> QuerySet[Experiment]:
        return rows.filter(pk__in=[number for key in keys.split(",")[:PICKED] if (number := whole_number(key))])

    def in_state(self, rows: QuerySet[Experiment], name: str, state: str) -> QuerySet[Experiment]:
        return rows.filter(next(condition for key, _, condition in STATES if key == state))


@require(Role.VIEWER, "GET", htmx=True)
def home(request: MemberRequest) -> HttpResponse:
    """Items that need action, running jobs, and recent changes."""
    membership = request.membership
    team = membership.team
    everything = with_review_state(Experiment.objects.filter(team=team))
    due = list(waiting(membership)[:DUE_SHOWN])
    first_proposals = {row.experiment_id: row for row in run_list.first_proposals([item.pk for item in due])}
    working = everything.filter(state__in=WORKING)
    running = _pipes(list(working.order_by("-pk")[:6]))
    approved = Proposal.objects.filter(team=team, status=Proposal.Status.APPROVED)
    recent_gains = approved.select_related("experiment", "review__author").order_by("-review__created_at")[:6]
    reasons = {run.experiment_id: run.reason for run in _newest_runs([i for i in due if i.state == RunStatus.FAILED])}
    counts = everything.aggregate(
        total=Count("*"), own_total=Count("team", filter=Q(sample="")), running_count=_OF_STATES["running"],
        ready_count=Count("team", filter=Q(state=RunStatus.READY)),
    )  # fmt: skip
    context = {
        "here": "home",
        "due": [(item, first_proposals.get(item.pk), reasons.get(item.pk, "")) for item in due],
        "due_count": len(due) if len(due) < DUE_SHOWN else waiting(membership).count(),
        "running": running,
        "recent": everything.filter(sample="").exclude(pk__in=waiting(membership)).order_by("-updated_at", "-pk")[:8],
        "samples": everything.exclude(sample="").order_by("pk"),
        "approved_count": approved.count(),
        "gains": recent_gains,
        **counts,
    }
    return page_or_part(request, "home.html", "_home_running.html", context)


def _newest_runs(experiments: list[Experiment]) -> list[Run]:
    """The newest run of each."""
    runs = Run.objects.filter(experiment__in=experiments)
    return list(runs.order_by("experiment_id", "-pk").distinct("experiment_id")) if experiments else []


def _pipes(experiments: list[Experiment]) -> list[tuple[Experiment, list[Any]]]:
    """Each with the steps of its newest run."""
    newest = {run.experiment_id: run for run in _newest_runs(experiments)}
    events_by_run: dict[int, list[Event]] = {}
    for event in (
        Event.objects.filter(run__in=newest.values(), kind__in=PROGRESS_EVENTS).order_by("pk") if newest else ()
    ):
        events_by_run.setdefault(event.run_id or 0, []).append(event)
    runs = [(item, newest.get(item.pk)) for item in experiments]
    return [(item, steps_of(run, events_by_run.get(run.pk, ())) if run is not None else []) for item, run in runs]


@require(Role.VIEWER, "GET", htmx=True)
def experiments(request: MemberRequest) -> HttpResponse:
    """The team's experiments: searched, narrowed, sorted and paged on the server."""
    team = request.membership.team
    everything = with_review_state(Experiment.objects.filter(team=team))
    filters = PageFilters(request.GET, everything.order_by("-updated_at", "-pk"))
    page = Paginator(filters.qs, EXPERIMENTS_ON_PAGE).get_page(request.GET.get("page"))
    chosen = request.GET.getlist("col")
    shown = run_list.columns(chosen)
    listed = run_list.rows(page)
    chips, bottlenecks, counts = _overview(everything)
    total = counts["all"]
    rest = {key: str(request.GET[key]) for key in ("q", "chip", "bottleneck", "only") if request.GET.get(key)}
    if rest:
        _, _, counts = _overview(PageFilters(rest, everything).qs)
    context = {
        "here": "experiments",
        "page": page,
        "rows": listed,
        "legend": bars.legend(term for row in listed for term in row.terms) if "parts" in shown else (),
        "scale_s": max((row.total for row in listed if row.item.step_time_s), default=0.0),
        "columns": [(key, *run_list.COLUMNS[key]) for key in shown],
        "narrow": not chosen,
        "all_columns": [(key, column[0], key in shown) for key, column in run_list.COLUMNS.items()],
        "kept": [(key, value) for key, value in _viewed(request.GET) if key != "col"],
        "series": run_list.series(filters.qs),
        "views": SavedView.objects.filter(team=team),
        "view": urlencode(_viewed(request.GET)),
        "total": page.paginator.count,
        "everything": total,
        "states": [("", "All", counts["all"]), *((key, word, counts[key]) for key, word, _ in STATES if counts[key])],
        "chips": chips,
        "bottlenecks": [b for b in BOTTLENECKS if b in bottlenecks],
        **filters.asked,
        "sort": filters.asked["sort"] or "-updated",
    }
    return page_or_part(request, "experiments.html", "_experiments.html", context)


def _viewed(query: QueryDict) -> list[tuple[str, str]]:
    """Return what a saved view keeps of a query."""
    return [(key, value) for key in VIEWED for value in query.getlist(key) if value]


@require(Role.VIEWER, "GET")
def picked(request: MemberRequest) -> HttpResponse:
    """Lead to the comparison of two selected experiments, or to a list of one or of more."""
    keys = list(dict.fromkeys(number for key in request.GET.getlist("pick") if (number := whole_number(key))))[:PICKED]
    if len(keys) == 2:
        team = Experiment.objects.filter(team=request.membership.team, pk__in=keys)
        profiles = {row.item.pk: row.profile for row in run_list.rows(team)}
        sides = {side: profiles.get(key) for side, key in zip("ab", keys, strict=True)}
        return redirect(f"{reverse('compare')}?{urlencode({side: pk for side, pk in sides.items() if pk})}")
    query = {"only": ",".join(map(str, keys)), "sort": "-step"} if keys else {}
    return redirect(f"{reverse('experiments')}?{urlencode(query)}")


@require(Role.VIEWER, "GET")
def experiments_table(request: MemberRequest) -> StreamingHttpResponse:
    """Send the list, as it is narrowed and sorted, as CSV."""
    everything = with_review_state(Experiment.objects.filter(team=request.membership.team))
    filters = PageFilters(request.GET, everything.order_by("-updated_at", "-pk"))
    response = StreamingHttpResponse(run_list.table(filters.qs), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = 'attachment; filename="experiments.csv"'
    return response


@require(Role.ENGINEER, "POST")
def save_view(request: MemberRequest) -> HttpResponse:
    """Keep filters, order and columns of the list under a name, for the whole team."""
    name = clean(request.POST.get("name", ""))[:60]
    query = urlencode(_viewed(QueryDict(request.POST.get("view", ""))))
    if not name:
        messages.error(request, "The view has no name: type one, and save it again.")
    else:
        SavedView.objects.update_or_create(team=request.membership.team, name=name, defaults={"query": query})
    return redirect(f"{reverse('experiments')}?{query}")


@require(Role.ENGINEER, "POST")
def delete_view(request: MemberRequest, pk: int) -> HttpResponse:
    get_object_or_404(SavedView, team=request.membership.team, pk=pk).delete()
    return redirect("experiments")


def _overview(everything: QuerySet[Experiment]) -> tuple[list[str], set[str], dict[str, int]]:
    """Chips and bottlenecks that occur, and how many experiments are in each of `STATES`, `all` among them.

    One look at an index: counts of every combination, of which there are few.
    """
    of_states = {f"in_{key}": count for key, count in _OF_STATES.items()}  # `approved` alone is a column of each row
    rows = list(everything.order_by().values_list("chip", "bottleneck").annotate(n=Count("*"), **of_states))
    counts = {key: sum(row[place] for row in rows) for place, key in enumerate(("all", *_OF_STATES), start=2)}
    return sorted({row[0] for row in rows} - {""}), {row[1] for row in rows}, counts


@require(Role.VIEWER, "GET")
def jump(request: MemberRequest) -> HttpResponse:
    """What typed words or settings lead to; `?experiment=` also what can be computed and found in one."""
    pk = whole_number(request.GET.get("experiment", ""))
    experiment = Experiment.objects.filter(team=request.membership.team, pk=pk).first() if pk is not None else None
    context = result_context(request, request.membership, experiment)
    return render(request, "dialogue/_results.html", {"membership": request.membership, **context})
