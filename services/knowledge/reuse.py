"""Chunks whose text is stored already: their vectors are taken over, not made again."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from services.knowledge.chunk_store import ChunkStore, ChunkVectors


class KnownVectors:
    """Of one document, as it was stored when this was made; 70 bytes or so for each chunk."""

    def __init__(self, chunks: ChunkStore, points: dict[bytes, str]) -> None:
        self._chunks = chunks
        self._points = points

    @classmethod
    async def of(cls, chunks: ChunkStore, document_id: str) -> KnownVectors:
        """Raises StoreUnavailableError."""
        points = {_digest(text): point_id async for point_id, text in chunks.texts(document_id)}
        return cls(chunks, points)

    async def take(self, texts: Sequence[str]) -> list[ChunkVectors | None]:
        """In the order of `texts`; None for one that must be embedded. Raises StoreUnavailableError."""
        points = [self._points.get(_digest(text)) for text in texts] if self._points else []
        wanted = list(dict.fromkeys(point for point in points if point is not None))
        if not wanted:
            return [None] * len(texts)
        found = await self._chunks.vectors(wanted)
        return [found.get(point) if point is not None else None for point in points]


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
