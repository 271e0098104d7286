"""How many documents a source has, asked of the store."""

from __future__ import annotations

from collections.abc import Container

from qdrant_client import models

from core.knowledge import DocumentStatus
from services.knowledge.sync.state import LeftSource
from services.store import VectorStore
from services.turn_store import equals

MOST_SOURCES = 1_000


class SourceCounts:
    """Methods raise StoreUnavailableError."""

    def __init__(self, store: VectorStore, collection: str) -> None:
        self._store = store
        self._collection = collection

    async def left(self, configured: Container[str]) -> list[LeftSource]:
        """Sources that documents name and the configuration does not, by name."""
        facet = await self._store.facet(self._collection, "source", limit=MOST_SOURCES)
        counts = {str(hit.value): hit.count for hit in facet.hits if hit.count}  # the engine names gone ones
        return [LeftSource(name, counts[name]) for name in sorted(counts) if name and name not in configured]

    async def ready(self, source: str, owner: str) -> int:
        """Documents that can be searched."""
        conditions: list[models.Condition] = [
            equals("source", source),
            equals("owner", owner),
            equals("status", DocumentStatus.READY.value),
        ]
        return (await self._store.count(self._collection, models.Filter(must=conditions))).count
