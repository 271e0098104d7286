"""`openai`: any /v1/embeddings endpoint (OpenAI, vLLM, Ollama, LM Studio, TEI, Xinference…)."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

import httpx
import numpy as np
from pydantic import BaseModel, PrivateAttr, SecretStr, ValidationError

from core.errors import EmbeddingUnavailableError
from services.models.embedding import BatchEmbedding

DEFAULT_BASE_URL = "https://api.openai.com/v1"
BATCH = 64
TIMEOUT_S = 30.0
MAX_RETRIES = 2
RETRY_AFTER_S = 0.5
LONGEST_WAIT_S = 10.0


class _Row(BaseModel):
    index: int
    embedding: list[float]


class _Reply(BaseModel):
    data: list[_Row]


class OpenAIEmbeddingError(EmbeddingUnavailableError, RuntimeError):
    """The endpoint does not answer as expected; the message holds no key and no text."""


class OpenAIEmbedding(BatchEmbedding):
    """Unit vectors, in the order of the texts. Blocking: EmbeddingService runs it in its thread.

    429 and 5xx are tried again, at most twice; whatever else fails raises EmbeddingUnavailableError.
    `query_prefix` and `passage_prefix` are for models that want them. `wait` is the clock's sleep.
    """

    query_prefix: str = ""
    passage_prefix: str = ""
    _client: httpx.Client = PrivateAttr()
    _wait: Callable[[float], None] = PrivateAttr()

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: SecretStr | None = None,
        query_prefix: str = "",
        passage_prefix: str = "",
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(
            model_name=model_name,
            embed_batch_size=BATCH,
            query_prefix=query_prefix,
            passage_prefix=passage_prefix,
        )
        headers = {"Authorization": f"Bearer {api_key.get_secret_value()}"} if api_key else {}
        address = (base_url or DEFAULT_BASE_URL).rstrip("/")
        self._client = httpx.Client(
            base_url=address, headers=headers, timeout=TIMEOUT_S, follow_redirects=False
        )
        self._wait = wait

    def close(self) -> None:
        self._client.close()

    def get_query_embeddings(self, queries: Sequence[str]) -> list[list[float]]:
        return self._embed([self.query_prefix + query for query in queries])

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return self._embed([self.passage_prefix + text for text in texts])

    def _embed(self, texts: list[str]) -> list[list[float]]:
        vectors: list[list[float]] = []
        for start in range(0, len(texts), BATCH):
            batch = [text or " " for text in texts[start : start + BATCH]]  # an empty input is refused
            vectors.extend(_ordered(self._post(batch), len(batch)))
        return vectors

    def _post(self, texts: list[str]) -> httpx.Response:
        body = {"model": self.model_name, "input": texts, "encoding_format": "float"}
        for attempt in range(MAX_RETRIES + 1):
            try:
                reply = self._client.post("/embeddings", json=body)
            except httpx.HTTPError as error:
                raise _failed(type(error).__name__) from error
            if reply.status_code == httpx.codes.OK:
                return reply
            if reply.status_code != httpx.codes.TOO_MANY_REQUESTS and reply.status_code < 500:
                break
            if attempt < MAX_RETRIES:
                self._wait(_pause_s(reply, attempt))
        raise _failed(f"status {reply.status_code}")


def _pause_s(reply: httpx.Response, attempt: int) -> float:
    """What the server asks for in seconds, else a doubling pause with some jitter; never long."""
    asked = reply.headers.get("Retry-After", "")
    pause = float(asked) if asked.isdecimal() else RETRY_AFTER_S * 2**attempt * random.uniform(0.8, 1.2)  # noqa: S311
    return min(pause, LONGEST_WAIT_S)


def _ordered(reply: httpx.Response, count: int) -> list[list[float]]:
    try:
        rows = {row.index: row.embedding for row in _Reply.model_validate_json(reply.content).data}
    except ValidationError as error:
        raise _failed("a reply of unknown form") from error
    if sorted(rows) != list(range(count)):
        raise _failed(f"{len(rows)} vectors for {count} texts")
    if len({len(vector) for vector in rows.values()}) != 1:
        raise _failed("vectors of different lengths")
    matrix = np.asarray([rows[index] for index in range(count)], dtype=np.float64)
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    if not np.isfinite(lengths).all() or not lengths.all():
        raise _failed("a vector without direction")
    unit: list[list[float]] = (matrix / lengths).tolist()
    return unit


def _failed(why: str) -> OpenAIEmbeddingError:
    return OpenAIEmbeddingError(f"The embedding endpoint does not answer as expected: {why}.")
