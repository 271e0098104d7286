"""An embedding whose vectors are kept on disk, so that a second training run costs seconds."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
from llama_index.core.base.embeddings.base import BaseEmbedding
from pydantic import PrivateAttr


class CachedEmbedding(BaseEmbedding):
    """Another embedding, whose vectors are kept in a folder under the hash of side and text."""

    _inner: BaseEmbedding = PrivateAttr()
    _folder: Path = PrivateAttr()

    def __init__(self, inner: BaseEmbedding, folder: Path) -> None:
        super().__init__(model_name=inner.model_name)
        folder.mkdir(parents=True, exist_ok=True)
        self._inner, self._folder = inner, folder

    def _cached(self, side: str, text: str) -> list[float]:
        key = hashlib.sha256(f"{self.model_name}\n{side}\n{text}".encode()).hexdigest()
        path = self._folder / f"{key}.npy"
        if not path.exists():
            embed = self._inner.get_query_embedding if side == "query" else self._inner.get_text_embedding
            np.save(path, np.asarray(embed(text), dtype=np.float32))
        vector: list[float] = np.load(path).tolist()
        return vector

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._cached("query", query)

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._cached("passage", text)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._cached("query", query)
