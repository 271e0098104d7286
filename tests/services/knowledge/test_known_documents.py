"""Which documents still exist, and which one an upload is."""

from __future__ import annotations

from dataclasses import replace

from services.knowledge.upload import Identity
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


async def test_of_several_under_one_external_id_the_one_with_these_bytes_is_meant() -> None:
    """Earlier releases stored each content as a document of its own. Discriminates: the newest one, whose
    content would be replaced by what another already has."""
    async with memory_store() as store, open_bench(store) as bench:
        older = await added(bench, upload("Old text."))
        newer = await added(bench, upload("New text."))
        documents, what = bench.knowledge.documents, replace(upload("Old text."), external_id="rules")
        for at, each in enumerate((older, newer)):
            await documents.save(replace(each, external_id="rules", created_us=at + 1))
        for stored in (older, newer):
            assert await Identity(documents).of(what, stored.content_hash) == stored.document_id
        assert await Identity(documents).of(what, "f" * 64) == newer.document_id
