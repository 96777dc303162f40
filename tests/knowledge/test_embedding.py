"""Text as vectors: properties that hold for any good embedding."""

from __future__ import annotations

import numpy as np
import pytest

from knowledge.embedding.minilm import embed

SHORT = "Which axis should carry the gradients?"
LONG = "The all-gather of the weights is hidden behind the matrix products of the layer before. " * 12


def test_vectors_have_unit_length_and_384_dimensions() -> None:
    vectors = embed([SHORT, LONG, "", "FSDP", "🙂 " * 400])
    assert vectors.shape == (5, 384) and vectors.dtype == np.float32
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-5)
    assert embed([]).shape == (0, 384)


def test_a_text_has_one_vector_whatever_stands_beside_it() -> None:
    """Neither the batch nor its padding may show: 11 texts of different lengths against each alone."""
    texts = [LONG[:n] for n in (3, 20, 60, 100, 200, 300, 500, 700, 900, 1000)] + [SHORT]
    together = embed(texts)
    alone = np.concatenate([embed([text]) for text in texts])
    assert np.abs(together - alone).max() < 1e-5


def test_meaning_counts_more_than_words() -> None:
    question, answer, other = embed(
        [
            "How can I use less memory when training?",
            "Recomputing activations during the backward pass lowers peak HBM usage.",
            "How can I use less butter when baking?",
        ]
    )
    same, said_otherwise, unrelated = embed(
        ["The step is communication-bound.", "Collectives dominate the step time.", "The cat sleeps on the sofa."]
    )
    assert same @ said_otherwise > same @ unrelated + 0.05
    assert question @ answer > answer @ other


def test_known_neighbours_of_the_published_model() -> None:
    """The example of the model's card: "This is an example sentence", "Each sentence is converted"."""
    first, second = embed(["This is an example sentence", "Each sentence is converted"])
    assert first[:3] == pytest.approx([0.0676, 0.0635, 0.0487], abs=2e-4)
    assert second[:3] == pytest.approx([0.0864, 0.1027, 0.0054], abs=2e-4)
