"""What is measured: something that takes documents and answers searches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from api.search.handler import SearchRequest
from core.knowledge import Upload


class NotReadError(Exception):
    """A document that was refused or failed; the reason in one plain line."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A chunk; `text` is what the model would read of it, its heading path included."""

    document_id: str
    probability: float
    text: str = ""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Chunks, best first, the threshold not applied; `ms` without the embedding, where that can be
    measured."""

    hits: tuple[Hit, ...]
    ms: float


class Target(Protocol):
    """`reads_at_once` is how many documents may be on their way in at a time."""

    reads_at_once: int

    async def add(self, upload: Upload) -> str:
        """Returns the document's id once it can be found. Raises NotReadError."""
        ...

    async def search(self, request: SearchRequest) -> SearchResult: ...
