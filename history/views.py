"""Pages of the optimization database: the list, one record with both sides, export and deletion."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse

from accounts.models import Role
from accounts.pages import page_or_part
from accounts.permissions import MemberRequest, check, require, team_ids
from accounts.text import whole_number
from history import presentation
from history.models import HistoryRecord
from history.services import exports, facets, search, similar, store
from history.services.filters import CHOICES, SORTS, Filters

SORT_WORDS = {"relevance": "relevance", "effect": "largest gain", "worst": "worst first", "newest": "newest"}
FORMAT_WORDS = {"csv": "one line per record, for a spreadsheet", "json": "one list", "jsonl": "one object per line"}
#: Similar records on the page of one.
ALIKE = 5
_LINKED = ("experiment_before", "experiment_after", "profile_after", "added_by")


@require(Role.VIEWER, "GET", htmx=True)
def history(request: MemberRequest) -> HttpResponse:
    """Records of the team and the published ones: narrowed, searched, sorted, in pages."""
    filters = Filters.read(request.GET)
    page = search.page(request.membership.team, filters)
    first = filters.at()
    context = {
        "here": "history",
        "page": page,
        "sorts": [
            (key, SORT_WORDS[key], replace(first, sort=key).query()) for key in SORTS if filters.q or key != "relevance"
        ],
        "kept": list(_kept(filters)),
        "chips": list(_chips(filters)),
        "chosen_count": sum(len(getattr(filters, name)) for name in CHOICES) + ("size" in filters.chosen),
        "formats": list(FORMAT_WORDS.items()),
        "export_query": replace(first, size=25).query(),
        "back_query": filters.query(),
    }
    return page_or_part(request, "history/history.html", "history/_records.html", context)


def _kept(filters: Filters) -> Iterator[tuple[str, Any]]:
    """What a new search keeps of the address."""
    for name in CHOICES:
        for value in getattr(filters, name):
            yield name, value
    for name in ("chips_min", "chips_max"):
        if (value := getattr(filters, name)) is not None:
            yield name, value
    if filters.by_effect:
        yield "sort", filters.sort


def _chips(filters: Filters) -> Iterator[tuple[str, str]]:
    """Every chosen value with the query that takes it away."""
    for name in CHOICES:
        for value in getattr(filters, name):
            yield facets.label(name, value), filters.toggled(name, value).query()
    if "size" in filters.chosen:
        low, high = filters.chips_min or 1, filters.chips_max
        words = f"{low:,}–{high:,} chips" if high else f"{low:,} chips or more"
        yield words, filters.without("size").query()


def _record_or_404(request: MemberRequest, pk: int) -> HistoryRecord:
    """The record for somebody who may see it.  Raises Http404."""
    return get_object_or_404(search.visible(team_ids(request.user)).select_related(*_LINKED).defer(None), pk=pk)


def _may_delete(request: MemberRequest, record: HistoryRecord) -> bool:
    try:
        return record.team_id is not None and check(request.user, record, Role.ADMINISTRATOR) is not None
    except (Http404, PermissionDenied):
        return False


@require(Role.VIEWER, "GET", htmx=True)
def record(request: MemberRequest, pk: int) -> HttpResponse:
    """One record: both sides line by line, effect, caveats, source, and records like it."""
    row = _record_or_404(request, pk)
    value = store.to_record(row)
    only = request.GET.get("only") == "differing"
    lines = [line for line in presentation.lines(value) if line.differs or not only]
    query = Filters.read(request.GET).query()
    labels = [side.label for side in (value.before, value.after)]
    context = {
        "here": "history",
        "record": row,
        "lines": lines,
        "flags": presentation.flags(value),
        "only": only,
        "labels": f"{labels[0]} → {labels[1]}" if all(labels) else "",
        "side_origin": "measured",
        "side_how": "by this installation" if row.provenance == "measured" else "as given by the source",
        "here_href": reverse("history-record", args=[pk]),
        "back": reverse("history") + (f"?{query}" if query else ""),
        "caveats": value.caveats,
        "licence": value.licence,
        "may_delete": _may_delete(request, row),
        "compare_href": _compare_href(row),
    }
    if request.htmx:
        return render(request, "history/_sides.html", context)
    context["alike"] = similar.similar(team_ids(request.user), row, ALIKE)
    return render(request, "history/record.html", context)


def _compare_href(record: HistoryRecord) -> str:
    """Both profiles side by side, where both runs are known."""
    before = record.experiment_before.profiles.order_by("-pk").first() if record.experiment_before else None
    if before is None or record.profile_after_id is None:
        return ""
    return f"{reverse('compare')}?a={before.pk}&b={record.profile_after_id}"


@require(Role.VIEWER, "GET", "POST")
def delete(request: MemberRequest, pk: int) -> HttpResponse:
    """Ask, then delete a record of the team."""
    row = _record_or_404(request, pk)
    if row.team_id is None:
        raise PermissionDenied("Shipped records cannot be deleted; only those of your team can.")
    check(request.user, row, Role.ADMINISTRATOR)
    if request.method == "POST":
        store.delete(row, by=request.user)
        messages.success(request, f"Deleted the record “{row.title}”.")
        return redirect("history")
    return render(request, "history/delete.html", {"here": "history", "record": row})


def _cited_by(request: MemberRequest) -> list[int]:
    """The team whose proposal cites, as two teams may each have a record of one id; where the address does not name it
    the chosen team, then the user's others."""
    teams = team_ids(request.user)
    named = request.GET.get("team")
    if named:
        return [pk for pk in teams if pk == whole_number(named)]
    chosen = request.membership.team_id
    return sorted(teams, key=lambda pk: pk != chosen)


@require(Role.VIEWER, "GET")
def export(request: MemberRequest, kind: str) -> HttpResponseBase:
    """All records that the filters leave, or the matches of a search, as a file."""
    if kind not in FORMAT_WORDS:
        raise Http404("Records are exported as csv, json or jsonl.")
    return exports.response(request, request.membership.team, Filters.read(request.GET), kind)


@require(Role.VIEWER, "GET", htmx=True)
def cited(request: MemberRequest, key: str) -> HttpResponse:
    """The record that a citation names: its page, or a short form that opens in place."""
    row = next((team_record for team in _cited_by(request) if (team_record := search.of_key(team, key))), None)
    if row is None:
        raise Http404("There is no record with this id; it may have been deleted.")
    if not request.htmx:
        return redirect("history-record", row.pk)
    return render(request, "history/_cited.html", {"record": _record_or_404(request, row.pk)})
