"""Vectors that ship with the product are those that the embedder computes, of all shipped passages and questions."""

from __future__ import annotations

import numpy as np
import pytest

from evaluation.shipped_vectors import passages_and_questions, records
from knowledge.embedding.minilm import compute, embed
from knowledge.embedding.shipped import digest, shipped_vectors


def test_every_shipped_passage_and_question_has_one() -> None:
    without = [text for text in passages_and_questions() if digest(text) not in shipped_vectors()]
    assert not without, "run `make vectors`"


def test_they_are_what_the_embedder_computes() -> None:
    texts = sorted(text for text in (*passages_and_questions(), *records()) if digest(text) in shipped_vectors())[::100]
    computed = compute(texts)
    read = np.stack([shipped_vectors()[digest(text)] for text in texts])
    assert read == pytest.approx(computed, abs=1e-3)  # stored in half precision, as in the database
    assert embed(texts) == pytest.approx(read)


def test_a_text_that_does_not_ship_is_computed_beside_those_that_do() -> None:
    own = "Our cluster has two racks."
    shipped = next(passages_and_questions())
    both = embed([own, shipped])
    assert both == pytest.approx(compute([own, shipped]), abs=1e-3)
