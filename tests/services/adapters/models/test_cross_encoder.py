import asyncio
import threading
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from core.errors import StartRefusedError
from services.adapters.models.sentence_transformers import BATCH, CrossEncoderReranker
from services.retrieval.foreign_rerankers import RerankerUnavailableError, probability

pytestmark = [
    pytest.mark.full("loads PyTorch"),
    pytest.mark.skipif(not find_spec("sentence_transformers"), reason="the extra is not installed"),
]

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [*SPECIAL, "fee", "refund", "sync", "the", "is", "what", "how", "days", "seven", "month"]


def tiny_cross_encoder(folder: Path, labels: int, scale: float = 1.0) -> Path:
    """A BERT of one small layer with random weights (seeded); `scale` stretches its logits."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizer

    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    BertTokenizer(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
    torch.manual_seed(1)
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=64,
    )
    config.num_labels = labels
    model = BertForSequenceClassification(config)
    with torch.no_grad():
        model.classifier.weight.mul_(scale)
    model.save_pretrained(folder)
    return folder


TEXTS = ("the fee is seven", "refund days", "sync " * 200, "")


@pytest.mark.parametrize(("labels", "scale"), [(1, 1.0), (1, 1e6), (2, 1.0)])
async def test_any_model_gives_probabilities(tmp_path: Path, labels: int, scale: float) -> None:
    """A scale of a million makes logits that overflow a plain sigmoid."""
    reranker = CrossEncoderReranker(str(tiny_cross_encoder(tmp_path / "model", labels, scale)))
    (scores,) = await reranker.judge_pairs(["how is the fee"], TEXTS)
    await reranker.aclose()
    assert len(scores) == len(TEXTS)
    assert all(score is not None and 0.0 <= score <= 1.0 for score in scores)


class SlowModel:
    """Stands in for the model: a batch takes a moment, and the thread it ran on is recorded."""

    def __init__(self, batch_s: float = 0.0, error: Exception | None = None) -> None:
        self.batches: list[list[tuple[str, str]]] = []
        self.threads: set[int] = set()
        self._batch_s = batch_s
        self._error = error

    def predict(self, pairs: Sequence[tuple[str, str]], **_: Any) -> Any:
        import numpy as np

        if self._error is not None:
            raise self._error
        self.batches.append(list(pairs))
        self.threads.add(threading.get_ident())
        time.sleep(self._batch_s)
        return np.array([float(len(text)) for _, text in pairs])


def with_model(model: SlowModel, folder: Path) -> CrossEncoderReranker:
    reranker = CrossEncoderReranker(str(tiny_cross_encoder(folder / "model", 1)))
    reranker._model = model
    return reranker


async def test_two_questions_are_judged_in_full_batches_with_results_in_input_order(tmp_path: Path) -> None:
    """Discriminates: a run for each question; results in the length order in which batches are made."""
    model = SlowModel()
    reranker = with_model(model, tmp_path)
    rows = await reranker.judge_pairs(["a", "b"], ["", "xx" * 50, "x"] * 2)
    await reranker.aclose()
    assert [len(batch) for batch in model.batches] == [BATCH, 12 - BATCH]
    assert rows == [[probability(len(text)) for text in ["", "xx" * 50, "x"] * 2]] * 2


async def test_the_model_runs_on_one_thread_of_its_own(tmp_path: Path) -> None:
    """Discriminates: asyncio.to_thread, whose few threads others wait for."""
    reranker = with_model(model := SlowModel(0.3), tmp_path)
    asked = [asyncio.create_task(reranker.judge_pairs(["q"], ["x"])) for _ in range(3)]
    await asyncio.sleep(0.05)  # the first is running
    began = time.perf_counter()
    await asyncio.gather(*(asyncio.to_thread(time.sleep, 0) for _ in range(20)))
    waited = time.perf_counter() - began
    await asyncio.gather(*asked)
    await reranker.aclose()
    assert waited < 0.25
    assert len(model.threads) == 1
    assert threading.get_ident() not in model.threads


async def test_a_cancellation_takes_effect_after_the_current_batch(tmp_path: Path) -> None:
    """Discriminates: one call for all pairs, which continues although nobody waits for it."""
    reranker = with_model(model := SlowModel(0.1), tmp_path)
    deleted = asyncio.create_task(reranker.judge_pairs(["q"], ["x"] * 40 * BATCH))
    await asyncio.sleep(0.15)  # within the second batch
    deleted.cancel()
    assert await asyncio.wait_for(reranker.judge_pairs(["q"], ["x"]), 3)
    await reranker.aclose()
    assert len(model.batches) <= 5


async def test_closing_drops_waiting_questions(tmp_path: Path) -> None:
    reranker = with_model(SlowModel(0.1), tmp_path)
    asked = [asyncio.create_task(reranker.judge_pairs(["q"], ["x"])) for _ in range(50)]
    await asyncio.sleep(0.05)  # the first is running, the others wait
    await asyncio.wait_for(reranker.aclose(), 3)
    ended = await asyncio.gather(*asked, return_exceptions=True)
    assert sum(isinstance(each, asyncio.CancelledError) for each in ended) >= 45


async def test_a_model_that_fails_is_unavailable(tmp_path: Path) -> None:
    reranker = with_model(SlowModel(error=RuntimeError("out of memory")), tmp_path)
    with pytest.raises(RerankerUnavailableError, match="RuntimeError"):
        await reranker.judge_pairs(["q"], ["x"])
    await reranker.aclose()


async def test_no_score_of_a_model_overflows_or_is_lost(tmp_path: Path) -> None:
    class OddModel(SlowModel):
        def predict(self, pairs: Sequence[tuple[str, str]], **_: Any) -> Any:
            import numpy as np

            return np.array([np.nan, np.inf, -np.inf, 1e30])

    reranker = with_model(OddModel(), tmp_path)
    assert await reranker.judge_pairs(["q"], ["a", "b", "c", "d"]) == [[0.0, 1.0, 0.0, 1.0]]
    await reranker.aclose()


def test_a_missing_model_refuses_the_start(tmp_path: Path) -> None:
    with pytest.raises(StartRefusedError, match="cross-encoder:nobody/nothing"):
        CrossEncoderReranker("nobody/nothing")
    with pytest.raises(StartRefusedError, match="not a usable folder"):
        CrossEncoderReranker(str(tmp_path))
