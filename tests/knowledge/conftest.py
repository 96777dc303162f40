"""Passages of a small collection, and an embedding endpoint that answers as the test says."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from knowledge.embedding.choose import _endpoint
from knowledge.models import Document, Kind, Passage, stamped
from knowledge.retrieval import _vector_of
from knowledge.services.embedding import embed_some
from tests.backend.conftest import data_folder, people

__all__ = ["data_folder", "passages", "people", "use_endpoint"]

TEXTS = {
    "data": ("Data parallelism", "All weights on each chip; gradients are all-reduced over the data axis once a step."),
    "tensor": ("Tensor parallelism", "Matrices are split over the model axis; activations are gathered per layer."),
    "remat": ("Rematerialization", "Activations are computed again in the backward pass: saves memory, costs FLOPs."),
    "nvlink": ("NVLink domains", "Inside a node a switch gives every GPU its full bandwidth to any other."),
    "torus": ("The TPU torus", "Chips are joined to their neighbours, and a ring closes only on a full axis."),
    "input": ("Input pipelines", "A step that waits for its batch is cured by prefetching on the host."),
}  # fmt: skip
HARDWARE = {"nvlink": ["gpu"], "torus": ["tpu"]}
BOTTLENECKS = {
    "data": ["communication"],
    "tensor": ["communication"],
    "remat": ["capacity", "memory"],
    "input": ["input"],
}


def add_passages(document: Document, texts: dict[str, tuple[str, str]]) -> None:
    Passage.objects.bulk_create(
        stamped(
            Passage(
                document=document, team=document.team, key=key, title=title, text=text, position=n,
                hardware=HARDWARE.get(key, ["any"]), bottlenecks=BOTTLENECKS.get(key, []),
            )
            for n, (key, (title, text)) in enumerate(texts.items())
        )
    )  # fmt: skip


@pytest.fixture
def passages(db: None) -> Document:
    """Six shipped passages, with their vectors."""
    document = Document.objects.create(kind=Kind.SHIPPED, title="Sharding", name="sharding.md", sha256="1")
    add_passages(document, TEXTS)
    while embed_some(Passage) != "none":
        pass
    return document


class Endpoint(ThreadingHTTPServer):
    """An OpenAI-compatible `/embeddings` on the loopback interface.

    answer: (texts, requested dimensions or None) to vectors, or to (status, body).
    """

    def __init__(self, answer: Callable[[list[str], int | None], Any]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer = answer
        self.requests: list[list[str]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class _Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append(asked["input"])
        answer = self.server.answer(asked["input"], asked.get("dimensions"))
        status, body = answer if isinstance(answer, tuple) else (200, json.dumps(listed(answer)))
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        with suppress(BrokenPipeError):  # nobody waits for it any more
            self.wfile.write(body.encode())

    def log_message(self, *args: Any) -> None:
        pass


def listed(vectors: Any) -> dict[str, Any]:
    data = [{"object": "embedding", "index": n, "embedding": list(map(float, v))} for n, v in enumerate(vectors)]
    return {"object": "list", "data": data, "model": "m", "usage": {"prompt_tokens": 1, "total_tokens": 1}}


def counted(texts: list[str], dimensions: int | None = None) -> list[list[float]]:
    """Vectors that a person can check: how often each letter is in the text."""
    return [
        [0.01 + text.lower().count(letter) for letter in "abcdefghijklmnopqrstuvwxyz"[: dimensions or 26]]
        for text in texts
    ]


@contextmanager
def serving(answer: Callable[[list[str], int | None], Any]) -> Iterator[Endpoint]:
    server = Endpoint(answer)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def use_endpoint(settings: Any) -> Iterator[Callable[..., None]]:
    """Configure the installation as the environment variables of docs/operation.md would."""

    def configure(url: str, model: str = "letters", dimensions: int | None = None) -> None:
        settings.EMBEDDING = {"model": model, "api_key": "key", "base_url": url, "dimensions": dimensions}

    _vector_of.cache_clear()  # of the same words, asked of an endpoint of the same name by another test
    yield configure
    _endpoint.cache_clear()
