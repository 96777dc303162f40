"""Text as vectors: properties that hold for any good embedding, and what an endpoint may do wrong."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

from knowledge.embedding import EmbeddingError, current_embedder
from knowledge.embedding import endpoint as endpoints
from knowledge.embedding.endpoint import Endpoint
from knowledge.embedding.minilm import MiniLM
from tests.knowledge.conftest import counted, serving

EMBEDDER = MiniLM()
SHORT = "Which axis should carry the gradients?"
LONG = "The all-gather of the weights is hidden behind the matrix products of the layer before. " * 12


def test_vectors_have_unit_length_and_384_dimensions() -> None:
    vectors = EMBEDDER.embed([SHORT, LONG, "", "FSDP", "🙂 " * 400])
    assert vectors.shape == (5, 384) and vectors.dtype == np.float32
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-5)
    assert EMBEDDER.embed([]).shape == (0, 384)


def test_a_text_has_one_vector_whatever_stands_beside_it() -> None:
    """Neither the batch nor its padding may show: 11 texts of different lengths against each alone."""
    texts = [LONG[:n] for n in (3, 20, 60, 100, 200, 300, 500, 700, 900, 1000)] + [SHORT]
    together = EMBEDDER.embed(texts)
    alone = np.concatenate([EMBEDDER.embed([text]) for text in texts])
    assert np.abs(together - alone).max() < 1e-5


def test_meaning_counts_more_than_words() -> None:
    question, answer, other = EMBEDDER.embed(
        [
            "How can I use less memory when training?",
            "Recomputing activations during the backward pass lowers peak HBM usage.",
            "How can I use less butter when baking?",
        ]
    )
    same, said_otherwise, unrelated = EMBEDDER.embed(
        ["The step is communication-bound.", "Collectives dominate the step time.", "The cat sleeps on the sofa."]
    )
    assert same @ said_otherwise > same @ unrelated + 0.05
    assert question @ answer > answer @ other


def test_known_neighbours_of_the_published_model() -> None:
    """The example of the model's card: "This is an example sentence", "Each sentence is converted"."""
    first, second = EMBEDDER.embed(["This is an example sentence", "Each sentence is converted"])
    assert first[:3] == pytest.approx([0.0676, 0.0635, 0.0487], abs=2e-4)
    assert second[:3] == pytest.approx([0.0864, 0.1027, 0.0054], abs=2e-4)


def test_the_built_in_model_is_used_unless_an_endpoint_and_its_model_are_named(settings) -> None:
    nothing = {"model": "", "api_key": "", "base_url": "", "dimensions": None}
    settings.EMBEDDING = nothing
    assert current_embedder().name == "all-MiniLM-L6-v2"
    settings.EMBEDDING = {**nothing, "api_key": "key"}  # for the agents only
    assert current_embedder().name == "all-MiniLM-L6-v2"
    settings.EMBEDDING = {**nothing, "api_key": "key", "model": "text-embedding-3-small"}
    assert current_embedder().name == "text-embedding-3-small"
    settings.EMBEDDING = {**nothing, "base_url": "http://localhost:1/v1", "model": "m", "dimensions": 256}
    assert current_embedder().name == "m/256"


def test_an_endpoint_gives_vectors_of_unit_length_in_order() -> None:
    with serving(counted) as server:
        embedder = Endpoint("letters", "key", server.url)
        texts = [f"text {'a' * n}" for n in range(100)]
        vectors = embedder.embed(texts)
        assert embedder.dimension == 26
        assert vectors.shape == (100, 26)
        assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-5)
        assert np.all(np.diff(vectors[:, 0]) > 0)  # more and more of them is the letter a
        assert [len(request) for request in server.requests] == [64, 36]
        assert Endpoint("letters", "key", server.url, 5).embed(["a"]).shape == (1, 5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ((401, "{}"), "returned status 401"),
        ((500, "oops"), "returned status 500"),
        ((200, "<html>"), "did not return a list of vectors"),
        ((200, '{"data": [{"index": 0, "embedding": [1, 2]}]}'), "one vector per text"),
        ([[0.0, 0.0], [1.0, 0.0]], "zeros"),
        ([[1.0, 2.0], [1.0, float("nan")]], "one vector per text"),
    ],
)
def test_what_an_endpoint_answers_wrongly_is_said_in_one_sentence(answer, sentence) -> None:
    with serving(lambda texts, dimensions: answer) as server, pytest.raises(EmbeddingError) as raised:
        Endpoint("letters", "secret", server.url).embed(["one", "two"])
    assert sentence in str(raised.value)
    assert "letters" in str(raised.value) and "secret" not in str(raised.value)
    assert str(raised.value).endswith(".") and "\n" not in str(raised.value)


@pytest.mark.slow
def test_a_query_waits_for_a_silent_endpoint_once_only(monkeypatch) -> None:
    monkeypatch.setattr(endpoints, "QUERY_TIMEOUT_S", 1.0)
    with serving(lambda texts, dimensions: time.sleep(4) or counted(texts)) as server:
        embedder = Endpoint("letters", "key", server.url)
        with pytest.raises(EmbeddingError, match="did not answer"):
            embedder.embed(["query"])
        with pytest.raises(EmbeddingError, match="did not answer"):
            embedder.embed(["another query"])
        assert server.requests == [["query"]]
        monkeypatch.setattr(endpoints, "PAUSE_S", 0.0)
        with pytest.raises(EmbeddingError, match="did not answer"):
            embedder.embed(["a later query"])
        assert server.requests == [["query"], ["a later query"]]


class _Odd(BaseHTTPRequestHandler):
    """An endpoint that redirects, sends without end, or drop by drop."""

    way = ""
    asked: list[str] = []

    def do_POST(self) -> None:
        self.asked.append(self.path)
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.way == "redirect":
            self.send_response(307)
            self.send_header("Location", "/elsewhere")
            self.end_headers()
            return
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        if self.way == "packed":
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        with suppress(OSError):
            for _ in range(100 if self.way == "drops" else 2_000):
                self.wfile.write(b" " if self.way == "drops" else b" " * 65536)
                self.wfile.flush()
                time.sleep(0.1 if self.way == "drops" else 0.0)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "sentence"),
    [
        ("redirect", "returned status 307, a redirect, which is not followed"),
        ("endless", "oversized or compressed response"),
        ("packed", "compressed"),
        ("drops", "did not answer within"),
    ],
)
def test_an_endpoint_is_given_neither_our_time_nor_our_memory_nor_another_address(way, sentence, monkeypatch) -> None:
    monkeypatch.setattr(endpoints, "QUERY_TIMEOUT_S", 2.0)
    handler = type("Odd", (_Odd,), {"way": way, "asked": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    began = time.monotonic()
    try:
        with pytest.raises(EmbeddingError, match=sentence):
            Endpoint("letters", "key", f"http://127.0.0.1:{server.server_address[1]}/v1").embed(["query"])
    finally:
        server.shutdown()
        server.server_close()
    assert time.monotonic() - began < 8
    assert handler.asked == ["/v1/embeddings"]


def test_an_endpoint_that_is_not_there() -> None:
    with pytest.raises(EmbeddingError, match="cannot be reached"):
        Endpoint("letters", "key", "http://127.0.0.1:9/v1").embed(["query"])
