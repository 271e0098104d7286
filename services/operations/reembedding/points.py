"""Stored points made anew with the vectors of another embedding."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.conversation.turns import Turn, TurnStatus
from core.knowledge import Chunk
from core.relevance.query import embedded_part
from core.relevance.sparse import SparseTerms, encode_document
from services.conversation.indexing import EMBEDDED_TURN_CHARS
from services.models.embedding import EmbeddingService, Vector
from services.store.collections import SPARSE, CollectionSpec
from services.store.dialect import Filter, Point, Record, SparseVector, sparse_vector
from services.store.filters import has_vector

# What a stored point was embedded from: its texts, read from its payload as the rest of Wenmai makes them.
#
# Payloads of earlier versions lack fields, so they are read leniently.


@dataclass(frozen=True, slots=True)
class PointTexts:
    """What a point is found by; an empty text has no vector."""

    question: str = ""
    passage: str = ""
    words: str = ""


def point_texts(spec: CollectionSpec, payload: Mapping[str, Any]) -> PointTexts:
    """Turns have a question side, chunks and memories only a passage, documents and sessions nothing."""
    if not spec.dense:
        return PointTexts()
    return _turn_texts(payload) if "question" in spec.dense else _passage_texts(payload)


def _turn_texts(payload: Mapping[str, Any]) -> PointTexts:
    """As ConversationManager stores a turn. Earlier versions wrote no status: their turns are complete."""
    if payload.get("command"):
        return PointTexts()
    status = payload.get("status", TurnStatus.COMPLETED)
    question, answer = _text(payload, "user_query"), _text(payload, "assistant_response")
    text = Turn("", "", "", question, 0, TurnStatus.COMPLETED, assistant_response=answer).text
    return PointTexts(
        question=embedded_part(question),
        passage=text[:EMBEDDED_TURN_CHARS] if status == TurnStatus.COMPLETED else "",
        words=text if status == TurnStatus.COMPLETED or (answer and status != TurnStatus.RUNNING) else "",
    )


def _passage_texts(payload: Mapping[str, Any]) -> PointTexts:
    text, heading, date = (_text(payload, key) for key in ("text", "heading", "date"))
    indexed = Chunk("", "", "", text, 0, heading=heading, date=date).indexed_text if text else ""
    return PointTexts(passage=indexed, words=indexed)


def _text(payload: Mapping[str, Any], key: str) -> str:
    value = payload.get(key)
    return value if isinstance(value, str) else ""


class PointMaker:
    def __init__(self, embedding: EmbeddingService) -> None:
        self.embedding = embedding

    async def points(self, spec: CollectionSpec, records: Sequence[Record]) -> list[Point]:
        """With the same payloads, and a vector for each text. Raises EmbeddingUnavailableError."""
        texts = [point_texts(spec, record.payload or {}) for record in records]
        questions = await _embedded(self.embedding.embed_queries, [each.question for each in texts])
        passages = await _embedded(self.embedding.embed_passages, [each.passage for each in texts])
        words = await asyncio.to_thread(_sparse, [each.words for each in texts])
        passage_name = spec.dense[0] if spec.dense else ""
        points = []
        for record, *vectors in zip(records, questions, passages, words, strict=True):
            named = dict(zip(("question", passage_name, SPARSE), vectors, strict=True))
            vector = {name: value for name, value in named.items() if value is not None}
            points.append(Point(id=record.id, vector=vector, payload=record.payload))
        return points


def deserves(spec: CollectionSpec, record: Record) -> tuple[str, ...]:
    """The dense vectors that the record should have."""
    texts = point_texts(spec, record.payload or {})
    passage = (spec.dense[0],) if spec.dense and texts.passage else ()
    return (*passage, *(("question",) if texts.question else ()))


def has_all(spec: CollectionSpec, record: Record) -> bool:
    """Whether the record should have every dense vector of its collection; an unanswered turn should not."""
    return set(deserves(spec, record)) == set(spec.dense)


def lacks(dense: Sequence[str]) -> Filter:
    """Points without one of these vectors."""
    return Filter(should=[Filter(must_not=[has_vector(name)]) for name in dense])


async def _embedded(
    embed: Callable[[Sequence[str]], Awaitable[list[Vector]]], texts: Sequence[str]
) -> list[Vector | None]:
    """In the order of `texts`; None for an empty one."""
    filled = [text for text in texts if text]
    vectors = iter(await embed(filled) if filled else [])
    return [next(vectors) if text else None for text in texts]


def _sparse(texts: Sequence[str]) -> list[SparseVector | None]:
    encoded: list[SparseTerms] = [encode_document(text) for text in texts]
    return [sparse_vector(terms) if terms.indices else None for terms in encoded]
