"""The audit trail of a team, for its administrators."""

from __future__ import annotations

from django.core.paginator import Paginator
from django.http import Http404, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache

from accounts import audit_trail
from accounts.models import Role
from accounts.permissions import MemberRequest, require
from audit.models import Action

PAGE_SIZE = 50


@never_cache
@require(Role.ADMINISTRATOR, "GET")
def audit(request: MemberRequest) -> HttpResponse:
    """Entries of the chosen team, newest first."""
    filters = audit_trail.EntryFilters(request.GET, audit_trail.entries_of([request.membership.team_id]))
    context = {
        "here": "settings",
        "membership": request.membership,
        "page": Paginator(filters.qs, PAGE_SIZE).get_page(request.GET.get("page")),
        "asked": filters.asked,
        "export_query": filters.query,
        "actions": Action.choices,
        "formats": audit_trail.FORMATS,
    }
    return render(request, "accounts/audit.html", context)


@never_cache
@require(Role.ADMINISTRATOR, "GET")
def export(request: MemberRequest, kind: str) -> HttpResponseBase:
    """The same entries as a file."""
    if kind not in audit_trail.FORMATS:
        raise Http404
    filters = audit_trail.EntryFilters(request.GET, audit_trail.entries_of([request.membership.team_id]))
    answer = StreamingHttpResponse(audit_trail.export(filters.qs, kind), content_type=audit_trail.FORMATS[kind])
    answer["Content-Disposition"] = f'attachment; filename="audit.{kind}"'
    return answer
