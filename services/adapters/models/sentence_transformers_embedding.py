"""`sentence-transformers:<hub id or folder>` as a LlamaIndex embedding. Loads torch, so only when named."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import PrivateAttr

from core.errors import StartRefusedError
from services.models.embedding import BatchEmbedding

BATCH = 8
# What models call the two sides in their own `prompts`.
QUERY_PROMPTS = ("query", "search_query", "retrieval.query")
PASSAGE_PROMPTS = ("passage", "document", "search_document", "retrieval.passage")


class SentenceTransformersEmbedding(BatchEmbedding):
    """Unit vectors; each side with the prompt that the model defines for it, if it does.

    Raises StartRefusedError when the model is neither a folder nor in the local hub cache: nothing is
    downloaded, and no code that a model brings along is run.
    """

    dimension: int = 0
    _model: Any = PrivateAttr()
    _query_prompt: str = PrivateAttr()
    _passage_prompt: str = PrivateAttr()

    def __init__(self, model_name: str) -> None:
        super().__init__(model_name=model_name, embed_batch_size=BATCH)
        self._model = _load(model_name)
        self.dimension = int(self._model.get_embedding_dimension())
        self._query_prompt = self._prompt(QUERY_PROMPTS)
        self._passage_prompt = self._prompt(PASSAGE_PROMPTS)

    def get_query_embeddings(self, queries: Sequence[str]) -> list[list[float]]:
        return self._encode(queries, self._query_prompt)

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return self._encode(texts, self._passage_prompt)

    def _encode(self, texts: Sequence[str], prompt: str) -> list[list[float]]:
        rows: list[list[float]] = self._model.encode(
            list(texts),
            batch_size=BATCH,
            prompt=prompt or None,
            normalize_embeddings=True,
            convert_to_numpy=True,
            show_progress_bar=False,
        ).tolist()
        return rows

    def _prompt(self, names: Sequence[str]) -> str:
        prompts = self._model.prompts or {}
        return next((str(prompts[name]) for name in names if prompts.get(name)), "")


def _load(model_name: str) -> Any:
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise StartRefusedError(
            f"EMBEDDING = 'sentence-transformers:{model_name}' needs the extra: "
            ".venv/bin/pip install -c requirements.lock -e '.[sentence-transformers]'."
        ) from error
    try:
        return SentenceTransformer(model_name, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        what = "folder" if Path(model_name).exists() else "model in the local hub cache"
        message = f"EMBEDDING = 'sentence-transformers:{model_name}' is no usable {what}."
        raise StartRefusedError(message) from error
