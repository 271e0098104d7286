"""Stored points made anew with the vectors of another embedding."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from qdrant_client import models

from core.query import SparseTerms
from core.sparse import encode_document
from services.collections import SPARSE, CollectionSpec
from services.embedding import EmbeddingService, Vector
from services.reembedding.texts import point_texts
from services.turn_payload import sparse_vector


class PointMaker:
    def __init__(self, embedding: EmbeddingService) -> None:
        self.embedding = embedding

    async def points(
        self, spec: CollectionSpec, records: Sequence[models.Record]
    ) -> list[models.PointStruct]:
        """With the same payloads, and a vector for each text. Raises EmbeddingUnavailableError."""
        texts = [point_texts(spec, record.payload or {}) for record in records]
        questions = await _embedded(self.embedding.embed_queries, [each.question for each in texts])
        passages = await _embedded(self.embedding.embed_passages, [each.passage for each in texts])
        words = await asyncio.to_thread(_sparse, [each.words for each in texts])
        passage_name = spec.dense[0] if spec.dense else ""
        points = []
        for record, *found in zip(records, questions, passages, words, strict=True):
            named = dict(zip(("question", passage_name, SPARSE), found, strict=True))
            vector = {name: value for name, value in named.items() if value is not None}
            points.append(models.PointStruct(id=record.id, vector=vector, payload=record.payload))
        return points


def deserves(spec: CollectionSpec, record: models.Record) -> tuple[str, ...]:
    """The dense vectors that the record should have."""
    texts = point_texts(spec, record.payload or {})
    passage = (spec.dense[0],) if spec.dense and texts.passage else ()
    return (*passage, *(("question",) if texts.question else ()))


def has_all(spec: CollectionSpec, record: models.Record) -> bool:
    """Whether the record should have every dense vector of its collection; an unanswered turn should not."""
    return set(deserves(spec, record)) == set(spec.dense)


def lacks(dense: Sequence[str]) -> models.Filter:
    """Points without one of these vectors."""
    return models.Filter(
        should=[models.Filter(must_not=[models.HasVectorCondition(has_vector=name)]) for name in dense]
    )


async def _embedded(
    embed: Callable[[Sequence[str]], Awaitable[list[Vector]]], texts: Sequence[str]
) -> list[Vector | None]:
    """In the order of `texts`; None for an empty one."""
    wanted = [text for text in texts if text]
    vectors = iter(await embed(wanted) if wanted else [])
    return [next(vectors) if text else None for text in texts]


def _sparse(texts: Sequence[str]) -> list[models.SparseVector | None]:
    encoded: list[SparseTerms] = [encode_document(text) for text in texts]
    return [sparse_vector(terms) if terms.indices else None for terms in encoded]
