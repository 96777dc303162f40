"""Which embedder this installation uses."""

from __future__ import annotations

from functools import lru_cache

from django.conf import settings

from knowledge.embedding.base import Embedder
from knowledge.embedding.endpoint import Endpoint
from knowledge.embedding.minilm import MiniLM


def current_embedder() -> Embedder:
    """The endpoint's where one is configured and a model named (settings.EMBEDDING), else the built-in one."""
    given = settings.EMBEDDING
    if given["model"] and (given["api_key"] or given["base_url"]):
        return _endpoint(given["model"], given["api_key"], given["base_url"] or None, given["dimensions"])
    return _built_in()


@lru_cache(maxsize=1)
def _built_in() -> MiniLM:
    return MiniLM()


@lru_cache(maxsize=4)
def _endpoint(model: str, api_key: str, base_url: str | None, dimensions: int | None) -> Endpoint:
    return Endpoint(model, api_key, base_url, dimensions)
