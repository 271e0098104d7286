"""`http`: the /rerank API of TEI, Jina, Cohere, Xinference and vLLM."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import httpx
from pydantic import BaseModel, PrivateAttr, SecretStr, TypeAdapter, ValidationError

from services.adapters.http.transport import retry_after_s
from services.retrieval.foreign import PairReranker, RerankerUnavailableError, Scores, ScoreScale

TEI_BATCH = 32  # texts it takes in a request unless its operator says otherwise
MAX_REPLY_BYTES = 4_000_000  # of 200 candidates, with their texts sent back


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
    """`url` is the endpoint, or its base, to which `/rerank` is added.

    Without a model name the request is TEI's (`texts`), with one it is the others' (`documents`, `model`);
    either reply is understood. Nothing is tried twice: a turn has no time for it. Close it with `aclose`.
    """

    url: str
    model_name: str = ""
    _client: httpx.AsyncClient = PrivateAttr()
    _scale: ScoreScale = PrivateAttr(default_factory=ScoreScale)

    def __init__(
        self, url: str, model_name: str = "", api_key: SecretStr | None = None, timeout_s: float = 5.0
    ) -> None:
        address = url.rstrip("/")
        super().__init__(
            url=address if address.endswith("/rerank") else f"{address}/rerank", model_name=model_name
        )
        # not compressed: what a reply grows to would be known too late
        headers = {"Accept-Encoding": "identity"}
        if api_key:
            headers["Authorization"] = f"Bearer {api_key.get_secret_value()}"
        self._client = httpx.AsyncClient(timeout=timeout_s, headers=headers, follow_redirects=False)

    @classmethod
    def class_name(cls) -> str:
        return "http"

    async def aclose(self) -> None:
        await self._client.aclose()

    async def judge_pairs(self, questions: Sequence[str], texts: Sequence[str]) -> Scores:
        """The API takes one question a request: all are sent at once. Raises RerankerUnavailableError."""
        size = len(texts) if self.model_name else TEI_BATCH
        batches = [texts[at : at + size] for at in range(0, len(texts), size)]
        asked = [self._ask(question, batch) for question in questions for batch in batches]
        replies = await asyncio.gather(*asked)
        scores = self._scale.chances([score for reply in replies for score in reply])
        return [list(scores[at : at + len(texts)]) for at in range(0, len(scores), len(texts))]

    async def _ask(self, question: str, texts: Sequence[str]) -> list[float | None]:
        """Scores as they came, in the order of the texts."""
        body: dict[str, Any] = {"query": question}
        if self.model_name:
            body |= {"documents": list(texts), "model": self.model_name, "top_n": len(texts)}
        else:
            body |= {"texts": list(texts), "raw_scores": False, "truncate": True}
        try:
            async with self._client.stream("POST", self.url, json=body) as response:
                content = await _content(response)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise _unavailable(type(error).__name__) from error
        return _scores(content, len(texts))


async def _content(response: httpx.Response) -> bytes:
    """The body as it was sent. Retry-After is handed on, never waited for."""
    if response.status_code != httpx.codes.OK:
        pause = retry_after_s(response.headers.get("Retry-After"), datetime.now(UTC))
        raise _unavailable(f"status {response.status_code}", pause)
    content = bytearray()
    async for piece in response.aiter_raw():
        content += piece
        if len(content) > MAX_REPLY_BYTES:
            raise _unavailable(f"a reply of more than {MAX_REPLY_BYTES} bytes")
    return bytes(content)


def _scores(content: bytes, size: int) -> list[float | None]:
    """A row that points nowhere is dropped, and of two that point to one text the first counts."""
    try:
        read = _REPLY.validate_json(content)
    except ValidationError as error:
        raise _unavailable("a reply of unknown form") from error
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
        raise _unavailable("a reply that scores nothing")
    return scores


def _unavailable(why: str, pause_s: float | None = None) -> RerankerUnavailableError:
    return RerankerUnavailableError(
        f"The reranker does not answer as expected: {why}.", retry_after_s=pause_s
    )
