"""Pages of the knowledge base: searched and browsed, and one passage as a page or in place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from accounts.models import Role
from accounts.pages import page_or_part
from accounts.permissions import MemberRequest, require, team_ids
from knowledge.models import Passage
from knowledge.services import browse, embedding, search
from knowledge.services.browse import Facet, Filters

MODE_WORDS = {"fused": "both", "vector": "semantic", "text": "keywords"}
#: Passages on the page of one that are near to it.
ALIKE = 5


@require(Role.VIEWER, "GET", htmx=True)
def knowledge(request: MemberRequest) -> HttpResponse:
    """What the team knows: narrowed by topic, hardware, bottleneck and source, and searched by words and meaning."""
    team = request.membership.team
    page = browse.page(team, Filters.read(request.GET))
    filters = page.filters
    facets = browse.facets(team, filters)
    context = {
        "here": "knowledge",
        "page": page,
        "facets": facets,
        "chips": list(_chips(facets, filters)),
        "kept": [(name, getattr(filters, name)) for name in filters.chosen],
        "modes": [(mode, word, filters.but(mode=mode).query()) for mode, word in MODE_WORDS.items()],
        "waiting": search.waiting(team),
        "back_query": filters.query(),
    }
    return page_or_part(request, "knowledge/knowledge.html", "knowledge/_passages.html", context)


def _chips(facets: Sequence[Facet], filters: Filters) -> Iterator[tuple[str, str]]:
    """What was chosen, with the query that takes it away."""
    for facet in facets:
        for value in facet.values:
            if value.chosen:
                yield value.label, value.filters.query()
    if filters.tag:
        yield filters.tag.replace("_", " "), filters.but(tag="").query()


@require(Role.VIEWER, "GET", htmx=True)
def passage(request: MemberRequest, key: str) -> HttpResponse:
    """The passage that a citation names: its page, or a short form that opens in place."""
    # Whichever team is chosen: pages of each cite their own.
    cited_passage = search.passage(team_ids(request.user), key)
    if cited_passage is None:
        raise Http404("There is no passage with this name; its document may have been deleted.")
    if request.htmx:
        return render(request, "knowledge/_cited.html", {"passage": cited_passage})
    query = Filters.read(request.GET).query()
    alike = search.similar(cited_passage.team or request.membership.team, cited_passage, ALIKE)
    context = {
        "here": "knowledge",
        "passage": cited_passage,
        "document": cited_passage.document,
        "back": reverse("knowledge") + (f"?{query}" if query else ""),
        "alike": alike.found,
        "notes": alike.notes,
        "embedded": not embedding.stale(Passage, embedding.current_embedder().name)
        .filter(pk=cited_passage.pk)
        .exists(),
    }
    return render(request, "knowledge/passage.html", context)
