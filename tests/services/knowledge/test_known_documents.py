"""Which of the documents in some citations still exist."""

from __future__ import annotations

from tests.support.stores.knowledge import ME, SETTINGS, added, memory_store, open_bench, upload


async def test_a_document_exists_for_its_owners_until_it_is_deleted() -> None:
    """Discriminates: ignoring the owner, or passing on any text as an id."""
    async with memory_store() as store, open_bench(store) as bench:
        document = await added(bench, upload())
        asked = [document.document_id, "d", "", document.document_id.upper(), "0" * 32]
        known = await bench.knowledge.documents.known(asked, ME)
        assert dict(known.hashes) == {document.document_id: document.content_hash}
        assert not (await bench.knowledge.documents.known(asked, ["bob"])).hashes
        await bench.knowledge.erase(document.document_id)
        assert not (await bench.knowledge.documents.known(asked, ME)).hashes


async def test_a_document_that_could_not_be_ingested_does_not_exist() -> None:
    async with memory_store() as store, open_bench(store) as bench:
        document = await added(bench, upload())
        await store.set_payload(
            SETTINGS.document_collection, {"status": "failed"}, points=[document.document_id]
        )
        assert not (await bench.knowledge.documents.known([document.document_id], ME)).hashes
