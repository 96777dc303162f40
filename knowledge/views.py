"""Pages of the knowledge base: searched and browsed, and one passage as a page or in place."""

from __future__ import annotations

from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from accounts.facets import chips
from accounts.models import Role
from accounts.pages import page_or_part
from accounts.permissions import MemberRequest, require, team_ids
from knowledge.models import Passage
from knowledge.services import browse, embedding, search

MODE_WORDS = {"fused": "both", "vector": "semantic", "text": "keywords"}
#: Passages on the page of one that are near to it.
ALIKE = 5


@require(Role.VIEWER, "GET", htmx=True)
def knowledge(request: MemberRequest) -> HttpResponse:
    """What the team knows: narrowed by topic, hardware, bottleneck and source, and searched by words and meaning."""
    team = request.membership.team
    filters = browse.filtered(team, request.GET)
    facets = browse.facets(filters)
    tag = str(filters.asked["tag"])
    context = {
        "here": "knowledge",
        "page": browse.page(filters, request.GET.get("page", "1")),
        "facets": facets,
        "chips": chips(facets) + ([(tag.replace("_", " "), filters.address(tag=""))] if tag else []),
        "kept": filters.kept("q"),
        "modes": [(mode, word, filters.address(mode=mode)) for mode, word in MODE_WORDS.items()],
        "waiting": search.waiting(team),
        "back_query": request.GET.urlencode(),
    }
    return page_or_part(request, "knowledge/knowledge.html", "knowledge/_passages.html", context)


@require(Role.VIEWER, "GET", htmx=True)
def passage(request: MemberRequest, key: str) -> HttpResponse:
    """The passage that a citation names: its page, or a short form that opens in place."""
    # Whichever team is chosen: pages of each cite their own.
    cited_passage = search.passage(team_ids(request.user), key)
    if cited_passage is None:
        raise Http404("There is no passage with this name; its document may have been deleted.")
    if request.htmx:
        return render(request, "knowledge/_cited.html", {"passage": cited_passage})
    query = request.GET.urlencode()
    alike = search.similar(cited_passage.team or request.membership.team, cited_passage, ALIKE)
    context = {
        "here": "knowledge",
        "passage": cited_passage,
        "document": cited_passage.document,
        "back": reverse("knowledge") + (f"?{query}" if query else ""),
        "alike": alike.found,
        "notes": alike.notes,
        "embedded": not embedding.stale(Passage).filter(pk=cited_passage.pk).exists(),
    }
    return render(request, "knowledge/passage.html", context)
