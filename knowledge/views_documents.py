"""Pages of a team's own documents: the list with its form, one with its passages, its file, and its deletion."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.http import FileResponse, Http404, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render

from accounts.models import Role
from accounts.pages import page_or_part
from accounts.permissions import MemberRequest, refusal, require, team_ids
from knowledge.documents.errors import DocumentError
from knowledge.documents.kinds import ACCEPTED, ENDINGS
from knowledge.documents.limits import LIMITS
from knowledge.models import Document, State
from knowledge.services import documents as service

SIZE = 25
_TYPES = {"pdf": ("application/pdf", ".pdf"), "markdown": ("text/markdown; charset=utf-8", ".md")}
_TEXT = ("text/plain; charset=utf-8", ".txt")


@require(Role.VIEWER, "GET", "POST", htmx=True)
def documents(request: MemberRequest) -> HttpResponse:
    """What the team added, newest first, and the form to add more."""
    membership = request.membership
    problem, title = "", request.POST.get("title", "")
    if request.method == "POST":
        if not membership.may(Role.ENGINEER):
            raise PermissionDenied(refusal(Role.ENGINEER))
        file = request.FILES.get("file")
        try:
            if file is None:
                raise DocumentError(f"Choose a file first: {ACCEPTED}.")
            received = service.receive(membership.team, request.user, file, title=title)
        except DocumentError as error:
            problem = str(error)
        else:
            messages.success(request, received.sentence)
            return redirect("knowledge-document", received.document.pk)
    listed = Paginator(service.counted(service.owned(membership.team)), SIZE).get_page(request.GET.get("page"))
    context = {
        "here": "knowledge",
        "listed": listed,
        "working": any(document.state == State.READING for document in listed),
        "problem": problem,
        "title": title,
        "limits": LIMITS,
        "endings": ",".join(ENDINGS),
        "accepted": ACCEPTED,
    }
    return page_or_part(
        request, "knowledge/documents.html", "knowledge/_documents.html", context, status=422 if problem else 200
    )


@require(Role.VIEWER, "GET", htmx=True)
def document(request: MemberRequest, pk: int) -> HttpResponse:
    """A document of the team, or a shipped one, with its passages in their order."""
    shown = _found(request, pk)
    passages = shown.passages.defer("embedding", "search").order_by("position", "pk")
    if shown.team_id is None:
        passages = passages.filter(retired_at=None)
    context = {
        "here": "knowledge",
        "document": shown,
        "listed": Paginator(passages, SIZE).get_page(request.GET.get("page")),
        "working": shown.state == State.READING,
        "embedding": shown.state == State.READY and shown.embedded < shown.living,
        "may_delete": service.may_delete(request.user, shown),
    }
    return page_or_part(request, "knowledge/document.html", "knowledge/_document.html", context)


@require(Role.VIEWER, "GET")
def original(request: MemberRequest, pk: int) -> HttpResponseBase:
    """The file as it was added, to look up what a passage cites; always as a download."""
    shown = _found(request, pk)
    path = service.original(shown)
    if shown.team_id is None or not shown.path or not path.is_file():
        raise Http404("This document has no file.")
    content_type, ending = _TYPES.get(shown.kind, _TEXT)
    name = shown.name if shown.name.lower().endswith(ending) else f"{shown.name}{ending}"
    return FileResponse(path.open("rb"), as_attachment=True, filename=name, content_type=content_type)


@require(Role.VIEWER, "GET", "POST")
def delete(request: MemberRequest, pk: int) -> HttpResponse:
    """Ask, then delete a document with its passages."""
    shown = _found(request, pk)
    if shown.team_id is None:
        raise PermissionDenied("Shipped passages cannot be deleted; only documents of your team can.")
    if not service.may_delete(request.user, shown):
        raise PermissionDenied("Only the document's uploader or an administrator of the team can delete it.")
    if request.method == "POST":
        before = service.delete(shown, by=request.user)
        again = f" Its version {before.version} is the current one again." if before else ""
        messages.success(request, f"Deleted “{shown.title}”.{again}")
        return redirect("knowledge-documents")
    context = {"here": "knowledge", "document": shown, "before": service.version_before(shown)}
    return render(request, "knowledge/delete.html", context)


def _found(request: MemberRequest, pk: int) -> Any:
    """The document for somebody who may see it.  Raises Http404."""
    mine = service.counted(service.owned(team_ids(request.user))).filter(pk=pk).first()
    shipped = service.counted(Document.objects.filter(team=None))
    return mine if mine is not None else get_object_or_404(shipped, pk=pk)
