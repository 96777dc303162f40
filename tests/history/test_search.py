from __future__ import annotations

import pytest
from django.http import QueryDict

from history.models import HistoryRecord
from history.services import store
from history.services.filters import Filters, Position
from history.services.search import page
from knowledge.embedding import current_embedder
from tests.history.records import record, side


def embedded() -> None:
    """Vectors for all records, as the workers compute them."""
    embedder = current_embedder()
    rows = list(HistoryRecord.objects.filter(embedding=None))
    for row, vector in zip(rows, embedder.embed([row.embedding_text() for row in rows]), strict=True):
        row.embedding, row.embedding_model, row.embedding_dimension = vector, embedder.name, embedder.dimension
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


def keys(found) -> list[str]:
    return [item.record.key for item in found.rows]


def facet(found, name: str) -> dict[str, int]:
    return {value.value: value.count for facet in found.facets if facet.name == name for value in facet.values}


def test_a_team_sees_its_own_records_and_the_shipped_ones(stored):
    found = page(stored.team, Filters())
    assert keys(found) == ["shipped", "same", "gpu", "oom", "remat", "thin", "wide"]
    assert (found.total, found.available, found.first, found.last) == (7, 7, 1, 7)
    assert "foreign" not in str(found.facets)
    assert page([], Filters()).total == 1


def test_sorted_by_effect_failures_stand_last_and_first(stored):
    best = ["wide", "shipped", "remat", "gpu", "same", "thin", "oom"]
    assert keys(page(stored.team, Filters(sort="effect"))) == best
    assert keys(page(stored.team, Filters(sort="worst"))) == best[::-1]


def test_facets_narrow_and_keep_what_else_could_be_chosen(stored):
    found = page(stored.team, Filters(chip=("v5e",)))
    assert set(keys(found)) == {"wide", "thin"} and found.total == 2
    assert facet(found, "chip") == {"v5p": 4, "v5e": 2, "h100": 1}  # as if no chip were chosen
    assert facet(found, "bottleneck") == {"memory": 1, "communication": 1}  # of those on v5e
    both = page(stored.team, Filters(chip=("v5e", "h100"), bottleneck=("communication",)))
    assert set(keys(both)) == {"wide", "gpu"}
    assert facet(both, "hardware") == {"tpu": 1, "gpu": 1}
    assert facet(both, "bottleneck") == {"communication": 2, "memory": 1}


def test_a_record_counts_for_each_of_its_changes(stored):
    assert facet(page(stored.team, Filters()), "change") == {"mesh": 6, "remat": 1, "xla_flags": 1}
    assert keys(page(stored.team, Filters(change=("xla_flags", "remat")))) == ["gpu", "remat"]


def test_a_range_of_chips(stored):
    found = page(stored.team, Filters(chips_min=9, chips_max=64))
    assert keys(found) == ["gpu", "thin"]
    assert facet(found, "size") == {"9-64": 2, "65-256": 1, "257-1024": 4}
    chosen = {value.value: value for f in found.facets if f.name == "size" for value in f.values}
    assert chosen["9-64"].chosen and chosen["9-64"].filters == Filters()
    assert keys(page(stored.team, chosen["65-256"].filters)) == ["wide"]


@pytest.mark.parametrize("sort", ["newest", "effect", "worst"])
@pytest.mark.parametrize("narrow", [{}, {"bottleneck": ("communication", "memory")}])
def test_pages_follow_each_other_forth_and_back(stored, sort, narrow):
    whole = keys(page(stored.team, Filters(sort=sort, **narrow)))
    seen, found = [], page(stored.team, Filters(sort=sort, size=2, **narrow))
    pages = []
    while True:
        seen += keys(found)
        pages.append(keys(found))
        assert found.first == len(seen) - len(found.rows) + 1
        if found.next is None:
            break
        found = page(stored.team, Filters.read(QueryDict(found.next.query())))
    assert seen == whole
    for expected in pages[-2::-1]:
        found = page(stored.team, Filters.read(QueryDict(found.previous.query())))
        assert keys(found) == expected
    assert found.previous is None and found.first == 1


def test_an_address_says_all_of_the_filters():
    filters = Filters(q="llama on v5e", chip=("v5e", "v5p"), chips_min=4, sort="effect", size=10,
                      after=Position(1.25, 7, 10))  # fmt: skip
    assert Filters.read(QueryDict(filters.query())) == filters
    assert Filters.read(QueryDict(Filters().query())) == Filters()


def test_an_address_of_nonsense_is_the_first_page():
    nonsense = QueryDict("after=x_y_z&before=&size=-4&sort=blue&chips_min=many&chip=&chip=%00&bottleneck=no'such")
    found = Filters.read(nonsense)
    assert found.after is None and found.sort == "newest" and found.size == 25 and found.chips_min is None
    assert Filters.read(QueryDict("after=nan_1_1")).after is None


def test_words_and_meaning_find_together(stored):
    embedded()
    found = page(stored.team, Filters(q="communication-bound llama on v5e", sort="relevance"))
    assert keys(found)[0] == "wide"
    assert found.rows[0].hit.text is not None and found.rows[0].hit.vector is not None
    # Not one word of it is in the record.
    assert keys(page(stored.team, Filters(q="recomputing activations costs less", sort="relevance")))[0] == "remat"
    assert keys(page(stored.team, Filters(q="MoE on Nvidia cards", sort="relevance")))[0] == "gpu"
    assert "foreign" not in keys(page(stored.team, Filters(q="a secret of others", sort="relevance")))


def test_a_search_is_narrowed_counted_and_paged(stored):
    embedded()
    found = page(stored.team, Filters(q="mesh", sort="relevance", chip=("v5e",), size=1))
    assert found.total == 2 and found.next is not None
    assert facet(found, "bottleneck") == {"memory": 1, "communication": 1}
    assert facet(found, "chip") == {"v5e": 2, "v5p": None, "h100": None}  # what they hold another search would tell
    second = page(stored.team, Filters.read(QueryDict(found.next.query())))
    assert {*keys(found), *keys(second)} == {"wide", "thin"} and second.first == 2 and second.next is None
    assert keys(page(stored.team, second.previous)) == keys(found)
    assert keys(page(stored.team, Filters(q="mesh", sort="effect", chip=("v5e",)))) == ["wide", "thin"]


def test_words_are_found_before_the_vectors_are_there(stored):
    assert "remat" in keys(page(stored.team, Filters(q="gemma", sort="relevance")))
    assert keys(page(stored.team, Filters(q="oom", sort="relevance"))) == ["oom"]


def test_an_empty_database_has_an_empty_page(people):
    found = page(people.team, Filters(q="anything", sort="relevance"))
    assert found.rows == () and found.facets == () and found.available == 0
    assert page(people.team, Filters()).rows == ()
