"""Pages of an import: choose a file, see what is in it row by row, then take it or leave it."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render

from accounts.models import Role
from accounts.pages import refusals_as_messages
from accounts.permissions import MemberRequest, check, get_for, require
from history.models import RecordImport
from history.reading import REQUIRED
from history.record import BOTTLENECKS, CHANGES, FAILURES, OUTCOMES
from history.services import imports

#: Imports of the team that the page lists.
RECENT = 8
_FOUND = RecordImport.objects.select_related("created_by").defer("checked")


@require(Role.ENGINEER, "GET", "POST")
def choose(request: MemberRequest) -> HttpResponse:
    """The form; what was sent is checked, nothing is imported yet."""
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
    """What is in a file, and what became of it."""
    made = get_for(request.user, _FOUND, Role.VIEWER, pk=pk)
    report = made.report
    context = {
        "here": "history",
        "made": made,
        "may_import": check(request.user, made, Role.VIEWER).may(Role.ENGINEER),
        "report": report,
        "complaints": [
            ("Errors", "failed", report.get("errors"), report.get("errors_left_out")),
            ("Warnings", "review", report.get("warnings"), report.get("warnings_left_out")),
        ],
        "more_preview": max(0, report.get("good", 0) - len(report.get("preview", ()))),
    }
    return render(request, "history/import_file.html", context)


@require(Role.VIEWER, "POST")
def confirm(request: MemberRequest, pk: int) -> HttpResponse:
    """Import the good rows of a checked file."""
    made = get_for(request.user, _FOUND, Role.ENGINEER, pk=pk)
    with refusals_as_messages(request):
        imports.confirm(made)
    return redirect("history-file", pk)


@require(Role.VIEWER, "POST")
def discard(request: MemberRequest, pk: int) -> HttpResponse:
    """Forget a checked file."""
    made = get_for(request.user, _FOUND, Role.ENGINEER, pk=pk)
    with refusals_as_messages(request):
        imports.discard(made)
        messages.success(request, f"{made.name} was discarded; nothing was imported.")
        return redirect("history-import")
    return redirect("history-file", pk)
