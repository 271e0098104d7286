"""Models behind an endpoint: /v1/embeddings and /rerank."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import httpx
import numpy as np
from pydantic import BaseModel, PrivateAttr, SecretStr, TypeAdapter, ValidationError

from core.errors import Cause, EmbeddingUnavailableError, ModelFailure
from services.adapters.http import cause_of, reason_of, retry_after_s
from services.models.embedding import BatchEmbedding
from services.retrieval.foreign_rerankers import PairReranker, RerankerUnavailableError, Scores, ScoreScale

DEFAULT_BASE_URL = "https://api.openai.com/v1"
BATCH = 64
TIMEOUT_S = 30.0
MAX_RETRIES = 2
RETRY_AFTER_S = 0.5
MAX_WAIT_S = 10.0


class _Vector(BaseModel):
    index: int
    embedding: list[float]


class _Vectors(BaseModel):
    data: list[_Vector]


class OpenAIEmbedding(BatchEmbedding):
    """`openai`: any /v1/embeddings endpoint (OpenAI, vLLM, Ollama, LM Studio, TEI, Xinference…).

    Unit vectors, in the order of the texts. Blocking: EmbeddingService runs it in its thread.

    429 and 5xx are retried at most twice; every other failure raises EmbeddingUnavailableError.
    `query_prefix` and `passage_prefix` are for models that need them. `wait` is the clock's sleep.
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
        timeout_s: float = TIMEOUT_S,
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
            base_url=address, headers=headers, timeout=timeout_s, follow_redirects=False
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
            batch = [text or " " for text in texts[start : start + BATCH]]  # servers refuse an empty input
            vectors.extend(_ordered(self._post(batch), len(batch)))
        return vectors

    def _post(self, texts: list[str]) -> httpx.Response:
        body = {"model": self.model_name, "input": texts, "encoding_format": "float"}
        for attempt in range(MAX_RETRIES + 1):
            try:
                reply = self._client.post("/embeddings", json=body)
            except httpx.HTTPError as error:
                raise _failed(type(error).__name__, _broken(error, self._client.base_url)) from error
            if reply.status_code == httpx.codes.OK:
                return reply
            if reply.status_code != httpx.codes.TOO_MANY_REQUESTS and reply.status_code < 500:
                break
            if attempt < MAX_RETRIES:
                self._wait(_pause_s(reply, attempt))
        raise _failed(f"status {reply.status_code}", _refused(reply, reply.content))


def _pause_s(reply: httpx.Response, attempt: int) -> float:
    """The pause the server asks for, else a doubling one with jitter; at most MAX_WAIT_S."""
    pause = retry_after_s(reply.headers.get("Retry-After"), datetime.now(UTC))
    if pause is None:
        pause = RETRY_AFTER_S * 2**attempt * random.uniform(0.8, 1.2)  # noqa: S311
    return min(pause, MAX_WAIT_S)


def _ordered(reply: httpx.Response, count: int) -> list[list[float]]:
    try:
        rows = {row.index: row.embedding for row in _Vectors.model_validate_json(reply.content).data}
    except ValidationError as error:
        raise _failed("a reply in an unknown format") from error
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


NOT_UNDERSTOOD = ModelFailure(Cause.NOT_AN_ANSWER)


def _failed(why: str, failure: ModelFailure = NOT_UNDERSTOOD) -> EmbeddingUnavailableError:
    """The message contains neither key nor text."""
    return EmbeddingUnavailableError(f"The embedding endpoint does not answer as expected: {why}.", failure)


def _broken(error: Exception, url: httpx.URL) -> ModelFailure:
    return ModelFailure(cause_of(error), _place(url))


def _refused(reply: httpx.Response, content: bytes) -> ModelFailure:
    _, reason = reason_of(content)
    reason = "" if reason.lstrip().startswith("<") else reason
    return ModelFailure(Cause.REFUSED, _place(reply.url), reply.status_code, reason)


def _place(url: httpx.URL) -> str:
    return f"{url.scheme}://{url.netloc.decode()}"


TEI_BATCH = 32  # texts TEI accepts per request unless its operator configures otherwise
MAX_REFUSAL_BYTES = 4_096
MAX_REPLY_BYTES = 4_000_000  # enough for 200 candidates with their texts sent back


class _TEIRow(BaseModel):
    index: int
    score: float


class _Row(BaseModel):
    index: int
    relevance_score: float


class _Results(BaseModel):
    results: list[_Row]


_REPLY: TypeAdapter[list[_TEIRow] | _Results] = TypeAdapter(list[_TEIRow] | _Results)


class HttpReranker(PairReranker):
    """`http`: the /rerank API of TEI, Jina, Cohere, Xinference and vLLM.

    `url` is the endpoint, or its base, to which `/rerank` is added.

    Without a model name the request is TEI's (`texts`), with one it is the others' (`documents`, `model`);
    either reply is understood. Nothing is retried: a turn has no time for it. Close it with `aclose`.
    """

    name = "http"

    def __init__(
        self, url: str, model_name: str = "", api_key: SecretStr | None = None, timeout_s: float = 5.0
    ) -> None:
        self.url = f"{url.rstrip('/').removesuffix('/rerank')}/rerank"
        self._model_name = model_name
        self._scale = ScoreScale()
        # uncompressed: the size of a decompressed reply would be known too late
        headers = {"Accept-Encoding": "identity"}
        if api_key:
            headers["Authorization"] = f"Bearer {api_key.get_secret_value()}"
        self._client = httpx.AsyncClient(timeout=timeout_s, headers=headers, follow_redirects=False)

    async def aclose(self) -> None:
        await self._client.aclose()

    async def judge_pairs(self, questions: Sequence[str], texts: Sequence[str]) -> Scores:
        """The API takes one question per request: all are sent at once. Raises RerankerUnavailableError."""
        size = len(texts) if self._model_name else TEI_BATCH
        batches = [texts[at : at + size] for at in range(0, len(texts), size)]
        asked = [self._ask(question, batch) for question in questions for batch in batches]
        replies = await asyncio.gather(*asked)
        scores = self._scale.chances([score for reply in replies for score in reply])
        return [list(scores[at : at + len(texts)]) for at in range(0, len(scores), len(texts))]

    async def _ask(self, question: str, texts: Sequence[str]) -> list[float | None]:
        """The raw scores, in the order of the texts."""
        body: dict[str, Any] = {"query": question}
        if self._model_name:
            body |= {"documents": list(texts), "model": self._model_name, "top_n": len(texts)}
        else:
            body |= {"texts": list(texts), "raw_scores": False, "truncate": True}
        try:
            async with self._client.stream("POST", self.url, json=body) as response:
                content = await _content(response)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise _unavailable(type(error).__name__, failure=_broken(error, httpx.URL(self.url))) from error
        return _scores(content, len(texts))


async def _content(response: httpx.Response) -> bytes:
    """The raw body. Retry-After is passed on, never waited for."""
    if response.status_code != httpx.codes.OK:
        pause = retry_after_s(response.headers.get("Retry-After"), datetime.now(UTC))
        refused = _refused(response, await _beginning(response))
        raise _unavailable(f"status {response.status_code}", pause, refused)
    content = bytearray()
    async for piece in response.aiter_raw():
        content += piece
        if len(content) > MAX_REPLY_BYTES:
            raise _unavailable(f"a reply of more than {MAX_REPLY_BYTES} bytes")
    return bytes(content)


async def _beginning(response: httpx.Response) -> bytes:
    async for piece in response.aiter_raw(MAX_REFUSAL_BYTES):
        return piece
    return b""


def _scores(content: bytes, size: int) -> list[float | None]:
    """A row with an invalid index is dropped, and of two rows for one text the first counts."""
    try:
        read = _REPLY.validate_json(content)
    except ValidationError as error:
        raise _unavailable("a reply in an unknown format") from error
    rows = (
        [(row.index, row.relevance_score) for row in read.results]
        if isinstance(read, _Results)
        else [(row.index, row.score) for row in read]
    )
    scores: list[float | None] = [None] * size
    for index, score in reversed(rows):
        if 0 <= index < size:
            scores[index] = score
    if all(score is None for score in scores):
        raise _unavailable("a reply without scores")
    return scores


def _unavailable(
    why: str, pause_s: float | None = None, failure: ModelFailure = NOT_UNDERSTOOD
) -> RerankerUnavailableError:
    message = f"The reranker does not answer as expected: {why}."
    return RerankerUnavailableError(message, failure, retry_after_s=pause_s)
