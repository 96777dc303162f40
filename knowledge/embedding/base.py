"""What an embedder is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class EmbeddingError(Exception):
    """The embedder gave no vectors; one sentence that says which, and why."""


class Embedder(Protocol):
    """Texts to vectors.

    name: kept with every vector; vectors of different names are never compared.
    dimension: length of its vectors; may ask the endpoint, and raise EmbeddingError.
    """

    @property
    def name(self) -> str: ...

    @property
    def dimension(self) -> int: ...

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One row of unit length for each text, (texts, dimension).  Raises EmbeddingError."""
        ...
