"""Pages of the optimization database: the list, one record with both sides, export and deletion."""

from __future__ import annotations

from collections.abc import Iterator

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse

from accounts.facets import chips
from accounts.models import Role
from accounts.pages import page_or_part
from accounts.permissions import MemberRequest, check, require, team_ids
from formatting.numbers import whole_number
from history import presentation
from history.models import HistoryRecord
from history.services import formats, search, similar, store
from history.services.search import SORTS

SORT_WORDS = {"relevance": "relevance", "effect": "largest gain", "worst": "worst first", "newest": "newest"}
FORMAT_WORDS = {"csv": "one line per record, for a spreadsheet", "json": "one list", "jsonl": "one object per line"}
#: Similar records on the page of one.
ALIKE = 5
_LINKED = ("experiment_before", "experiment_after", "profile_after", "added_by")


@require(Role.VIEWER, "GET", htmx=True)
def history(request: MemberRequest) -> HttpResponse:
    """Records of the team and the published ones: narrowed, searched, sorted, in pages."""
    filters = search.filtered(request.membership.team, request.GET)
    page = search.page(filters, request.GET.get("page", 1))
    context = {
        "here": "history",
        "page": page,
        "facets": page.facets,
        "sorts": [
            (key, SORT_WORDS[key], filters.address(sort=key)) for key in SORTS if filters.text or key != "relevance"
        ],
        "kept": filters.kept("q"),
        "chips": [*chips(page.facets), *_range(page)],
        "formats": list(FORMAT_WORDS.items()),
        "export_query": filters.query,
        "back_query": request.GET.urlencode(),
    }
    return page_or_part(request, "history/history.html", "history/_records.html", context)


def _range(page: search.Page) -> Iterator[tuple[str, str]]:
    """Yield a range of chips that is none of the facet's as (label, query of the address without it)."""
    low, high = (page.filters.asked[name] for name in ("chips_min", "chips_max"))
    if (low or high) and not any(
        value.chosen for facet in page.facets if facet.name == "size" for value in facet.values
    ):
        label = f"{low or 1:,}–{high:,} chips" if high else f"{low:,} chips or more"
        yield label, page.filters.address(chips_min="", chips_max="")


def _record_or_404(request: MemberRequest, pk: int) -> HistoryRecord:
    """The record for somebody who may see it.  Raises Http404."""
    return get_object_or_404(search.visible(team_ids(request.user)).select_related(*_LINKED).defer(None), pk=pk)


def _may_delete(request: MemberRequest, record: HistoryRecord) -> bool:
    try:
        return record.team_id is not None and check(request.user, record, Role.ADMINISTRATOR) is not None
    except (Http404, PermissionDenied):
        return False


@require(Role.VIEWER, "GET")
def record(request: MemberRequest, pk: int) -> HttpResponse:
    """One record: both sides line by line, effect, caveats, source, and records like it."""
    row = _record_or_404(request, pk)
    value = store.to_record(row)
    query = request.GET.urlencode()
    labels = [side.label for side in (value.before, value.after)]
    context = {
        "here": "history",
        "record": row,
        "lines": presentation.lines(value),
        "flags": presentation.flags(value),
        "labels": f"{labels[0]} → {labels[1]}" if all(labels) else "",
        "side_origin": "measured",
        "side_how": "by this installation" if row.provenance == "measured" else "as given by the source",
        "back": reverse("history") + (f"?{query}" if query else ""),
        "caveats": value.caveats,
        "licence": value.licence,
        "may_delete": _may_delete(request, row),
        "compare_href": _compare_href(row),
        "alike": similar.similar(team_ids(request.user), row, ALIKE),
    }
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
    return formats.download(search.records(search.filtered(request.membership.team, request.GET)), kind)


@require(Role.VIEWER, "GET", htmx=True)
def cited(request: MemberRequest, key: str) -> HttpResponse:
    """The record that a citation names: its page, or a short form that opens in place."""
    row = next((team_record for team in _cited_by(request) if (team_record := search.of_key(team, key))), None)
    if row is None:
        raise Http404("There is no record with this id; it may have been deleted.")
    if not request.htmx:
        return redirect("history-record", row.pk)
    return render(request, "history/_cited.html", {"record": _record_or_404(request, row.pk)})
