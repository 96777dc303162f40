from __future__ import annotations

import pytest
from django.http import QueryDict

from history.models import HistoryRecord
from history.services import store
from history.services.search import Page, filtered
from history.services.search import page as page_of
from knowledge.embedding.minilm import NAME, embed
from tests.history.records import record, side


def embedded() -> None:
    """Vectors for all records, as the workers compute them."""
    rows = list(HistoryRecord.objects.filter(embedding=None))
    for row, vector in zip(rows, embed([row.embedding_text() for row in rows]), strict=True):
        row.embedding, row.embedding_model, row.embedding_dimension = vector, NAME, len(vector)
        row.embedded_hash = row.content_hash
        row.save()


@pytest.fixture
def stored(people):
    """Six records of the team, one of another team, one shipped."""
    given = [
        record("wide", chip="v5e", chips=256, topology=(16, 16), speedup=1.4, title="Wider data axis"),
        record("thin", chip="v5e", chips=64, topology=(8, 8), speedup=0.9, bottleneck="memory"),
        record("remat", changes=("remat",), bottleneck="memory", model_name="gemma3-27b", model_family="gemma",
               before=side(), after=side(), speedup=1.1, title="Remat policy minimal instead of full"),
        record("oom", speedup=None, outcome="failed", failure="out_of_memory", title="No remat at all"),
        record("gpu", chip="h100", chips=16, topology=(8, 2), speedup=1.05, changes=("mesh", "xla_flags"),
               model_name="mixtral-8x7b", model_family="mixtral", title="Experts inside the NVLink domain"),
        record("same", speedup=1.0),
    ]  # fmt: skip
    store.add_many(given, people.team, people.engineer)
    store.add(record("foreign", title="A secret of others"), people.outsider.memberships.get().team)
    store.to_row(record("shipped", provenance="published", speedup=1.3889), None).save()
    return people


def page(teams, number: int = 1, **asked) -> Page:
    return page_of(filtered(teams, asked), number)


def keys(found) -> list[str]:
    return [item.record.key for item in found.rows]


def facet(found, name: str) -> dict[str, int]:
    return {value.value: value.count for facet in found.facets if facet.name == name for value in facet.values}


def test_a_team_sees_its_own_records_and_the_shipped_ones(stored):
    found = page(stored.team)
    assert keys(found) == ["shipped", "same", "gpu", "oom", "remat", "thin", "wide"]
    assert (found.total, found.available) == (7, 7)
    assert "foreign" not in str(found.facets)
    assert page([]).total == 1


def test_sorted_by_effect_failures_stand_last_and_first(stored):
    best = ["wide", "shipped", "remat", "gpu", "same", "thin", "oom"]
    assert keys(page(stored.team, sort="effect")) == best
    assert keys(page(stored.team, sort="worst")) == best[::-1]


def test_facets_narrow_and_keep_what_else_could_be_chosen(stored):
    found = page(stored.team, chip=("v5e",))
    assert set(keys(found)) == {"wide", "thin"} and found.total == 2
    assert facet(found, "chip") == {"v5p": 4, "v5e": 2, "h100": 1}  # as if no chip were chosen
    assert facet(found, "bottleneck") == {"memory": 1, "communication": 1}  # of those on v5e
    both = page(stored.team, chip=("v5e", "h100"), bottleneck=("communication",))
    assert set(keys(both)) == {"wide", "gpu"}
    assert facet(both, "hardware") == {"tpu": 1, "gpu": 1}
    assert facet(both, "bottleneck") == {"communication": 2, "memory": 1}


def test_a_record_counts_for_each_of_its_changes(stored):
    assert facet(page(stored.team), "change") == {"mesh": 6, "remat": 1, "xla_flags": 1}
    assert keys(page(stored.team, change=("xla_flags", "remat"))) == ["gpu", "remat"]


def test_a_range_of_chips(stored):
    found = page(stored.team, chips_min=9, chips_max=64)
    assert keys(found) == ["gpu", "thin"]
    assert facet(found, "size") == {"9-64": 2, "65-256": 1, "257-1024": 4}
    chosen = {value.value: value for f in found.facets if f.name == "size" for value in f.values}
    assert chosen["9-64"].chosen and chosen["9-64"].query == ""
    assert keys(page_of(filtered(stored.team, QueryDict(chosen["65-256"].query)))) == ["wide"]


@pytest.mark.parametrize("sort", ["newest", "effect", "worst"])
@pytest.mark.parametrize("narrow", [{}, {"bottleneck": ("communication", "memory")}])
def test_pages_follow_each_other(stored, sort, narrow):
    whole = keys(page(stored.team, sort=sort, **narrow))
    count = page(stored.team, sort=sort, size=2, **narrow).listed.paginator.num_pages
    pages = [keys(page(stored.team, number, sort=sort, size=2, **narrow)) for number in range(1, count + 1)]
    assert [key for each in pages for key in each] == whole
    assert keys(page(stored.team, count + 7, sort=sort, size=2, **narrow)) == pages[-1]


def test_an_address_says_all_of_the_filters(stored):
    filters = filtered(stored.team, {"q": "llama on v5e", "chip": ["v5e", "v5p"], "chips_min": 4, "sort": "effect"})
    assert filtered(stored.team, QueryDict(filters.query)).asked == filters.asked
    assert filters.query == "q=llama+on+v5e&chip=v5e&chip=v5p&chips_min=4&sort=effect"


def test_an_address_of_nonsense_is_the_first_page(stored):
    nonsense = QueryDict("after=x_y_z&before=&size=-4&sort=blue&chips_min=many&chip=&page=x")
    found = page_of(filtered(stored.team, nonsense), "x")
    assert found.total == 7 and found.filters.order == "newest"


def test_words_and_meaning_find_together(stored):
    embedded()
    found = page(stored.team, q="communication-bound llama on v5e", sort="relevance")
    assert keys(found)[0] == "wide"
    assert found.rows[0].hit.text is not None and found.rows[0].hit.vector is not None
    # Not one word of it is in the record.
    assert keys(page(stored.team, q="recomputing activations costs less", sort="relevance"))[0] == "remat"
    assert keys(page(stored.team, q="MoE on Nvidia cards", sort="relevance"))[0] == "gpu"
    assert "foreign" not in keys(page(stored.team, q="a secret of others", sort="relevance"))


def test_a_search_is_narrowed_counted_and_paged(stored):
    embedded()
    found = page(stored.team, q="mesh", sort="relevance", chip=("v5e",), size=1)
    assert found.total == 2 and found.listed.has_next()
    assert facet(found, "bottleneck") == {"memory": 1, "communication": 1}
    assert facet(found, "chip") == {"v5e": 2, "v5p": None, "h100": None}  # what they hold another search would tell
    second = page(stored.team, 2, q="mesh", sort="relevance", chip=("v5e",), size=1)
    assert {*keys(found), *keys(second)} == {"wide", "thin"} and not second.listed.has_next()
    assert keys(page(stored.team, q="mesh", sort="effect", chip=("v5e",))) == ["wide", "thin"]


def test_words_are_found_before_the_vectors_are_there(stored):
    assert "remat" in keys(page(stored.team, q="gemma", sort="relevance"))
    assert keys(page(stored.team, q="oom", sort="relevance")) == ["oom"]


def test_an_empty_database_has_an_empty_page(people):
    found = page(people.team, q="anything")
    assert found.rows == () and found.facets == () and found.available == 0
    assert page(people.team).rows == ()
