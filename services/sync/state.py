"""How the sync of folders stands, as operators and readers see it."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from core.errors import BadRequestError
from core.knowledge import DocumentStatus
from services.store.dialect import Condition, Filter, VectorStore
from services.store.filters import equals
from services.sync.reports import SyncReport
from services.sync.run import SyncProgress


@dataclass(frozen=True, slots=True)
class SourceState:
    """A configured source; `last` is None before its first run."""

    source: str
    folder: str
    owner: str
    tags: tuple[str, ...]
    last: SyncReport | None


@dataclass(frozen=True, slots=True)
class LeftSource:
    """A source that is configured no longer, and how many of its documents are still there."""

    source: str
    documents: int

    def __str__(self) -> str:
        return (
            f"source {self.source} is no longer configured: {self.documents} documents stay; "
            f"wenmai sync --forget {self.source} removes them"
        )


@dataclass(frozen=True, slots=True)
class SyncState:
    """`began_us` is the running run's, 0 while none runs."""

    running: bool
    began_us: int
    progress: SyncProgress | None
    sources: tuple[SourceState, ...]
    left: tuple[LeftSource, ...]


@dataclass(frozen=True, slots=True)
class SourceSummary:
    """What a reader may know of a source; `synced_us` is 0 before its first run."""

    source: str
    documents: int
    synced_us: int


class UnknownSourceError(BadRequestError):
    code = "unknown_source"


def check_source(source: str, configured: Sequence[str] | Mapping[str, object]) -> None:
    """Raises UnknownSourceError."""
    if source not in configured:
        known = ", ".join(configured) or "none"
        raise UnknownSourceError(f"source: no source of this name is configured; configured: {known}.")


def check_left(source: str, configured: Mapping[str, object]) -> None:
    """Raises BadRequestError for a source that would come back with the next run."""
    if source in configured:
        raise BadRequestError(
            f"source: {source} is configured, so its documents would come back: take it out of the "
            f"configuration first."
        )


# How many documents a source has, asked of the store.


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
        conditions: list[Condition] = [
            equals("source", source),
            equals("owner", owner),
            equals("status", DocumentStatus.READY.value),
        ]
        return (await self._store.count(self._collection, Filter(must=conditions))).count
