"""Models of sentence-transformers: an embedding, and a cross-encoder as reranker. Imports torch, so it is
used only when the settings name it."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pydantic import PrivateAttr

from core.errors import StartRefusedError
from services.models.embedding import BatchEmbedding
from services.retrieval.foreign_rerankers import PairReranker, RerankerUnavailableError, Scores, probability

BATCH = 8
# The names of the two sides in models' own `prompts`.
QUERY_PROMPTS = ("query", "search_query", "retrieval.query")
PASSAGE_PROMPTS = ("passage", "document", "search_document", "retrieval.passage")


class SentenceTransformersEmbedding(BatchEmbedding):
    """`sentence-transformers:<hub id or folder>`: unit vectors, each side with the prompt that the model
    defines for it, if any.

    Raises StartRefusedError when the model is neither a folder nor in the local hub cache: nothing is
    downloaded, and no code shipped with a model is run.
    """

    dimension: int = 0
    _model: Any = PrivateAttr()
    _query_prompt: str = PrivateAttr()
    _passage_prompt: str = PrivateAttr()

    def __init__(self, model_name: str) -> None:
        super().__init__(model_name=model_name, embed_batch_size=BATCH)
        self._model = load_model("SentenceTransformer", "EMBEDDING", "sentence-transformers", model_name)
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


def load_model(kind: str, setting: str, prefix: str, name: str) -> Any:
    """Load a model with sentence-transformers' class `kind`, for a setting whose value is `prefix:name`."""
    try:
        import sentence_transformers
    except ImportError as error:
        raise StartRefusedError(
            f"{setting} = '{prefix}:{name}' needs the extra: "
            ".venv/bin/pip install -c requirements-dev.lock -e '.[sentence-transformers]'."
        ) from error
    try:
        return getattr(sentence_transformers, kind)(name, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        what = "folder" if Path(name).exists() else "model in the local hub cache"
        raise StartRefusedError(f"{setting} = '{prefix}:{name}' is not a usable {what}.") from error


MAX_PAIR_TOKENS = 512
MAX_SIDE_CHARS = 8 * MAX_PAIR_TOKENS  # more is not worth tokenizing: it would be truncated

Pair = tuple[str, str]


class CrossEncoderReranker(PairReranker):
    """`cross-encoder:<hub id or folder>`: judges on its own thread, in small batches, so that nothing else
    waits behind it.

    Raises StartRefusedError when the model is neither a folder nor in the local hub cache. Nothing is
    downloaded, and no code shipped with a model is run. Close it with `aclose`.
    """

    name = "cross-encoder"

    def __init__(self, model_name: str) -> None:
        self._model = load_model("CrossEncoder", "RERANKER", "cross-encoder", model_name)
        most = self._model.max_seq_length or MAX_PAIR_TOKENS
        self._model.max_seq_length = min(most, MAX_PAIR_TOKENS)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rerank", initializer=_bound_torch_threads)

    async def aclose(self) -> None:
        """Drop waiting work and wait for the running batch, off the event loop."""
        await asyncio.to_thread(self._thread.shutdown, wait=True, cancel_futures=True)

    async def judge_pairs(self, questions: Sequence[str], texts: Sequence[str]) -> Scores:
        """All questions in one go. A cancellation takes effect after the running batch.

        Raises RerankerUnavailableError.
        """
        pairs = [(question, text) for question in questions for text in texts]
        cancelled = threading.Event()
        try:
            loop = asyncio.get_running_loop()
            chances = await loop.run_in_executor(self._thread, self._chances, pairs, cancelled)
        except (RuntimeError, ValueError, TypeError, KeyError, IndexError, OSError) as error:  # torch's
            raise RerankerUnavailableError(f"The cross-encoder failed: {type(error).__name__}.") from error
        finally:
            cancelled.set()
        return [list(chances[at : at + len(texts)]) for at in range(0, len(pairs), len(texts))]

    def _chances(self, pairs: Sequence[Pair], cancelled: threading.Event) -> list[float | None]:
        """Probabilities in the order of the pairs; once `cancelled` is set, no further batch starts."""
        chances: list[float | None] = [None] * len(pairs)
        # batches of similar length, since a batch is padded to its longest text
        order = sorted(range(len(pairs)), key=lambda at: -len(pairs[at][0]) - len(pairs[at][1]))
        for start in range(0, len(order), BATCH):
            if cancelled.is_set():
                break
            batch = order[start : start + BATCH]
            for at, score in zip(batch, self._raw_scores([_cut(pairs[at]) for at in batch]), strict=True):
                chances[at] = probability(score)
        return chances

    def _raw_scores(self, pairs: list[Pair]) -> list[float]:
        """Relevance logits; with two labels (irrelevant, relevant), the difference of their logits."""
        import torch

        scores = self._model.predict(
            pairs, batch_size=BATCH, activation_fn=torch.nn.Identity(), show_progress_bar=False
        )
        if scores.ndim == 2:
            scores = scores[:, -1] - scores[:, 0] if scores.shape[1] > 1 else scores[:, 0]
        return [float(score) for score in scores]


def _cut(pair: Pair) -> Pair:
    question, text = pair
    return question[:MAX_SIDE_CHARS], text[:MAX_SIDE_CHARS]


def _bound_torch_threads() -> None:
    """Use at most half the cores: the event loop and the embedding run alongside."""
    import torch

    torch.set_num_threads(max(1, min(torch.get_num_threads(), (os.cpu_count() or 1) // 2)))
