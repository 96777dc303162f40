"""The embedding model of an OpenAI-compatible endpoint."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from agent.control import Cancel
from agent.provider.line import Line
from formatting import limit
from knowledge.embedding.base import EmbeddingError

#: Texts in one request; endpoints refuse many more.
BATCH = 64
#: Of a response: 64 vectors of 16,000 dimensions, written out.
LONGEST_BYTES = 32 * 1024 * 1024
#: In the background, and while somebody waits for the answer to a query.
TIMEOUT_S, QUERY_TIMEOUT_S = 30.0, 4.0
#: After a query that failed, the next ones do not try for so long.
PAUSE_S = 30.0


class Endpoint:
    """An embedder behind `POST {base_url}/embeddings`.

    dimensions: asked of models that can shorten their vectors, None for the model's own length.
    """

    def __init__(self, model: str, api_key: str, base_url: str | None, dimensions: int | None = None) -> None:
        self.model = model
        self.name = model if dimensions is None else f"{model}/{dimensions}"
        self._dimensions = dimensions
        self._api_key = api_key
        self._base_url = base_url
        self._failed: tuple[float, str] | None = None  # when, by the monotonic clock, and why

    @cached_property
    def dimension(self) -> int:
        """Known after the first answer; asks for one."""
        return int(self._ask(["dimension"], TIMEOUT_S).shape[1])

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Raises EmbeddingError.  A single text is a query: it waits for less, and not at all after a failure."""
        if len(texts) == 1:
            return self._query(texts)
        parts = [self._ask(texts[start : start + BATCH], TIMEOUT_S) for start in range(0, len(texts), BATCH)]
        if not parts:
            return np.empty((0, self.dimension), np.float32)
        vectors = np.concatenate(parts)
        self.dimension = int(vectors.shape[1])
        return vectors

    def _query(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if self._failed is not None and time.monotonic() - self._failed[0] < PAUSE_S:
            raise EmbeddingError(self._failed[1])
        try:
            vectors = self._ask(texts, QUERY_TIMEOUT_S)
        except EmbeddingError as error:
            self._failed = time.monotonic(), str(error)
            raise
        self._failed = None
        return vectors

    def _ask(self, texts: Sequence[str], timeout_s: float) -> NDArray[np.float32]:
        # Slow to import.
        import httpx2
        import openai

        from agent.provider.bounded_client import bounded_client

        line = Line()
        client = openai.OpenAI(
            api_key=self._api_key or "none",
            base_url=self._base_url,
            timeout=timeout_s,
            max_retries=0 if timeout_s == QUERY_TIMEOUT_S else 2,
            http_client=bounded_client(LONGEST_BYTES, lambda: line),
        )
        late = f"The embedding model {self.model} did not answer within {limit(timeout_s, 's')}."
        try:
            # The SDK's timeout is that of one read: a server that sends drop by drop is cut off, retries included.
            with line.guarded(timeout_s * (client.max_retries + 1), Cancel()), client:
                answer = client.embeddings.create(
                    model=self.model,
                    input=[text or " " for text in texts],
                    encoding_format="float",
                    dimensions=openai.omit if self._dimensions is None else self._dimensions,
                )
                rows = [item.embedding for item in sorted(answer.data, key=lambda item: item.index)]
        except openai.APITimeoutError:
            raise EmbeddingError(late) from None
        except openai.APIStatusError as error:
            moved = ", a redirect, which is not followed; set OPENAI_BASE_URL" if error.status_code < 400 else ""
            raise EmbeddingError(
                f"The embedding model {self.model} returned status {error.status_code}{moved}."
            ) from None
        except (openai.OpenAIError, httpx2.HTTPError) as error:
            raise EmbeddingError(late if line.cut_by else self._unreachable(error)) from None
        except (ValueError, TypeError, AttributeError, RecursionError):
            odd = f"The embedding model {self.model} did not return a list of vectors."
            raise EmbeddingError(late if line.cut_by else odd) from None
        return self._checked(rows, len(texts))

    def _unreachable(self, error: BaseException | None) -> str:
        from agent.provider.bounded_client import ResponseTooLong

        while error is not None:
            if isinstance(error, ResponseTooLong):
                return f"The embedding model {self.model} returned an oversized or compressed response."
            error = error.__cause__ or error.__context__
        return f"The endpoint of the embedding model {self.model} cannot be reached."

    def _checked(self, rows: list[list[float]], wanted: int) -> NDArray[np.float32]:
        try:
            vectors = np.asarray(rows, np.float32)
        except (ValueError, TypeError):
            vectors = np.empty((0, 0), np.float32)
        if vectors.ndim != 2 or len(vectors) != wanted or not np.isfinite(vectors).all():
            raise EmbeddingError(f"The embedding model {self.model} did not return one vector per text.")
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not (norms > 0).all():
            raise EmbeddingError(f"The embedding model {self.model} returned a vector of zeros.")
        if self._dimensions is not None and vectors.shape[1] != self._dimensions:
            raise EmbeddingError(
                f"The embedding model {self.model} returned {vectors.shape[1]} dimensions instead of "
                f"{self._dimensions}: correct or remove ASAP_EMBEDDING_DIMENSIONS."
            )
        return np.asarray(vectors / norms, np.float32)
