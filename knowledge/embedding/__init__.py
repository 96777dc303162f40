"""Text as vectors of unit length: the built-in all-MiniLM-L6-v2, or the model of an OpenAI-compatible endpoint."""

from knowledge.embedding.base import Embedder, EmbeddingError
from knowledge.embedding.choose import current_embedder

__all__ = ["Embedder", "EmbeddingError", "current_embedder"]
