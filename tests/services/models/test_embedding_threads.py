"""No question waits for a long one, for a passage, or for an abandoned one."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import ClassVar, cast

import pytest

from core.prompt.budget import estimate_tokens
from services.models.embedding import (
    LONG_QUERY_TOKENS,
    PASSAGE_BATCH_TOKENS,
    BatchEmbedding,
    EmbeddingService,
    Vector,
    usable_cores,
)
from tests.support.waiting import LIMIT_S, until, wait_until

LONG = "the fee of the plan " * LONG_QUERY_TOKENS


class HeldEmbedding(BatchEmbedding):
    """Texts that begin with "held", and LONG, are embedded once `gate` is open; `calls` are those embedded
    together."""

    one_by_one: ClassVar[bool] = True
    gate: ClassVar[threading.Event]
    calls: ClassVar[list[list[str]]]

    def get_query_embeddings(self, queries: Sequence[str]) -> list[Vector]:
        self.calls.append([*queries])
        for query in queries:
            assert not query.startswith(("held", LONG)) or self.gate.wait(LIMIT_S)
        return [[float(len(query))] for query in queries]

    def _get_text_embeddings(self, texts: list[str]) -> list[Vector]:
        return self.get_query_embeddings(texts)


class Unreadable(str):
    __slots__ = ()

    def startswith(self, *_: object) -> bool:
        raise TypeError("unreadable")


class BatchesOnly(HeldEmbedding):
    one_by_one: ClassVar[bool] = False


@pytest.fixture
def model() -> HeldEmbedding:
    HeldEmbedding.gate, HeldEmbedding.calls = threading.Event(), []
    return HeldEmbedding(model_name="held")


@pytest.fixture
async def embedding(model: HeldEmbedding) -> AsyncIterator[EmbeddingService]:
    service = EmbeddingService(model, "held", 1)
    yield service
    model.gate.set()
    await service.close()


async def test_a_long_question_and_a_passage_delay_no_other(
    embedding: EmbeddingService, model: HeldEmbedding
) -> None:
    """Discriminates: one thread for all questions, or for questions and passages."""
    assert estimate_tokens(LONG) > LONG_QUERY_TOKENS
    long = [asyncio.create_task(embedding.embed_queries([LONG])) for _ in range(20)]
    passage = asyncio.create_task(embedding.embed_passages(["held passage"]))
    async with asyncio.timeout(LIMIT_S):
        assert await embedding.embed_queries(["fee?"]) == [[4.0]]
    assert embedding.waiting == 19
    model.gate.set()
    assert await asyncio.gather(*long) == [[[float(len(LONG))]]] * 20
    assert await passage == [[12.0]]


async def test_a_thread_continues_while_the_event_loop_is_busy(
    embedding: EmbeddingService, model: HeldEmbedding
) -> None:
    """Discriminates: the event loop handing the next question to the thread; with a hundred streams that
    takes as long as the question."""
    asked = [embedding.begin_query(f"{number}") for number in range(20)]
    wait_until(lambda: len(model.calls) == len(asked))  # the loop has no turn meanwhile
    assert embedding.waiting == 0
    assert [(await each).vector for each in asked] == [[1.0]] * 10 + [[2.0]] * 10


async def test_a_model_that_fails_in_any_way_fails_its_own_question_alone(
    embedding: EmbeddingService, model: HeldEmbedding
) -> None:
    """Discriminates: a question that waits for ever; a thread that ends with it."""
    model.gate.set()
    with pytest.raises(TypeError):
        async with asyncio.timeout(LIMIT_S):
            await embedding.embed_queries([cast(str, Unreadable("?"))])
    assert await embedding.embed_queries(["fee?"]) == [[4.0]]


@pytest.fixture
def quota(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The CPU quota file of a container on a machine with four cores; initially absent."""
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {*range(4)}, raising=False)
    monkeypatch.setattr("services.models.embedding.CPU_QUOTA", tmp_path / "cpu.max")
    return tmp_path / "cpu.max"


@pytest.mark.usefixtures("quota")
async def test_passages_are_embedded_on_half_of_the_cores(model: HeldEmbedding) -> None:
    """Discriminates: one core of sixteen for a folder; all of them; passages in another order."""
    embedding = EmbeddingService(model, "held", 1)
    passages = [f"held {'plan ' * PASSAGE_BATCH_TOKENS}{'!' * number}" for number in range(3)]
    reading = asyncio.create_task(embedding.embed_passages(passages))
    await until(lambda: len(model.calls) == 2)
    assert {call[0] for call in model.calls} == {*passages[:2]}
    model.gate.set()
    assert await reading == [[float(len(passage))] for passage in passages]
    await embedding.close()


@pytest.mark.parametrize(
    ("share", "cores"), [("max 100000", 4), ("200000 100000", 2), ("50000 100000", 1), ("", 4)]
)
def test_a_container_uses_its_share_of_the_cores(quota: Path, share: str, cores: int) -> None:
    """Discriminates: sixteen threads in a container of two cores, which are then all throttled together."""
    assert usable_cores() == 4
    quota.write_text(f"{share}\n")
    assert usable_cores() == cores


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one core has one thread for questions")
async def test_each_vector_is_returned_as_soon_as_it_is_ready(
    embedding: EmbeddingService, model: HeldEmbedding
) -> None:
    """Discriminates: batches of questions, or one thread."""
    slow = asyncio.create_task(embedding.embed_queries(["held"]))
    async with asyncio.timeout(LIMIT_S):
        for question in ("a", "bc", "def"):
            assert await embedding.embed_queries([question]) == [[float(len(question))]]
    assert not slow.done()
    model.gate.set()
    assert await slow == [[4.0]]


async def test_an_abandoned_question_is_not_embedded(
    embedding: EmbeddingService, model: HeldEmbedding
) -> None:
    first = asyncio.create_task(embedding.embed_queries([LONG]))
    left = asyncio.create_task(embedding.embed_queries([LONG + "left"]))
    last = asyncio.create_task(embedding.embed_queries([LONG + "last"]))
    await asyncio.sleep(0)
    left.cancel()
    model.gate.set()
    await asyncio.gather(first, last)
    assert [text for call in model.calls for text in call] == [LONG, LONG + "last"]


async def test_a_model_that_benefits_from_batches_gets_waiting_questions_together(
    model: HeldEmbedding,
) -> None:
    """Discriminates: one call for each question, which costs a server a round trip each."""
    embedding = EmbeddingService(BatchesOnly(model_name="batches"), "batches", 1)
    held = asyncio.create_task(embedding.embed_queries(["held"]))
    waiting = [asyncio.create_task(embedding.embed_queries([text])) for text in ("a", "bc", LONG)]
    await asyncio.sleep(0)
    model.gate.set()
    await asyncio.gather(held, *waiting)
    await embedding.close()
    assert sorted(map(len, model.calls)) in ([4], [1, 3])
