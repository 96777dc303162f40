"""The field's abbreviations find what the passages spell out."""

from __future__ import annotations

import pytest

from knowledge.services.search import search
from knowledge.services.shipped import load_shipped
from knowledge.synonyms import other_words, terms
from knowledge.text_search import parse


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("psum at the end of the step", "all-reduce"),
        ("TP8 slower than TP4", "tensor parallelism"),
        ("ep=64 on one rack", "expert parallelism"),
        ("zero-3 or replicated?", "fully sharded"),
        ("OOMs in the backward pass", "running out of memory"),
        ("NCCL kernels", "communication kernels"),
        ("async_tp", "collective matmul"),
    ],
)
def test_an_abbreviation_is_known_however_it_is_written(query: str, expected: str) -> None:
    assert expected in other_words(query)


@pytest.mark.parametrize(
    "query", ["the map is wrong", "http step", "sampled app", '"psum" exactly', "gather -nccl", ""]
)
def test_parts_of_words_quotes_and_exclusions_are_no_abbreviations(query: str) -> None:
    assert other_words(query) == ()


@pytest.mark.slow
def test_a_written_form_stands_once_in_the_table() -> None:
    assert len({term.pattern for term in terms()}) == len(terms())
    assert all(term.means for term in terms())


@pytest.mark.django_db
def test_synonyms_rank_and_are_not_required() -> None:
    load_shipped()
    words = parse("psum over the whole torus")
    assert "psum" in words.stems
    assert "reduc" in words.also
    assert not set(words.also) & set(words.stems)
    # Half of a phrase is no synonym: what holds "memory" alone is not about running out of it.
    assert ("memori",) not in parse("oom").synonyms

    def first(query: str) -> list[str]:
        return [found.passage.key for found in search(None, query, k=5, mode="text").found]

    assert "all-reduce-cost" in first("psum cost")
    assert "tp-inside-node" in first("tp 16 over two dgx nodes")
