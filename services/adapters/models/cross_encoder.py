"""`cross-encoder:<hub id or folder>`: a sentence-transformers CrossEncoder as reranker."""

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
from services.retrieval.foreign import PairReranker, RerankerUnavailableError, Scores, probability

BATCH = 8
MAX_PAIR_TOKENS = 512
MAX_SIDE_CHARS = 8 * MAX_PAIR_TOKENS  # more is not worth cutting into tokens: it would be cut off

Pair = tuple[str, str]


class CrossEncoderReranker(PairReranker):
    """Judges on one thread of its own, in small batches, so that nobody else waits behind it.

    Raises StartRefusedError when the model is neither a folder nor in the local hub cache. Nothing is
    downloaded, and no code that a model brings along is run. Close it with `aclose`.
    """

    model_name: str
    _model: Any = PrivateAttr()
    _thread: ThreadPoolExecutor = PrivateAttr()

    def __init__(self, model_name: str) -> None:
        super().__init__(model_name=model_name)
        self._model = _load(model_name)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rerank", initializer=_bound_torch_threads)

    @classmethod
    def class_name(cls) -> str:
        return "cross-encoder"

    async def aclose(self) -> None:
        """What waits is dropped; the batch that runs is waited for, off the event loop."""
        await asyncio.to_thread(self._thread.shutdown, wait=True, cancel_futures=True)

    async def judge_pairs(self, questions: Sequence[str], texts: Sequence[str]) -> Scores:
        """All questions in one go. Who leaves is felt after the batch that runs.

        Raises RerankerUnavailableError.
        """
        pairs = [(question, text) for question in questions for text in texts]
        left = threading.Event()
        try:
            loop = asyncio.get_running_loop()
            chances = await loop.run_in_executor(self._thread, self._chances, pairs, left)
        except (RuntimeError, ValueError, TypeError, KeyError, IndexError, OSError) as error:  # torch's
            raise RerankerUnavailableError(f"The cross-encoder failed: {type(error).__name__}.") from error
        finally:
            left.set()
        return [list(chances[at : at + len(texts)]) for at in range(0, len(pairs), len(texts))]

    def _chances(self, pairs: Sequence[Pair], left: threading.Event) -> list[float | None]:
        """Probabilities in the order of the pairs; once `left` is set, no batch is begun."""
        chances: list[float | None] = [None] * len(pairs)
        # texts of about one length together: a batch is padded to its longest
        order = sorted(range(len(pairs)), key=lambda at: -len(pairs[at][0]) - len(pairs[at][1]))
        for start in range(0, len(order), BATCH):
            if left.is_set():
                break
            batch = order[start : start + BATCH]
            for at, score in zip(batch, self._raw_scores([_cut(pairs[at]) for at in batch]), strict=True):
                chances[at] = probability(score)
        return chances

    def _raw_scores(self, pairs: list[Pair]) -> list[float]:
        """Logits of relevance. Two labels (irrelevant, relevant) give the difference of their logits."""
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
    """Half the cores at most: the event loop and the embedding go on beside it."""
    import torch

    torch.set_num_threads(max(1, min(torch.get_num_threads(), (os.cpu_count() or 1) // 2)))


def _load(model_name: str) -> Any:
    try:
        from sentence_transformers import CrossEncoder
    except ImportError as error:
        raise StartRefusedError(
            f"RERANKER = 'cross-encoder:{model_name}' needs the extra: "
            ".venv/bin/pip install -c requirements.lock -e '.[sentence-transformers]'."
        ) from error
    try:
        model = CrossEncoder(model_name, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        what = "folder" if Path(model_name).exists() else "model in the local hub cache"
        raise StartRefusedError(f"RERANKER = 'cross-encoder:{model_name}' is no usable {what}.") from error
    model.max_seq_length = min(model.max_seq_length or MAX_PAIR_TOKENS, MAX_PAIR_TOKENS)
    return model
