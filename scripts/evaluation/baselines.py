"""What plain lists of the same store find: by meaning, by words, and both fused by their ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from qdrant_client import models

from core.fusion import reciprocal_rank_fusion
from core.sparse import encode_query
from scripts.evaluation.figures import Answer
from scripts.evaluation.sets import Question
from services.embedding import EmbeddingService
from services.query_builder import embedded_part
from services.store import VectorStore

DEPTH = 100
DENSE, SPARSE, RRF, REWRITTEN = "dense", "sparse", "rrf", "rrf, human rewrite"
Scored = list[tuple[str, float]]
LinesOf = Callable[[models.ScoredPoint], Sequence[str]]
"""The lines of a set that a point of the store stands for."""


@dataclass(frozen=True, slots=True)
class Index:
    """Where the vectors are, and under which names."""

    store: VectorStore
    embedding: EmbeddingService
    collection: str
    dense: str = DENSE
    sparse: str = SPARSE


@dataclass(frozen=True, slots=True)
class _Lists:
    dense: list[models.ScoredPoint]
    sparse: list[models.ScoredPoint]


async def baseline_answers(
    index: Index, question: Question, wanted: models.Filter, lines_of: LinesOf
) -> dict[str, Answer]:
    """By the last turn alone; and by the set's own rewrite, which the product is never given."""
    lists = await _search(index, question.text, wanted)
    answers = {
        DENSE: Answer(question, _first(lists.dense, lines_of)),
        SPARSE: Answer(question, _first(lists.sparse, lines_of)),
        RRF: Answer(question, _first(_fused(lists), lines_of)),
    }
    if question.rewrite:
        rewritten = await _search(index, question.rewrite, wanted)
        answers[REWRITTEN] = Answer(question, _first(_fused(rewritten), lines_of))
    return answers


def documents_of(owner: str) -> models.Filter:
    """One owner's documents that can be found."""
    return models.Filter(
        must=[
            models.FieldCondition(key="ready", match=models.MatchValue(value=True)),
            models.FieldCondition(key="owner", match=models.MatchValue(value=owner)),
        ]
    )


async def _search(index: Index, text: str, wanted: models.Filter) -> _Lists:
    vector = (await index.embedding.embed_queries([embedded_part(text)]))[0]
    words = encode_query(text)
    requests = [_request(vector, index.dense, wanted)]
    if words.indices:
        sparse = models.SparseVector(indices=words.indices, values=words.values)
        requests.append(_request(sparse, index.sparse, wanted))
    found = await index.store.query_batch_points(index.collection, requests)
    points = [each.points for each in found]
    return _Lists(points[0], points[1] if words.indices else [])


def _request(
    vector: list[float] | models.SparseVector, using: str, wanted: models.Filter
) -> models.QueryRequest:
    return models.QueryRequest(
        query=vector, using=using, filter=wanted, limit=DEPTH, with_payload=["document_id"]
    )


def _fused(lists: _Lists) -> list[models.ScoredPoint]:
    points = {str(point.id): point for point in (*lists.sparse, *lists.dense)}
    rankings = [[str(point.id) for point in ranking] for ranking in (lists.dense, lists.sparse)]
    return [
        points[key].model_copy(update={"score": score}) for key, score in reciprocal_rank_fusion(rankings)
    ]


def _first(points: Iterable[models.ScoredPoint], lines_of: LinesOf) -> Scored:
    """Each line where it stands first."""
    found: dict[str, float] = {}
    for point in points:
        for line in lines_of(point):
            found.setdefault(line, point.score)
    return list(found.items())
