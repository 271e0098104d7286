"""Which document an upload is: by its external id where it has one, else by its bytes."""

from __future__ import annotations

from collections.abc import Sequence

from core.knowledge import Document
from services.knowledge.document_store import DocumentStore
from services.knowledge.upload import Upload, another_id_of, document_id_named, document_id_of


class Identity:
    def __init__(self, documents: DocumentStore) -> None:
        self._documents = documents

    async def of(self, upload: Upload, hash_hex: str) -> str:
        """The document's id, whether it is stored or not. Raises StoreUnavailableError."""
        if upload.external_id is None:
            return await self._by_bytes(upload.owner, hash_hex)
        named = _fitting(await self._documents.named(upload.external_id), upload)
        if named:
            # earlier releases stored each content of a name as a document of its own
            best = max(named, key=lambda each: (each.content_hash == hash_hex, each.created_us))
            return best.document_id
        return document_id_named(upload.owner, upload.external_id)

    async def _by_bytes(self, owner: str, hash_hex: str) -> str:
        """A document of an earlier release, known by its first bytes, may have other content by now."""
        document_id = document_id_of(owner, hash_hex)
        stored = await self._documents.load(document_id)
        if stored is None or stored.document.external_id is None:
            return document_id
        is_it = stored.document.content_hash == hash_hex
        return document_id if is_it else another_id_of(owner, hash_hex)


def _fitting(named: Sequence[Document], upload: Upload) -> list[Document]:
    """Of a followed folder whoever owned it before, else only the owner's."""
    of_source = [each for each in named if upload.source and each.source == upload.source]
    return of_source or [each for each in named if each.owner == upload.owner]
