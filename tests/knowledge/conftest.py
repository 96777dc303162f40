"""Passages of a small collection."""

from __future__ import annotations

import pytest

from knowledge.models import Document, Kind, Passage, stamped
from knowledge.services.embedding import embed_some
from tests.backend.conftest import data_folder, people

__all__ = ["data_folder", "passages", "people"]

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
    embed_some(Passage)
    return document
