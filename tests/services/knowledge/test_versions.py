"""Documents with an external id: other content under it is a new version of the same document."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from core import formats
from core.errors import ConflictError, UnknownDocumentError, UnreadableDocumentError
from core.knowledge import Changes, DocumentFilter, DocumentStatus, JobStage, Upload
from services.adapters.edge.client import open_edge_client
from services.knowledge.chunks import SIGNS
from services.knowledge.upload import another_id_of
from services.store.collections import ensure_collections
from services.store.dialect import Filter, VectorStore
from tests.support.models.hashing_embedding import DIMENSION, TokenHashing
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
from tests.support.waiting import until as happens

NEWER = TEXT.replace("第7条规定", "第七条新规定")


@pytest.fixture(
    params=["reference", pytest.param("embedded", marks=pytest.mark.full("a store process for each test"))]
)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[VectorStore]:
    if request.param == "reference":
        async with memory_store() as opened:
            yield opened
    else:
        async with open_edge_client(tmp_path / "store") as edge:
            await ensure_collections(edge, SETTINGS, embedding_name="hashing", dimension=DIMENSION)
            yield edge


@pytest.fixture
async def bench(store: VectorStore) -> AsyncIterator[Bench]:
    async with open_bench(store) as opened:
        yield opened


def named(text: str = TEXT, **fields: object) -> Upload:
    return replace(upload(text), external_id="rules", **fields)  # type: ignore[arg-type]


async def text_of(bench: Bench, document_id: str) -> str:
    page = await bench.knowledge.chunks(document_id, ME, 500)
    return "\n".join(chunk.text for chunk in page.chunks)


async def test_other_content_under_the_same_external_id_replaces_the_old(bench: Bench) -> None:
    """Discriminates: an identity by bytes; old chunks that stay."""
    first = await added(bench, named())
    second = await added(bench, named(NEWER))
    assert (second.document_id, second.status) == (first.document_id, DocumentStatus.READY)
    assert second.content_hash != first.content_hash
    assert second.created_us == first.created_us
    assert await bench.chunk_count() == await bench.chunk_count(ready=True) == second.chunk_count
    assert "第七条新规定" in await text_of(bench, second.document_id)
    assert len((await bench.knowledge.documents.page(ME, 10)).documents) == 1


@pytest.fixture
def better_reader(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From its call on, the release is one whose reader of Markdown is better."""
    return lambda: monkeypatch.setitem(formats._READERS, formats.DocumentFormat.MARKDOWN, 7)


async def test_what_an_earlier_release_read_is_read_again_when_it_is_added_again(
    bench: Bench, better_reader: Callable[[], None]
) -> None:
    """Discriminates: "unchanged" for ever; chunks of both readings; embedding what stayed the same; a date
    that somebody set, lost; reading it again each time."""
    first = await added(bench, upload())
    first = await bench.knowledge.change(first.document_id, ME, Changes(("kept",), "2026-01-31", True))
    better_reader()
    addition = await bench.knowledge.add(upload())
    assert (addition.existing, addition.document) == (False, first)
    outcome = await bench.knowledge.wait(addition.job_id or "", ME)
    assert (outcome.stage, outcome.reused) == (JobStage.DONE, outcome.total)
    second = await bench.knowledge.get_document(first.document_id, ME)
    assert second == replace(first, reading=14)
    assert await bench.chunk_count() == await bench.chunk_count(ready=True) == second.chunk_count
    page = await bench.knowledge.chunks(first.document_id, ME, 500)
    assert {chunk.version for chunk in page.chunks} == {f"{first.content_hash[:16]}.14"}
    assert (await bench.knowledge.add(upload())).existing


async def test_while_it_is_read_again_it_is_searched_as_it_was(
    store: VectorStore, better_reader: Callable[[], None]
) -> None:
    """Discriminates: a document that is missing until it has been read again, or if that was interrupted."""
    held = HeldEmbedding()
    async with open_bench(store) as bench:
        first = await added(bench, upload())
        await store.set_payload(SETTINGS.knowledge_collection, {"text": "garbled"}, Filter())
    better_reader()
    async with open_bench(store, embedding_model=held) as bench:
        addition = await bench.knowledge.add(upload())
        held.let_through(20)
        await until(bench, addition.job_id or "", JobStage.EMBEDDING)
        await happens(lambda: held.embedded == 20)
        assert await bench.chunk_count() == first.chunk_count + 16, "the first batch is stored"
        assert await bench.chunk_count(ready=True) == first.chunk_count
        await bench.knowledge.close()
        held.let_all()
    async with open_bench(store) as bench:
        assert await bench.knowledge.recover() == 1
        assert await bench.knowledge.get_document(first.document_id, ME) == first
        assert await bench.chunk_count() == await bench.chunk_count(ready=True) == first.chunk_count
        assert "garbled" in await text_of(bench, first.document_id)
        assert (await added(bench, upload())).reading == 14
        assert await bench.chunk_count() == await bench.chunk_count(ready=True) == first.chunk_count
        assert "garbled" not in await text_of(bench, first.document_id)


async def test_only_changed_chunks_are_embedded_again(store: VectorStore) -> None:
    """Discriminates: embedding every chunk of a new version, or vectors of another chunk."""
    held = HeldEmbedding()
    held.let_all()
    async with open_bench(store, embedding_model=held) as bench:
        first = await added(bench, named())
        assert held.embedded == first.chunk_count == 40
        addition = await bench.knowledge.add(named(NEWER))
        outcome = await bench.knowledge.wait(addition.job_id or "", ME)
        assert (outcome.done, outcome.reused, held.embedded) == (40, 39, 41)
        records, _ = await store.scroll(SETTINGS.knowledge_collection, limit=100, with_vectors=True)
        for record in records:
            payload, vector = record.payload or {}, record.vector
            assert isinstance(vector, dict)
            assert "sparse" in vector
            expected = held.get_text_embedding(f"{payload['heading']}\n{payload['text']}")
            assert vector["dense"] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("of_parts_alone", [False, True])
async def test_chunks_stored_without_tokens_or_parts_are_embedded_again_by_a_newer_version(
    store: VectorStore, of_parts_alone: bool
) -> None:
    """Discriminates: reusing vectors of an earlier release for ever, so that no chunk gets tokens."""
    model = TokenHashing()
    async with open_bench(store, embedding_model=model) as bench:
        first = await added(bench, named())
        collection, shown = SETTINGS.knowledge_collection, ["position", SIGNS]
        stored = {
            (each.payload or {})["position"]: each
            for each in (await store.scroll(collection, limit=100, with_payload=shown))[0]
        }
        assert all((each.payload or {})[SIGNS] for each in stored.values())
        await store.delete_payload(collection, [SIGNS], [stored[0].id])
        if of_parts_alone:
            signs = str((stored[0].payload or {})[SIGNS]).split(" ")[0]
            await store.set_payload(collection, {SIGNS: signs}, [stored[0].id])
        model.read.clear()
        addition = await bench.knowledge.add(named(NEWER))
        outcome = await bench.knowledge.wait(addition.job_id or "", ME)
        assert (outcome.reused, len(model.read)) == (first.chunk_count - 2, 2)
        records, _ = await store.scroll(collection, limit=100, with_payload=shown)
        assert len(records) == first.chunk_count
        assert all((each.payload or {})[SIGNS] for each in records)


async def test_the_old_version_is_searched_until_the_new_one_is_complete(store: VectorStore) -> None:
    """Discriminates: removing the old chunks, or replacing the record, before the new ones are published."""
    held = HeldEmbedding()
    held.let_through(40)
    async with open_bench(store, embedding_model=held) as bench:
        first = await added(bench, named())
        addition = await bench.knowledge.add(named("# 新\n\n" + NEWER[::-1]))
        assert addition.document == first
        await until(bench, addition.job_id or "", JobStage.EMBEDDING)
        for _ in range(3):
            held.let_through(5)
            await asyncio.sleep(0.02)  # some pieces are stored; any number is right
            assert await bench.chunk_count(ready=True) == 40
            assert await bench.knowledge.get_document(first.document_id, ME) == first
        held.let_all()
        await bench.knowledge.wait(addition.job_id or "", ME)
        assert await bench.chunk_count() == await bench.chunk_count(ready=True) > 0


async def test_a_new_version_that_cannot_be_ingested_leaves_the_old_one_searched(bench: Bench) -> None:
    first = await added(bench, named())
    after = await added(bench, named(NEWER + "\n\npoison"))
    assert (after.status, after.content_hash) == (DocumentStatus.READY, first.content_hash)
    assert "embedding" in (after.error or "")
    assert after.refused_hash == ""  # the embedding may be available again: the same content is worth a retry
    assert await bench.chunk_count() == await bench.chunk_count(ready=True) == first.chunk_count
    mended = await added(bench, named(NEWER))
    assert (mended.error, mended.refused_hash) == (None, "")


async def test_a_newer_upload_replaces_one_being_ingested(store: VectorStore) -> None:
    held = HeldEmbedding()
    async with open_bench(store, embedding_model=held) as bench:
        first = await bench.knowledge.add(named())
        await until(bench, first.job_id or "", JobStage.EMBEDDING)
        held.let_through(1)
        second = await bench.knowledge.add(named(NEWER))
        assert bench.knowledge.jobs.get(first.job_id or "", ME).snapshot().stage is JobStage.CANCELLED
        held.let_all()
        await bench.knowledge.wait(second.job_id or "", ME)
        document = await bench.knowledge.get_document(first.document.document_id, ME)
        assert "第七条新规定" in await text_of(bench, document.document_id)
        assert await bench.chunk_count() == document.chunk_count


async def test_reverting_to_the_old_content_while_the_new_one_is_ingested(store: VectorStore) -> None:
    held = HeldEmbedding()
    held.let_through(40)
    async with open_bench(store, embedding_model=held) as bench:
        first = await added(bench, named())
        newer = await bench.knowledge.add(named(NEWER))
        await until(bench, newer.job_id or "", JobStage.EMBEDDING)
        back = await bench.knowledge.add(named())
        held.let_all()
        assert (back.existing, back.job_id) == (True, None)
        document = await bench.knowledge.get_document(first.document_id, ME)
        assert await bench.chunk_count() == await bench.chunk_count(ready=True) == document.chunk_count


async def test_deleting_during_a_change_leaves_neither_version(store: VectorStore) -> None:
    held = HeldEmbedding()
    held.let_through(40)
    async with open_bench(store, embedding_model=held) as bench:
        first = await added(bench, named())
        newer = await bench.knowledge.add(named(NEWER))
        await until(bench, newer.job_id or "", JobStage.EMBEDDING)
        held.let_all()
        await bench.knowledge.erase(first.document_id)
        assert await bench.chunk_count() == 0
        assert bench.knowledge.jobs.remembered([first.document_id])[1] == 0
        assert await bench.knowledge.erase_uploads(ME[0]) == 0


async def test_the_same_content_with_other_tags_and_date_is_not_embedded_again(store: VectorStore) -> None:
    held = HeldEmbedding()
    held.let_all()
    async with open_bench(store, embedding_model=held) as bench:
        first = await added(bench, named(tags=("a",)))
        again = await bench.knowledge.add(named(tags=("b", "c"), date="2026-02"))
        assert (again.existing, again.job_id, held.embedded) == (True, None, first.chunk_count)
        assert (again.document.tags, again.document.date) == (("b", "c"), "2026-02")
        records, _ = await store.scroll(SETTINGS.knowledge_collection, limit=100)
        described = {(tuple((r.payload or {})["tags"]), (r.payload or {})["day"]) for r in records}
        assert described == {(("b", "c"), 20260201)}


async def test_another_owner_with_the_same_external_id_has_another_document(bench: Bench) -> None:
    mine, theirs = await added(bench, named()), await added(bench, replace(named(), owner="bob"))
    assert mine.document_id != theirs.document_id


async def test_a_followed_folder_may_change_its_owner(bench: Bench) -> None:
    first = await added(bench, named(source="handbook", modified_us=5))
    assert [each async for each in bench.knowledge.of_source("handbook")] == [first]
    again = await bench.knowledge.add(replace(named(source="handbook", modified_us=6), owner="bob"))
    assert (again.existing, again.document.document_id) == (True, first.document_id)
    assert (again.document.owner, again.document.modified_us) == ("bob", 6)
    records, _ = await bench.store.scroll(SETTINGS.knowledge_collection, limit=100)
    assert {((r.payload or {})["owner"], (r.payload or {})["source"]) for r in records} == {
        ("bob", "handbook")
    }


async def test_a_document_without_headings_is_indexed_under_its_file_name(bench: Bench) -> None:
    """Discriminates: a name that is only displayed. A chunk of an earlier release, which has none, stays
    unchanged."""
    text = "(1) Membership ends by notice, by death or by expulsion."
    document = await added(bench, Upload("ann", "rowing-club-statutes.txt", text.encode()))
    collection = SETTINGS.knowledge_collection
    (record,), _ = await bench.store.scroll(collection, limit=2, with_vectors=True)
    indexed = f"rowing club statutes\n{text}"
    vector = record.vector
    assert isinstance(vector, dict)
    assert vector["dense"] == pytest.approx(TokenHashing().get_text_embedding(indexed), abs=1e-6)
    assert (record.payload or {})["heading"] == ""
    (chunk,) = (await bench.knowledge.chunks(document.document_id, ME, 7)).chunks
    assert chunk.indexed_text == indexed
    await bench.store.delete_payload(collection, ["title"], [record.id])
    (chunk,) = (await bench.knowledge.chunks(document.document_id, ME, 7)).chunks
    assert chunk.indexed_text == text


async def test_a_document_of_an_earlier_release_keeps_its_id_and_its_chunks_are_listed(bench: Bench) -> None:
    """Its id is derived from its bytes; its chunks have other ids and no version."""
    first = await added(bench, upload())
    await save(bench.store, replace(first, external_id="rules"))
    everything = [f"{first.document_id}"]
    await bench.store.delete_payload(SETTINGS.knowledge_collection, ["version"], _of(everything[0]))
    chunks = await bench.knowledge.chunks(first.document_id, ME, 7)
    assert [chunk.position for chunk in chunks.chunks] == list(range(7))
    assert (await bench.knowledge.add(named())).existing
    changed = await added(bench, named(NEWER))
    assert changed.document_id == first.document_id
    assert await bench.chunk_count() == changed.chunk_count
    by_bytes = await added(bench, upload())
    assert by_bytes.document_id == another_id_of("ann", first.content_hash)
    assert (await bench.knowledge.add(upload())).existing


def _of(document_id: str) -> object:
    from qdrant_client import models

    return models.Filter(
        must=[models.FieldCondition(key="document_id", match=models.MatchValue(value=document_id))]
    )


async def test_an_unreadable_document_is_listed_with_its_reason(bench: Bench) -> None:
    broken = Upload("ann", "con.pdf", b"%PDF-broken", "a/con.pdf", source="s", modified_us=9)
    document = await bench.knowledge.refuse(broken, UnreadableDocumentError("It is broken."))
    assert (document.status, document.error) == (DocumentStatus.FAILED, "It is broken.")
    assert (document.source, document.modified_us, len(document.content_hash)) == ("s", 9, 64)
    assert [each async for each in bench.knowledge.of_source("s")] == [document]
    narrowed = await bench.knowledge.documents.page(ME, 10, None, DocumentFilter(DocumentStatus.FAILED, "s"))
    assert narrowed.documents == (document,)


async def test_an_unreadable_newer_file_leaves_the_older_one_searched(bench: Bench) -> None:
    first = await added(bench, named(source="s", modified_us=1))
    broken = named("broken", source="s", modified_us=2)
    refused = await bench.knowledge.refuse(broken, UnreadableDocumentError("It is broken."))
    assert (refused.status, refused.content_hash) == (DocumentStatus.READY, first.content_hash)
    assert (refused.error, refused.modified_us) == ("It is broken.", 2)
    assert refused.refused_hash
    await bench.knowledge.note_modified(first.document_id, 3)
    assert (await bench.knowledge.get_document(first.document_id, ME)).modified_us == 3
    back = await bench.knowledge.add(named(source="s", modified_us=4))
    assert (back.document.error, back.document.refused_hash) == (None, "")


async def test_tags_and_date_are_changed_in_the_record_and_in_the_chunks(bench: Bench) -> None:
    first = await added(bench, named(tags=("a",), date="2025"))
    changed = await bench.knowledge.change(first.document_id, ME, Changes(tags=(" b ", "")))
    assert (changed.tags, changed.date) == (("b",), "2025")
    changed = await bench.knowledge.change(first.document_id, ME, Changes(changes_date=True))
    assert (changed.tags, changed.date) == (("b",), None)
    chunks = (await bench.knowledge.chunks(first.document_id, ME, 3)).chunks
    assert {(chunk.tags, chunk.date) for chunk in chunks} == {(("b",), "")}
    assert [
        d.tags for d in (await bench.knowledge.documents.page(ME, 9, None, DocumentFilter(tag="b"))).documents
    ]
    assert not (await bench.knowledge.documents.page(ME, 9, None, DocumentFilter(tag="a"))).documents
    with pytest.raises(UnknownDocumentError):
        await bench.knowledge.change(first.document_id, ["bob"], Changes(tags=()))


@pytest.mark.parametrize(("fields", "remaining"), [(None, ("a",)), ((), ()), (("b",), ("b",))])
@pytest.mark.parametrize("text", [TEXT, NEWER])
async def test_a_version_without_tags_keeps_the_previous_ones_and_empty_tags_clear_them(
    bench: Bench, text: str, fields: tuple[str, ...] | None, remaining: tuple[str, ...]
) -> None:
    """Discriminates: treating absent tags as an empty list."""
    first = await added(bench, named(tags=("a",)))
    after = await added(bench, named(text, tags=fields))
    assert (after.document_id, after.tags, after.status) == (
        first.document_id,
        remaining,
        DocumentStatus.READY,
    )
    chunks = (await bench.knowledge.chunks(after.document_id, ME, 3)).chunks
    assert {chunk.tags for chunk in chunks} == {remaining}


async def test_tags_of_a_version_being_ingested_stay_too(store: VectorStore) -> None:
    """Discriminates: using those of the stored record: the tags would depend on the speed of ingestion."""
    held = HeldEmbedding()
    held.let_through(40)
    async with open_bench(store, embedding_model=held) as bench:
        await added(bench, named(tags=("a",)))
        second = await bench.knowledge.add(named(NEWER, tags=("b",)))
        await until(bench, second.job_id or "", JobStage.EMBEDDING)
        held.let_all()
        assert (await added(bench, named(NEWER + "\n\n多一条。"))).tags == ("b",)


async def test_a_temporary_failure_keeps_the_older_time_and_a_permanent_one_stores_the_new(
    bench: Bench,
) -> None:
    """Discriminates: always storing the file's time: a sync takes a file of the same size for settled."""
    await added(bench, named(source="s", modified_us=1))
    failed = await added(bench, named(NEWER + "\n\npoison", source="s", modified_us=2))
    assert (bool(failed.error), failed.modified_us) == (True, 1)
    broken = UnreadableDocumentError("It is broken.")
    assert (await bench.knowledge.refuse(named("x", source="s", modified_us=3), broken)).modified_us == 3


async def test_a_followed_document_has_its_sources_tags_and_its_date_may_change(bench: Bench) -> None:
    """Discriminates: changing what the next sync would revert."""
    first = await added(bench, named(source="handbook", tags=("a",)))
    with pytest.raises(ConflictError, match=r"\[sources\.handbook\]"):
        await bench.knowledge.change(first.document_id, ME, Changes(tags=("b",)))
    dated = await bench.knowledge.change(first.document_id, ME, Changes(date="2026", changes_date=True))
    assert (dated.tags, dated.date) == (("a",), "2026")


async def test_a_document_cannot_be_changed_during_ingestion(store: VectorStore) -> None:
    held = HeldEmbedding()
    async with open_bench(store, embedding_model=held) as bench:
        addition = await bench.knowledge.add(named())
        with pytest.raises(ConflictError, match="being read"):
            await bench.knowledge.change(addition.document.document_id, ME, Changes(tags=("x",)))
        held.let_all()
