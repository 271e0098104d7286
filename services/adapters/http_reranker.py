"""`http`: the /rerank API of TEI, Jina, Cohere, Xinference and vLLM."""

from __future__ import annotations

from typing import Any

import httpx
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle
from pydantic import BaseModel, PrivateAttr, SecretStr, TypeAdapter, ValidationError

from core.errors import UnavailableError
from services.reranking import probability

TIMEOUT_S = 20.0


class RerankerUnavailableError(UnavailableError):
    code = "reranker_unavailable"


class _TEIRow(BaseModel):
    index: int
    score: float


class _Row(BaseModel):
    index: int
    relevance_score: float


class _Results(BaseModel):
    results: list[_Row]


_REPLY: TypeAdapter[list[_TEIRow] | _Results] = TypeAdapter(list[_TEIRow] | _Results)


class HttpReranker(BaseNodePostprocessor):
    """`url` is the endpoint, or its base, to which `/rerank` is added.

    Without a model name the request is TEI's (`texts`), with one it is the others' (`documents`, `model`);
    either reply is understood. Raises RerankerUnavailableError. Close it with `aclose`.
    """

    url: str
    model_name: str = ""
    _client: httpx.AsyncClient = PrivateAttr()

    def __init__(self, url: str, model_name: str = "", api_key: SecretStr | None = None) -> None:
        address = url.rstrip("/")
        super().__init__(
            url=address if address.endswith("/rerank") else f"{address}/rerank", model_name=model_name
        )
        headers = {"Authorization": f"Bearer {api_key.get_secret_value()}"} if api_key else {}
        self._client = httpx.AsyncClient(timeout=TIMEOUT_S, headers=headers, follow_redirects=False)

    async def aclose(self) -> None:
        await self._client.aclose()

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        """LlamaIndex's blocking side; the server itself uses only the other."""
        raise NotImplementedError("HttpReranker is asynchronous: use apostprocess_nodes.")

    async def _apostprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        if query_bundle is None or not nodes:
            return nodes
        try:
            reply = await self._client.post(self.url, json=self._request(nodes, query_bundle))
        except httpx.HTTPError as error:
            raise _unavailable(type(error).__name__) from error
        return _ranked(nodes, reply)

    def _request(self, nodes: list[NodeWithScore], bundle: QueryBundle) -> dict[str, Any]:
        texts = [node.node.get_content(metadata_mode=MetadataMode.NONE) for node in nodes]
        body: dict[str, Any] = {"query": bundle.query_str, "texts": texts, "truncate": True}
        if self.model_name:
            body = {
                "query": bundle.query_str,
                "documents": texts,
                "model": self.model_name,
                "top_n": len(texts),
            }
        return body


def _ranked(nodes: list[NodeWithScore], reply: httpx.Response) -> list[NodeWithScore]:
    """Nodes by score, best first; scores outside 0…1 are raw, and a row that points nowhere is dropped."""
    if reply.status_code != httpx.codes.OK:
        raise _unavailable(f"status {reply.status_code}")
    try:
        read = _REPLY.validate_json(reply.content)
    except ValidationError as error:
        raise _unavailable("a reply of unknown form") from error
    rows = (
        [(row.index, row.relevance_score) for row in read.results]
        if isinstance(read, _Results)
        else [(row.index, row.score) for row in read]
    )
    raw = any(not 0.0 <= score <= 1.0 for _, score in rows)
    found = {index: probability(score) if raw else score for index, score in rows if 0 <= index < len(nodes)}
    ranked = [NodeWithScore(node=nodes[index].node, score=score) for index, score in found.items()]
    return sorted(ranked, key=lambda node: -(node.score or 0.0))


def _unavailable(why: str) -> RerankerUnavailableError:
    return RerankerUnavailableError(f"The reranker does not answer as expected: {why}.")
