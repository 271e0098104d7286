"""How many chunks the embedded store is made for, and that it is said when there are more."""

from __future__ import annotations

import structlog

from config.settings import StoreSettings
from services.store.dialect import VectorStore

log = structlog.get_logger()

# Measured on two cores (docs/decisions/0022): with so many, a retrieval takes 30 to 50 ms. The embedded store
# looks at every chunk, so it takes twice as long for twice as many.
MOST_EMBEDDED_CHUNKS = 200_000
ADVICE = "set QDRANT_URL: a Qdrant server searches an index, this store looks at every chunk"


class KnowledgeSize:
    """Warns once, and asks the store only when what was added may have passed the limit.

    With QDRANT_URL there is no limit. Raises StoreUnavailableError where the store cannot be asked.
    """

    def __init__(
        self, store: VectorStore, settings: StoreSettings, most_chunks: int = MOST_EMBEDDED_CHUNKS
    ) -> None:
        self._store = store
        self._collection = settings.knowledge_collection
        self.most_chunks = most_chunks
        self._chunks = 0
        self._done = bool(settings.qdrant_url)

    async def look(self) -> None:
        """At start, when the collection is there."""
        if self._done:
            return
        self._chunks = (await self._store.count(self._collection)).count
        if self._chunks > self.most_chunks:
            self._done = True
            log.warning("knowledge_large", chunks=self._chunks, made_for=self.most_chunks, advice=ADVICE)

    async def grew(self, chunks: int) -> None:
        """So many were stored; some of them may have taken the place of others."""
        self._chunks += chunks
        if not self._done and self._chunks > self.most_chunks:
            await self.look()
