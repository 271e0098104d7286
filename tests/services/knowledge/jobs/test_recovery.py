"""How a start handles documents whose ingestion was interrupted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from core import formats
from core.knowledge import DocumentStatus, JobStage
from services.knowledge.jobs.queue import STALE_AFTER_US
from services.store.dialect import VectorStore
from tests.support.stores.knowledge import (
    ME,
    SERVER_SETTINGS,
    HeldEmbedding,
    added,
    memory_store,
    open_bench,
    save,
    until,
    upload,
)  # fmt: skip
from tests.support.waiting import until as happens


@pytest.fixture
async def store() -> AsyncIterator[VectorStore]:
    async with memory_store() as opened:
        yield opened


async def test_an_interrupted_ingestion_is_failed_after_the_next_start(store: VectorStore) -> None:
    held = HeldEmbedding()
    async with open_bench(store, embedding_model=held) as bench:
        addition = await bench.knowledge.add(upload())
        await until(bench, addition.job_id or "", JobStage.EMBEDDING)
        await bench.knowledge.close()
        held.let_all()
    async with open_bench(store) as bench:
        assert await bench.knowledge.recover() == 1
        document = await bench.knowledge.get_document(addition.document.document_id, ME)
        assert document.status is DocumentStatus.FAILED
        assert "again" in (document.error or "")
        assert await bench.chunk_count() == 0
        assert await bench.knowledge.recover() == 0
        assert (await added(bench, upload())).status is DocumentStatus.READY


async def test_what_an_earlier_release_had_begun_to_read_is_finished_without_remains(
    store: VectorStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Discriminates: chunks stored under another reading, which nothing would publish or remove."""
    held = HeldEmbedding()
    what = replace(upload(), comes_again=False)
    async with open_bench(store, embedding_model=held, data_dir=tmp_path) as bench:
        addition = await bench.knowledge.add(what)
        held.let_through(20)
        await happens(lambda: held.embedded == 20)
        assert await bench.chunk_count() == 16, "the first batch is stored"
        await bench.knowledge.close()
        held.let_all()
    monkeypatch.setitem(formats._READERS, formats.DocumentFormat.MARKDOWN, 2)
    async with open_bench(store, data_dir=tmp_path) as bench:
        await bench.knowledge.recover()
        await bench.knowledge.wait(addition.job_id or "", ME)
        document = await bench.knowledge.get_document(addition.document.document_id, ME)
        assert (document.status, document.is_outdated) == (DocumentStatus.READY, True)
        assert await bench.chunk_count() == await bench.chunk_count(ready=True) == document.chunk_count
        assert (await added(bench, what)).reading == 4
        assert await bench.chunk_count() == await bench.chunk_count(ready=True) == document.chunk_count


async def test_a_crash_between_publishing_and_the_last_write_leaves_nothing_searchable(
    store: VectorStore,
) -> None:
    async with open_bench(store) as bench:
        document = await added(bench, upload())
        await save(store, replace(document, status=DocumentStatus.INGESTING, chunk_count=0))
        assert await bench.knowledge.recover() == 1
        assert await bench.chunk_count() == 0


async def test_another_workers_active_ingestion_is_left_alone_until_it_is_silent(store: VectorStore) -> None:
    async with open_bench(store, SERVER_SETTINGS) as bench:
        document = await added(bench, upload())
        ingesting = replace(document, status=DocumentStatus.INGESTING)
        await save(store, ingesting, updated_us=bench.clock.now_us)
        assert await bench.knowledge.recover() == 0
        assert (await bench.knowledge.add(upload())).existing
        bench.clock.now_us += STALE_AFTER_US
        assert await bench.knowledge.recover() == 1
