"""A chunk's surroundings in its document: the chunks before and after it, and its section."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from core.citing.passages import Span, sentences
from core.errors import NotFoundError
from core.knowledge import Candidate, Chunk, SearchScope, Surroundings
from core.prompt.budget import estimate_tokens
from services.knowledge.chunks import CHUNK_FIELDS, read_chunk
from services.retrieval.retriever import searchable
from services.store.dialect import Condition, Filter, VectorStore
from services.store.points import equals, in_range

SECTION_TOKENS = 2_000
SECTION_REACH = 64  # chunks on either side

DocumentVersion = tuple[str, str]
"""document_id and version."""


class UnknownChunkError(NotFoundError):
    code = "unknown_chunk"


class Around:
    """Chunks of some documents by position; positions that were not loaded are empty."""

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        self._by_place = {(*version_of(chunk), chunk.position): chunk for chunk in chunks}

    def at(self, chunk: Chunk, distance: int) -> Chunk | None:
        """Return the chunk `distance` positions after this one (before it, if negative)."""
        return self._by_place.get((*version_of(chunk), chunk.position + distance))

    def towards(self, chunk: Chunk, step: int) -> Iterator[Chunk]:
        """Yield its contiguous neighbours on one side (`step` 1 or -1), nearest first."""
        distance = step
        while (neighbour := self.at(chunk, distance)) is not None:
            yield neighbour
            distance += step


class Neighbours:
    """Loads the owners' ready chunks around a chunk, of the same document version."""

    def __init__(self, store: VectorStore, collection: str) -> None:
        self._store = store
        self._collection = collection

    async def get(self, document_id: str, chunk_id: str, owners: Sequence[str]) -> Chunk:
        """Raises UnknownChunkError, also if it is somebody else's or not ready; StoreUnavailableError."""
        records = await self._store.retrieve(self._collection, ids=[chunk_id], with_payload=True)
        for record in records:
            payload, chunk = record.payload or {}, read_chunk(record.payload)
            if chunk.document_id == document_id and payload.get("owner") in owners and payload.get("ready"):
                return chunk
        raise UnknownChunkError("chunk_id: the document has no such chunk.")

    async def surroundings(
        self, chunk: Chunk, owners: Sequence[str], *, before: int, after: int, section: bool
    ) -> Surroundings:
        """Raises StoreUnavailableError."""
        reach = max(before, after, SECTION_REACH if section else 0)
        around = await self.around([chunk], owners, reach) if reach else Around([chunk])
        earlier = [neighbour for at in range(before, 0, -1) if (neighbour := around.at(chunk, -at))]
        later = [neighbour for at in range(1, after + 1) if (neighbour := around.at(chunk, at))]
        return Surroundings(chunk, tuple(earlier), tuple(later), _section(chunk, around) if section else ())

    async def around(self, chunks: Sequence[Chunk], owners: Sequence[str], reach: int) -> Around:
        """Load the chunks up to `reach` positions from each of `chunks`, in one round trip."""
        places = _places(chunks, reach)
        most = sum(last - first + 1 for stretches in places.values() for first, last in stretches)
        point_filter = searchable(SearchScope(tuple(owners)))
        within = [
            _stretch(version, first, last)
            for version, stretches in places.items()
            for first, last in stretches
        ]
        if not within:
            return Around(chunks)
        records, _ = await self._store.scroll(
            self._collection,
            scroll_filter=Filter(must=point_filter.must, should=within),
            limit=most,
            with_payload=CHUNK_FIELDS,
        )
        read = [read_chunk(record.payload) for record in records]
        return Around([*chunks, *read])


def version_of(chunk: Chunk) -> DocumentVersion:
    return chunk.document_id, chunk.version


def same_section(chunk: Chunk, other: Chunk) -> bool:
    return chunk.heading == other.heading


def _places(chunks: Sequence[Chunk], reach: int) -> Mapping[DocumentVersion, list[tuple[int, int]]]:
    """Return the ranges of positions around the chunks, adjacent ones merged."""
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


def _stretch(version: DocumentVersion, first: int, last: int) -> Filter:
    document_id, content = version
    must: list[Condition] = [equals("document_id", document_id), in_range("position", gte=first, lte=last)]
    if content:  # chunks of earlier releases have no version
        must.append(equals("version", content))
    return Filter(must=must)


def _section(chunk: Chunk, around: Around) -> tuple[Chunk, ...]:
    """Return the contiguous chunks under the same heading; of a long section, those nearest to the chunk."""
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


# Widening a hit by sentences of its section before and after it, up to a token budget.


MIN_CHUNK_TOKENS = 64  # neighbours are loaded as far as the tokens reach with chunks of this size
MAX_REACH = 16
_TABLE_HEAD = re.compile(r"\|.*\n\|[\s:|-]+\n")


@dataclass(frozen=True, slots=True)
class _Sentence:
    chunk: Chunk
    text: str
    span: Span


class Widener:
    """Adds at most `tokens` (estimated) to each hit."""

    def __init__(self, neighbours: Neighbours, tokens: int) -> None:
        self._neighbours = neighbours
        self._tokens = tokens
        self._reach = min(MAX_REACH, 1 + tokens // MIN_CHUNK_TOKENS)

    async def widen(self, candidates: Sequence[Candidate], owners: Sequence[str]) -> tuple[Candidate, ...]:
        """Return the candidates in order, each with the text that goes into the prompt.

        Nothing is repeated: text that is a hit itself, or already widens a better one, is left out. Raises
        StoreUnavailableError.
        """
        hits = [candidate.chunk for candidate in candidates]
        if not hits:
            return ()
        around = await self._neighbours.around(hits, owners, self._reach)
        used = {_place(hit) for hit in hits}
        return tuple(
            replace(one, chunk=replace(one.chunk, text=self._widen(one.chunk, around, used)))
            for one in candidates
        )

    def _widen(self, hit: Chunk, around: Around, used: set[tuple[str, str, int]]) -> str:
        sides = {step: _sentences(hit, around, step, used) for step in (1, -1)}
        taken: dict[int, list[_Sentence]] = {1: [], -1: []}
        room = self._tokens
        while sides:
            for step, side in list(sides.items()):  # alternating: the answer may be on either side
                sentence = next(side, None)
                room -= estimate_tokens(sentence.text) if sentence else 0
                if sentence is None or room < 0:
                    room = max(room, 0)
                    del sides[step]
                    continue
                taken[step].append(sentence)
        used |= {_place(sentence.chunk) for side in taken.values() for sentence in side}
        return "\n".join([*_runs(taken[-1][::-1]), hit.text, *_runs(taken[1])])


def _place(chunk: Chunk) -> tuple[str, str, int]:
    return (*version_of(chunk), chunk.position)


def _sentences(hit: Chunk, around: Around, step: int, used: set[tuple[str, str, int]]) -> Iterator[_Sentence]:
    """Yield sentences of the section, from the hit outwards, up to the first chunk used elsewhere."""
    beside = hit
    for neighbour in around.towards(hit, step):
        if not same_section(hit, neighbour) or _place(neighbour) in used:
            return
        start, end = _unshared(neighbour, beside, step)
        spans = [span for span in sentences(neighbour.text) if span.start >= start and span.end <= end]
        for span in spans[::step]:
            yield _Sentence(neighbour, neighbour.text[span.start : span.end], span)
        beside = neighbour


def _unshared(neighbour: Chunk, beside: Chunk, step: int) -> tuple[int, int]:
    """Return the span of its text that the adjacent chunk lacks: without overlap or repeated table header."""
    text, start, end = neighbour.text, 0, len(neighbour.text)
    head = _TABLE_HEAD.match(text)
    if head and _TABLE_HEAD.match(beside.text) and beside.text.startswith(head.group()):
        start = head.end()
    if step > 0 and neighbour.char_start < beside.char_end:
        start = max(start, _shared(beside.text, text, beside.char_end - neighbour.char_start))
    if step < 0 and beside.char_start < neighbour.char_end:
        end -= _shared(text, beside.text, neighbour.char_end - beside.char_start)
    return start, end


def _shared(first: str, second: str, most: int) -> int:
    """Return how many characters at the end of `first` are the beginning of `second`."""
    lengths = range(min(most, len(first), len(second)), 0, -1)
    return next((length for length in lengths if first.endswith(second[:length])), 0)


def _runs(taken: Sequence[_Sentence]) -> Iterator[str]:
    """Yield one text per chunk, from its first to its last sentence taken, in document order."""
    for chunk in dict.fromkeys(sentence.chunk for sentence in taken):
        spans = [sentence.span for sentence in taken if sentence.chunk is chunk]
        yield chunk.text[spans[0].start : spans[-1].end]
