"""Pages of an import: choose a file, and see what became of its rows."""

from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import redirect, render

from accounts.models import Role
from accounts.permissions import MemberRequest, get_for, require
from history.models import RecordImport
from history.reading import REQUIRED
from history.record import BOTTLENECKS, CHANGES, FAILURES, OUTCOMES
from history.services import imports

#: Imports of the team that the page lists.
RECENT = 8
_FOUND = RecordImport.objects.select_related("created_by")


@require(Role.ENGINEER, "GET", "POST")
def choose(request: MemberRequest) -> HttpResponse:
    """The form; what was sent is imported."""
    team = request.membership.team
    problem = ""
    if request.method == "POST":
        file = request.FILES.get("file")
        if file is None:
            problem = "Choose a file of records first."
        else:
            try:
                made = imports.receive(team, request.user, file)
            except imports.ImportRefused as error:
                problem = str(error)
            else:
                return redirect("history-file", made.pk)
    context = {
        "here": "history",
        "problem": problem,
        "limit_bytes": imports.LIMIT_BYTES,
        "recent": _FOUND.filter(team=team)[:RECENT],
        "required": REQUIRED,
        "values": {
            "changes": CHANGES,
            "outcome": OUTCOMES,
            "failure": FAILURES,
            "bottleneck": [name for name in BOTTLENECKS if name],
        },
    }
    return render(request, "history/import.html", context, status=422 if problem else 200)


@require(Role.VIEWER, "GET")
def file(request: MemberRequest, pk: int) -> HttpResponse:
    """Show which rows of a file were imported, and what is wrong with the others."""
    made = get_for(request.user, _FOUND, Role.VIEWER, pk=pk)
    report = made.report
    context = {
        "here": "history",
        "made": made,
        "report": report,
        "complaints": [
            ("Errors", "failed", report.get("errors"), report.get("errors_left_out")),
            ("Warnings", "review", report.get("warnings"), report.get("warnings_left_out")),
        ],
    }
    return render(request, "history/import_file.html", context)
