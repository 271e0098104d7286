"""What stands around a chunk in its document: the chunks before and after it, and its section."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from qdrant_client import models

from core.errors import NotFoundError
from core.knowledge import Chunk
from core.tokens import estimate_tokens
from services.knowledge.chunk_payload import ChunkPayload
from services.knowledge.searchable import searchable
from services.store import VectorStore

SECTION_TOKENS = 2_000
SECTION_REACH = 64  # chunks, to either side

DocumentVersion = tuple[str, str]
"""document_id and version."""


class UnknownChunkError(NotFoundError):
    code = "unknown_chunk"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """All in document order. `section` has the chunk itself, and is empty when it was not asked for."""

    chunk: Chunk
    before: tuple[Chunk, ...] = ()
    after: tuple[Chunk, ...] = ()
    section: tuple[Chunk, ...] = ()


class Around:
    """Chunks of some documents by their places; a place that was not looked at is empty."""

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        self._by_place = {(*version_of(chunk), chunk.position): chunk for chunk in chunks}

    def at(self, chunk: Chunk, distance: int) -> Chunk | None:
        """The one so many places after the chunk; before it, when that is negative."""
        return self._by_place.get((*version_of(chunk), chunk.position + distance))

    def towards(self, chunk: Chunk, step: int) -> Iterator[Chunk]:
        """Its neighbours to one side (`step` 1 or -1), the nearest first, without a gap."""
        distance = step
        while (neighbour := self.at(chunk, distance)) is not None:
            yield neighbour
            distance += step


class Neighbours:
    """Reads ready chunks of the owners, of the same version as the chunk they stand around."""

    def __init__(self, store: VectorStore, collection: str) -> None:
        self._store = store
        self._collection = collection

    async def get(self, document_id: str, chunk_id: str, owners: Sequence[str]) -> Chunk:
        """Raises UnknownChunkError, also when it is somebody else's or not ready; StoreUnavailableError."""
        found = await self._store.retrieve(self._collection, ids=[chunk_id], with_payload=True)
        for record in found:
            payload = ChunkPayload.model_validate(record.payload)
            if payload.document_id == document_id and payload.owner in owners and payload.ready:
                return payload.to_chunk()
        raise UnknownChunkError("chunk_id: the document has no such chunk.")

    async def surroundings(
        self, chunk: Chunk, owners: Sequence[str], *, before: int, after: int, section: bool
    ) -> Surroundings:
        """Raises StoreUnavailableError."""
        reach = max(before, after, SECTION_REACH if section else 0)
        around = await self.around([chunk], owners, reach) if reach else Around([chunk])
        earlier = [found for at in range(before, 0, -1) if (found := around.at(chunk, -at))]
        later = [found for at in range(1, after + 1) if (found := around.at(chunk, at))]
        return Surroundings(chunk, tuple(earlier), tuple(later), _section(chunk, around) if section else ())

    async def around(self, chunks: Sequence[Chunk], owners: Sequence[str], reach: int) -> Around:
        """The chunks and those up to `reach` places from each, in one round trip."""
        places = _places(chunks, reach)
        most = sum(last - first + 1 for stretches in places.values() for first, last in stretches)
        wanted = searchable(owners)
        within = [
            _stretch(version, first, last)
            for version, stretches in places.items()
            for first, last in stretches
        ]
        if not within:
            return Around(chunks)
        records, _ = await self._store.scroll(
            self._collection,
            scroll_filter=models.Filter(must=wanted.must, should=within),
            limit=most,
            with_payload=True,
        )
        found = [ChunkPayload.model_validate(record.payload).to_chunk() for record in records]
        return Around([*chunks, *found])


def version_of(chunk: Chunk) -> DocumentVersion:
    return chunk.document_id, chunk.version


def same_section(chunk: Chunk, other: Chunk) -> bool:
    return chunk.heading == other.heading


def _places(chunks: Sequence[Chunk], reach: int) -> Mapping[DocumentVersion, list[tuple[int, int]]]:
    """The stretches of positions around the chunks, those that touch made one."""
    positions: dict[DocumentVersion, list[int]] = {}
    for chunk in chunks:
        positions.setdefault(version_of(chunk), []).append(chunk.position)
    return {version: list(_stretches(sorted(at), reach)) for version, at in positions.items()}


def _stretches(positions: Sequence[int], reach: int) -> Iterator[tuple[int, int]]:
    first = positions[0]
    for this, following in pairwise(positions):
        if following - reach > this + reach + 1:
            yield max(0, first - reach), this + reach
            first = following
    yield max(0, first - reach), positions[-1] + reach


def _stretch(version: DocumentVersion, first: int, last: int) -> models.Filter:
    document_id, content = version
    must: list[models.Condition] = [
        models.FieldCondition(key="document_id", match=models.MatchValue(value=document_id)),
        models.FieldCondition(key="position", range=models.Range(gte=first, lte=last)),
    ]
    if content:  # chunks of earlier releases name no version
        must.append(models.FieldCondition(key="version", match=models.MatchValue(value=content)))
    return models.Filter(must=must)


def _section(chunk: Chunk, around: Around) -> tuple[Chunk, ...]:
    """The chunks under the same heading, without a gap; of a long section those nearest to the chunk."""
    room = SECTION_TOKENS - estimate_tokens(chunk.text)
    sides = {-1: around.towards(chunk, -1), 1: around.towards(chunk, 1)}
    taken = [chunk]
    while sides:
        for step, side in list(sides.items()):
            neighbour = next(side, None)
            tokens = estimate_tokens(neighbour.text) if neighbour else 0
            if neighbour is None or not same_section(chunk, neighbour) or tokens > room:
                del sides[step]
                continue
            room -= tokens
            taken.append(neighbour)
    return tuple(sorted(taken, key=lambda each: each.position))
