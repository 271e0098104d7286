"""Synchronizes a copy of a collection, with the vectors of another embedding.

Only differences are embedded and written, so it can be repeated at any time, and continues after a crash.
"""

from __future__ import annotations

import asyncio
import math
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, TypeVar, cast

from core.citing.units import indexed_parts
from core.conversation.turns import Turn, TurnStatus
from core.errors import StartRefusedError, WenmaiError
from core.failpoints import failpoint
from core.knowledge import Chunk
from core.relevance.query import embedded_part
from core.text import counted
from services.conversation.recall import EMBEDDED_TURN_CHARS
from services.knowledge.chunks import SIGNS
from services.models.embedding import EmbeddingService
from services.store.collections import SPARSE, CollectionSpec
from services.store.dialect import Filter, Point, Record, StoreUpkeep, VectorStore
from services.store.points import (
    IDS_AT_ONCE,
    batches,
    by_ids,
    has_id,
    has_vector,
    scroll_pages,
    sparse_vectors,
)

Embedded = TypeVar("Embedded")

# The texts that a stored point is embedded from, built from its payload as the rest of Wenmai does.
#
# Payloads of earlier versions lack fields, so they are parsed leniently.


@dataclass(frozen=True, slots=True)
class PointTexts:
    """The texts a point is retrieved by; an empty text has no vector. `parts` are of a chunk's passage."""

    question: str = ""
    passage: str = ""
    words: str = ""
    parts: tuple[str, ...] = ()


def point_texts(spec: CollectionSpec, payload: Mapping[str, Any]) -> PointTexts:
    """Return a point's texts: turns have a question, chunks and memories only a passage, others nothing."""
    if not spec.dense:
        return PointTexts()
    return _turn_texts(payload) if "question" in spec.dense else _passage_texts(payload)


def _turn_texts(payload: Mapping[str, Any]) -> PointTexts:
    """Return what ConversationManager embeds of a turn; one without status (earlier versions) is complete."""
    if payload.get("command"):
        return PointTexts()
    status = payload.get("status", TurnStatus.COMPLETED)
    question, answer = _text(payload, "user_query"), _text(payload, "assistant_response")
    text = Turn("", "", "", question, 0, TurnStatus.COMPLETED, answer=answer).text
    return PointTexts(
        question=embedded_part(question),
        passage=text[:EMBEDDED_TURN_CHARS] if status == TurnStatus.COMPLETED else "",
        words=text if status == TurnStatus.COMPLETED or (answer and status != TurnStatus.RUNNING) else "",
    )


def _passage_texts(payload: Mapping[str, Any]) -> PointTexts:
    heading, date, title = (_text(payload, key) for key in ("heading", "date", "title"))
    text = _text(payload, "text") or _text(payload, "content")  # a chunk's, or a memory's
    chunk = Chunk("", "", "", text, 0, heading=heading, date=date, title=title)
    indexed = chunk.indexed_text if text else ""
    return PointTexts(passage=indexed, words=indexed, parts=tuple(indexed_parts(chunk)))


def _text(payload: Mapping[str, Any], key: str) -> str:
    value = payload.get(key)
    return value if isinstance(value, str) else ""


class PointMaker:
    def __init__(self, embedding: EmbeddingService) -> None:
        self.embedding = embedding

    async def points(self, spec: CollectionSpec, records: Sequence[Record]) -> list[Point]:
        """Make points with the same payloads and a vector for each text. Raises EmbeddingUnavailableError."""
        texts = [point_texts(spec, record.payload or {}) for record in records]
        questions = await _embedded(self.embedding.embed_queries, [each.question for each in texts])
        read = partial(self.embedding.read_passages, parts=[each.parts for each in texts if each.passage])
        passages = await _embedded(read, [each.passage for each in texts])
        words = await asyncio.to_thread(sparse_vectors, [each.words for each in texts])
        passage_name = spec.dense[0] if spec.dense else ""
        points = []
        for record, question, passage, terms in zip(records, questions, passages, words, strict=True):
            named = {"question": question, passage_name: passage and passage.vector, SPARSE: terms}
            vector = {name: value for name, value in named.items() if value is not None}
            payload = _payload(record, passage.signs if passage else "")
            points.append(Point(id=record.id, vector=vector, payload=payload))
        return points


def _payload(record: Record, signs: str) -> dict[str, Any]:
    """Return the payload with `signs` in a chunk: a copy has its own embedding's token signs, no others."""
    payload = {key: value for key, value in (record.payload or {}).items() if key != SIGNS}
    return {**payload, SIGNS: signs} if signs and "chunk_id" in payload else payload


def expected_vectors(spec: CollectionSpec, record: Record) -> tuple[str, ...]:
    """Return the names of the dense vectors that the record should have."""
    texts = point_texts(spec, record.payload or {})
    passage = (spec.dense[0],) if spec.dense and texts.passage else ()
    return (*passage, *(("question",) if texts.question else ()))


def expects_all(spec: CollectionSpec, record: Record) -> bool:
    """Whether the record should have every dense vector of its collection, as all but unanswered turns."""
    return set(expected_vectors(spec, record)) == set(spec.dense)


def lacks(dense: Sequence[str]) -> Filter:
    """Match points without one of these vectors."""
    return Filter(should=[Filter(must_not=[has_vector(name)]) for name in dense])


async def _embedded(
    embed: Callable[[Sequence[str]], Awaitable[list[Embedded]]], texts: Sequence[str]
) -> list[Embedded | None]:
    """Embed in the order of `texts`; None for an empty text."""
    filled = [text for text in texts if text]
    made = iter(await embed(filled) if filled else [])
    return [next(made) if text else None for text in texts]


# Synchronizing one collection with its copy.


PAGE = 32  # points compared at a time; a turn with its prompt may have 100 kB
BATCH = 4  # points embedded at a time
MARK_ID = "5f0e6a0c-6f4b-5d6a-9f0d-2f1f6f1f7a11"  # the note written by reembedding.beside; never copied
STAMPS = ("created_us", "began_us")
LATE_US = 60_000_000  # a turn's timestamp is a little earlier than its write

Pause = Callable[[], Awaitable[None]]


@dataclass(slots=True)
class Changes:
    """Counts of one round or several: points compared, written (`embedded` of them again), removed."""

    compared: int = 0
    written: int = 0
    embedded: int = 0
    removed: int = 0

    @property
    def changed(self) -> int:
        return self.written + self.removed

    def add(self, other: Changes) -> None:
        self.compared += other.compared
        self.written += other.written
        self.embedded += other.embedded
        self.removed += other.removed


OnChanges = Callable[[Changes], object]
"""Called after each page with the counts of the round so far."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits that protect a target to which others may have written.

    `only_since_us`: nothing is removed or overwritten; only points created since then are added.
    `served_since_us`: a newer point that only the target has stops the run, since it would be removed.
    """

    only_since_us: int | None = None
    served_since_us: int | None = None

    def keeps_all(self, spec: CollectionSpec) -> bool:
        """Whether nothing is removed; receipts of both sides always stay."""
        is_log = "began_us" in spec.indexes and self.served_since_us is not None
        return self.only_since_us is not None or is_log


@dataclass(frozen=True, slots=True)
class CollectionSync:
    source: VectorStore
    target: VectorStore
    maker: PointMaker
    pause: Pause
    limits: Limits

    async def round(self, spec: CollectionSpec, target: str, on_changes: OnChanges) -> Changes:
        """Compare every point of `spec.name` with its copy in `target`, and write the differences.

        Raises StartRefusedError if others wrote to the target, UnavailableError subclasses.
        """
        changes = Changes()
        if not self.limits.keeps_all(spec):  # first: nothing is written to a target in use
            changes.removed = await self._remove_missing(spec.name, target)
        lacking = await self._lacking(spec, target)
        async for records in scroll_pages(self.source, spec.name, size=PAGE):
            await self._page(spec, target, records, lacking, changes)
            on_changes(changes)
        return changes

    async def _lacking(self, spec: CollectionSpec, target: str) -> set[Any]:
        if not spec.dense:
            return set()
        lacking = scroll_pages(self.target, target, lacks(spec.dense), size=IDS_AT_ONCE, with_payload=False)
        return {record.id async for records in lacking for record in records}

    async def _page(
        self,
        spec: CollectionSpec,
        target: str,
        records: Sequence[Record],
        lacking: set[Any],
        changes: Changes,
    ) -> None:
        await self.pause()
        existing = {
            record.id: record
            for record in await self.target.retrieve(target, [record.id for record in records])
        }
        renewed, embedded = [], []
        for record in records:
            known = existing.get(record.id)
            if not self._is_due(record, known):
                continue
            if known is None or _needs_vectors(spec, record, known, lacking):
                embedded.append(record)
            elif _payload(record, "") != _payload(known, ""):
                renewed.append(record)
        await self._renew(target, renewed)
        await self._embed(spec, target, embedded)
        changes.compared += len(records)
        changes.written += len(renewed) + len(embedded)
        changes.embedded += sum(bool(expected_vectors(spec, record)) for record in embedded)

    def _is_due(self, record: Record, known: Record | None) -> bool:
        if str(record.id) == MARK_ID:
            return False
        since_us = self.limits.only_since_us
        if since_us is None:
            return True
        if known is not None:
            return _is_running(known) and not _is_running(record)
        return stamp(record) >= since_us - LATE_US

    async def _renew(self, target: str, records: Sequence[Record]) -> None:
        """Write changed payloads whose texts are the same, with their existing vectors."""
        if not records:
            return
        ids = [record.id for record in records]
        stored = await self.target.retrieve(target, ids, with_payload=[SIGNS], with_vectors=True)
        copied: dict[Any, Any] = {record.id: (record.vector or {}, record.payload or {}) for record in stored}
        points = [
            Point(id=record.id, vector=vector, payload=_payload(record, payload.get(SIGNS, "")))
            for record in records
            if record.id in copied
            for vector, payload in (copied[record.id],)
        ]
        if points:
            await self.target.upsert(target, points)
            failpoint("reembed.page")

    async def _embed(self, spec: CollectionSpec, target: str, records: Sequence[Record]) -> None:
        batch = BATCH if spec.dense else PAGE
        for few in batches(records, batch):
            if spec.dense:
                await self.pause()
            points = await self.maker.points(spec, few)
            await self.target.upsert(target, points)
            failpoint("reembed.page")

    async def _remove_missing(self, source: str, target: str) -> int:
        missing: list[Any] = []
        async for records in scroll_pages(self.target, target, size=IDS_AT_ONCE, with_payload=list(STAMPS)):
            ids = [record.id for record in records if str(record.id) != MARK_ID]
            in_source = await self.source.retrieve(source, ids, with_payload=False) if ids else []
            existing = {record.id for record in in_source}
            removable = [record for record in records if record.id in set(ids) - existing]
            self._check_served(target, removable)
            missing += [record.id for record in removable]
        for few in batches(missing):
            part = by_ids(few)
            await self.target.delete(target, part)
        return len(missing)

    def _check_served(self, target: str, removable: Sequence[Record]) -> None:
        since_us = self.limits.served_since_us
        if since_us is not None and any(stamp(record) > since_us for record in removable):
            raise StartRefusedError(
                f"collection {target!r} has been written to since it was copied: a server uses it already. "
                f"Add --catch-up to add only what is missing there, or --replace to copy everything again"
            )


def stamp(record: Record) -> int:
    """Return when the record was created (UTC microseconds), 0 if unknown."""
    payload = record.payload or {}
    values = [payload.get(name) for name in STAMPS]
    return max((value for value in values if isinstance(value, int)), default=0)


def _needs_vectors(spec: CollectionSpec, record: Record, known: Record, lacking: set[Any]) -> bool:
    if not spec.dense:
        return False
    if record.id in lacking and expects_all(spec, record):
        return True
    return point_texts(spec, record.payload or {}) != point_texts(spec, known.payload or {})


def _is_running(record: Record) -> bool:
    return (record.payload or {}).get("status") == TurnStatus.RUNNING.value


# Whether a copy is complete: as many points, a vector wherever one is due, and vectors of this embedding.


MIN_COSINE = 0.999
SAMPLES, SAMPLE = 4, 4  # positions in a collection to sample, and points at each

ACCEPT_LOSS = (
    "damaged points are not copied; restore a backup, or run `wenmai repair --accept-loss` and this again"
)
_NOT_THE_MARK = Filter(must_not=[has_id([MARK_ID])])


class CopyIncompleteError(WenmaiError):
    """The copy differs from the store; it must not be used."""

    code = "copy_incomplete"


async def count_points(store: VectorStore, collection: str) -> int:
    """Count points, without the note that re-embedding leaves."""
    return (await store.count(collection, _NOT_THE_MARK)).count


async def check_counts(
    source: VectorStore, stored: str, target: VectorStore, copied: str, tolerance: int
) -> int:
    """Return the number of points in the copy; the counts may differ by `tolerance`, for concurrent writes.

    Raises CopyIncompleteError.
    """
    expected, copied_points = await count_points(source, stored), await count_points(target, copied)
    if abs(expected - copied_points) > tolerance:
        damaged = isinstance(source, StoreUpkeep) and (await source.condition()).damage
        advice = ACCEPT_LOSS if damaged else "run this again"
        raise CopyIncompleteError(
            f"collection {stored!r} has {counted(expected, 'point')} and its copy {copied_points}: {advice}"
        )
    return copied_points


async def check_vectors(
    spec: CollectionSpec, target: VectorStore, copied: str, maker: PointMaker, choice: Random
) -> int:
    """Embed a sample again and compare. Returns how many were compared. Raises CopyIncompleteError."""
    if not spec.dense:
        return 0
    sample = await _sample(target, copied, choice)
    for record, made in zip(sample, await maker.points(spec, sample), strict=True):
        if not _agree(spec, record, made):
            raise CopyIncompleteError(
                f"a vector in the copy of {spec.name!r} is not from the configured model"
            )
    return len(sample)


async def check_none_lacks(spec: CollectionSpec, target: VectorStore, copied: str) -> None:
    """Raise CopyIncompleteError if a point that should have all vectors lacks one."""
    if not spec.dense:
        return
    without = 0
    async for records in scroll_pages(target, copied, lacks(spec.dense), size=IDS_AT_ONCE):
        without += sum(expects_all(spec, record) for record in records)
    if without:
        points = counted(without, "point")
        raise CopyIncompleteError(f"in the copy of {spec.name!r}, {points} without a vector: run this again")


async def _sample(target: VectorStore, copied: str, choice: Random) -> list[Record]:
    sample: dict[str, Record] = {}
    places = [None, *(str(uuid.UUID(int=choice.getrandbits(128))) for _ in range(SAMPLES - 1))]
    for place in places:
        records, _ = await target.scroll(
            copied, limit=SAMPLE, offset=place, with_payload=True, with_vectors=True
        )
        sample |= {str(record.id): record for record in records}
    return list(sample.values())


def _agree(spec: CollectionSpec, record: Record, made: Point) -> bool:
    """Compare stored with fresh vectors; those not stored yet, as of a turn that just ended, are skipped."""
    stored, fresh = record.vector or {}, made.vector
    if not isinstance(stored, dict) or not isinstance(fresh, dict):
        return False
    due = [name for name in expected_vectors(spec, record) if name in stored]
    return all(
        _cosine(cast(list[float], stored[name]), cast(list[float], fresh[name])) >= MIN_COSINE for name in due
    )


def _cosine(a: Sequence[float], b: Sequence[float]) -> float:
    lengths = math.sqrt(sum(x * x for x in a)) * math.sqrt(sum(x * x for x in b))
    return sum(x * y for x, y in zip(a, b, strict=True)) / lengths if lengths else 1.0
