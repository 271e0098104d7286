from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pypdf
import pytest
from PIL import Image

from core.errors import (
    BadRequestError,
    EmptyFileError,
    UnknownDocumentError,
    UnknownJobError,
    UnreadableDocumentError,
    UnsupportedMediaError,
)
from core.knowledge import DocumentStatus, JobStage, Upload
from services.adapters.edge.client import open_edge_client
from services.store.collections import ensure_collections
from services.store.dialect import VectorStore
from tests.support.models.hashing_embedding import DIMENSION
from tests.support.stores.knowledge import (
    ME,
    SETTINGS,
    TEXT,
    Bench,
    HeldEmbedding,
    added,
    memory_store,
    open_bench,
    save,
    until,
    upload,
)
from tests.support.stores.make_files import pdf


@pytest.fixture
async def store() -> AsyncIterator[VectorStore]:
    async with memory_store() as opened:
        yield opened


@pytest.fixture
async def bench(store: VectorStore) -> AsyncIterator[Bench]:
    async with open_bench(store) as opened:
        yield opened


async def test_a_document_is_accepted_at_once_and_ready_when_its_job_is_done(bench: Bench) -> None:
    what = replace(upload(), external_id="e-1", tags=("a", "b"), date="2026-01-31")
    addition = await bench.knowledge.add(what)
    assert not addition.existing
    assert addition.job_id
    assert addition.document.status is DocumentStatus.INGESTING
    outcome = await bench.knowledge.wait(addition.job_id, ME)
    assert (outcome.stage, outcome.error) == (JobStage.DONE, None)
    assert outcome.done == outcome.total > 10
    document = await bench.knowledge.get_document(addition.document.document_id, ME)
    assert (document.status, document.chunk_count) == (DocumentStatus.READY, outcome.total)
    assert (document.external_id, document.tags, document.date) == ("e-1", ("a", "b"), "2026-01-31")
    assert await bench.chunk_count(ready=True) == outcome.total


async def test_a_document_says_how_many_of_its_pages_were_not_read(bench: Bench) -> None:
    half = BytesIO()
    Image.effect_noise((90, 120), 60).save(half, "PDF")
    writer = pypdf.PdfWriter(clone_from=half)
    writer.append(BytesIO(pdf([["Typed words."]])))
    writer.write(half)
    document = await added(bench, Upload("ann", "half.pdf", half.getvalue()))
    assert (document.status, document.chunk_count, document.unread_pages) == (DocumentStatus.READY, 1, 1)


async def test_the_stored_chunks_have_both_vectors_and_their_origin(bench: Bench) -> None:
    document = await added(bench, replace(upload(), tags=("x",)))
    records, _ = await bench.store.scroll(SETTINGS.knowledge_collection, limit=1, with_vectors=True)
    payload = records[0].payload or {}
    assert payload["heading"] == "手册"
    assert (payload["owner"], payload["document_id"]) == ("ann", document.document_id)
    assert (payload["tags"], payload["created_us"]) == (["x"], document.created_us)
    assert isinstance(records[0].vector, dict)
    assert set(records[0].vector) == {"dense", "sparse"}


async def test_the_same_bytes_are_the_same_document_under_any_name(bench: Bench) -> None:
    first = await added(bench, upload())
    again = await bench.knowledge.add(upload(file_name="other.md"))
    assert (again.existing, again.job_id) == (True, None)
    assert again.document == first
    assert await bench.chunk_count() == first.chunk_count


async def test_the_same_name_with_other_bytes_is_another_document(bench: Bench) -> None:
    first, second = await added(bench, upload()), await added(bench, upload("# 新\n\n新的内容。"))
    assert first.document_id != second.document_id


async def test_the_same_bytes_of_another_owner_are_another_document(bench: Bench) -> None:
    first, second = await added(bench, upload()), await added(bench, upload(owner="bob"))
    assert first.document_id != second.document_id
    assert await bench.chunk_count() == 2 * first.chunk_count


async def test_the_same_bytes_sent_ten_times_concurrently_are_ingested_once(bench: Bench) -> None:
    """Discriminates: add() without its lock."""
    additions = await asyncio.gather(*(bench.knowledge.add(upload()) for _ in range(10)))
    assert sum(not addition.existing for addition in additions) == 1
    assert len({addition.job_id for addition in additions}) == 1
    await bench.knowledge.wait(additions[0].job_id or "", ME)
    document = await bench.knowledge.get_document(additions[0].document.document_id, ME)
    assert await bench.chunk_count() == document.chunk_count


async def test_a_client_that_waited_for_room_is_answered_before_the_file_is_read(bench: Bench) -> None:
    """Discriminates: a separate limit for each wait of an upload, which add up."""
    with pytest.raises(UnreadableDocumentError):
        await bench.knowledge.add(Upload("ann", "a.md", b" \n"))
    addition = await bench.knowledge.add(Upload("ann", "a.md", b" \n", waited_s=60.0))
    outcome = await bench.knowledge.wait(addition.job_id or "", ME)
    assert (outcome.stage, "text" in str(outcome.error)) == (JobStage.FAILED, True)


@pytest.mark.parametrize(
    ("what", "kind", "named"),
    [
        (Upload("ann", "a.md", b""), EmptyFileError, "file"),
        (Upload("ann", "a.md", b" \n"), UnreadableDocumentError, "text"),
        (Upload("ann", "a.exe", b"x"), UnsupportedMediaError, "Markdown"),
        (Upload("ann", "a.pdf", b"MZ\x90\0"), UnsupportedMediaError, "PDF"),
        (Upload("ann", "CON.md", b"x"), BadRequestError, "file"),
        (Upload("ann", "a.md", b"x", external_id=""), BadRequestError, "external_id"),
        (Upload("ann", "a.md", b"x", external_id="e" * 1_025), BadRequestError, "external_id"),
        (Upload("ann", "a.md", b"x", tags=("t" * 65,)), BadRequestError, "tags"),
        (Upload("ann", "a.md", b"x", date="31.1.2026"), BadRequestError, "date"),
    ],
)
async def test_a_refusal_is_immediate_and_leaves_nothing(
    bench: Bench, what: Upload, kind: type[BadRequestError], named: str
) -> None:
    with pytest.raises(kind, match=named):
        await bench.knowledge.add(what)
    assert not (await bench.knowledge.documents.page(ME, 10)).documents


async def test_only_the_base_name_is_stored(bench: Bench) -> None:
    document = await added(bench, upload(file_name="..\\../etc/手册.md"))
    assert document.file_name == "手册.md"


async def test_no_chunk_is_ready_before_all_chunks_are_stored(bench: Bench) -> None:
    """Discriminates: writing chunks with ready=True."""
    addition = await bench.knowledge.add(upload())
    changes = bench.knowledge.jobs.get(addition.job_id or "", ME).changes()
    async for snapshot in changes:
        if snapshot.stage.is_final:
            break
        assert await bench.chunk_count(ready=True) in (0, snapshot.total)
    assert await bench.chunk_count(ready=False) == 0


async def test_a_failing_embedding_fails_the_document_without_leaving_chunks(bench: Bench) -> None:
    document = await added(bench, upload(TEXT + "\n\npoison"))
    assert document.status is DocumentStatus.FAILED
    assert "embedding" in (document.error or "")
    assert await bench.chunk_count() == 0
    job = bench.knowledge.jobs.list(ME)[0]
    assert (job.stage, job.error_code) == (JobStage.FAILED, "embedding_unavailable")


async def test_a_failed_document_is_ingested_again_when_sent_again(bench: Bench) -> None:
    failed = await added(bench, upload(TEXT + "\n\npoison"))
    again = await bench.knowledge.add(upload(TEXT + "\n\npoison"))
    assert (again.existing, again.document.document_id) == (False, failed.document_id)
    assert again.job_id


async def test_documents_are_listed_newest_first_page_by_page_to_their_owners_only(bench: Bench) -> None:
    names = [(await added(bench, upload(f"text {i}", f"{i}.txt"))).file_name for i in range(5)]
    await added(bench, upload("bob's", "b.txt", owner="bob"))
    observed: list[str] = []
    cursor: str | None = None
    while True:
        page = await bench.knowledge.documents.page(ME, 2, cursor)
        observed += [document.file_name for document in page.documents]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert observed == names[::-1]
    both = await bench.knowledge.documents.page(["ann", "bob"], 10)
    assert both.documents[0].file_name == "b.txt"


async def test_documents_of_one_microsecond_are_all_listed_across_pages(
    store: VectorStore, bench: Bench
) -> None:
    document = await added(bench, upload())
    for i in range(4):
        twin = replace(document, document_id=f"00000000-0000-4000-8000-00000000000{i}")
        await save(store, twin)
    first = await bench.knowledge.documents.page(ME, 3)
    second = await bench.knowledge.documents.page(ME, 3, first.next_cursor)
    ids = [each.document_id for each in first.documents + second.documents]
    assert len(ids) == len(set(ids)) == 5
    assert second.next_cursor is None


async def test_chunks_come_in_document_order_page_by_page(bench: Bench) -> None:
    document = await added(bench, upload())
    first = await bench.knowledge.chunks(document.document_id, ME, 7)
    rest = await bench.knowledge.chunks(document.document_id, ME, 100, first.next_cursor)
    chunks = first.chunks + rest.chunks
    assert [chunk.position for chunk in chunks] == list(range(document.chunk_count))
    assert rest.next_cursor is None
    assert chunks[0].text.startswith("第0条")
    assert all(chunk.file_name == "手册.md" for chunk in chunks)


@pytest.mark.parametrize("cursor", ["x", "-1", "1", "9" * 30, "１２.x"])
async def test_an_invented_cursor_is_refused(bench: Bench, cursor: str) -> None:
    with pytest.raises(BadRequestError, match="cursor"):
        await bench.knowledge.documents.page(ME, 2, cursor)


async def test_other_owners_documents_do_not_exist(bench: Bench) -> None:
    addition = await bench.knowledge.add(upload())
    document_id, job_id = addition.document.document_id, addition.job_id or ""
    with pytest.raises(UnknownDocumentError):
        await bench.knowledge.get_document(document_id, ["bob"])
    with pytest.raises(UnknownDocumentError):
        await bench.knowledge.chunks(document_id, ["bob"], 10)
    with pytest.raises(UnknownJobError):
        bench.knowledge.jobs.get(job_id, ["bob"]).snapshot()
    with pytest.raises(UnknownJobError):
        bench.knowledge.jobs.get(job_id, ["bob"]).changes()
    assert bench.knowledge.jobs.list(["bob"]) == []


async def test_a_deleted_document_leaves_no_point_behind(bench: Bench) -> None:
    document = await added(bench, upload())
    remaining = await added(bench, upload("另一份文件。", "b.md"))
    await bench.knowledge.erase(document.document_id)
    assert await bench.chunk_count() == remaining.chunk_count
    with pytest.raises(UnknownDocumentError):
        await bench.knowledge.get_document(document.document_id, ME)
    assert not (await bench.knowledge.add(upload())).existing


async def test_deleting_during_ingestion_cancels_the_job_and_leaves_nothing(store: VectorStore) -> None:
    """Discriminates: erase() that does not cancel the job first."""
    held = HeldEmbedding()
    async with open_bench(store, embedding_model=held) as bench:
        additions = [await bench.knowledge.add(upload(TEXT + str(i), f"{i}.md")) for i in range(3)]
        await until(bench, additions[0].job_id or "", JobStage.EMBEDDING)
        for addition in reversed(additions):  # one is waiting, two are running
            held.let_through(1)
            job = bench.knowledge.jobs.get(addition.job_id or "", ME)
            await bench.knowledge.erase(addition.document.document_id)
            assert job.snapshot().stage is JobStage.CANCELLED
        held.let_all()
        assert await bench.chunk_count() == 0
        assert not (await bench.knowledge.documents.page(ME, 10)).documents
        assert (await added(bench, upload("after", "c.txt"))).status is DocumentStatus.READY


async def test_the_embedded_engine_does_the_same(tmp_path: Path) -> None:
    async with open_edge_client(tmp_path) as store:
        await ensure_collections(store, SETTINGS, embedding_name="hashing", dimension=DIMENSION)
        async with open_bench(store) as bench:
            documents = [await added(bench, upload(TEXT + str(i), f"{i}.md")) for i in range(3)]
            assert await bench.chunk_count(ready=True) == sum(each.chunk_count for each in documents)
            page = await bench.knowledge.documents.page(ME, 2)
            assert [each.file_name for each in page.documents] == ["2.md", "1.md"]
            chunks = await bench.knowledge.chunks(documents[0].document_id, ME, 5)
            assert [chunk.position for chunk in chunks.chunks] == [0, 1, 2, 3, 4]
            await save(store, replace(documents[1], status=DocumentStatus.INGESTING))
            assert await bench.knowledge.recover() == 1
            await bench.knowledge.erase(documents[2].document_id)
            assert await bench.chunk_count() == documents[0].chunk_count


async def test_chunks_of_earlier_releases_get_their_language(bench: Bench, store: VectorStore) -> None:
    """Discriminates: chunks without a language, which no search for another language finds; judging code by
    its own letters, whatever its heading."""
    for name, text in (
        ("zh.md", "# 费用\n\n```sql\nCREATE TABLE fees (id INT, at DATE)\n```"),
        ("en.md", "# Fees\n\nNinety-nine a month."),
    ):
        addition = await bench.knowledge.add(replace(upload(), file_name=name, content=text.encode()))
        assert addition.job_id
        await bench.knowledge.wait(addition.job_id, ME)
    chunks = SETTINGS.knowledge_collection

    async def languages() -> dict[str, object]:
        records, _ = await store.scroll(chunks, with_payload=True)
        return {
            str((each.payload or {})["file_name"]): (each.payload or {}).get("chinese") for each in records
        }

    assert await languages() == {"zh.md": True, "en.md": False}
    records, _ = await store.scroll(chunks)
    await store.delete_payload(chunks, keys=["chinese"], points=[each.id for each in records])
    assert await languages() == {"zh.md": None, "en.md": None}
    await bench.knowledge.fill_languages()
    assert await languages() == {"zh.md": True, "en.md": False}
