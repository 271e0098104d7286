"""An embedding whose vectors are kept on disk, so that a second run over the same texts costs seconds."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from llama_index.core.base.embeddings.base import BaseEmbedding
from numpy.typing import NDArray
from pydantic import PrivateAttr

from services.models.embedding import BatchEmbedding

Vectors = list[list[float]]


class CachedEmbedding(BatchEmbedding):
    """Another embedding, whose vectors are kept in a folder under the hash of name, side and text.

    `name` separates one model's vectors from another's; by default the model's own. What several texts lack
    is embedded in one call where the model can do that. `query_s` is the time questions took so far.
    """

    _inner: BaseEmbedding = PrivateAttr()
    _folder: Path = PrivateAttr()
    _query_s: float = PrivateAttr(default=0.0)

    def __init__(self, inner: BaseEmbedding, folder: Path, name: str = "") -> None:
        super().__init__(model_name=name or inner.model_name)
        folder.mkdir(parents=True, exist_ok=True)
        self._inner, self._folder = inner, folder

    @property
    def inner(self) -> BaseEmbedding:
        return self._inner

    @property
    def query_s(self) -> float:
        return self._query_s

    def get_query_embeddings(self, queries: Sequence[str]) -> Vectors:
        started = time.perf_counter()
        vectors = self._cached("query", queries, self._embed_queries)
        self._query_s += time.perf_counter() - started
        return vectors

    def _get_text_embeddings(self, texts: list[str]) -> Vectors:
        return self._cached("passage", texts, self._inner.get_text_embedding_batch)

    def _embed_queries(self, texts: list[str]) -> Vectors:
        together: Callable[[list[str]], Vectors] | None = getattr(self._inner, "get_query_embeddings", None)
        return together(texts) if together else [self._inner.get_query_embedding(text) for text in texts]

    def _cached(
        self, side: str, texts: Sequence[str], embed: Callable[[list[str]], Vectors]
    ) -> list[list[float]]:
        paths = {text: self._path(side, text) for text in texts}
        vectors = {text: _read(path) for text, path in paths.items()}
        missing = [text for text, vector in vectors.items() if vector is None]
        for text, vector in zip(missing, embed(missing) if missing else (), strict=True):
            vectors[text] = np.asarray(vector, dtype=np.float32)
            _write(paths[text], vectors[text])
        return [np.asarray(vectors[text]).tolist() for text in texts]

    def _path(self, side: str, text: str) -> Path:
        key = hashlib.sha256(f"{self.model_name}\n{side}\n{text}".encode("utf-8", "replace")).hexdigest()
        return self._folder / f"{key}.npy"


def _read(path: Path) -> NDArray[np.float32] | None:
    """None when there is none, or when it was cut off while it was written."""
    try:
        vector: NDArray[np.float32] = np.load(path)
    except (OSError, ValueError, EOFError):
        return None
    return vector


def _write(path: Path, vector: NDArray[np.float32] | None) -> None:
    """All or nothing: another run may be reading."""
    half = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
    with half.open("wb") as file:
        np.save(file, np.asarray(vector))
    half.replace(path)
