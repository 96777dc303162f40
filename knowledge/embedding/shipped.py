"""MiniLM's vectors of texts that ship with the product: a first start reads them, and computes none.

`make vectors` writes the file; a text that is not in it, such as one that changed since, is computed as any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

FILE = Path(__file__).with_name("shipped.npz")


@cache
def shipped_vectors() -> Mapping[bytes, NDArray[np.float16]]:
    """Unit vectors (384,) by the SHA-256 of their text, in the precision in which the database keeps vectors."""
    with np.load(FILE) as data:
        return dict(zip(map(bytes, data["sha256"]), data["vectors"], strict=True))


def digest(text: str) -> bytes:
    """What the vector of a text is found by."""
    return sha256(text.encode()).digest()


def write(texts: Sequence[str], vectors: NDArray[np.float32], file: Path = FILE) -> None:
    """vectors: one row per text.  Ordered by digest, so that the same texts give the same file."""
    rows = {digest(text): vector for text, vector in zip(texts, vectors.astype(np.float16), strict=True)}
    keys = sorted(rows)
    hashes = np.frombuffer(b"".join(keys), np.uint8).reshape(len(keys), -1)
    np.savez_compressed(file, sha256=hashes, vectors=np.stack([rows[key] for key in keys]))
